"""The estimated time of a program, by which launches decide about threads, sees through the loops that kernels have."""

from __future__ import annotations

import pytest

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.compiler.stages import compile_ttir, optimise_ttir
from kernelpack.frontend.ast_to_ttir import ast_to_ttir
from kernelpack.options import Options
from kernelpack.target import Target


@kp.jit
def whole_loop(x, n, CHUNK: tl.constexpr, BLOCK: tl.constexpr):
    for begin in range(0, CHUNK, BLOCK):
        offsets = begin + tl.arange(0, BLOCK)
        tl.store(x + offsets, tl.load(x + offsets) * 2.0)


@kp.jit
def chunk(x, n, CHUNK: tl.constexpr, BLOCK: tl.constexpr):
    first = tl.program_id(0) * CHUNK
    for begin in range(first, tl.minimum(first + CHUNK, n), BLOCK):
        offsets = begin + tl.arange(0, BLOCK)
        tl.store(x + offsets, tl.load(x + offsets, mask=offsets < n) * 2.0, mask=offsets < n)


@kp.jit
def unknown(x, n, CHUNK: tl.constexpr, BLOCK: tl.constexpr):
    for begin in range(0, n, BLOCK):
        offsets = begin + tl.arange(0, BLOCK)
        tl.store(x + offsets, tl.load(x + offsets, mask=offsets < n) * 2.0, mask=offsets < n)


def nanoseconds(kernel: kp.JITFunction, chunk: int, block: int) -> int:
    module = optimise_ttir(ast_to_ttir(kernel, {"x": "*fp32", "n": "i32"}, {"CHUNK": chunk, "BLOCK": block}, ()))
    return compile_ttir(module, Target.parse("cpu:x86-64-v3"), Options()).metadata["program_ns"]


@pytest.mark.parametrize("kernel", [whole_loop, chunk])
def test_a_chunk_costs_what_its_elements_cost(kernel: kp.JITFunction) -> None:
    assert nanoseconds(kernel, 4096, 64) == pytest.approx(4 * nanoseconds(kernel, 1024, 64), rel=0.1)
    assert nanoseconds(kernel, 4096, 64) == pytest.approx(nanoseconds(kernel, 4096, 256), rel=0.2)


def test_a_loop_of_unknown_length_walks_a_thousand_elements_or_four_blocks() -> None:
    assert nanoseconds(unknown, 0, 64) == pytest.approx(nanoseconds(whole_loop, 1024, 64), rel=0.1)
    assert nanoseconds(unknown, 0, 4096) == pytest.approx(nanoseconds(whole_loop, 4 * 4096, 4096), rel=0.1)
