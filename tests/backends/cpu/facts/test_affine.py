"""How index and pointer tiles run along their axes, which values they have, and when a comparison holds for all elements."""

from __future__ import annotations

import pytest

from kernelpack.backends.cpu.facts.affine import (
    Bound,
    Span,
    Stride,
    bounds_along,
    bounds_for_all_true,
    constant_of,
    span_of,
    strides,
)
from kernelpack.ir.core import Value
from kernelpack.ir.printer import value_names
from tests.ir.examples import function, parse

ARGUMENTS = "%n: i32, %m: i32, %p: !tt.ptr<f32>, %t: tensor<8xi32>, %f: tensor<8xf32>, %on: i1"
PRELUDE = """
%i = tt.make_range {end = 8 : i32, start = 0 : i32} : tensor<8xi32>
%j = tt.make_range {end = 20 : i32, start = 4 : i32} : tensor<16xi32>
%c3 = arith.constant dense<3> : tensor<8xi32>
%ns = tt.splat %n : i32 -> tensor<8xi32>
%down = tt.expand_dims %i {axis = 1 : i32} : tensor<8xi32> -> tensor<8x1xi32>
%along = tt.expand_dims %j {axis = 0 : i32} : tensor<16xi32> -> tensor<1x16xi32>
"""


def values(body: str) -> dict[str, Value]:
    """The values of a function with some scalars, ranges and splats, by their names."""
    module = parse(function(PRELUDE + body, ARGUMENTS))
    names = value_names(module.body.operations[0])
    return {name.removeprefix("%"): value for value, name in names.items()}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("%r = arith.addi %i, %c3 : tensor<8xi32>", (1,)),
        ("%r = arith.addi %i, %i : tensor<8xi32>", (2,)),
        ("%r = arith.subi %c3, %i : tensor<8xi32>", (-1,)),
        ("%r = arith.muli %i, %c3 : tensor<8xi32>", (3,)),
        ("%r = arith.muli %c3, %i : tensor<8xi32>", (3,)),
        ("%r = arith.muli %i, %ns : tensor<8xi32>", ("scalar",)),
        ("%in = arith.muli %i, %ns : tensor<8xi32>\n%r = arith.addi %in, %i : tensor<8xi32>", ("scalar",)),
        ("%r = arith.muli %ns, %c3 : tensor<8xi32>", (0,)),
        ("%r = arith.muli %i, %i : tensor<8xi32>", (None,)),
        ("%r = arith.addi %i, %t : tensor<8xi32>", (None,)),
        ("%r = arith.extsi %i : tensor<8xi32> to tensor<8xi64>", (1,)),
        ("%r = arith.trunci %i : tensor<8xi32> to tensor<8xi16>", (1,)),
        ("%n8 = arith.trunci %i : tensor<8xi32> to tensor<8xi8>\n%r = arith.addi %n8, %c120 : tensor<8xi8>", (1,)),
        ("%n8 = arith.trunci %i : tensor<8xi32> to tensor<8xi8>\n%r = arith.addi %n8, %c121 : tensor<8xi8>", (None,)),
        ("%in = arith.addi %i, %ns : tensor<8xi32>\n%r = arith.trunci %in : tensor<8xi32> to tensor<8xi8>", (None,)),
        ("%r = arith.trunci %ns : tensor<8xi32> to tensor<8xi8>", (0,)),
        ("%r = arith.muli %i, %c2to29 : tensor<8xi32>", (None,)),
        ("%w = arith.muli %x, %d2to29 : tensor<8xi64>\n%r = arith.trunci %w : tensor<8xi64> to tensor<8xi32>", (None,)),
        ("%r = arith.muli %x, %d2to29 : tensor<8xi64>", (1 << 29,)),
        ("%r = arith.divsi %ns, %c3 : tensor<8xi32>", (0,)),
        ("%r = arith.divsi %i, %c3 : tensor<8xi32>", (None,)),
        ("%r = tt.int_to_ptr %x : tensor<8xi64> -> tensor<8x!tt.ptr<f32>>", (None,)),
        ("%r = tt.broadcast %down : tensor<8x1xi32> -> tensor<8x16xi32>", (1, 0)),
        ("%r = tt.broadcast %along : tensor<1x16xi32> -> tensor<8x16xi32>", (0, 1)),
        ("%r = tt.trans %down {order = array<i32: 1, 0>} : tensor<8x1xi32> -> tensor<1x8xi32>", (0, 1)),
        ("%r = tt.reshape %i : tensor<8xi32> -> tensor<2x4xi32>", (None, None)),
        ("%r = arith.addf %f, %f : tensor<8xf32>", (None,)),
    ],
)
def test_strides(line: str, expected: tuple[Stride, ...]) -> None:
    """Index arithmetic is taken not to wrap, unless it is narrow and its bounds are not known, or its constants alone do not fit."""
    more = "%x = arith.extsi %i : tensor<8xi32> to tensor<8xi64>\n"
    more += "".join(f"%c{n} = arith.constant dense<{n}> : tensor<8xi8>\n" for n in (120, 121))
    more += (
        "%c2to29 = arith.constant dense<536870912> : tensor<8xi32>\n%d2to29 = arith.constant dense<536870912> : tensor<8xi64>\n"
    )
    assert strides(values(more + line)["r"]) == expected


