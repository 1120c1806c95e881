"""repack keeps every bit of a weight and puts it where quantized_matmul looks for it; what does not fit its format is refused."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from ops._quantized_weights import dequantize, pack, unpack
from ops.repack import Format, reference
from tests.ops.grid import module_of
from tests.ops.guard_pages import Guarded
from tests.ops.levels import LEVELS, run_at
from tests.ops.quantized_blocks import BESIDE, BYTES, FORMATS, Given, any_bits, cases, differences, failures, given


def repack(*arguments: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    codes, scales, mins = torch.ops.kernelpack.repack(*arguments)
    return codes, scales, mins


@pytest.mark.parametrize("level", LEVELS)
def test_bits_are_those_of_the_reference(level: str) -> None:
    done = run_at(level, "-m", "tests.ops.quantized_blocks")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert f"{len(list(cases()))} weights, 0 differ" in done.stdout


def test_development_run_gives_the_same() -> None:
    number, problems = failures(module_of("repack").repack)
    assert number > 200
    assert problems == []


@pytest.mark.parametrize("format", Format)
def test_a_wrong_bit_would_be_found(format: Format) -> None:
    arguments = given(format, 24, 256)
    results = repack(*arguments)
    assert not differences(results, arguments)
    for result in results:
        if result.numel():
            flat = result.view(torch.int16 if result.dtype == torch.float16 else torch.int32).flatten()
            flat[-1] ^= 1
            assert "differ" in differences(results, arguments)
            flat[-1] ^= 1


# -- what the formats are: other sources than the reference ----------------------------------------------------------------------


@pytest.mark.parametrize("format", BYTES)
def test_weights_of_gguf_are_what_ggml_makes_of_them(format: Format) -> None:
    """The package gguf, by ggml's authors, has the formats in numpy."""
    from gguf import GGMLQuantizationType, quants

    weight, number, *_ = given(format, 33, 1024)
    expected = torch.from_numpy(quants.dequantize(weight.numpy(), GGMLQuantizationType(number)))
    assert torch.equal(dequantize(*repack(weight, number), columns=33), expected)


