"""reload_operands: an operand that registers have no room for is read anew for each product."""

from __future__ import annotations

import pytest

from kernelpack.backends.gpu.facts.registers import registers_of
from kernelpack.backends.gpu.passes.reload_operands import MOST_HELD, reload_operands
from kernelpack.ir.core import entry_function
from kernelpack.layout.convert import best_shared
from kernelpack.layout.families import Threads, mma_accumulator, mma_operand, spread
from tests.analysis.ttgir import gpu
from tests.backends.gpu.ttgir import parse

_LOOP = """
    %q = ttg.local_alloc %x : (tensor<{m}x{k}xbf16, $x>) -> !ttg.memdesc<{m}x{k}xbf16, $memory, #ttg.shared_memory>
    %a = ttg.local_load %q : !ttg.memdesc<{m}x{k}xbf16, $memory, #ttg.shared_memory> -> tensor<{m}x{k}xbf16, $a>
    %zero = arith.constant 0 : i32
    scf.for %i = %zero to %n step %n  : i32 {{
      %d = tt.dot %a, %b, %c : tensor<{m}x{k}xbf16, $a> * tensor<{k}x64xbf16, $b> -> tensor<{m}x64xf32, $acc>
    }}
"""


def test_an_operand_that_takes_half_the_registers_is_read_again() -> None:
    depth = 512
    x = spread((16, depth), 8, (1, 0), Threads(4, 32))
    a, b = mma_operand((16, depth), 0, 16, (1, 4)), mma_operand((depth, 64), 1, 16, (1, 4))
    acc = mma_accumulator((16, 64), (1, 4))
    layouts = {"x": x, "acc": acc, "memory": best_shared((x,), (a,), 16), "a": a, "b": b}
    arguments = f"%x: tensor<16x{depth}xbf16, $x>, %b: tensor<{depth}x64xbf16, $b>, %c: tensor<16x64xf32, $acc>, %n: i32"
    module = parse(_LOOP.format(m=16, k=depth), arguments, layouts)
    loop = next(op for op in module.walk() if op.name == "scf.for")
    held = [registers_of(value) for value in loop.body.operations[0].operands]
    assert held[0] >= MOST_HELD
    assert sum(held) <= gpu().tile_registers + held[1]  # not all that is held: b alone would stay
    reload_operands(entry_function(module), gpu())
    assert [op.name for op in loop.body.operations[:-1]] == ["ttg.local_load", "tt.dot"]


@pytest.mark.parametrize(("rows", "depth", "moves"), [(64, 128, False), (128, 512, True)])
def test_an_operand_is_read_again_only_where_registers_are_short(rows: int, depth: int, moves: bool) -> None:
    x = spread((rows, depth), 8, (1, 0), Threads(4, 32))
    a, b = mma_operand((rows, depth), 0, 16, (4, 1)), mma_operand((depth, 64), 1, 16, (4, 1))
    acc = mma_accumulator((rows, 64), (4, 1))
    assert (a.in_size("register") // 2 + acc.in_size("register") + b.in_size("register") // 2 > gpu().tile_registers) == moves
    layouts = {"x": x, "acc": acc, "memory": best_shared((x,), (a,), 16), "a": a, "b": b}
    arguments = (
        f"%x: tensor<{rows}x{depth}xbf16, $x>, %b: tensor<{depth}x64xbf16, $b>, %c: tensor<{rows}x64xf32, $acc>, %n: i32"
    )
    module = parse(_LOOP.format(m=rows, k=depth), arguments, layouts)
    reload_operands(entry_function(module), gpu())
    loop = next(op for op in module.walk() if op.name == "scf.for")
    assert [op.name for op in loop.body.operations[:-1]] == ["ttg.local_load"] * moves + ["tt.dot"]
