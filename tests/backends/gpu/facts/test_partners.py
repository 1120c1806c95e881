"""Gathers in which each element takes that of its partner: which indices say so, and which bits of registers and lanes differ."""

from __future__ import annotations

import pytest

from kernelpack.backends.gpu.facts.partners import Partner, distance_of, partner_of
from kernelpack.ir.core import Operation, entry_function
from kernelpack.layout.families import Threads, spread
from kernelpack.layout.linear import LinearLayout
from tests.backends.gpu.ttgir import parse

ONE_WARP, TWO_WARPS = spread((64,), 2, (0,), Threads(1, 32)), spread((64,), 1, (0,), Threads(2, 32))
RANGE = "%m = tt.make_range {{end = 64 : i32, start = {0} : i32}} : tensor<64xi32>"


def last(body: str, arguments: str, layouts: dict[str, LinearLayout] | None = None) -> Operation:
    return entry_function(parse(body, arguments, layouts or {})).body.operations[-2]


def exchanged(distance: int, before: LinearLayout, after: LinearLayout) -> Operation:
    return last(
        f"""
        %m = tt.make_range {{end = 64 : i32, start = 0 : i32}} : tensor<64xi32, $A>
        %c = arith.constant dense<{distance}> : tensor<64xi32, $A>
        %i = arith.xori %m, %c : tensor<64xi32, $A>
        %g = tt.gather %x[%i] {{axis = 0 : i32}} : (tensor<64xf32, $B>, tensor<64xi32, $A>) -> tensor<64xf32, $A>
        """,
        "%x: tensor<64xf32, $B>",
        {"A": after, "B": before},
    )


@pytest.mark.parametrize(
    ("distance", "partner"), [(1, Partner(1, 0)), (2, Partner(0, 1)), (32, Partner(0, 16)), (63, Partner(1, 31))]
)
def test_partners_of_a_warp_meet_in_registers_or_lanes(distance: int, partner: Partner) -> None:
    assert partner_of(exchanged(distance, ONE_WARP, ONE_WARP)) == partner


def test_partners_in_another_warp_or_another_layout_are_none() -> None:
    assert partner_of(exchanged(16, TWO_WARPS, TWO_WARPS)) == Partner(0, 16)
    assert partner_of(exchanged(32, TWO_WARPS, TWO_WARPS)) is None
    assert distance_of(exchanged(32, TWO_WARPS, TWO_WARPS)) == 32
    assert partner_of(exchanged(1, spread((64,), 1, (0,), Threads(1, 32)), ONE_WARP)) is None


@pytest.mark.parametrize(
    ("lines", "distance"),
    [
        ("%i = arith.xori %m, %eight", 8),
        ("%j = arith.xori %m, %eight : tensor<64xi32>\n%i = arith.subi %last, %j", 63 ^ 8),  # turned round
        ("%i = arith.subi %eight, %m", None),
        ("%i = arith.addi %m, %eight", None),
        ("%i = arith.xori %m, %beyond", None),
        ("%i = arith.xori %data, %eight", None),
    ],
)
def test_indices_are_places_with_some_bits_turned(lines: str, distance: int | None) -> None:
    constants = {"eight": 8, "last": 63, "beyond": 64}
    body = [f"%{name} = arith.constant dense<{number}> : tensor<64xi32>" for name, number in constants.items()]
    gather = "%g = tt.gather %x[%i] {axis = 0 : i32} : (tensor<64xf32>, tensor<64xi32>) -> tensor<64xf32>"
    body += [RANGE.format(0), f"{lines} : tensor<64xi32>", gather]
    assert distance_of(last("\n".join(body), "%x: tensor<64xf32>, %data: tensor<64xi32>")) == distance


def test_a_range_from_elsewhere_does_not_count_places() -> None:
    body = """
    %m = tt.make_range {end = 65 : i32, start = 1 : i32} : tensor<64xi32>
    %g = tt.gather %x[%m] {axis = 0 : i32} : (tensor<64xf32>, tensor<64xi32>) -> tensor<64xf32>
    """
    assert distance_of(last(body, "%x: tensor<64xf32>")) is None


@pytest.mark.parametrize(
    ("row", "axis", "distance"),
    [
        ("tt.expand_dims %m {axis = 0 : i32} : tensor<64xi32> -> tensor<1x64xi32>", 1, 4),
        ("tt.reshape %m : tensor<64xi32> -> tensor<1x64xi32>", 1, 4),
        ("tt.expand_dims %m {axis = 0 : i32} : tensor<64xi32> -> tensor<1x64xi32>", 0, None),  # the same in all rows
    ],
)
def test_places_are_followed_through_shapes(row: str, axis: int, distance: int | None) -> None:
    body = f"""
    {RANGE.format(0)}
    %r = {row}
    %c = arith.constant dense<4> : tensor<1x64xi32>
    %x4 = arith.xori %r, %c : tensor<1x64xi32>
    %b = tt.broadcast %x4 : tensor<1x64xi32> -> tensor<64x64xi32>
    %i = arith.extsi %b : tensor<64x64xi32> to tensor<64x64xi64>
    %g = tt.gather %x[%i] {{axis = {axis} : i32}} : (tensor<64x64xf32>, tensor<64x64xi64>) -> tensor<64x64xf32>
    """
    assert distance_of(last(body, "%x: tensor<64x64xf32>")) == distance
