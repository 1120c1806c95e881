"""Cases of the accuracy grid, and calls at the edge, of quantized_matmul."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ops._quantized_weights import in_tiles, pack
from tests.ops import extremes
from tests.ops.arguments import Arguments, Typed

Calls = Iterator[tuple[str, Callable[[], Arguments]]]


@dataclass(frozen=True)
class Kind:
    """How a weight is quantised: bits of a code, elements that share a scale (0: all of a column), the dtype of scales, whether it has mins."""

    bits: int
    group: int
    scales: torch.dtype
    mins: bool

    def __str__(self) -> str:
        return f"{self.bits} bits, {'mins, ' if self.mins else ''}groups of {self.group}, {str(self.scales).removeprefix('torch.')}"


KINDS = (
    Kind(4, 32, torch.float16, False),
    Kind(4, 32, torch.float16, True),
    Kind(4, 64, torch.float32, True),
    Kind(8, 32, torch.float16, False),
    Kind(8, 16, torch.float32, False),
    Kind(8, 0, torch.float32, False),
)
"""Q4_0, Q4_1, AWQ and GPTQ, Q8_0, Q6_K, int8 per channel. Q4_K is the third with groups of 32."""


def weight(kind: Kind, columns: int, inner: int) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the codes, scales and mins of a random weight [columns, inner]."""
    codes = torch.randint(0, 16, (columns, inner)) if kind.bits == 4 else torch.randint(-128, 128, (columns, inner))
    groups = -(-inner // (kind.group or max(inner, 1)))
    scales = (torch.rand(groups, columns) + 0.5) * inner**-0.5 / 2 ** (kind.bits - 2) if inner else torch.empty(0, columns)
    mins = -scales * (torch.rand(groups, columns) * 3 + 6) if kind.mins else torch.empty(0, columns)
    return pack(codes, kind.bits), in_tiles(scales.to(kind.scales)), in_tiles(mins.to(kind.scales))


def call(
    kind: Kind, rows: tuple[int, ...], columns: int, inner: int, *, bias: bool = False, **kwargs: bool
) -> Callable[[], Arguments]:
    def arguments() -> Arguments:
        codes, scales, mins = weight(kind, columns, inner)
        x = torch.randn(*rows, inner)
        args = (x, codes, Typed(scales), Typed(mins))
        return ((*args, torch.randn(columns)) if bias else args), {"columns": columns, **kwargs}

    return arguments


def quantized_matmul_cases() -> Calls:
    for kind in KINDS:
        for int8 in (False, True):
            for rows, columns, inner in (
                ((1,), 100, 192), ((3,), 257, 64), ((8,), 64, 128), ((14,), 64, 576), ((33,), 96, 320), ((130,), 72, 128), ((2, 1), 40, 960),
            ):  # fmt: skip
                name = f"{kind}, {rows} {columns}x{inner}{' int8' if int8 else ''}"
                yield name, call(kind, rows, columns, inner, int8=int8)
        yield f"{kind}, bias", call(kind, (9,), 70, 64, bias=True)
        yield f"{kind}, bias of a row", call(kind, (), 70, 64, bias=True)
        yield f"{kind}, bias, int8", call(kind, (1,), 70, 64, bias=True, int8=True)
        yield f"{kind}, any batch", call(kind, (3,), 70, 128, batch_invariant=True)
    yield "no rows", call(KINDS[1], (0,), 70, 64)
    yield "no columns", call(KINDS[1], (3,), 0, 64, int8=True)
    yield "no elements, bias", call(KINDS[3], (3,), 20, 0, bias=True)


FINITE = ("equal", "equal but one", "third roots of the largest", "zeros", "signed zeros")
"""Rows of x that neither overflow sums nor are smaller than 2^-98: those may lose bits."""


def quantized_matmul_edges(dtype: torch.dtype) -> Calls:
    for kind in (KINDS[1], KINDS[4]):
        for name in FINITE:
            for rows in (1, 20):

                def arguments(kind: Kind = kind, name: str = name, rows: int = rows) -> Arguments:
                    codes, scales, mins = weight(kind, 40, 64)
                    x = torch.stack([extremes.ROWS[name](64, torch.finfo(dtype)) for _ in range(rows)])
                    return (x, codes, Typed(scales), Typed(mins)), {"columns": 40}

                yield f"{name}, {kind}, {rows} rows", arguments


CASES = {"quantized_matmul": quantized_matmul_cases}
EDGES = {"quantized_matmul": quantized_matmul_edges}
