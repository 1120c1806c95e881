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


CASES: dict[str, Callable[[], Calls]] = {"add_rms_norm": add_rms_norm_cases}
"""By op, what yields the names of its cases and their arguments."""


# -- at the edge of what a dtype holds: arguments are float64 -------------------------------------------------------------------


def add_rms_norm_edges(dtype: torch.dtype) -> Calls:
    for columns in (40, 5000):
        for name, make in extremes.ROWS.items():

            def arguments(columns: int = columns, make: extremes.Row = make) -> Arguments:
                x = torch.stack([make(columns, torch.finfo(dtype)), extremes.usual(columns)])
                return (x, torch.zeros_like(x), extremes.usual(columns)), {}

            yield f"{name}, {columns}", arguments


EDGES: dict[str, Callable[[torch.dtype], Calls]] = {"add_rms_norm": add_rms_norm_edges}