def packed(codes: torch.Tensor, order: tuple[int, ...]) -> torch.Tensor:
    """Returns words [m, n / 8] of codes [m, n]: of eight neighbours, number order[i] lies at bit 4 i."""
    words = torch.zeros(codes.shape[0], codes.shape[1] // 8, dtype=torch.int64)
    for i, place in enumerate(order):
        words |= codes[:, place::8].long() << 4 * i
    return words.to(torch.int32)


@pytest.mark.parametrize("format", BESIDE)
def test_weights_of_awq_and_gptq_are_what_they_were_before_they_were_packed(format: Format) -> None:
    columns, inner, group = 40, 384, 128
    codes, zeros = torch.randint(0, 16, (inner, columns)), torch.randint(1, 16, (inner // group, columns))
    scales = torch.rand(inner // group, columns).half()
    order = (0, 2, 4, 6, 1, 3, 5, 7) if format == Format.AWQ else tuple(range(8))
    weight = packed(codes, order) if format == Format.AWQ else packed(codes.T, order).T.contiguous()
    stored = zeros - 1 if format == Format.GPTQ else zeros
    expected = (codes - zeros.repeat_interleave(group, 0)) * scales.float().repeat_interleave(group, 0)
    got = dequantize(*repack(weight, format, scales, packed(stored, order)), torch.float64, columns)
    torch.testing.assert_close(got, expected.T.double(), rtol=1e-12, atol=1e-12)


def test_weights_in_int8_are_their_rows_times_their_scales() -> None:
    weight, scales = any_bits(torch.int8, 40, 96), torch.rand(40)
    assert torch.equal(dequantize(*repack(weight, Format.INT8, scales), columns=40), weight * scales[:, None])


@pytest.mark.parametrize("bits", [4, 8])
def test_codes_lie_where_the_layout_says(bits: int) -> None:
    least = 0 if bits == 4 else -128
    values = torch.randint(least, least + 2**bits, (70, 96))
    codes = pack(values, bits)
    assert codes.shape == (2, 3, bits, 64)
    assert torch.equal(unpack(codes)[:70], values.int())
    assert not codes[1, ..., 6:].any()
    for n in (0, 1, 4, 63, 64, 69):
        for k in range(96):
            block, inside = divmod(k, 32)
            half, place = divmod(inside, 16) if bits == 4 else (0, inside)
            word = int(codes[n // 64, block, place // 4, n % 64])
            assert (word >> 8 * (place % 4) + 4 * half) % 2**bits == int(values[n, k]) % 2**bits


# -- memory ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at_end", [True, False])
@pytest.mark.parametrize("format", Format)
def test_no_access_outside_of_a_tensor(format: Format, at_end: bool) -> None:
    for columns, inner in ((24, 256), (8, 512)):
        arguments = given(format, columns, inner)
        held = {
            name: Guarded(x, at_end=at_end)
            for name, x in zip(("weight", "scales", "zeros"), (arguments[0], *arguments[2:]), strict=True)
            if x is not None
        }
        results = [Guarded(torch.zeros_like(x), at_end=at_end) for x in reference(*arguments)]
        out = dict(zip(("codes", "scales_out", "mins"), (one.tensor for one in results), strict=True))
        torch.ops.kernelpack.repack.out(**{name: one.tensor for name, one in held.items()}, format=format, **out)
        assert not differences(tuple(one.tensor for one in results), arguments)
        for one in (*held.values(), *results):
            if one.tensor.numel():
                one.release()


@pytest.mark.slow
def test_bytes_beyond_2_to_the_31() -> None:
    """The last rows of a weight of 2.2 GB, of which the rest is never written."""
    rows, columns = 2**16 + 64, 32 * 1024
    weight = torch.empty(rows, columns // 32 * 34, dtype=torch.uint8)
    last, *_ = given(Format.Q8_0, 64, columns)
    weight[-64:] = last
    codes, scales, _ = repack(weight, Format.Q8_0)
    assert not differences((codes[-1:], scales[-1:], scales[-1:, :0]), (last, 8, None, None))


# -- torch's modes ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", Format)
def test_torch_checks_it(format: Format) -> None:
    torch.library.opcheck(torch.ops.kernelpack.repack.default, given(format, 24, 256))


@pytest.mark.parametrize("format", Format)
def test_fakes_know_shapes_and_dtypes(format: Format) -> None:
    arguments = given(format, 24, 512, group=128)
    with FakeTensorMode() as mode:
        faked = torch.ops.kernelpack.repack(*(mode.from_tensor(x) if isinstance(x, torch.Tensor) else x for x in arguments))
    for fake, right in zip(faked, reference(*arguments), strict=True):
        assert (fake.shape, fake.dtype) == (right.shape, right.dtype)


def test_exported_programs_take_every_size() -> None:
    class Repack(torch.nn.Module):
        def forward(self, weight: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return tuple(torch.ops.kernelpack.repack(weight, 3))

    rows = torch.export.Dim("rows", min=65, max=4096)  # of up to 64 there is one tile, and torch takes a size of one as fixed
    program = torch.export.export(Repack(), (given(Format.Q4_1, 200, 256)[0],), dynamic_shapes={"weight": {0: rows}})
    for columns in (65, 300):
        arguments = given(Format.Q4_1, columns, 256)
        assert not differences(program.module()(arguments[0]), arguments)


# -- bad input -------------------------------------------------------------------------------------------------------------------


def x(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(shape, dtype=dtype)


u8, i8, i32, f16 = torch.uint8, torch.int8, torch.int32, torch.float16
AWQ = (x(64, 3, dtype=i32), 100, x(2, 24, dtype=f16), x(2, 3, dtype=i32))
GPTQ = (x(8, 24, dtype=i32), 101, x(2, 24, dtype=f16), x(2, 3, dtype=i32))


def but(arguments: tuple[Any, ...], **other: Any) -> tuple[Any, ...]:
    return tuple((dict(zip(("weight", "format", "scales", "zeros"), arguments, strict=True)) | other).values())


BAD: list[tuple[tuple[Any, ...], str]] = [
    ((x(3, 18, dtype=u8), 4), r"format is 4, expected 2 \(Q4_0\), 3 \(Q4_1\).*103 \(int8\)"),
    ((x(3, 18, dtype=u8), -1), r"format is -1, expected"),
    ((x(3, 18, dtype=u8), 2**40), r"format is 1099511627776, expected"),
    ((x(3, 18), 2), r"weight has dtype float32, built are: uint8, int32, int8"),
    ((x(3, 18, dtype=i8), 2), r"weight is not uint8, as format 2 is stored"),
    ((x(3, 36, dtype=u8), 100), r"weight is not int32, as format 100 is stored"),
    ((x(32, 32, dtype=i32), 103, x(32)), r"weight is not int8, as format 103 is stored"),
    ((x(54, dtype=u8), 2), r"weight must have 2 dimensions, it has shape \(54,\)"),
    ((x(18, 36, dtype=u8).t(), 2), r"weight must be contiguous, its strides are \(1, 36\)\n  to fix"),
    ((x(3, 19, dtype=u8), 2), r"weight has shape \(3, 19\), in format 2 .* must be a multiple of 18"),
    ((x(3, 18, dtype=u8), 3), r"must be a multiple of 20"),
    ((x(3, 33, dtype=u8), 8), r"must be a multiple of 34"),
    ((x(3, 72, dtype=u8), 12), r"must be a multiple of 144"),
    ((x(3, 209, dtype=u8), 14), r"must be a multiple of 210"),
    ((x(3, 18, dtype=u8), 2, x(3)), r"scales is given, but weights of format 2 hold their own"),
    ((x(3, 18, dtype=u8), 2, None, x(3, dtype=i32)), r"zeros is given, but weights of format 2 hold their own"),
    (but(AWQ, weight=x(65, 3, dtype=i32)), r"weight has shape \(65, 3\), in format 100 .* must be a multiple of 32"),
    (but(GPTQ, weight=x(9, 24, dtype=i32)), r"weight has shape \(9, 24\), in format 101 .* must be a multiple of 4"),
    (but(AWQ, scales=None), r"scales is None, format 100 needs it"),
    (but(GPTQ, zeros=None, format=102), r"zeros is None, format 102 needs it"),
    (but(AWQ, scales=x(2, 24, dtype=torch.bfloat16)), r"scales has dtype bfloat16, built are: .*float16, float32"),
    (but(AWQ, scales=x(2, 25, dtype=f16)), r"scales has shape \(2, 25\), expected a row of 24 for each group"),
    (but(AWQ, scales=x(24, dtype=f16)), r"scales has shape \(24,\), expected a row of 24"),
    (but(AWQ, scales=x(24, 2, dtype=f16).t()), r"scales must be contiguous, its strides are \(1, 2\)\n  to fix"),
    (but(AWQ, scales=x(3, 24, dtype=f16)), r"scales has 3 rows, expected one for each group of a K of 64"),
    (but(AWQ, scales=x(4, 24, dtype=f16)), r"scales has 4 rows, expected one for each group of a K of 64"),
    (but(AWQ, scales=x(0, 24, dtype=f16), zeros=x(0, 3, dtype=i32)), r"scales has 0 rows"),
    (but(AWQ, zeros=x(2, 24, dtype=i32)), r"zeros has shape \(2, 24\), expected \(2, 3\)"),
    (but(AWQ, zeros=x(1, 3, dtype=i32)), r"zeros has shape \(1, 3\), expected \(2, 3\)"),
    (but(AWQ, zeros=x(2, 3, dtype=torch.int64)), r"zeros has dtype int64, built are: .*int32"),
    (but(AWQ, zeros=x(3, 2, dtype=i32).t()), r"zeros must be contiguous"),
    ((x(8, 20, dtype=i32), 101, x(1, 20, dtype=f16), x(1, 2, dtype=i32)), r"weight has 20 columns, expected a multiple of 8"),
    ((x(5, 32, dtype=i8), 103), r"scales is None, format 103 needs it"),
    ((x(5, 32, dtype=i8), 103, x(5), x(5, dtype=i32)), r"zeros is given, but format 103 has none"),
    ((x(5, 32, dtype=i8), 103, x(5, dtype=f16)), r"scales is float16, expected float32 beside int8"),
    ((x(5, 32, dtype=i8), 103, x(1, 5)), r"scales has shape \(1, 5\), expected \(5,\)"),
    ((x(5, 32, dtype=i8), 103, x(10)[::2]), r"scales must be contiguous"),
    ((x(5, 33, dtype=i8), 103, x(5)), r"weight has shape \(5, 33\), in format 103 .* must be a multiple of 32"),
    (but(AWQ, scales=torch.ones(2, 24, dtype=f16, device="meta")), r"scales is on meta, weight is on cpu"),
]  # fmt: skip


@pytest.mark.parametrize("index", range(len(BAD)))
def test_refused_by_name(index: int) -> None:
    arguments, said = BAD[index]
    with pytest.raises((RuntimeError, NotImplementedError)) as raised:
        repack(*arguments)
    assert re.search(said, str(raised.value), re.DOTALL), str(raised.value)
    assert "kernelpack::repack" in str(raised.value)
    assert not differences(repack(*AWQ), AWQ)


def test_every_dtype_of_weights_has_its_formats() -> None:
    assert sorted(format for formats in FORMATS.values() for format in formats) == sorted(Format)
    arguments: Given = GPTQ
    assert not differences(repack(*arguments), arguments)
