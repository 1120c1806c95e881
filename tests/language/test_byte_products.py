"""tl.dot of int8 and uint8, which mix: exact in the interpreter, on CPUs and on GPUs (emulated)."""

from __future__ import annotations

import pytest
import torch

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.errors import CompilationError
from kernelpack.ir.interpret import launch
from kernelpack.simt import Emulator
from tests.backends.cpu.agreement import check, ttir_of

PAIRS = [(torch.uint8, torch.int8), (torch.int8, torch.uint8), (torch.uint8, torch.uint8)]


@kp.jit
def product(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :], tl.arange(0, K)
    x, y = tl.load(a + m * K + k[None, :]), tl.load(b + k[:, None] * N + n)
    tl.store(c + m * N + n, tl.dot(x, y, tl.full((M, N), 7, tl.int32)))


@kp.jit
def batches(a, b, c):
    i, m, k = tl.arange(0, 2)[:, None, None], tl.arange(0, 16), tl.arange(0, 32)
    x = tl.load(a + (i * 16 + m[None, :, None]) * 32 + k[None, None, :])
    y = tl.load(b + (i * 32 + k[None, :, None]) * 16 + m[None, None, :])
    tl.store(c + (i * 16 + m[None, :, None]) * 16 + m[None, None, :], tl.dot(x, y))


@kp.jit
def with_floats(a, b, c):
    i = tl.arange(0, 32)
    tl.store(
        c + i[:, None] * 32 + i[None, :], tl.dot(tl.load(a + i[:, None] + i[None, :]), tl.load(b + i[:, None] + i[None, :]))
    )


def extreme(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """Random bytes; a row and a column hold the least and the greatest."""
    torch.manual_seed(1)
    least, most = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    values = torch.randint(least, most + 1, shape, dtype=dtype)
    values[..., 0, :], values[..., :, 1] = least, most
    return values


@pytest.mark.parametrize(("left", "right"), PAIRS, ids=str)
def test_sums_are_exact(left: torch.dtype, right: torch.dtype) -> None:
    a, b, c = extreme(left, 16, 64), extreme(right, 64, 32), torch.zeros(16, 32, dtype=torch.int32)
    expected = (a.long() @ b.long() + 7).int()
    found, sizes = c.clone(), {"M": 16, "N": 32, "K": 64}
    launch(ttir_of(product, [a, b, found], sizes), (1,), [a, b, found])
    assert torch.equal(found, expected)
    check(product, (1,), a, b, c, **sizes)
    with Emulator("cuda:sm_80"):
        product[(1,)](a, b, c, **sizes)
    assert torch.equal(c, expected)


@pytest.mark.parametrize(("left", "right"), PAIRS, ids=str)
def test_sums_of_batches_are_exact(left: torch.dtype, right: torch.dtype) -> None:
    a, b, c = extreme(left, 2, 16, 32), extreme(right, 2, 32, 16), torch.zeros(2, 16, 16, dtype=torch.int32)
    found = c.clone()
    launch(ttir_of(batches, [a, b, found], {}), (1,), [a, b, found])
    assert torch.equal(found, (a.long() @ b.long()).int())
    check(batches, (1,), a, b, c)


def test_bytes_do_not_mix_with_other_types() -> None:
    a, b = torch.zeros(64, dtype=torch.uint8), torch.zeros(64)
    with pytest.raises(CompilationError, match=r"tl\.dot does not take uint8 and fp32"):
        ttir_of(with_floats, [a, b, torch.zeros(32, 32)], {})
