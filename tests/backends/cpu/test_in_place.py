"""What a kernel loads, it loads before it stores: also where both go through one pointer, to other elements."""

from __future__ import annotations

import pytest
import torch

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.backends.cpu.plan.tile_program import Nest
from kernelpack.backends.cpu.stages import CPU_TTIR, ttir_to_tiles_stage
from kernelpack.compiler.stages import optimise_ttir
from kernelpack.context import Context
from kernelpack.options import Options
from kernelpack.target import Target
from tests.backends.cpu.agreement import check, ttir_of

SIZE = 512


@kp.jit
def shift(x, n, S: tl.constexpr):
    r = tl.arange(0, S)
    tl.store(x + r + n, tl.load(x + r))


@kp.jit
def reverse(x, n, S: tl.constexpr):
    r = tl.arange(0, S)
    tl.store(x + (S - 1 - r), tl.load(x + r) + n)


@kp.jit
def flip(x, n, S: tl.constexpr):
    r = tl.arange(0, S)
    tl.store(x + r, tl.flip(tl.load(x + r)) + n)


@kp.jit
def gathered(x, n, S: tl.constexpr):
    where = x + (tl.arange(0, S) // 3)
    values = tl.load(where)
    tl.debug_barrier()
    tl.store(where, values + n)


@kp.jit
def summed_at_repeated_places(x, n, S: tl.constexpr):
    where = x + (tl.arange(0, S) // 3)
    tl.atomic_add(where, tl.load(where) + n)


@kp.jit
def transposed(x, n, S: tl.constexpr):
    r = tl.arange(0, 16)
    stride = n + 11
    tl.store(x + r[:, None] + r[None, :] * stride, tl.load(x + r[:, None] * stride + r[None, :]))


@kp.jit
def first_row_everywhere(x, n, S: tl.constexpr):
    c = tl.arange(0, 64)
    r = tl.arange(0, 8)
    row = tl.load(x + c)
    tl.store(x + r[:, None] * 64 + c[None, :], row[None, :] + r[:, None] + n)


@kp.jit
def through_a_chosen_pointer(x, n, S: tl.constexpr):
    r = tl.arange(0, S)
    to = x
    if n > 2:
        to = x + 1
    tl.store(to + r, tl.load(x + r))


@kp.jit
def along_a_loop(x, n, S: tl.constexpr):
    source = x + tl.arange(0, 64)
    target = source + 1
    for _ in range(n):
        tl.store(target, tl.load(source))
        source += 64
        target += 64


@kp.jit
def stored_twice(x, n, S: tl.constexpr):
    r = tl.arange(0, S)
    first, second = tl.load(x + r), tl.load(x + r + 1)
    tl.store(x + r, second)
    tl.store(x + r + 1, first)


@kp.jit
def cleared_and_scattered(x, n, S: tl.constexpr):
    r = tl.arange(0, S)
    tl.store(x + r, n)
    tl.store(x + (r ^ 5), r)


@kp.jit
def one_element_before_a_branch(x, n, S: tl.constexpr):
    r = tl.arange(0, S)
    first = tl.load(x + r)
    tl.store(x + 3, n)
    if n > 2:
        chosen = first
    else:
        chosen = r
    tl.store(x + S + r, chosen)


@kp.jit
def addresses_that_a_loop_overwrites(x, n, S: tl.constexpr):
    r = tl.arange(0, S)
    source = x + tl.load(x + r)
    sums = tl.zeros([S], tl.int32)
    for i in range(n):
        sums += tl.load(source)
        tl.store(x + r, r // 2 + i)
    tl.store(x + S + r, sums)


KERNELS = [
    shift, reverse, flip, gathered, summed_at_repeated_places, transposed, first_row_everywhere, through_a_chosen_pointer,
    along_a_loop, stored_twice, cleared_and_scattered, one_element_before_a_branch,
    addresses_that_a_loop_overwrites,
]  # fmt: skip


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.__name__)
def test_what_is_loaded_is_loaded_before_anything_is_stored(kernel: kp.JITFunction) -> None:
    check(kernel, (1,), torch.arange(2 * SIZE, dtype=torch.int32), 5, S=SIZE)


@kp.jit
def turned(x, y, z, n, S: tl.constexpr):
    r = tl.arange(0, S)
    first, second = tl.load(x + r), tl.load(x + S + r)
    tl.store(x + r, first * n)
    tl.store(x + S + r, first + second)
    tl.store(y + 2 * r, first)
    tl.store(y + 2 * r + 1, second)
    tl.store(z + r, first)
    tl.store(z + (r + n), second)


def test_elements_that_replace_themselves_wait_for_no_others() -> None:
    arguments = (*torch.zeros(3, SIZE, dtype=torch.int32), 5)
    lowered = Context(Target.parse("cpu:x86-64-v3"), Options(), "turned")
    program = ttir_to_tiles_stage(CPU_TTIR(optimise_ttir(ttir_of(turned, arguments, {"S": SIZE // 2})), lowered), lowered)
    assert program.buffers == []
    assert [len(statement.roots) for statement in program.statements if isinstance(statement, Nest)] == [6]
