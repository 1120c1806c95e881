"""Errors of elementary functions on the CPU over every float32: the table of docs/accuracy.md.

An error is the distance from the function of the same float32 in float64, in units in the last place (ulp) that a float32 has
there; a result that overflows counts as 2^128. Run: python -m benchmarks.math_accuracy (minutes).
"""

from __future__ import annotations

import argparse
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.backends.cpu.device.open import open_object
from kernelpack.backends.cpu.facts.features import runnable
from kernelpack.compiler.stages import compile_ttir, optimise_ttir
from kernelpack.frontend.ast_to_ttir import ast_to_ttir
from kernelpack.language.extra import libdevice
from kernelpack.options import Options
from kernelpack.runtime.loaded import LoadedKernel
from kernelpack.target import Target

BLOCK = 1 << 10
CHUNK = 1 << 18
"""Numbers that are compared at once: they stay in the caches."""


@kp.jit
def numbers(out, first, stride, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, (at * stride + first).to(tl.float32, bitcast=True).to(tl.float64))


@kp.jit
def reciprocal(x):
    return 1.0 / x


@kp.jit
def third(x):
    return x / 3.0


@kp.jit
def rounded_quotient(x):
    return tl.div_rn(x, 1.1)


@kp.jit
def compare(reference, worst, where, exact, first, stride, FUNCTION: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = (at * stride + first).to(tl.float32, bitcast=True)
    y = FUNCTION(x)
    right = tl.load(reference + at)
    power = (right.to(tl.int64, bitcast=True) & 0x7FF0000000000000).to(tl.float64, bitcast=True)  # 2^e of 2^e * 1.m
    unit = tl.minimum(tl.maximum(power, 2.0**-126), 2.0**127) * 2.0**-23
    limit = 2.0**128
    error = tl.abs(tl.clamp(y.to(tl.float64), -limit, limit) - tl.clamp(right, -limit, limit)) / unit
    alike = (y != y) & (right != right)
    error = tl.where(alike, 0.0, tl.where((y != y) | (right != right), float("inf"), error))
    tl.store(worst + tl.program_id(0), tl.max(error, 0))
    tl.store(where + tl.program_id(0), tl.program_id(0) * BLOCK + tl.argmax(error, 0))
    tl.store(exact + tl.program_id(0), tl.sum(((y == right.to(tl.float32)) | alike).to(tl.int32), 0))


_DIVISOR = torch.tensor(1.1).double().item()  # of float32, as the kernel has it

FUNCTIONS: dict[str, tuple[Any, Callable[[Tensor], Tensor]]] = {
    "exp": (tl.exp, torch.exp),
    "exp2": (tl.exp2, torch.exp2),
    "log": (tl.log, torch.log),
    "log2": (tl.log2, torch.log2),
    "log1p": (tl.math.log1p, torch.log1p),
    "sin": (tl.sin, torch.sin),
    "cos": (tl.cos, torch.cos),
    "tanh": (tl.math.tanh, torch.tanh),
    "erf": (tl.erf, torch.erf),
    "tan": (libdevice.tan, torch.tan),
    "asin": (libdevice.asin, torch.asin),
    "acos": (libdevice.acos, torch.acos),
    "atan": (libdevice.atan, torch.atan),
    "expm1": (libdevice.expm1, torch.expm1),
    "log10": (libdevice.log10, torch.log10),
    "sinh": (libdevice.sinh, torch.sinh),
    "cosh": (libdevice.cosh, torch.cosh),
    "asinh": (libdevice.asinh, torch.asinh),
    "acosh": (libdevice.acosh, torch.acosh),
    "atanh": (libdevice.atanh, torch.atanh),
    "sqrt": (tl.sqrt, torch.sqrt),
    "sqrt_rn": (tl.sqrt_rn, torch.sqrt),
    "rsqrt": (tl.rsqrt, torch.rsqrt),
    "1 / x": (reciprocal, torch.reciprocal),
    "x / 3": (third, lambda x: x / 3.0),
    "div_rn(x, 1.1)": (rounded_quotient, lambda x: x / _DIVISOR),
}
"""By name, the function of the language and its reference in torch."""


@dataclass(frozen=True)
class Errors:
    """Of one function over some float32: the largest error, where it is, and the part of results that are correctly rounded."""

    ulp: float
    at: float
    exact: float


def levels() -> list[Target]:
    """Returns this machine's targets whose code differs for float32, the lowest first."""
    return [target for target in reversed(runnable()) if not target.features]


def compiled(kernel: Any, target: Target, signature: dict[str, str], **constexprs: Any) -> LoadedKernel:
    module = optimise_ttir(ast_to_ttir(kernel, signature | {"first": "i32", "stride": "i32"}, constexprs))
    kernel = compile_ttir(module, target, Options())
    return LoadedKernel(kernel, open_object(kernel))


@functools.cache
def _filling(target: Target) -> LoadedKernel:
    return compiled(numbers, target, {"out": "*fp64"}, BLOCK=BLOCK)


def measure(
    function: str, targets: Sequence[Target], stride: int = 1, first: int = -(1 << 31), count: int = 1 << 32
) -> list[Errors]:
    """Returns each target's errors over every `stride`-th float32 of `count`, by their bits, from the bits `first` on. NaN where a
    number is due, or the reverse, is an infinite one."""
    blocks = min(CHUNK, count // stride) // BLOCK
    results = {"reference": "*fp64", "worst": "*fp64", "where": "*i32", "exact": "*i32"}
    fill = _filling(targets[0])
    approximate, reference = FUNCTIONS[function]
    kernels = [compiled(compare, target, results, FUNCTION=approximate, BLOCK=BLOCK) for target in targets]
    x, worst = torch.empty(blocks * BLOCK, dtype=torch.float64), torch.empty(blocks, dtype=torch.float64)
    where, exact = torch.empty(blocks, dtype=torch.int32), torch.empty(blocks, dtype=torch.int32)
    found = [Errors(0.0, math.nan, 0.0)] * len(targets)
    starts = range(first, first + count - (len(x) - 1) * stride, len(x) * stride)
    for start in starts:
        fill.launch((blocks, 1, 1), [x, start, stride])
        right = reference(x)
        for index, kernel in enumerate(kernels):
            kernel.launch((blocks, 1, 1), [right, worst, where, exact, start, stride])
            known = found[index]
            right_part = known.exact + int(exact.sum()) / len(x) / len(starts)
            block = int(worst.argmax())
            if worst[block] > known.ulp:
                found[index] = Errors(float(worst[block]), float(x[where[block]]), right_part)
            else:
                found[index] = replace(known, exact=right_part)
    return found


def table(functions: Sequence[str], stride: int) -> Iterator[str]:
    """Yields the lines of a Markdown table: of each function the target that is furthest off, and how many numbers were tried."""
    yield "| function | ulp | at | correctly rounded | numbers |"
    yield "|-|-|-|-|-|"
    for function in functions:
        of = max(measure(function, levels(), stride), key=lambda found: found.ulp)
        yield f"| `{function}` | {of.ulp:.2f} | {of.at:.8g} | {of.exact:.2%} | {(1 << 32) // stride} |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("functions", nargs="*", default=list(FUNCTIONS), help="default: all")
    parser.add_argument("--stride", type=int, default=1, help="measure every n-th float32")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    for line in table(chosen.functions, chosen.stride):
        print(line, flush=True)
