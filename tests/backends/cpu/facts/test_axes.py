"""Which axis of a tile runs along the lanes: contiguous memory, what buffers already have, rows where they are reduced."""

from __future__ import annotations

import pytest

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.backends.cpu.facts.axes import Axes, feeds_rows
from kernelpack.ir.core import Value, entry_function
from kernelpack.ir.printer import value_names
from kernelpack.kernel.jit import JITFunction
from tests.backends.cpu.plan.plans import ttir


def values(kernel: JITFunction, **types: str | int | bool) -> dict[str, Value]:
    names = value_names(entry_function(ttir(kernel, **types)))
    return {name.removeprefix("%"): value for value, name in names.items()}


@kp.jit
def tiles(x, out, s, S: tl.constexpr):
    i = tl.arange(0, S)
    down, along = i[:, None], i[None, :]
    rows = tl.load(x + down * S + along)
    columns = tl.load(x + along * S + down)
    scattered = tl.load(x + down * s + along * s)
    same = tl.load(x + down * 0 + along * 0)
    turned = tl.trans(columns)
    exp_of_columns = tl.exp(columns)
    mixed = exp_of_columns * 2.0 + scattered
    index = down + along
    sums = tl.sum(columns, 1)
    gone = tl.sum(columns, 0)
    flat = tl.reshape(rows, (S * S,))
    pairs = tl.reshape(columns, (S, S // 2, 2))
    tall = tl.reshape(rows, (S // 2, 2, S))
    even, odd = tl.split(pairs)
    left, right = tl.split(tl.reshape(rows, (S, S // 2, 2)))
    joined = tl.join(columns, columns)
    scanned = tl.cumsum(columns, 0)
    where = (columns > 0).to(tl.int32)
    gathered = tl.gather(rows, where, 1)
    old = tl.atomic_add(out + along * S + down, columns)
    everything = rows + turned + scattered + same + mixed + gone + sums + scanned + gathered + old + index
    tl.store(out + down * S + along, everything)
    tl.store(out + i, sums + gone)
    tl.store(out + tl.arange(0, S * S), flat)
    tl.store(out + down + tl.arange(0, S // 2)[None, :], even + odd + left + right)
    tl.store(out + down[:, :, None] * S + along[:, :, None] + tl.arange(0, 2)[None, None, :], joined)
    tl.store(out + tl.arange(0, S // 2)[:, None, None] * S + tl.arange(0, 2)[None, :, None] + along[None], tall)


FOUND = values(tiles, S=16, s="i32")


@pytest.mark.parametrize(
    ("name", "preference"),
    [
        ("rows", (1, 1)),
        ("columns", (0, 1)),
        ("scattered", (None, 0)),
        ("same", (None, 0)),
        ("turned", (1, 1)),
        ("exp_of_columns", (0, 1)),
        ("mixed", (0, 1)),
        ("index", (None, 0)),
        ("sums", (0, 0)),  # a tile with one axis has no choice
        ("flat", (0, 0)),
        ("tall", (2, 1)),
        ("pairs", (None, 0)),  # the lanes of its source are not its last axis
        ("even#0", (None, 0)),
        ("left#1", (None, 0)),  # the axis that a split takes away
        ("joined", (0, 1)),
        ("scanned", (0, 1)),
        ("gathered", (0, 1)),  # as its indices
        ("old", (0, 1)),
    ],
)
def test_preferences(name: str, preference: tuple[int | None, int]) -> None:
    assert Axes().preference(FOUND[name]) == preference


def test_a_tile_without_a_preference_has_its_last_axis_in_the_lanes() -> None:
    axes = Axes()
    assert (axes.lane_axis(FOUND["index"]), axes.firm_axis(FOUND["index"])) == (1, None)
    assert (axes.lane_axis(FOUND["columns"]), axes.firm_axis(FOUND["columns"])) == (0, 0)


@kp.jit
def cubes(x, out, n, S: tl.constexpr):
    i = tl.arange(0, S)
    cube = tl.load(x + (i[:, None, None] * S + i[None, :, None]) * S + i[None, None, :])
    first, middle, last = tl.sum(cube, 0), tl.sum(cube, 1), tl.sum(cube, 2)
    mapped = tl.map_elementwise(plus_one, tl.trans(first))
    carried = tl.trans(first)
    kept = tl.zeros((S, S), tl.float32)
    for _ in range(n):
        carried = carried * 2.0
        kept = kept * 2.0
    if n > 1:
        chosen = carried
    else:
        chosen = first
    tl.store(out + i[:, None] * S + i[None, :], first + middle + last + mapped + carried + chosen + kept)


@kp.jit
def plus_one(a):
    return a + 1.0


CUBES = values(cubes, S=8, n="i32")


@pytest.mark.parametrize(
    ("name", "preference"),
    [
        ("first", (1, 1)),
        ("middle", (1, 1)),
        ("last", (None, 0)),
        ("mapped", (1, 2)),
        ("carried", (0, 1)),
        ("carried_0#0", (0, 2)),  # a loop keeps it in a buffer
        ("carried_0#1", (None, 0)),
        ("chosen", (0, 2)),
    ],
)
def test_reductions_loops_and_branches_pass_preferences_on(name: str, preference: tuple[int | None, int]) -> None:
    assert Axes().preference(CUBES[name]) == preference


@kp.jit
def products(a, b, c, n, S: tl.constexpr):
    i = tl.arange(0, S)
    at = i[:, None] * S + i[None, :]
    x, y = tl.load(a + at), tl.load(b + at)
    plain = tl.dot(x, y)
    reduced = tl.dot(x * 2.0, y)
    top = tl.max(tl.exp(reduced), 1)
    by_columns = tl.dot(x * 3.0, y)
    sums = tl.sum(by_columns, 0)
    factor = tl.dot(x * 4.0, y)
    other = tl.dot(x, factor)
    chained = tl.dot(factor * 2.0, y)
    inner = tl.dot(x * 5.0, y)
    outer = tl.dot(x * 6.0, inner)
    total = tl.zeros((S, S), tl.float32)
    for _ in range(n):
        total = tl.dot(x, y, total)
    tops = tl.max(total, 1)
    tl.store(c + at, plain)
    tl.store(c + S * S + at, other)
    tl.store(c + 2 * S * S + at, chained)
    tl.store(c + 3 * S * S + at, outer)
    tl.store(c + i, top + sums + tops)


PRODUCTS = values(products, S=16, n="i32")


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("plain", False),
        ("reduced", True),
        ("by_columns", False),
        ("factor", True),
        ("other", False),
        ("inner", False),
        ("total_1", True),
    ],
)
def test_rows_of_a_product_are_in_the_lanes_where_they_are_reduced_or_multiplied_again(name: str, rows: bool) -> None:
    product = PRODUCTS[name]
    assert feeds_rows(product) is rows
    op = product.defining_op
    assert op is not None
    assert op.name == "tt.dot"
    assert Axes().dot_axis(op) == (0 if rows else 1)
    assert Axes().preference(product) == (0 if rows else 1, 2)


def test_memory_runs_along_the_last_axis_that_steps_by_one() -> None:
    loads = {name: FOUND[name].defining_op for name in ("rows", "columns", "scattered", "same")}
    axes = Axes()
    found = {name: axes.memory_axis(op.operands[0]) for name, op in loads.items() if op is not None}
    assert found == {"rows": 1, "columns": 0, "scattered": None, "same": None}
