"""Quantised weights as files have them: random valid ones, ones at the edge, and the bits that repack gives of them. `python -m
tests.ops.quantized_blocks` holds the built op to the reference."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ops.repack import Format
from tests.ops.functional import module_of
from tests.ops.layouts import bits

Given = tuple[torch.Tensor, int, torch.Tensor | None, torch.Tensor | None]
"""Arguments of repack."""

BYTES = {Format.Q4_0: (18, 32), Format.Q4_1: (20, 32), Format.Q8_0: (34, 32), Format.Q4_K: (144, 256), Format.Q6_K: (210, 256)}
"""Of GGUF's formats: bytes of a block, and its elements."""
HALVES = {Format.Q4_0: (0,), Format.Q4_1: (0, 2), Format.Q8_0: (0,), Format.Q4_K: (0, 2), Format.Q6_K: (208,)}
"""Where float16 numbers lie in a block; all else may have any bits."""
BESIDE = (Format.AWQ, Format.GPTQ, Format.GPTQ_V2)
FORMATS: dict[torch.dtype, tuple[Format, ...]] = {torch.uint8: tuple(BYTES), torch.int32: BESIDE, torch.int8: (Format.INT8,)}
"""By dtype of the weight."""
EDGES = (0.0, -0.0, 65504.0, -65504.0, 2.0**-24, -(2.0**-14), float("inf"), float("nan"))
"""Scales at the edge of float16."""


def any_bits(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    info = torch.iinfo(dtype)
    return torch.randint(info.min, info.max + 1, shape, dtype=dtype)


def some_scales(*shape: int) -> torch.Tensor:
    return torch.randn(shape).half()


def edge_scales(*shape: int) -> torch.Tensor:
    return torch.tensor(EDGES).half()[torch.randint(len(EDGES), shape)]


def given(
    format: Format,
    columns: int,
    inner: int,
    *,
    group: int = 32,
    scales: Callable[..., torch.Tensor] = some_scales,
    kind: torch.dtype = torch.float16,
    code: int | None = None,
) -> Given:
    """Returns a weight [columns, inner]: of random bits or, with `code`, of bytes that are all the same. `group` and `kind`, the dtype
    of scales, are for what has them beside the weight."""

    def words(dtype: torch.dtype, *shape: int) -> torch.Tensor:
        if code is None:
            return any_bits(dtype, *shape)
        return torch.full((*shape[:-1], shape[-1] * dtype.itemsize), code, dtype=torch.uint8).view(dtype)

    if format in BYTES:
        size, held = BYTES[format]
        blocks = words(torch.uint8, columns, inner // held, size)
        for at in HALVES[format]:
            blocks[..., at : at + 2] = scales(columns, inner // held, 1).view(torch.uint8)
        return blocks.flatten(1), int(format), None, None
    if format == Format.INT8:
        return words(torch.int8, columns, inner), int(format), scales(columns).float(), None
    shape = (inner, columns // 8) if format == Format.AWQ else (inner // 8, columns)
    beside = inner // group
    return words(torch.int32, *shape), int(format), scales(beside, columns).to(kind), words(torch.int32, beside, columns // 8)


def cases() -> Iterator[tuple[str, Callable[[], Given]]]:
    """Yields names of weights and what makes them: one column and many, tails of tiles, more blocks than a program takes."""
    for format in Format:
        sizes = ((1, 256), (5, 512), (16, 256), (17, 768), (64, 512), (130, 2304), (3, 8704))
        for columns, inner in sizes:
            columns = 8 * columns if format in BESIDE else columns
            for group in (32, 128, inner) if format in BESIDE else (32,):
                for kind in (torch.float16, torch.float32) if format in BESIDE else (torch.float16,):
                    options = {"group": group, "kind": kind}
                    yield (
                        f"{format.name} {columns}x{inner} {options}",
                        lambda f=format, n=columns, k=inner, o=options: given(f, n, k, **o),
                    )
        if format not in (Format.Q4_K, Format.Q6_K):
            yield f"{format.name} one block", lambda f=format: given(f, 8, 32)
            yield f"{format.name} odd blocks", lambda f=format: given(f, 24, 32 * 7)
        for code in (0, 127, 128, 255):
            yield f"{format.name} all {code}", lambda f=format, c=code: given(f, 24, 256, code=c)
        yield f"{format.name} edge", lambda f=format: given(f, 72, 512, scales=edge_scales)
        yield f"{format.name} no columns", lambda f=format: given(f, 0, 256)
        yield f"{format.name} no rows", lambda f=format: given(f, 16, 0)


def differences(got: Any, arguments: Given) -> str:
    """Returns where the bits of repack's results differ from the reference's, or "". NaN of other bits is the same."""
    for name, ours, right in zip(("codes", "scales", "mins"), got, module_of("repack").reference(*arguments), strict=True):
        if (ours.shape, ours.dtype) != (right.shape, right.dtype) or not ours.is_contiguous():
            return f"{name} is {tuple(ours.shape)} {ours.dtype}, expected {tuple(right.shape)} {right.dtype}"
        other = bits(ours) != bits(right)
        if right.is_floating_point():
            other &= ~(ours.isnan() & right.isnan())
        if bool(other.any()):
            return f"{name}: {int(other.sum())} of {other.numel()} differ, the first at {other.nonzero()[0].tolist()}"
    return ""


def failures(run: Callable[..., Any]) -> tuple[int, list[str]]:
    """Returns how many weights there are, and what is wrong with what `run` makes of them."""
    torch.manual_seed(0)
    count, found = 0, []
    for name, make in cases():
        count, arguments = count + 1, make()
        problem = differences(run(*arguments), arguments)
        if problem:
            found.append(f"{name}: {problem}")
    return count, found


if __name__ == "__main__":
    import kernelpack

    assert kernelpack.__version__
    number, problems = failures(torch.ops.kernelpack.repack)
    print(*problems, f"{number} weights, {len(problems)} differ", sep="\n")
    sys.exit(bool(problems))
