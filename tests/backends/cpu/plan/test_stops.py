"""Where nests may stop: what a block of a row does for elements after the row's end."""

from __future__ import annotations

import pytest

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.backends.cpu.plan.buffers import Naming
from kernelpack.backends.cpu.plan.stops import Stop, stops_of
from kernelpack.backends.cpu.plan.tile_program import Nest, naming, walk
from kernelpack.backends.cpu.plan.ttir_to_tiles import ttir_to_tiles
from kernelpack.compiler.stages import optimise_ttir
from kernelpack.frontend.ast_to_ttir import ast_to_ttir
from kernelpack.kernel.jit import JITFunction
from tests.backends.cpu.plan.plans import V3


def stops(kernel: JITFunction, case: str, *lengths: str) -> list[dict[int, str]]:
    """Where each nest of a kernel stops, by axis, for nests that may: the terms of the bound, and its limit."""
    signature = {"x": "*fp32", "out": "*fp32", **dict.fromkeys(lengths, "i32")}
    made = ttir_to_tiles(optimise_ttir(ast_to_ttir(kernel, signature, {"CASE": case})), V3)
    name = naming(made.entry)
    nests = [statement for statement in walk(made.statements) if isinstance(statement, Nest)]
    return [
        {axis: text(stop, name) for axis, stop in found.items()} for found in (stops_of(n, made.plain) for n in nests) if found
    ]


def text(stop: Stop, name: Naming) -> str:
    """A stop's terms and limit, and what goes on as one value after it."""
    terms = " ".join(f"{factor:+}{name(value)}" for value, factor in stop.bound.terms)
    return f"{terms} <= {stop.bound.limit}" + "".join(f", {root.text(name)}" for root in stop.evens)


@kp.jit
def accumulate(x, out, n, CASE: tl.constexpr):
    i = tl.arange(0, 64)
    first = 0.0
    if CASE in ("the larger", "maximum"):
        first = -float("inf")
    elif CASE == "from a negative zero":
        first = -0.0
    acc = tl.full([64], first, tl.float32)
    for begin in range(0, n, 64):
        inside = begin + i < n
        value = tl.load(x + begin + i, inside, other=-float("inf") if CASE in ("the larger", "maximum") else 0.0)
        if CASE == "the larger":
            acc = tl.where(value > acc, value, acc)
        elif CASE == "maximum":
            acc = tl.maximum(acc, value)
        elif CASE == "squares":
            acc = tl.fma(value, value, acc)
        elif CASE == "products":
            acc = tl.fma(value, tl.load(x + i), acc)
        elif CASE == "of exponentials":
            acc += tl.exp(value)
        elif CASE == "of exponentials inside":
            acc += tl.where(inside, tl.exp(value), 0.0)
        elif CASE == "of differences":
            acc -= value
        else:
            acc += value
    tl.store(out + i, acc)


@pytest.mark.parametrize(
    ("case", "stop"),
    {
        "sum": True,
        "from a negative zero": False,
        "the larger": True,
        "maximum": True,
        "squares": True,
        "products": False,
        "of exponentials": False,
        "of exponentials inside": True,
        "of differences": False,
    }.items(),
)
def test_sums_stop_at_the_end_of_a_row(case: str, stop: bool) -> None:
    assert stops(accumulate, case, "n") == ([{0: "+1%begin -1%n <= -1"}] if stop else [])


@kp.jit
def store(x, out, rows, columns, CASE: tl.constexpr):
    i, j = tl.arange(0, 16)[:, None], tl.arange(0, 64)[None, :]
    inside = (i < rows) & (j < columns)
    value = tl.load(x + i * 64 + j, inside, other=0.0)
    if CASE == "stored":
        tl.store(out + i * 64 + j, value, inside)
    elif CASE == "stored whole":
        tl.store(out + i * 64 + j, value)
    elif CASE == "stored twice":
        tl.store(out + i * 64 + j, value, inside)
        tl.store(out + 1024 + i * 64 + j, value, i < rows)
    elif CASE == "summed":
        tl.store(out + tl.arange(0, 16), tl.sum(value, 1))
    elif CASE == "largest":
        tl.store(out + tl.arange(0, 16), tl.max(value, 1))
    elif CASE == "multiplied":
        tl.store(out + tl.arange(0, 16), tl.reduce(value, 1, product))


@kp.jit
def product(a, b):
    return a * b


ROWS, COLUMNS = "-1%rows <= -1", "-1%columns <= -1"


@pytest.mark.parametrize(
    ("case", "found"),
    {
        "stored": [{0: ROWS, 1: COLUMNS}],
        "stored whole": [],
        "stored twice": [{1: f"{COLUMNS}, value <- %value"}, {0: ROWS}],
        "summed": [{1: f"{COLUMNS}, reduce <- reduce axis 1 of %value"}],
        "largest": [{1: f"{COLUMNS}, reduce <- reduce axis 1 of %value"}],
        "multiplied": [],
    }.items(),
)
def test_tiles_stop_where_nothing_is_stored_and_one_value_follows(case: str, found: list[dict[int, str]]) -> None:
    assert stops(store, case, "rows", "columns") == found


@kp.jit
def long_formula(x, out, n, CASE: tl.constexpr):
    i = tl.arange(0, 512)
    value = tl.load(x + i, i < n, other=0.0)
    for _ in tl.static_range(64):
        value = value * value + value
    tl.store(out, tl.sum(value, 0))


def test_what_a_formula_takes_twice_is_looked_at_once() -> None:
    assert stops(long_formula, "", "n") == [{0: "-1%n <= -1, %68 <- reduce axis 0 of %value_63"}]


@kp.jit
def many_branches(x, out, n, CASE: tl.constexpr):
    i = tl.arange(0, 64)
    acc = tl.zeros([64], tl.float32)
    for begin in range(0, n, 64):
        value = tl.load(x + begin + i, begin + i < n, other=0.0)
        for number in tl.static_range(64):
            if begin > number:
                acc += value
    tl.store(out + i, acc)


def test_branches_that_come_together_are_given_up_after_some() -> None:
    assert stops(many_branches, "", "n") == []
