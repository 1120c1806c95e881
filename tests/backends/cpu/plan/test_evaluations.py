"""What each step of a program evaluates: at which lanes, for which tiles, elsewhere or here; and which step runs after which."""

from __future__ import annotations

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.backends.cpu.plan.evaluations import Step, Writers, evaluations, steps_of
from kernelpack.backends.cpu.plan.tile_program import Nest, naming
from kernelpack.backends.cpu.plan.ttir_to_tiles import rounds
from kernelpack.ir.core import entry_function
from kernelpack.kernel.jit import JITFunction
from tests.backends.cpu.plan.plans import V3, ttir


def evaluated(kernel: JITFunction, **types: str | int | bool) -> list[dict[str, str]]:
    """For each step of a kernel's first plan: the lanes of each named tile, and whether it is read elsewhere or written."""
    module = ttir(kernel, **types)
    program = next(rounds(module, V3, ())).program
    name = naming(entry_function(module))
    found = []
    for step in steps_of(program):
        seen = evaluations(step, program.plain)
        said = {}
        for value, evaluation in seen.items():
            lanes = "/".join(str(axis) for axis in sorted(evaluation.lanes, key=str))
            more = (" elsewhere" if evaluation.elsewhere else "") + (" written" if evaluation.written else "")
            parents = ",".join(sorted(name(parent) for parent in evaluation.parents if parent is not None))
            said[name(value)] = f"{lanes}{more}" + (f" for {parents}" if parents else "")
        found.append({key: text for key, text in said.items() if not key[1:].isdigit()})
    return found


@kp.jit
def moved(x, out, S: tl.constexpr):
    i = tl.arange(0, S)
    rows = i[:, None]
    columns = i[None, :]
    source = x + rows * S + columns
    a = tl.load(source)
    b = tl.trans(a)
    c = a + b
    target = out + rows * S + columns
    tl.store(target, c)


def test_lanes_follow_axes_through_what_moves_elements() -> None:
    (step,) = evaluated(moved, S=32)
    assert step["%c"] == "1"
    assert step["%b"] == "1 for %c"
    assert step["%a"] == "0/1 elsewhere for %b,%c"  # with the lanes of the transpose, too
    assert step["%source"] == "0/1 elsewhere for %a"
    assert step["%rows"].startswith("0/None elsewhere")  # an axis of one element is no lane axis
    assert step["%columns"].startswith("1/None elsewhere")
    assert step["%i"].startswith("0/None elsewhere")


@kp.jit
def reshaped(x, out, S: tl.constexpr):
    i = tl.arange(0, S)
    a = tl.load(x + i)
    b = tl.reshape(a, (2, S // 2))
    c = tl.join(a, a)
    target, other = (
        out + tl.arange(0, 2)[:, None] * S + tl.arange(0, S // 2)[None, :],
        out + i[:, None] * 2 + tl.arange(0, 2)[None, :],
    )
    tl.store(target, b)
    tl.store(other, c)


def test_lanes_end_where_neighbours_come_from_elsewhere() -> None:
    first, second = evaluated(reshaped, S=32)
    assert first["%b"] == "1"
    assert first["%a"] == "0 elsewhere for %b"
    assert second["%c"] == "1"
    assert second["%a"] == "None elsewhere for %c"


@kp.jit
def gathered(x, out, S: tl.constexpr):
    i = tl.arange(0, S)
    a = tl.load(x + i)
    which = i ^ 1
    b = tl.gather(a, which, 0)
    target = out + i
    tl.store(target, b)


def test_a_gather_reads_its_indices_along_the_lanes_and_its_source_anywhere() -> None:
    (step,) = evaluated(gathered, S=32)
    assert step["%which"] == "0 elsewhere for %b"
    assert step["%a"] == "None elsewhere for %b"


@kp.jit
def carried(x, out, n, S: tl.constexpr):
    i = tl.arange(0, S)
    a = tl.load(x + i)
    for _ in range(n):
        a = a * 2.0
    target = out + i
    tl.store(target, a)


def test_evaluation_ends_at_buffers_and_what_a_step_writes_is_computed() -> None:
    before, inside, after = evaluated(carried, S=32, n="i32")
    assert before["%a"] == "0 written"
    assert {"%a_1", "%a_2"} <= set(inside)
    assert inside["%a_2"] == "0 written"
    assert inside["%a_1"] == "0 for %a_2"
    assert "%a_2" not in after


@kp.jit
def paths(x, n, S: tl.constexpr):
    i = tl.arange(0, S)
    place = x + i
    tl.store(place, 0.0)
    for k in range(n):
        if k > 2:
            tl.store(place + S, 1.0)
        else:
            tl.store(place + 2 * S, 2.0)
        tl.store(place + 3 * S, 3.0)
    tl.store(place + 4 * S, 4.0)


def steps() -> list[Step]:
    return steps_of(next(rounds(ttir(paths, S=32, n="i32"), V3, ())).program)


def test_steps_come_in_the_order_of_the_program_and_know_what_is_around_them() -> None:
    found = steps()
    assert [step.order for step in found] == [0, 1, 2, 3, 4]
    assert [len(step.path) for step in found] == [0, 2, 2, 1, 0]
    assert [len(step.loops()) for step in found] == [0, 1, 1, 1, 0]
    assert [len(step.bodies()) for step in found] == [0, 1, 1, 1, 0]
    assert all(isinstance(step.statement, Nest) and step.last_operation().name == "tt.store" for step in found)


def test_a_step_runs_after_earlier_ones_but_not_after_the_other_branch() -> None:
    before, then, otherwise, end, after = steps()
    assert then.after(before)
    assert end.after(then)
    assert end.after(otherwise)
    assert after.after(end)
    assert not before.after(then)
    assert not then.after(end)
    assert not otherwise.after(then)
    assert not then.after(otherwise)


def test_a_loop_runs_its_steps_again() -> None:
    before, then, otherwise, end, after = steps()
    assert then.runs_again_after(end, ())
    assert then.runs_again_after(otherwise, ())
    assert not after.runs_again_after(end, ())
    assert not then.runs_again_after(before, ())
    loop = end.path[0][0].op
    assert not then.runs_again_after(end, {loop})


@kp.jit
def shrinking(x, out, n, S: tl.constexpr):
    i = tl.arange(0, S)
    a = tl.load(x + i)
    while tl.sum(a) > n:
        a = a * 0.5
    target = out + i
    tl.store(target, a)


def test_the_body_of_a_while_loop_runs_after_its_condition() -> None:
    found = steps_of(next(rounds(ttir(shrinking, S=32, n="i32"), V3, ())).program)
    part = {step: step.path[0][1] for step in found if step.path}
    condition = next(step for step, number in part.items() if number == 0)
    body = next(step for step, number in part.items() if number == 1)
    assert body.after(condition)
    assert not condition.after(body)


def test_the_first_step_that_writes_after_an_operation() -> None:
    one, two, three, *_ = steps()
    writers = Writers([(30, one), (10, three), (20, two)])
    assert writers.first_after(5) is one
    assert writers.first_after(20) is one
    assert writers.first_after(30) is None
    assert Writers([(10, one), (20, three)]).first_after(10) is three
