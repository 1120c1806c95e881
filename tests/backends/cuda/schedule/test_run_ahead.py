"""Which loads may be done iterations early: nothing stores to what they read, and one can compute where they read."""

from __future__ import annotations

import pytest

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.backends.cuda.machine.dialect import DOTS
from kernelpack.backends.cuda.schedule.run_ahead import NUM_STAGES, innermost_loops, slice_of, unwritten
from kernelpack.ir.core import Operation, entry_function
from kernelpack.kernel.jit import JITFunction
from tests.backends.cuda.schedule.schedules import ttir


@kp.jit
def plain(x, y, n, S: tl.constexpr):
    i = tl.arange(0, S)
    total = tl.zeros([S], tl.float32)
    for k in range(n):
        total += tl.load(x + k * S + i)
    tl.store(y + i, total)


@kp.jit
def stores_elsewhere(x, y, n, S: tl.constexpr):
    i = tl.arange(0, S)
    for k in range(n):
        tl.store(y + k * S + i, tl.load(x + k * S + i))


@kp.jit
def stores_there(x, y, n, S: tl.constexpr):
    i = tl.arange(0, S)
    for k in range(n):
        tl.store(x + k * S + i, tl.load(x + k * S + S + i))


@kp.jit
def counts(x, y, n, S: tl.constexpr):
    i = tl.arange(0, S)
    for k in range(n):
        tl.atomic_add(y + i, tl.load(x + k * S + i))


@kp.jit
def locks(x, y, n, S: tl.constexpr):
    i = tl.arange(0, S)
    for k in range(n):
        if tl.atomic_xchg(y, 1.0) > 0.0:
            tl.store(y + S + i, tl.load(x + k * S + i))


@kp.jit
def meets(x, y, n, S: tl.constexpr):
    i = tl.arange(0, S)
    for k in range(n):
        a = tl.load(x + k * S + i)
        tl.debug_barrier()
        tl.store(y + i, a)


@kp.jit
def volatile(x, y, n, S: tl.constexpr):
    i = tl.arange(0, S)
    total = tl.zeros([S], tl.float32)
    for _ in range(n):
        total += tl.load(x + i, volatile=True)
    tl.store(y + i, total)


@kp.jit
def inner_loop(x, y, n, S: tl.constexpr):
    i = tl.arange(0, S)
    for k in range(n):
        a = tl.load(x + k * S + i)
        for j in range(k):
            tl.store(y + j * S + i, a)


def kernel(fn: JITFunction) -> tuple[Operation, Operation]:
    function = entry_function(ttir(fn, n="i32", x="*fp32", y="*fp32", S=128))
    return function, next(op for op in function.walk() if op.name == "scf.for")


@pytest.mark.parametrize(
    ("fn", "loads"),
    [
        (plain, 1),
        (stores_elsewhere, 1),
        (stores_there, 0),
        (counts, 1),
        (locks, 0),  # an atomic whose result is used may be a lock
        (meets, 0),
        (volatile, 0),
        (inner_loop, 0),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_loads_that_no_iteration_stores_to(fn: JITFunction, loads: int) -> None:
    _, loop = kernel(fn)
    assert len(unwritten(loop, {}, DOTS)) == loads


@kp.jit
def carried(x, y, where, n, S: tl.constexpr):
    i = tl.arange(0, S)
    total = tl.zeros([S], tl.float32)
    at = x + i
    step = 0
    for k in range(n):
        step += 2
        other = tl.load(where + k)
        total += tl.load(at + step) + tl.load(y + other * S + i)
        at += S
    tl.store(y + i, total)


def addresses(fn: JITFunction, **types: str) -> list[tuple[list[str], list[str], int]]:
    """For each load of a loop's body: the operations that its address takes, the carried values, and the loads among them."""
    function = entry_function(ttir(fn, n="i32", x="*fp32", y="*fp32", S=128, **types))
    loop = next(op for op in function.walk() if op.name == "scf.for")
    found = []
    for load in (op for op in loop.body.operations if op.name == "tt.load"):
        needed = slice_of(loop, load.operands)
        assert needed is not None
        found.append(([op.name for op in needed.operations], [argument.name for argument in needed.carried], len(needed.loads)))
    return found


def test_an_address_takes_arithmetic_and_what_the_loop_carries_for_it() -> None:
    scalar, moved, indirect = sorted(addresses(carried, where="*i32"), key=lambda found: (found[2], len(found[1])))
    assert scalar[1:] == ([], 0)
    assert "arith.addi" in moved[0]
    assert moved[1:] == (["at", "step"], 0) or set(moved[1]) == {"at", "step"}
    assert indirect[2] == 1  # the load of what the address is made of runs ahead, too


@kp.jit
def chosen(x, y, n, S: tl.constexpr):
    i = tl.arange(0, S)
    total = tl.zeros([S], tl.float32)
    for k in range(n):
        at = k
        if k > 5:
            at = k * 2 + n
            tl.store(y, 1.0)
        total += tl.load(x + at * S + i)
    tl.store(y + i, total)


def test_addresses_that_take_a_branch_do_not_run_ahead() -> None:
    _, loop = kernel(chosen)
    load = next(op for op in loop.body.operations if op.name == "tt.load")
    assert slice_of(loop, load.operands) is None


def test_loops_ask_for_their_own_stages_and_inner_ones_come_first() -> None:
    function, _ = kernel(inner_loop)
    outer, inner = (op for op in function.walk() if op.name == "scf.for")
    assert [loop for loop, _ in innermost_loops(function, 3, [])] == [inner, outer]
    assert list(innermost_loops(function, 1, [])) == []
    inner.attributes[NUM_STAGES] = 1
    outer.attributes[NUM_STAGES] = 4
    assert list(innermost_loops(function, 3, [])) == [(outer, 4)]
