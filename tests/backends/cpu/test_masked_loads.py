"""A load with a mask reads nothing where the mask does not hold, whatever is computed from it under the same mask."""

from __future__ import annotations

import re

import pytest

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.backends.installed import backend_of
from kernelpack.compiler.stages import compile_ttir, optimise_ttir
from kernelpack.frontend.ast_to_ttir import ast_to_ttir
from kernelpack.options import Options
from kernelpack.target import Target

BLOCK = 64
MASKED_LOAD = re.compile(r"\(%r\w+.*\), .*%zmm\d+ \{%k\d\}")
"""Instructions that read a vector from memory under a mask."""


@kp.jit
def sum_of_squares(x, out, n, factor, mean, FORMULA: tl.constexpr, BLOCK: tl.constexpr):
    total = tl.zeros([BLOCK], tl.float32)
    for begin in range(0, n, BLOCK):
        offsets = begin + tl.arange(0, BLOCK)
        inside = offsets < n
        value = tl.load(x + offsets, mask=inside, other=0.0)
        if FORMULA == "fma":
            value = tl.fma(value, factor, -mean)
        elif FORMULA == "fma, as a sum":
            value = tl.fma(tl.full([BLOCK], 1.0, tl.float32) * factor, mean, value)
        elif FORMULA == "product":
            value = value * factor
        elif FORMULA == "maximum":
            value = tl.maximum(value, factor)
        centred = tl.where(inside, value, 0.0)
        total = tl.fma(centred, centred, total)
    tl.store(out, tl.sum(total, axis=0))


@pytest.mark.parametrize("formula", ["fma", "fma, as a sum", "product", "maximum", "nothing"])
def test_what_is_computed_under_the_mask_of_a_load_leaves_the_load_its_mask(formula: str) -> None:
    """LLVM makes a masked operation read memory itself, and then takes the two apart without the mask
    (X86InstrInfo::unfoldMemoryOperand)."""
    target = Target.parse("cpu:x86-64-v4")
    signature = {"x": "*fp32", "out": "*fp32", "n": "i32", "factor": "fp32", "mean": "fp32"}
    module = ast_to_ttir(sum_of_squares, signature, {"FORMULA": formula, "BLOCK": BLOCK})
    text = backend_of(target).disassemble(compile_ttir(optimise_ttir(module), target, Options()))
    masked = [line for line in text.splitlines() if MASKED_LOAD.search(line)]
    assert len(masked) == BLOCK // 16, text


@kp.jit
def copy_block(x, out, kept, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    m, n = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)[None, :]
    inside = (tl.load(kept + m) > 0) & (n < columns)
    tl.store(out + m * columns + n, tl.load(x + m * columns + n, mask=inside, other=0.0), mask=inside)


def test_rows_that_a_mask_leaves_out_are_not_looked_at() -> None:
    """A masked move reads and writes nothing there, but takes hundreds of cycles where no memory is."""
    target = Target.parse("cpu:x86-64-v4")
    signature = {"x": "*fp32", "out": "*fp32", "kept": "*i32", "columns": "i32"}
    module = ast_to_ttir(copy_block, signature, {"ROWS": 4, "COLUMNS": 32})
    text = str(compile_ttir(optimise_ttir(module), target, Options()).stages["llir"])
    moved = re.findall(r"@llvm\.masked\.(?:load|store)\.v16f32\.p0\(.*?ptr (%[\w.]+)", text)
    chosen = set(re.findall(r"(%[\w.]+) = select i1 %[\w.]+, ptr %[\w.]+, ptr %nowhere", text))
    assert moved, text
    assert set(moved) <= chosen, text
