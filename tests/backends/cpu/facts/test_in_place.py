"""Whether a store may change what a load of the same nest has yet to read, or what an earlier store has yet to write."""

from __future__ import annotations

import pytest

from kernelpack.backends.cpu.facts.in_place import overwrites, stores_over
from kernelpack.ir.core import Operation
from tests.ir.examples import function, parse

PRELUDE = """
%i = tt.make_range {end = 32 : i32, start = 0 : i32} : tensor<32xi32>
%xs = tt.splat %x : !tt.ptr<f32> -> tensor<32x!tt.ptr<f32>>
%here = tt.addptr %xs, %i : tensor<32x!tt.ptr<f32>>, tensor<32xi32>
"""
ARGUMENTS = "%x: !tt.ptr<f32>, %y: !tt.ptr<f32>, %n: i32, %c: i1, %v: tensor<32xf32>, %some: tensor<32xi32>"

THERE = {
    "next": ("%one = arith.constant dense<1> : tensor<32xi32>", "%here, %one"),
    "after": ("%one = arith.constant dense<32> : tensor<32xi32>", "%here, %one"),
    "at n": ("%one = tt.splat %n : i32 -> tensor<32xi32>", "%here, %one"),
    "scattered": ("%one = arith.muli %some, %some : tensor<32xi32>", "%xs, %one"),
    "reversed": ("%c31 = arith.constant dense<31> : tensor<32xi32>\n%one = arith.subi %c31, %i : tensor<32xi32>", "%xs, %one"),
    "other": ("%ys = tt.splat %y : !tt.ptr<f32> -> tensor<32x!tt.ptr<f32>>", "%ys, %i"),
    "chosen": (
        "%z = arith.select %c, %x, %y : !tt.ptr<f32>\n%zs = tt.splat %z : !tt.ptr<f32> -> tensor<32x!tt.ptr<f32>>",
        "%zs, %i",
    ),
}
"""Where another access goes, whose first lines make what it is computed from."""


def accesses(there: str, first: str, second: str) -> tuple[Operation, Operation]:
    lines, operands = THERE[there]
    body = PRELUDE + f"{lines}\n%there = tt.addptr {operands} : tensor<32x!tt.ptr<f32>>, tensor<32xi32>\n"
    for access in (first, second):
        body += f"{access}\n"
    module = parse(function(body, ARGUMENTS))
    one, two = (op for op in module.walk() if op.name in ("tt.load", "tt.store"))
    return one, two


LOAD = "%a = tt.load %here : tensor<32x!tt.ptr<f32>>"


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        ("next", True),
        ("after", False),
        ("at n", True),
        ("scattered", True),
        ("reversed", True),
        ("other", False),
        ("chosen", True),
    ],
)
def test_a_store_to_another_place_overwrites_what_it_may_meet(there: str, expected: bool) -> None:
    load, store = accesses(there, LOAD, "tt.store %there, %a : tensor<32x!tt.ptr<f32>>")
    assert overwrites(store, load, False) is expected


def test_a_store_to_the_same_place_overwrites_what_is_read_elsewhere_alone() -> None:
    load, store = accesses("other", LOAD, "tt.store %here, %a : tensor<32x!tt.ptr<f32>>")
    assert not overwrites(store, load, False)
    assert overwrites(store, load, True)


@pytest.mark.parametrize(
    ("step", "overwritten"),
    [
        ("%r = arith.addi %i, %i : tensor<32xi32>", False),
        ("%two = arith.constant dense<2> : tensor<32xi32>\n%r = arith.divsi %i, %two : tensor<32xi32>", True),
    ],
)
def test_a_place_that_repeats_is_overwritten_by_its_first_store(step: str, overwritten: bool) -> None:
    body = f"""{PRELUDE}{step}
    %p = tt.addptr %xs, %r : tensor<32x!tt.ptr<f32>>, tensor<32xi32>
    %a = tt.load %p : tensor<32x!tt.ptr<f32>>
    tt.store %p, %a : tensor<32x!tt.ptr<f32>>
    tt.store %p, %v : tensor<32x!tt.ptr<f32>>
    """
    load, first, second = (op for op in parse(function(body, ARGUMENTS)).walk() if op.name in ("tt.load", "tt.store"))
    assert overwrites(first, load, False) is overwritten
    assert stores_over(second, first) is overwritten


@pytest.mark.parametrize(
    ("there", "expected"), [("next", True), ("after", False), ("at n", False), ("scattered", True), ("other", False)]
)
def test_of_two_stores_the_later_one_wins(there: str, expected: bool) -> None:
    """Even tiles at a distance that only running tells are taken to lie apart."""
    first, second = accesses(
        there, "tt.store %here, %v : tensor<32x!tt.ptr<f32>>", "tt.store %there, %v : tensor<32x!tt.ptr<f32>>"
    )
    assert stores_over(second, first) is expected


def columns(row: int, first: int) -> tuple[Operation, Operation]:
    """A load of a tile of 4 x 8 with rows that far apart, and a store of one that begins elsewhere."""
    body = f"""
    %r = tt.make_range {{end = 4 : i32, start = 0 : i32}} : tensor<4xi32>
    %k = tt.make_range {{end = 8 : i32, start = 0 : i32}} : tensor<8xi32>
    %down = tt.expand_dims %r {{axis = 1 : i32}} : tensor<4xi32> -> tensor<4x1xi32>
    %along = tt.expand_dims %k {{axis = 0 : i32}} : tensor<8xi32> -> tensor<1x8xi32>
    %step = arith.constant dense<{row}> : tensor<4x1xi32>
    %rows = arith.muli %down, %step : tensor<4x1xi32>
    %a = tt.broadcast %rows : tensor<4x1xi32> -> tensor<4x8xi32>
    %two = arith.constant dense<2> : tensor<1x8xi32>
    %even = arith.muli %along, %two : tensor<1x8xi32>
    %b = tt.broadcast %even : tensor<1x8xi32> -> tensor<4x8xi32>
    %ab = arith.addi %a, %b : tensor<4x8xi32>
    %xs = tt.splat %x : !tt.ptr<f32> -> tensor<4x8x!tt.ptr<f32>>
    %here = tt.addptr %xs, %ab : tensor<4x8x!tt.ptr<f32>>, tensor<4x8xi32>
    %off = arith.constant dense<{first}> : tensor<4x8xi32>
    %there = tt.addptr %here, %off : tensor<4x8x!tt.ptr<f32>>, tensor<4x8xi32>
    %v = tt.load %here : tensor<4x8x!tt.ptr<f32>>
    tt.store %there, %v : tensor<4x8x!tt.ptr<f32>>
    """
    load, store = (
        op for op in parse(function(body, ARGUMENTS.replace("%v", "%w"))).walk() if op.name in ("tt.load", "tt.store")
    )
    return load, store


@pytest.mark.parametrize(("row", "first", "expected"), [(64, 1, False), (64, 2, True), (64, 300, False), (63, 1, True)])
def test_even_and_odd_elements_never_meet(row: int, first: int, expected: bool) -> None:
    load, store = columns(row, first)
    assert overwrites(store, load, False) is expected


@pytest.mark.parametrize(("row", "repeats"), [(16, False), (14, True), (15, False), (0, True)])
def test_rows_that_reach_into_each_other_repeat_elements(row: int, repeats: bool) -> None:
    """Eight elements two apart reach 14 far."""
    load, _ = columns(row, 0)
    assert overwrites(load, load, False) is repeats
