"""Ops whose warps have roles on sm_90a: every element is written, ragged sizes are right, and repeats agree to the bit."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0), reason="needs a GPU of sm_90"
)
REPEATS = 50
BF16 = torch.bfloat16


def check(write: Callable[[torch.Tensor], None], out: torch.Tensor, expected: torch.Tensor, bound: float = 5e-3) -> None:
    """Writes an op's result over and over into an output that is poisoned each time."""
    write(out.fill_(float("nan")))
    first = out.clone()
    error = (first.double() - expected.double()).norm() / expected.double().norm().clamp(min=1e-30)
    assert error < bound  # of bfloat16: a rounding of the result, and one of the weights
    for _ in range(REPEATS):
        write(out.fill_(float("nan")))
        assert torch.equal(out, first)


def random(*shape: int) -> torch.Tensor:
    return torch.randn(shape, device="cuda").to(BF16)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    ("m", "n", "k"),
    [
        (128, 256, 64), (129, 272, 80), (1000, 1040, 1008), (2048, 512, 16), (4097, 4096, 512), (100, 32, 0),
        (1, 16, 16), (16, 4096, 4096), (33, 20000, 272), (64, 64, 64), (7, 32, 0),
    ],
)  # fmt: skip
def test_matmul(m: int, n: int, k: int, transposed: bool) -> None:
    torch.manual_seed(m + n + k)
    a, b = random(m, k), random(n, k).T if transposed else random(k, n)
    out = torch.empty(m, n, device="cuda", dtype=BF16)
    check(lambda out: torch.ops.kernelpack.matmul.out(a, b, out=out), out, a.double() @ b.double())


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    ("m", "n", "k"), [(1000, 1040, 1008), (80, 8464, 16), (4097, 4096, 512), (129, 4400, 1552), (1040, 1040, 0)]
)
def test_matmul_of_float32(m: int, n: int, k: int, transposed: bool) -> None:
    torch.manual_seed(m + n + k)
    a = torch.randn(m, k, device="cuda")
    b = torch.randn(n, k, device="cuda").T if transposed else torch.randn(k, n, device="cuda")
    out = torch.empty(m, n, device="cuda")
    check(lambda out: torch.ops.kernelpack.matmul.out(a, b, out=out), out, a.double() @ b.double(), 5e-7)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("size", [64, 96, 128, 256])
@pytest.mark.parametrize(
    ("batches", "heads", "key_heads", "queries", "keys"),
    [
        (1, 2, 2, 256, 256),
        (2, 4, 2, 333, 333),
        (1, 2, 1, 1000, 777),
        (1, 3, 3, 320, 1),
        (2, 8, 2, 2048, 2048),
        (3, 40, 8, 500, 700),
    ],
)
def test_mha(batches: int, heads: int, key_heads: int, queries: int, keys: int, size: int, causal: bool) -> None:
    torch.manual_seed(queries + keys + size)
    query = random(batches, heads, queries, size)
    key, value = random(batches, key_heads, keys, size), random(batches, key_heads, keys, size)
    expected = torch.nn.functional.scaled_dot_product_attention(
        query.float(), key.float(), value.float(), is_causal=causal, enable_gqa=True
    )
    out = torch.empty_like(query)
    check(
        lambda out: torch.ops.kernelpack.mha.out(query, key, value, is_causal=causal, enable_gqa=True, out=out), out, expected
    )


def test_mha_reads_strides_and_writes_as_its_query_lies() -> None:
    torch.manual_seed(0)
    packed = random(2, 300, 3, 4, 128)
    query, key, value = (packed[:, :, index].transpose(1, 2) for index in range(3))
    expected = torch.nn.functional.scaled_dot_product_attention(query.float(), key.float(), value.float(), is_causal=True)
    out = torch.empty(2, 300, 4, 128, device="cuda", dtype=BF16).transpose(1, 2)
    assert torch.ops.kernelpack.mha(query, key, value, is_causal=True).stride() == out.stride()
    check(lambda out: torch.ops.kernelpack.mha.out(query, key, value, is_causal=True, out=out), out, expected)
