"""Products of int8: sums are exact at every level, by quads of bytes (VNNI), by pairs of 16 bits, or one by one."""

from __future__ import annotations

import pytest
import torch

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.backends.cpu.device.machine_code import disassemble as assembly
from kernelpack.backends.cpu.facts.features import runnable
from kernelpack.compiled import CompiledKernel
from kernelpack.compiler.stages import compile_ttir, optimise_ttir
from kernelpack.ir.core import Operation
from kernelpack.options import Options
from kernelpack.target import Target
from tests.backends.cpu.agreement import ttir_of
from tests.backends.cpu.kernels import loaded_object

V3, V3_VNNI, V4, V4_VNNI, BF16 = (
    Target.parse(f"cpu:x86-64-{level}") for level in ("v3", "v3+avxvnni", "v4", "v4+avx512vnni", "v4+avx512bf16")
)
HERE = [target for target in (V3, V3_VNNI, V4, V4_VNNI, BF16) if target in runnable()]


@kp.jit
def matmul(a, b, c, M, N, K, a_m, a_k, b_k, b_n, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.int32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        x = tl.load(a + rows[:, None] * a_m + k[None, :] * a_k, mask=(rows[:, None] < M) & (k[None, :] < K), other=0)
        y = tl.load(b + k[:, None] * b_k + cols[None, :] * b_n, mask=(k[:, None] < K) & (cols[None, :] < N), other=0)
        total = tl.dot(x, y, total)
    tl.store(c + rows[:, None] * N + cols[None, :], total, mask=(rows[:, None] < M) & (cols[None, :] < N))


@kp.jit
def batches(a, b, c, B: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    i, m, n, k = tl.arange(0, B)[:, None, None], tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x = tl.load(a + (i * M + m[None, :, None]) * K + k[None, None, :])
    y = tl.load(b + (i * K + k[None, :, None]) * N + n[None, None, :])
    tl.store(c + (i * M + m[None, :, None]) * N + n[None, None, :], tl.dot(x, y))


@kp.jit
def both_ways(a, b, c, S: tl.constexpr):
    """Each tile is broadcast in one product and in the lanes of the other."""
    i, j = tl.arange(0, S)[:, None], tl.arange(0, S)[None, :]
    x, y = tl.load(a + i * S + j), tl.load(b + i * S + j)
    tl.store(c + i * S + j, tl.dot(x, y) - 3 * tl.dot(y, x))


@kp.jit
def computed(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """Weights of 4 bits, two a byte, the lower ones for the first half of k."""
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x = tl.load(a + m[:, None] * 2 * K + k[None, :])
    z = tl.load(a + m[:, None] * 2 * K + K + k[None, :])
    packed = tl.load(b + n[None, :] * K + k[:, None])
    total = tl.dot(x, (packed & 15).to(tl.int8))
    tl.store(c + m[:, None] * N + n[None, :], tl.dot(z, ((packed >> 4) & 15).to(tl.int8), total))


def bytes_of(*shape: int) -> torch.Tensor:
    """Random bytes, the extreme ones often."""
    values = torch.randint(-128, 128, shape, dtype=torch.int8)
    return torch.where(torch.rand(shape) < 0.2, torch.where(torch.rand(shape) < 0.5, -128, 127).to(torch.int8), values)


def compiled(module: Operation, target: Target) -> CompiledKernel:
    return compile_ttir(optimise_ttir(module), target, Options())


@pytest.mark.parametrize("target", HERE, ids=str)
@pytest.mark.parametrize(
    ("shape", "block", "a_along_k", "b_along_k"),
    [
        ((48, 64, 64), (16, 32, 32), True, False),
        ((33, 50, 100), (16, 16, 64), True, False),
        ((33, 50, 100), (16, 16, 64), True, True),
        ((40, 24, 70), (32, 16, 32), False, False),
        ((40, 24, 70), (32, 16, 32), False, True),
        ((3, 130, 96), (1, 64, 32), True, True),
        ((1, 5, 64), (1, 4, 64), True, False),
        ((5, 3, 64), (2, 2, 32), True, True),
        ((16, 1, 32), (16, 1, 32), True, False),
        ((7, 256, 33), (4, 128, 32), True, False),
        ((1, 70, 600), (1, 64, 256), True, True),
        ((4, 70, 300), (4, 64, 256), True, True),
        ((5, 32, 128), (2, 32, 128), True, True),
        ((16, 64, 1024), (16, 64, 512), True, True),
    ],
    ids=str,
)
def test_sums_are_exact_in_every_layout(
    target: Target, shape: tuple[int, int, int], block: tuple[int, int, int], a_along_k: bool, b_along_k: bool
) -> None:
    torch.manual_seed(0)
    (m, n, k), (bm, bn, bk) = shape, block
    a = bytes_of(m, k) if a_along_k else bytes_of(k, m).T
    b = bytes_of(n, k).T if b_along_k else bytes_of(k, n)
    c = torch.zeros((m, n), dtype=torch.int32)
    values = (a, b, c, m, n, k, *a.stride(), *b.stride())
    kernel = compiled(ttir_of(matmul, values, {"BM": bm, "BN": bn, "BK": bk}), target)
    loaded_object(kernel).launch((-(-m // bm), -(-n // bn), 1), list(values))
    assert torch.equal(c, (a.long() @ b.long()).int())


@pytest.mark.parametrize("target", HERE, ids=str)
def test_every_product_of_a_batch_is_exact(target: Target) -> None:
    torch.manual_seed(1)
    a, b, c = bytes_of(4, 16, 32), bytes_of(4, 32, 64), torch.zeros((4, 16, 64), dtype=torch.int32)
    kernel = compiled(ttir_of(batches, (a, b, c), {"B": 4, "M": 16, "N": 64, "K": 32}), target)
    loaded_object(kernel).launch((1, 1, 1), [a, b, c])
    assert torch.equal(c, (a.long() @ b.long()).int())


@pytest.mark.parametrize("target", HERE, ids=str)
def test_a_tile_may_be_broadcast_in_one_product_and_in_the_lanes_of_another(target: Target) -> None:
    torch.manual_seed(2)
    a, b, c = bytes_of(32, 32), bytes_of(32, 32), torch.zeros((32, 32), dtype=torch.int32)
    loaded_object(compiled(ttir_of(both_ways, (a, b, c), {"S": 32}), target)).launch((1, 1, 1), [a, b, c])
    assert torch.equal(c, (a.long() @ b.long() - 3 * (b.long() @ a.long())).int())


@pytest.mark.parametrize("target", HERE, ids=str)
def test_operands_may_be_computed(target: Target) -> None:
    torch.manual_seed(3)
    a, b, c = bytes_of(16, 128), bytes_of(32, 64), torch.zeros((16, 32), dtype=torch.int32)
    loaded_object(compiled(ttir_of(computed, (a, b, c), {"M": 16, "N": 32, "K": 64}), target)).launch((1, 1, 1), [a, b, c])
    weights = torch.cat([b & 15, (b >> 4) & 15], 1)
    assert torch.equal(c, (a.long() @ weights.long().T).int())


@pytest.mark.parametrize(
    ("target", "register", "instruction"),
    [(V3, "ymm", "vpmaddwd"), (V4, "zmm", "vpmaddwd"), (V3_VNNI, "ymm", "vpdpbusd"), (V4_VNNI, "zmm", "vpdpbusd"), (BF16, "zmm", "vpdpbusd")],
    ids=str,
)  # fmt: skip
def test_each_level_has_its_instruction(target: Target, register: str, instruction: str) -> None:
    a, b, c = bytes_of(16, 64), bytes_of(64, 64), torch.zeros((16, 64), dtype=torch.int32)
    kernel = compiled(ttir_of(batches, (a, b, c), {"B": 1, "M": 16, "N": 64, "K": 64}), target)
    lines = [line for line in assembly(kernel).splitlines() if instruction in line]
    assert len(lines) >= 16
    assert all(f"%{register}" in line for line in lines)
    other = {"vpmaddwd": "vpdpbusd", "vpdpbusd": "vpmaddwd"}[instruction]
    assert other not in assembly(kernel)
