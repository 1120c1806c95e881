"""Reductions of pairs that go back to both elements become gathers: steps of sorting networks, written with reshapes and sums."""

from __future__ import annotations

import pytest
import torch

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.backends.cpu.ttir.gather_pairs import gather_pairs
from kernelpack.passes import TTIR
from tests.backends.cpu.agreement import check, ttir_of
from tests.ir.examples import parse
from tests.passes.before_after import body_of, wrap


@kp.jit
def exchange(x, places, flip, LOG: tl.constexpr, STEP: tl.constexpr):
    """Orders the pairs of a step by sums of masked tiles, with the places that the elements come from."""
    shape: tl.constexpr = [x.numel >> (LOG - STEP), 2, 1 << (LOG - STEP - 1)]
    pairs = tl.reshape(x, shape)
    bits = pairs.to(tl.int32, bitcast=True)
    right = tl.arange(0, 2)[None, :, None]
    left = 1 - right
    first = tl.reshape(tl.broadcast_to(tl.sum(bits * left, 1)[:, None, :], shape), x.shape)
    second = tl.reshape(tl.broadcast_to(tl.sum(bits * right, 1)[:, None, :], shape), x.shape)
    swaps = (first.to(x.dtype, bitcast=True) > second.to(x.dtype, bitcast=True)) != flip
    seen = tl.reshape(places, shape)
    both = tl.reshape(tl.broadcast_to(tl.xor_sum(seen, 1)[:, None, :], shape), x.shape)
    own = x.to(tl.int32, bitcast=True)
    moved = own ^ tl.where(swaps, first ^ second, 0)
    return moved.to(x.dtype, bitcast=True), places ^ tl.where(swaps, both, 0)


@kp.jit
def network(x, out, order, ROWS: tl.constexpr, COLUMNS: tl.constexpr, LOG: tl.constexpr, ALL: tl.constexpr):
    at = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    values = tl.load(x + at)
    places = tl.broadcast_to(tl.arange(0, COLUMNS)[None, :], [ROWS, COLUMNS])
    for stage in tl.static_range(1, LOG + 1):
        if stage < LOG:
            shape: tl.constexpr = [ROWS * COLUMNS >> (stage + 1), 2, 1 << stage]
            flip = tl.reshape(tl.broadcast_to(tl.arange(0, 2)[None, :, None], shape), values.shape) != 0
        else:
            flip = tl.zeros([ROWS, COLUMNS], tl.int1)
        for step in tl.static_range(stage):
            values, places = exchange(values, places, flip, ALL, ALL - stage + step)
    tl.store(out + at, values)
    tl.store(order + at, places)


@pytest.mark.parametrize(("rows", "columns"), [(1, 32), (4, 16), (2, 2)])
def test_a_sorting_network_of_reshapes_and_sums(rows: int, columns: int) -> None:
    x, log = torch.randn(rows, columns), columns.bit_length() - 1
    sizes = {"ROWS": rows, "COLUMNS": columns, "LOG": log, "ALL": log + rows.bit_length() - 1}
    out, order = torch.empty(rows, columns), torch.empty(rows, columns, dtype=torch.int32)
    check(network, (1,), x, out, order, **sizes)
    network[(1,)](x, out, order, **sizes)
    assert out.tolist() == x.sort(1).values.tolist()
    assert order.tolist() == x.sort(1).indices.tolist()


def test_no_reduction_and_no_reshape_is_left_of_a_network() -> None:
    x, order = torch.empty(4, 16), torch.empty(4, 16, dtype=torch.int32)
    module = TTIR.run(ttir_of(network, (x, x, order), {"ROWS": 4, "COLUMNS": 16, "LOG": 4, "ALL": 6}))
    names = [op.name for op in TTIR.run(gather_pairs(module)).walk()]
    assert "tt.gather" in names
    assert not {"tt.reduce", "tt.reshape"} & set(names)


PAIRS = """
%two = tt.make_range {end = 2 : i32, start = 0 : i32} : tensor<2xi32>
%row = tt.expand_dims %two {axis = 0 : i32} : tensor<2xi32> -> tensor<1x2xi32>
%right = tt.expand_dims %row {axis = 2 : i32} : tensor<1x2xi32> -> tensor<1x2x1xi32>
%mask = tt.broadcast %right : tensor<1x2x1xi32> -> tensor<4x2x4xi32>
%seen = tt.reshape %x : tensor<2x16xi32> -> tensor<4x2x4xi32>
%masked = arith.muli %seen, MASK : tensor<4x2x4xi32>
%sum = "tt.reduce"(%masked) <{axis = AXIS : i32}> ({
^bb0(%a: i32, %b: i32):
  %c = COMBINED
  tt.reduce.return %c : i32
}) : (tensor<4x2x4xi32>) -> tensor<4xKxi32>
%back = tt.expand_dims %sum {axis = AXIS : i32} : tensor<4xKxi32> -> tensor<4xSxi32>
%spread = tt.broadcast %back : tensor<4xSxi32> -> tensor<4x2x4xi32>
%out = tt.reshape %spread : tensor<4x2x4xi32> -> tensor<OUTxi32>
tt.return %out : tensor<OUTxi32>
"""


def pairs(mask: str = "%mask", axis: int = 1, combined: str = "arith.addi %a, %b : i32", out: str = "2x16") -> str:
    sizes = {1: ("4", "1x4"), 2: ("2", "2x1")}[axis]
    text = PAIRS.replace("MASK", mask).replace("AXIS", str(axis)).replace("COMBINED", combined).replace("OUT", out)
    return text.replace("4xKxi32", f"4x{sizes[0]}xi32").replace("4xSxi32", f"4x{sizes[1]}xi32")


ARGUMENTS = "%x: tensor<2x16xi32>, %y: tensor<4x2x4xi32>"


def test_the_second_of_each_pair_is_at_its_place_with_a_bit_set() -> None:
    module = parse(wrap(pairs(), ARGUMENTS))
    gather_pairs(module)
    TTIR.run(module)
    assert body_of(module) == (
        "%0 = tt.make_range {end = 16 : i32, start = 0 : i32} : tensor<16xi32>\n"
        "%1 = tt.expand_dims %0 {axis = 0 : i32} : tensor<16xi32> -> tensor<1x16xi32>\n"
        "%cst = arith.constant dense<4> : tensor<1x16xi32>\n"
        "%2 = arith.ori %1, %cst : tensor<1x16xi32>\n"
        "%3 = tt.broadcast %2 : tensor<1x16xi32> -> tensor<2x16xi32>\n"
        "%out = tt.gather %x[%3] {axis = 1 : i32} : (tensor<2x16xi32>, tensor<2x16xi32>) -> tensor<2x16xi32>\n"
        "tt.return %out : tensor<2x16xi32>"
    )


@pytest.mark.parametrize(
    "body",
    [
        pairs(mask="%y"),  # what it holds is not known
        pairs(axis=2),  # four elements, not two
        pairs(combined="arith.addi %a, %a : i32"),  # not of both
        pairs(out="8x4"),  # a pair is longer than a row
    ],
)
def test_what_is_no_pair_of_a_row_stays(body: str) -> None:
    module = parse(wrap(body, ARGUMENTS))
    gather_pairs(module)
    assert body_of(TTIR.run(module)) == body_of(TTIR.run(parse(wrap(body, ARGUMENTS))))
