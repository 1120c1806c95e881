"""Loops of few trips, written out."""

from __future__ import annotations

from typing import Any

import pytest

from kernelpack.backends.gpu.passes.unroll_short_loops import unroll_short_loops
from kernelpack.ir.core import Operation
from kernelpack.ir.verify import verify
from tests.backends.gpu.ttgir import parse

LOOP = """
    %zero = arith.constant 0 : i32
    %upper = arith.constant {upper} : i32
    %step = arith.constant 512 : i32
    %half = arith.constant dense<0.5> : tensor<512xf32>
    %r = scf.for %i = %zero to {end} step %step iter_args(%sum = %x) -> (tensor<512xf32>)  : i32 {{
      %first = arith.cmpi eq, %i, %zero : i32
      %next = scf.if %first -> (tensor<512xf32>) {{
        scf.yield %x : tensor<512xf32>
      }} else {{
        %more = arith.mulf %sum, %half : tensor<512xf32>
        scf.yield %more : tensor<512xf32>
      }}
      scf.yield %next : tensor<512xf32>
    }}
    %s = tt.splat %p : !tt.ptr<f32> -> tensor<512x!tt.ptr<f32>>
    tt.store %s, %r : tensor<512x!tt.ptr<f32>>
"""


def unrolled(threads: int = 128, upper: int = 1024, end: str = "%upper") -> Operation:
    module = parse(LOOP.format(upper=upper, end=end), "%x: tensor<512xf32>, %p: !tt.ptr<f32>, %n: i32", {})
    unroll_short_loops(module, threads)
    verify(module)
    return module


def names(module: Operation) -> list[str]:
    return [op.name for op in module.walk()]


def test_what_the_first_trip_knows_is_folded() -> None:
    found = names(unrolled())
    assert "scf.for" not in found
    assert "scf.if" not in found
    assert found.count("arith.mulf") == 1  # of the second trip


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"upper": 512 * 5}, "too many trips"),
        ({"end": "%n"}, "how many is not known"),
        ({"upper": 0}, "none: left to others"),
        ({"threads": 1}, "too many operations for a thread"),
    ],
)
def test_other_loops_stay(given: dict[str, Any], why: str) -> None:
    assert "scf.for" in names(unrolled(**given)), why


def test_loops_of_products_stay() -> None:
    text = """
        %zero = arith.constant 0 : i32
        %two = arith.constant 2 : i32
        %one = arith.constant 1 : i32
        %r = scf.for %i = %zero to %two step %one iter_args(%sum = %c) -> (tensor<64x64xf32>)  : i32 {
          %d = tt.dot %a, %b, %sum : tensor<64x64xbf16> * tensor<64x64xbf16> -> tensor<64x64xf32>
          scf.yield %d : tensor<64x64xf32>
        }
    """
    module = parse(text, "%a: tensor<64x64xbf16>, %b: tensor<64x64xbf16>, %c: tensor<64x64xf32>", {})
    unroll_short_loops(module, 128)
    assert "scf.for" in names(module)
