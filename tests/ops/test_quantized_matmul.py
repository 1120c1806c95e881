"""quantized_matmul with the weights of every format, its int8 path to the bit, and rows that do not depend on their neighbours."""

from __future__ import annotations

import pytest
import torch

from ops._quantized_weights import dequantize, pack, unpack
from ops.quantized_matmul import rounded
from ops.repack import Format
from tests.ops.quantized_blocks import given
from tests.ops.quantized_cases import KINDS, Kind, weight

OP = torch.ops.kernelpack.quantized_matmul
ROWS = (1, 6, 7, 12, 13, 16, 17, 64, 65, 140)
"""Each of the op's kernels, at both ends of what it takes."""


@pytest.mark.parametrize("format", Format)
def test_weights_of_every_format(format: Format) -> None:
    torch.manual_seed(6)
    codes, scales, mins = torch.ops.kernelpack.repack(*given(format, 64, 512))
    scales, mins = (torch.nan_to_num(x.float().clamp(-3, 3)).to(x.dtype) for x in (scales, mins))
    exact = dequantize(codes, scales, mins, torch.float64)
    for rows in ROWS:
        x = torch.randn(rows, 512)
        right = x.double() @ exact.T
        torch.testing.assert_close(OP(x, codes, scales, mins).double(), right, rtol=1e-5, atol=1e-6 * float(right.abs().max()))
        right = rounded(x).double() @ exact.T
        torch.testing.assert_close(
            OP(x, codes, scales, mins, int8=True).double(), right, rtol=1e-5, atol=1e-6 * float(right.abs().max())
        )


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_row_has_the_same_bits_in_any_batch(kind: Kind, dtype: torch.dtype) -> None:
    """With int8 always; else where it is asked for."""
    torch.manual_seed(7)
    parts = weight(kind, 72, 192)
    x = torch.randn(140, 192).to(dtype)
    for options in ({"int8": True}, {"batch_invariant": True}, {"int8": True, "batch_invariant": True}):
        whole = OP(x, *parts, **options)
        for rows in ROWS:
            assert torch.equal(OP(x[:rows], *parts, **options), whole[:rows]), (rows, options)
            assert torch.equal(OP(x[140 - rows :], *parts, **options), whole[140 - rows :]), (rows, options)


def test_sums_of_int8_are_exact() -> None:
    """Codes and activations as large as they come, with scales of one: every number is an integer that float32 holds."""
    x = torch.full((1, 512), 127.0)
    x[:, ::2] = -127.0
    for low, high in ((-128, -128), (127, 127), (-128, 127)):
        codes = torch.tensor([low, high]).repeat(24, 256)
        packed = pack(codes, 8)
        assert torch.equal(unpack(packed)[:24].long(), codes)
        for rows in ROWS:
            got = OP(
                x.expand(rows, 512).contiguous(), packed, torch.ones(1, 16, 64), torch.empty(1, 0, 64), int8=True, columns=24
            )
            assert torch.equal(got, (x.long() @ codes.T).float().expand(rows, 24))


@pytest.mark.parametrize("int8", [False, True])
def test_what_is_not_finite_stays_in_its_row(int8: bool) -> None:
    torch.manual_seed(8)
    parts = weight(KINDS[1], 40, 96)
    for rows in ROWS:
        for value in (float("nan"), float("inf"), -float("inf")):
            x = torch.randn(rows, 96)
            right = OP(x, *parts, int8=int8, columns=40)
            x[-1, 50] = value
            got = OP(x, *parts, int8=int8, columns=40)
            assert not got[-1].isfinite().any()
            assert torch.equal(got[:-1], right[:-1])


def test_columns_end_in_the_last_tile() -> None:
    torch.manual_seed(10)
    parts, x, bias = weight(KINDS[1], 100, 96), torch.randn(3, 96), torch.randn(100)
    whole = OP(x, *parts)
    assert whole.shape == (3, 128)
    assert not whole[:, 100:].any()
    assert torch.equal(OP(x, *parts, bias, columns=100), whole[:, :100] + bias)


def test_nan_in_a_scale_stays_in_its_column() -> None:
    codes, scales, mins = weight(KINDS[1], 40, 96)
    x = torch.randn(3, 96)
    right = OP(x, codes, scales, mins)
    scales[0, 1, 7] = float("nan")
    got = OP(x, codes, scales, mins)
    assert got[:, 7].isnan().all()
    keep = torch.arange(64) != 7
    assert torch.equal(got[:, keep], right[:, keep])


def test_a_subnormal_row_does_not_wrap() -> None:
    """The smallest step is a subnormal number, of which the largest element may be more than 127."""
    x = torch.full((1, 32), 150 * 2.0**-149)
    codes, scales = torch.full((1, 1, 8, 64), 0x01010101, dtype=torch.int32), torch.ones(1, 1, 64)
    assert (OP(x, codes, scales, torch.empty(1, 0, 64), int8=True) >= 0).all()
