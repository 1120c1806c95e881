"""The registers of a tile: 32 bits each, shared by what is narrower."""

from __future__ import annotations

import pytest

from kernelpack.backends.gpu.facts.registers import registers_of
from kernelpack.ir.core import entry_function
from kernelpack.layout.families import Threads, spread
from tests.backends.gpu.ttgir import parse


@pytest.mark.parametrize(
    ("size", "element", "registers"),
    [(128, "f32", 4), (128, "f64", 8), (128, "bf16", 2), (128, "i8", 1), (32, "i8", 1), (128, "i1", 1), (2048, "i1", 2)],
)
def test_registers_of_a_tile_on_one_warp(size: int, element: str, registers: int) -> None:
    layouts = {"L": spread((size,), 1, (0,), Threads(1, 32))}
    function = entry_function(parse("", f"%x: tensor<{size}x{element}, $L>", layouts))
    assert registers_of(function.body.arguments[0]) == registers


def test_a_pointer_has_64_bits() -> None:
    function = entry_function(parse("", "%x: tensor<128x!tt.ptr<f32>, $L>", {"L": spread((128,), 1, (0,), Threads(4, 32))}))
    assert registers_of(function.body.arguments[0]) == 2
