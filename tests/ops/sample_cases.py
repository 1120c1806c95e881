"""Cases of the accuracy grid, and calls at the edge, of the op that chooses tokens."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

import torch
from torch import Tensor

from tests.ops import extremes
from tests.ops.arguments import Arguments, Typed
from tests.ops.layouts import contiguous, gaps, layout_name, padded, repeated, times

Calls = Iterator[tuple[str, Callable[[], Arguments]]]

SETTINGS: dict[str, Callable[[int, int], Tensor]] = {
    "positions": lambda rows, columns: torch.randint(0, 2**40, (rows,)),
    "temperature": lambda rows, columns: torch.where(torch.arange(rows) % 4 == 3, 0.0, torch.rand(rows) + 0.5),
    "top_k": lambda rows, columns: torch.randint(-1, min(2 * columns, 100) + 1, (rows,)),
    "top_p": lambda rows, columns: 1.0 - torch.rand(rows) * 0.98,
    "min_p": lambda rows, columns: torch.rand(rows) * 0.2,
    "bias": lambda rows, columns: torch.randn(rows, columns).index_fill(1, torch.arange(1, columns, 5), -float("inf")),
    "prompt_mask": lambda rows, columns: torch.rand(rows, columns) > 0.6,
    "output_counts": lambda rows, columns: torch.randint(0, 3, (rows, columns)).int(),
    "repetition_penalty": lambda rows, columns: torch.rand(rows) + 0.8,
    "presence_penalty": lambda rows, columns: torch.rand(rows) - 0.3,
    "frequency_penalty": lambda rows, columns: torch.rand(rows) - 0.3,
}
"""By name, what makes a setting of each row."""

PENALTIES = ("prompt_mask", "output_counts", "repetition_penalty", "presence_penalty", "frequency_penalty")


def seeds(rows: int) -> Tensor:
    return torch.randint(-(2**63), 2**63 - 1, (rows,))


def sample_call(
    shape: tuple[int, int],
    settings: Collection[str] = (),
    *,
    make: Callable[..., Tensor] = contiguous,
    drawn: bool = True,
    log_probabilities: bool = True,
) -> Callable[[], Arguments]:
    """A call with the named settings, whose rows are `drawn` from or not."""

    def arguments() -> Arguments:
        kwargs: dict[str, object] = {name: Typed(SETTINGS[name](*shape)) for name in settings}
        return (times(make(*shape), 3), seeds(shape[0]) if drawn else None), kwargs | {"log_probabilities": log_probabilities}

    return arguments


def sample_cases() -> Calls:
    for make, shape in (
        *((contiguous, (3, columns)) for columns in (1, 2, 17, 255, 256, 257, 1000, 4097)),
        (contiguous, (1, 70001)), (contiguous, (2, 131072)), (contiguous, (1, 300001)), (contiguous, (100, 24)), (contiguous, (0, 8)),
        (padded, (7, 130)), (gaps, (5, 1000)), (repeated, (6, 90)),
    ):  # fmt: skip
        name = layout_name(make, shape)
        yield f"{name} largest", sample_call(shape, make=make, drawn=False)
        yield f"{name} drawn", sample_call(shape, make=make)
        for settings in (("top_k", "top_p"), tuple(SETTINGS)):
            yield f"{name} {len(settings)} settings", sample_call(shape, settings, make=make)
    for setting in SETTINGS:
        yield setting, sample_call((9, 1500), (setting,))
    yield "penalties", sample_call((9, 1500), PENALTIES)
    yield "penalties, largest", sample_call((9, 1500), ("bias", *PENALTIES), drawn=False)
    yield "without log-probabilities", sample_call((9, 1500), ("top_k",), log_probabilities=False)
    yield "largest without log-probabilities", sample_call((9, 1500), drawn=False, log_probabilities=False)

    def equal(top_k: int, top_p: float) -> Arguments:
        """A few values, each of which many logits have."""
        x = torch.randint(0, 3, (6, 1700)).float()
        settings = {"top_k": torch.full((6,), top_k), "top_p": Typed(torch.full((6,), top_p))}
        return (x, seeds(6)), {**settings, "log_probabilities": True}

    for top_k, top_p in ((0, 0.3), (0, 0.95), (5, 1.0), (600, 1.0), (600, 0.5), (1699, 0.9), (1700, 1.0)):
        yield f"equal logits, {top_k}, {top_p}", lambda top_k=top_k, top_p=top_p: equal(top_k, top_p)


def sample_edges(dtype: torch.dtype) -> Calls:
    for columns in (40, 5000):
        for name, make in extremes.ROWS.items():
            for settings in ((), ("top_k", "top_p", "min_p")):

                def arguments(
                    columns: int = columns, make: extremes.Row = make, settings: tuple[str, ...] = settings
                ) -> Arguments:
                    x = torch.stack([make(columns, torch.finfo(dtype)), extremes.usual(columns)])
                    given = {setting: Typed(SETTINGS[setting](2, columns)) for setting in settings}
                    return (x, seeds(2)), {**given, "log_probabilities": True}

                yield f"{name}, {columns}, {len(settings)} settings", arguments
