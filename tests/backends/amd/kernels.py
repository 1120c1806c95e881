"""Kernels for gfx942 and how tests compile them: as far as the relocatable object, which needs no linker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.compiled import CompiledKernel
from kernelpack.compiler.stages import compile_ttir, optimise_ttir
from kernelpack.facts import Fact
from kernelpack.frontend.ast_to_ttir import ast_to_ttir
from kernelpack.kernel.jit import JITFunction
from kernelpack.options import Options
from kernelpack.target import Target

GFX942 = Target.parse("amdgpu:gfx942")


def compiled(
    fn: JITFunction,
    types: Mapping[str, str],
    constexprs: Mapping[str, Any] | None = None,
    *,
    aligned: bool = False,
    until: str | None = "object",
    options: Options | None = None,
) -> CompiledKernel:
    """Returns a kernel for gfx942. `aligned`: its pointers and sizes are multiples of 16."""
    facts = tuple(Fact(name, "tt.divisibility", 16) for name in types) if aligned else ()
    options = options or Options()
    module = optimise_ttir(ast_to_ttir(fn, dict(types), dict(constexprs or {}), facts, options))
    return compile_ttir(module, GFX942, options, facts, until=until)


@kp.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out + offsets, tl.load(x + offsets, mask=mask) + tl.load(y + offsets, mask=mask), mask=mask)


ADD = {"x": "*fp32", "y": "*fp32", "out": "*fp32", "n": "i32"}


@kp.jit
def copy(x, out, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets))


@kp.jit
def copy_below(x, out, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + offsets)
    tl.store(out + offsets, value)


@kp.jit
def total(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out + tl.program_id(0), tl.sum(tl.load(x + offsets, mask=offsets < n, other=0.0)))


TOTAL = {"x": "*fp32", "out": "*fp32", "n": "i32"}


@kp.jit
def grid_stride(x, n, BLOCK: tl.constexpr):
    for block in range(tl.program_id(1), n, tl.num_programs(1)):
        tl.store(x + block * BLOCK + tl.arange(0, BLOCK), 0.0)


@kp.jit
def functions(x, out, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    value = tl.load(x + offsets).to(tl.float32)
    value = tl.exp(value) + tl.exp2(value) + tl.log(value) + tl.log2(value) + tl.sqrt(value) + tl.rsqrt(value)
    tl.store(out + offsets, value + tl.erf(value) + tl.abs(value) / tl.floor(value))