def test_narrow_sums_that_may_wrap_have_no_span() -> None:
    narrow = values(
        """
        %b = arith.trunci %n : i32 to i8
        %c100 = arith.constant 100 : i8
        %sum = arith.addi %b, %c100 : i8
        %spread = tt.splat %sum : i8 -> tensor<8xi8>
        """
    )
    assert span_of(narrow["spread"]) == Span({narrow["sum"]: 1})


def test_pointers_step_in_elements_along_each_axis() -> None:
    body = """
    %ns2 = tt.splat %n : i32 -> tensor<8x1xi32>
    %row = arith.muli %down, %ns2 : tensor<8x1xi32>
    %rows = tt.broadcast %row : tensor<8x1xi32> -> tensor<8x16xi32>
    %columns = tt.broadcast %along : tensor<1x16xi32> -> tensor<8x16xi32>
    %ps = tt.splat %p : !tt.ptr<f32> -> tensor<8x16x!tt.ptr<f32>>
    %q = tt.addptr %ps, %rows : tensor<8x16x!tt.ptr<f32>>, tensor<8x16xi32>
    %r = tt.addptr %q, %columns : tensor<8x16x!tt.ptr<f32>>, tensor<8x16xi32>
    """
    found = values(body)
    assert strides(found["ps"]) == (0, 0)
    assert strides(found["r"]) == ("scalar", 1)


def test_strides_of_what_is_known_already_are_taken_from_there() -> None:
    value = values("%r = arith.addi %i, %i : tensor<8xi32>")["r"]
    known: dict[Value, tuple[Stride, ...]] = {}
    assert strides(value, known) == (2,)
    known[value] = (7,)
    assert strides(value, known) == (7,)


@pytest.mark.parametrize(
    ("line", "constant"),
    [
        ("%r = arith.constant dense<3> : tensor<8xi32>", 3),
        ("%one = arith.constant -5 : i32\n%r = tt.splat %one : i32 -> tensor<8xi32>", -5),
        ("%r = arith.extsi %c3 : tensor<8xi32> to tensor<8xi64>", 3),
        ("%r = tt.splat %n : i32 -> tensor<8xi32>", None),
        ("%r = arith.addi %c3, %c3 : tensor<8xi32>", None),
        ("%r = arith.constant 1.000000e+00 : f32", None),
    ],
)
def test_constants_are_seen_through_what_spreads_them(line: str, constant: int | None) -> None:
    module = parse(function(PRELUDE + line, ARGUMENTS))
    *_, op, _ = module.body.operations[0].body.operations
    assert constant_of(op.result) == constant


def named(span: Span | None, found: dict[str, Value]) -> tuple[dict[str, int], int, int] | None:
    names = {value: name for name, value in found.items()}
    return None if span is None else ({names[value]: factor for value, factor in span.terms.items()}, span.low, span.high)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("%r = arith.addi %i, %c3 : tensor<8xi32>", ({}, 3, 10)),
        ("%r = arith.addi %i, %ns : tensor<8xi32>", ({"n": 1}, 0, 7)),
        ("%r = arith.subi %ns, %i : tensor<8xi32>", ({"n": 1}, -7, 0)),
        ("%r = arith.subi %ns, %ns : tensor<8xi32>", ({}, 0, 0)),
        ("%r = arith.muli %i, %c3 : tensor<8xi32>", ({}, 0, 21)),
        ("%r = arith.muli %c3, %ns : tensor<8xi32>", ({"n": 3}, 0, 0)),
        ("%r = arith.muli %i, %ns : tensor<8xi32>", None),
        ("%r = tt.broadcast %along : tensor<1x16xi32> -> tensor<8x16xi32>", ({}, 4, 19)),
        ("%r = arith.addi %i, %t : tensor<8xi32>", None),
        ("%r = arith.muli %n, %m : i32", ({"r": 1}, 0, 0)),
        ("%r = arith.addi %n, %m : i32", ({"n": 1, "m": 1}, 0, 0)),
        ("%r = arith.addf %f, %f : tensor<8xf32>", None),
    ],
)
def test_spans_are_sums_of_scalars_plus_something_between_two_bounds(
    line: str, expected: tuple[dict[str, int], int, int] | None
) -> None:
    found = values(line)
    assert named(span_of(found["r"]), found) == expected


