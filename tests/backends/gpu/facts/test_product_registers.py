"""The registers that products take at once: those that follow each other share them."""

from __future__ import annotations

import pytest

from kernelpack.backends.gpu.facts.product_registers import is_computed, registers_together
from kernelpack.ir.core import entry_function
from tests.backends.gpu.ttgir import parse

ARGUMENTS = "%a: tensor<64x64xbf16>, %b: tensor<64x64xbf16>, %c: tensor<64x64xf32>"
ZERO = "    %z = arith.constant dense<0.0> : tensor<64x64xf32>\n"
THREADS = 128
TILE = 64 * 64 // THREADS


def dot(result: str, to: str, rows: str = "%a") -> str:
    return f"    {result} = tt.dot {rows}, %b, {to} : tensor<64x64xbf16> * tensor<64x64xbf16> -> tensor<64x64xf32>\n"


NARROWED = "    %w = arith.truncf %x : tensor<64x64xf32> to tensor<64x64xbf16>\n"
BOTH = "    %s = arith.addf %x, %y : tensor<64x64xf32>\n"


@pytest.mark.parametrize(
    ("body", "tiles"),
    [
        (dot("%x", "%c"), 1),
        (dot("%x", "%c") + dot("%y", "%x"), 1),  # adds to the same registers
        (ZERO + dot("%x", "%z") + dot("%y", "%z"), 1),  # the first is never read
        (ZERO + dot("%x", "%z") + dot("%y", "%z") + BOTH, 2),
        (ZERO + dot("%x", "%z") + dot("%y", "%c"), 2),  # %c is there from the start
        (ZERO + dot("%x", "%z") + NARROWED + dot("%y", "%c", "%w"), 2),  # rows of 16 bits take the place of the first
    ],
)
def test_products_take_registers_while_somebody_reads_what_they_give(body: str, tiles: float) -> None:
    module = parse(body, ARGUMENTS, {})
    dots = [op for op in module.walk() if op.name == "tt.dot"]
    assert registers_together(dots, THREADS) == tiles * TILE
    assert is_computed(dots[-1].operands[0]) == ("%w" in body)
    assert not is_computed(entry_function(module).body.arguments[0])
