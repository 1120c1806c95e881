"""Cases of the accuracy grid, and calls at the edge, of the ops that a language model needs beside attention and products."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from tests.ops import extremes
from tests.ops.arguments import Arguments
from tests.ops.layouts import ROWS, contiguous, layout_name, repeated, times

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


CASES: dict[str, Callable[[], Calls]] = {
    "add_rms_norm": add_rms_norm_cases,
    "gelu_and_mul": gelu_and_mul_cases,
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


EDGES: dict[str, Callable[[torch.dtype], Calls]] = {
    "add_rms_norm": add_rms_norm_edges,
    "gelu_and_mul": gelu_and_mul_edges,
    "silu_and_mul": silu_and_mul_edges,
}