def test_a_negative_factor_exchanges_the_bounds() -> None:
    assert Span(low=1, high=5).times(-2) == Span(low=-10, high=-2)
    assert Span(low=1, high=5).times(0) == Span()
    assert Span(low=1, high=5).plus(Span(low=2, high=3), -1) == Span(low=-2, high=3)


@pytest.mark.parametrize(
    ("comparison", "terms", "limit"),
    [
        ("slt, %k, %ns", {"m": 1, "n": -1}, -8),  # m + 7 < n
        ("sle, %k, %ns", {"m": 1, "n": -1}, -7),
        ("sgt, %ns, %k", {"m": 1, "n": -1}, -8),
        ("sge, %ns, %k", {"m": 1, "n": -1}, -7),
        ("sgt, %k, %ns", {"m": -1, "n": 1}, -1),  # m + 0 > n
        ("slt, %i, %c3", {}, -5),  # 7 - 3 <= -1 does not hold
    ],
)
def test_a_comparison_holds_for_all_elements_where_it_holds_for_one_end(
    comparison: str, terms: dict[str, int], limit: int
) -> None:
    found = values(COMPARED.format(comparison))
    (bound,) = bounds_for_all_true(found["r"]) or ()
    assert isinstance(bound, Bound)
    assert (dict(bound.terms), bound.limit) == ({found[name]: factor for name, factor in terms.items()}, limit)


COMPARED = """
%ms = tt.splat %m : i32 -> tensor<8xi32>
%k = arith.addi %ms, %i : tensor<8xi32>
%r = arith.cmpi {} : tensor<8xi32>
"""


@pytest.mark.parametrize("comparison", ["eq, %k, %ns", "ult, %k, %ns", "slt, %k, %t"])
def test_other_comparisons_are_decided_by_each_element(comparison: str) -> None:
    assert bounds_for_all_true(values(COMPARED.format(comparison))["r"]) is None


def test_masks_of_masks_hold_where_all_of_their_parts_do() -> None:
    found = values(
        """
        %a = arith.cmpi slt, %i, %ns : tensor<8xi32>
        %b = tt.splat %on : i1 -> tensor<8xi1>
        %both = arith.andi %a, %b : tensor<8xi1>
        %either = arith.ori %a, %b : tensor<8xi1>
        %down1 = tt.expand_dims %both {axis = 1 : i32} : tensor<8xi1> -> tensor<8x1xi1>
        %yes = arith.constant dense<true> : tensor<8xi1>
        %always = tt.trans %yes {order = array<i32: 0>} : tensor<8xi1> -> tensor<8xi1>
        %no = arith.constant dense<false> : tensor<8xi1>
        %never = tt.trans %no {order = array<i32: 0>} : tensor<8xi1> -> tensor<8xi1>
        """
    )
    bound = Bound(((found["n"], -1),), -8)
    assert bounds_for_all_true(found["a"]) == [bound]
    assert bounds_for_all_true(found["both"]) == [bound, found["on"]]
    assert bounds_for_all_true(found["down1"]) == [bound, found["on"]]
    assert bounds_for_all_true(found["either"]) is None
    assert bounds_for_all_true(found["always"]) == []
    assert bounds_for_all_true(found["never"]) is None


def test_along_an_axis_a_mask_ends_where_its_comparison_does() -> None:
    found = values(
        """
        %ns16 = tt.splat %n : i32 -> tensor<16xi32>
        %ks = arith.addi %j, %ns16 : tensor<16xi32>
        %ms = tt.splat %m : i32 -> tensor<16xi32>
        %line = arith.cmpi slt, %ks, %ms : tensor<16xi32>
        %row = tt.expand_dims %line {axis = 0 : i32} : tensor<16xi1> -> tensor<1x16xi1>
        %tile = tt.broadcast %row : tensor<1x16xi1> -> tensor<8x16xi1>
        %turned = tt.trans %tile {order = array<i32: 1, 0>} : tensor<8x16xi1> -> tensor<16x8xi1>
        %backwards = arith.cmpi sgt, %ks, %ms : tensor<16xi32>
        %both = arith.andi %line, %backwards : tensor<16xi1>
        %either = arith.ori %line, %backwards : tensor<16xi1>
        %even = arith.addi %j, %j : tensor<16xi32>
        %second = arith.cmpi slt, %even, %ms : tensor<16xi32>
        """
    )
    bounds = [Bound(((found["n"], 1), (found["m"], -1)), -5)]  # n + 4 + place < m
    assert bounds_along(found["line"], 0) == bounds_along(found["both"], 0) == bounds
    assert bounds_along(found["tile"], 1) == bounds_along(found["turned"], 0) == bounds
    assert bounds_along(found["tile"], 0) == bounds_along(found["turned"], 1) == []
    for name in ("backwards", "either", "second"):
        assert bounds_along(found[name], 0) == []
