"""Cases of the accuracy grid, and calls at the edge, of the ops that a language model needs beside attention and products."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from tests.ops import extremes
from tests.ops.arguments import Arguments, Typed
from tests.ops.layouts import ROWS, contiguous, convert, gaps, layout_name, padded, repeated, times
from tests.ops.sample_cases import sample_cases, sample_edges

Calls = Iterator[tuple[str, Callable[[], Arguments]]]


def add_rms_norm_cases() -> Calls:
    for index, (make, shape) in enumerate(ROWS):
        kept = contiguous if make is repeated else make  # a residual has an element of its own at each place

        def call(x: Callable[..., torch.Tensor], residual: Callable[..., torch.Tensor], shape: tuple[int, ...]) -> Arguments:
            return (x(*shape), residual(*shape), torch.randn(shape[-1])), {"eps": 1e-6}

        yield layout_name(make, shape), lambda make=make, kept=kept, shape=shape, call=call: call(make, kept, shape)
        if make is not contiguous:
            yield f"{layout_name(make, shape)} x", lambda make=make, shape=shape, call=call: call(make, contiguous, shape)
        if index % 5 == 0:
            yield (
                f"{layout_name(make, shape)} small",
                lambda make=make, kept=kept, shape=shape: (
                    (times(make(*shape), 1e-3), times(kept(*shape), 1e-3), torch.randn(shape[-1]), 1e-5),
                    {},
                ),
            )


def _gated_cases(kwargs: dict[str, int]) -> Calls:
    for make, shape in ROWS:

        def call(make: Callable[..., torch.Tensor] = make, shape: tuple[int, ...] = shape) -> Arguments:
            return (times(make(*shape[:-1], 2 * shape[-1]), 3),), kwargs

        yield " ".join((layout_name(make, shape), *map(str, kwargs.values()))), call


def silu_and_mul_cases() -> Calls:
    yield from _gated_cases({})
    yield "line", lambda: ((torch.cat((torch.linspace(-20, 20, 10001), torch.randn(10001))),), {})


def gelu_and_mul_cases() -> Calls:
    for approximate in (0, 1):
        kwargs = {"approximate": approximate}
        yield from _gated_cases(kwargs)
        yield (
            f"line {approximate}",
            lambda kwargs=kwargs: ((torch.cat((torch.linspace(-20, 20, 10001), torch.randn(10001))),), kwargs),
        )


def table(positions: int, rotary: int) -> Tensor:
    """Returns cosines and sines [positions, rotary] of random angles."""
    angles = torch.rand(positions, rotary // 2) * 6
    return torch.cat((angles.cos(), angles.sin()), -1)


def rope_and_cache_call(
    heads: tuple[int, int, int],
    sizes: tuple[int, int],
    *,
    rotary: int | None = None,
    block: int = 16,
    make: Callable[..., Tensor] = contiguous,
    cache: torch.dtype | None = None,
    scales: tuple[int, int] | None = None,
    skipped: int = 0,
    interleaved: bool = False,
) -> Callable[[], Arguments]:
    """A call: `heads` are the number of tokens, of their heads and of their key heads, `sizes` those of keys and of values, `scales`
    how many scales keys and values have. Each token but the `skipped` first has a slot of its own."""

    def arguments() -> Arguments:
        (count, query_heads, key_heads), (size, value_size) = heads, sizes
        blocks = -(-count // block) + 2
        caches: list[Tensor | Typed] = [make(blocks, block, key_heads, width) for width in (size, value_size)]
        if cache is not None:
            caches = [Typed(convert(one, cache)) for one in caches if isinstance(one, Tensor)]
        slots = torch.randperm(blocks * block)[:count]
        slots[:skipped] = -1
        kwargs: dict[str, object] = {"interleaved": interleaved}
        if scales is not None:
            kwargs |= {
                name: Typed(torch.rand(length) + 0.5) for name, length in zip(("key_scale", "value_scale"), scales, strict=True)
            }
        rows = [
            make(count, number, width) for number, width in ((query_heads, size), (key_heads, size), (key_heads, value_size))
        ]
        angles = table(300, size // 2 * 2 if rotary is None else rotary)
        positions = torch.randint(0, 300, (count,))
        positions[-1:] = 299  # after the last row memory may end
        return (*rows, *caches, positions, Typed(angles), slots), kwargs

    return arguments


def rope_and_cache_cases() -> Calls:
    for interleaved in (False, True):
        for heads, sizes in (
            ((37, 9, 3), (64, 64)), ((1, 8, 2), (128, 128)), ((5, 3, 3), (10, 10)), ((20, 4, 1), (63, 40)), ((3, 17, 9), (192, 128)),
            ((0, 3, 1), (16, 16)), ((2, 1, 1), (2, 1)), ((300, 2, 1), (80, 80)),
        ):  # fmt: skip
            name = f"{heads} {sizes} {interleaved}"
            yield name, rope_and_cache_call(heads, sizes, interleaved=interleaved)
        for rotary in (0, 2, 20, 48):
            yield (
                f"{rotary} of 64 {interleaved}",
                rope_and_cache_call((7, 4, 2), (64, 64), rotary=rotary, interleaved=interleaved),
            )
        for make in (padded, gaps):
            yield f"{make.__name__} {interleaved}", rope_and_cache_call((9, 6, 2), (64, 48), make=make, interleaved=interleaved)
        yield f"some skipped {interleaved}", rope_and_cache_call((9, 6, 2), (64, 64), skipped=4, interleaved=interleaved)
        yield f"blocks of 1 {interleaved}", rope_and_cache_call((9, 6, 2), (64, 64), block=1, interleaved=interleaved)
        for scales in (None, (1, 1), (3, 3), (1, 3)):
            yield (
                f"fp8 {scales} {interleaved}",
                rope_and_cache_call(
                    (17, 6, 3), (64, 64), cache=torch.float8_e4m3fn, scales=scales, interleaved=interleaved, block=32
                ),
            )
        yield (
            f"fp8 {interleaved}, padded, partial",
            rope_and_cache_call(
                (17, 6, 3), (70, 30), cache=torch.float8_e4m3fn, make=padded, rotary=44, interleaved=interleaved
            ),
        )
        yield f"scales {interleaved}", rope_and_cache_call((17, 6, 3), (64, 64), scales=(3, 1), interleaved=interleaved)


def embedding_cases() -> Calls:
    for shape in ((5,), (2, 3), (1,), (0,), (2, 0, 3), (), (300,), (3, 5, 7)):
        for columns in (1, 16, 63, 576, 1000, 5000):
            for ids in (torch.int64, torch.int32):

                def call(shape: tuple[int, ...] = shape, columns: int = columns, ids: torch.dtype = ids) -> Arguments:
                    make = padded if len(shape) == 2 else contiguous
                    return (torch.randint(0, 37, shape).to(ids), make(37, columns)), {}

                yield f"{shape} of {columns}, {ids}", call
    yield "no columns", lambda: ((torch.tensor([3, 4]), torch.randn(7, 0)), {})
    yield "no rows", lambda: ((torch.empty(0, dtype=torch.int64), torch.randn(0, 5)), {})


def blocks_apart(blocks: int, *block: int) -> Tensor:
    """A cache whose blocks lie apart, as where keys and values of a block are neighbours."""
    return torch.randn(blocks, 2, *block)[:, 0]


def copy_blocks_call(
    count: int, block: tuple[int, int, int], value_size: int, make: Callable[..., Tensor] = contiguous
) -> Callable[[], Arguments]:
    """A call that copies `count` blocks of [block size, key heads, size]."""

    def arguments() -> Arguments:
        blocks = 2 * count + 3
        pairs = torch.randperm(blocks)[: 2 * count].reshape(count, 2)
        return (make(blocks, *block), make(blocks, *block[:2], value_size), pairs), {}

    return arguments


def copy_blocks_cases() -> Calls:
    for count in (0, 1, 2, 5, 40):
        for block, value_size in (
            ((16, 3, 64), 64), ((1, 1, 1), 1), ((4, 2, 10), 7), ((32, 2, 80), 80), ((5, 3, 33), 33), ((16, 1, 40), 3),
        ):  # fmt: skip
            for make in (contiguous, blocks_apart):
                yield f"{count} of {block} {value_size} {make.__name__}", copy_blocks_call(count, block, value_size, make)
    yield "large blocks", copy_blocks_call(2, (64, 8, 100), 100)
    yield "no elements", copy_blocks_call(2, (16, 0, 64), 64)

    def one_source() -> Arguments:
        caches = (torch.randn(9, 4, 2, 16) for _ in range(2))
        return (*caches, torch.tensor([[3, 0], [3, 8], [7, 7]])), {}

    yield "one source, one to itself", one_source


COPIES = ("copy_blocks", "embedding")
"""Ops that compute nothing: their results have the bits of their arguments."""

DIFFERENCES = {"sample": 1.0}
"""Ops whose results are differences of numbers that are at least so large: a log-probability is that from the logarithm of a sum above 1."""

CASES: dict[str, Callable[[], Calls]] = {
    "add_rms_norm": add_rms_norm_cases,
    "add_rms_norm_fp8": add_rms_norm_cases,
    "add_rms_norm_int8": add_rms_norm_cases,
    "copy_blocks": copy_blocks_cases,
    "embedding": embedding_cases,
    "gelu_and_mul": gelu_and_mul_cases,
    "rope_and_cache": rope_and_cache_cases,
    "sample": sample_cases,
    "silu_and_mul": silu_and_mul_cases,
}
"""By op, what yields the names of its cases and their arguments."""


# -- at the edge of what a dtype holds: arguments are float64 -------------------------------------------------------------------


def add_rms_norm_edges(dtype: torch.dtype) -> Calls:
    for columns in (40, 5000):
        for name, make in extremes.ROWS.items():

            def arguments(columns: int = columns, make: extremes.Row = make) -> Arguments:
                x = torch.stack([make(columns, torch.finfo(dtype)), extremes.usual(columns)])
                return (x, torch.zeros_like(x), extremes.usual(columns)), {}

            yield f"{name}, {columns}", arguments


def quantized_edges(dtype: torch.dtype) -> Calls:
    """Rows whose squares float32 holds. Some CPUs round to bfloat16 without subnormal numbers, which then are all that a row has."""
    finite = ("equal", "equal but one", "third roots of the largest", "zeros", "signed zeros", "smallest normal")
    for name, arguments in add_rms_norm_edges(dtype):
        if name.rpartition(",")[0] in finite:
            yield name, arguments


def _gated_edges(dtype: torch.dtype, kwargs: dict[str, int]) -> Calls:
    info = torch.finfo(dtype)
    for name, make in extremes.ROWS.items():
        for other in ("one lowest", "subnormal", "signed zeros"):

            def arguments(make: extremes.Row = make, other: extremes.Row = extremes.ROWS[other]) -> Arguments:
                return (torch.cat((make(300, info), other(300, info))),), kwargs

            yield ", ".join((f"{name} times {other}", *map(str, kwargs.values()))), arguments


def silu_and_mul_edges(dtype: torch.dtype) -> Calls:
    yield from _gated_edges(dtype, {})


def gelu_and_mul_edges(dtype: torch.dtype) -> Calls:
    for approximate in (0, 1):
        yield from _gated_edges(dtype, {"approximate": approximate})


def rope_and_cache_edges(dtype: torch.dtype) -> Calls:
    for name, make in extremes.ROWS.items():
        for interleaved in (False, True):

            def arguments(make: extremes.Row = make, interleaved: bool = interleaved) -> Arguments:
                rows = [torch.stack([make(40, torch.finfo(dtype)) for _ in range(6)]).reshape(3, 2, 40) for _ in range(3)]
                caches = [torch.zeros(2, 4, 2, 40, dtype=torch.float64) for _ in range(2)]
                angles = table(3, 40).double()
                angles[0] = torch.tensor([1.0, 0.0]).repeat_interleave(20)  # where a turn is none
                return (*rows, *caches, torch.arange(3), Typed(angles.float()), torch.tensor([5, -1, 0])), {
                    "interleaved": interleaved
                }

            yield f"{name}, {interleaved}", arguments


def embedding_edges(dtype: torch.dtype) -> Calls:
    def arguments(columns: int) -> Arguments:
        rows = [make(columns, torch.finfo(dtype)) for make in extremes.ROWS.values()]
        return (torch.randperm(len(rows)), torch.stack(rows)), {}

    for columns in (7, 300):
        yield f"{columns} columns", lambda columns=columns: arguments(columns)


def copy_blocks_edges(dtype: torch.dtype) -> Calls:
    for name, make in extremes.ROWS.items():

        def arguments(make: extremes.Row = make) -> Arguments:
            caches = (make(4 * 20, torch.finfo(dtype)).reshape(4, 2, 2, 5).contiguous() for _ in range(2))
            return (*caches, torch.tensor([[2, 0], [1, 3]])), {}

        yield name, arguments


EDGES: dict[str, Callable[[torch.dtype], Calls]] = {
    "add_rms_norm": add_rms_norm_edges,
    "add_rms_norm_fp8": quantized_edges,
    "add_rms_norm_int8": quantized_edges,
    "copy_blocks": copy_blocks_edges,
    "embedding": embedding_edges,
    "gelu_and_mul": gelu_and_mul_edges,
    "rope_and_cache": rope_and_cache_edges,
    "sample": sample_edges,
    "silu_and_mul": silu_and_mul_edges,
}
