"""A case: an engine's own function called on CPU tensors, and what torch, or a reference of the engine's, makes of the same."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from kernelpack import knobs

Pair = tuple[torch.Tensor, torch.Tensor]
Run = Callable[[], Iterator[Pair]]


@dataclass(frozen=True)
class Case:
    """`run` yields what kernels gave and what is expected. `tolerance` is the distance allowed, relative to the largest value expected."""

    name: str
    about: str
    tolerance: float
    run: Run


@dataclass(frozen=True)
class Outcome:
    """The kernels that a case launched, the largest distance from what is expected, and an error's text."""

    case: Case
    kernels: list[str]
    distance: float
    error: str = ""

    @property
    def good(self) -> bool:
        return self.distance <= self.case.tolerance and bool(self.kernels)


CASES: list[Case] = []


def case(name: str, about: str, tolerance: float = 1e-2) -> Callable[[Run], Run]:
    """Decorator: adds a case to CASES. bfloat16 has a distance of 0.4 % between neighbours."""

    def add(run: Run) -> Run:
        CASES.append(Case(name, about, tolerance, run))
        return run

    return add


def distance(got: torch.Tensor, wanted: torch.Tensor) -> float:
    """Returns the largest difference by the largest value expected; infinite where shapes or what is not finite differ."""
    if got.shape != wanted.shape:
        return float("inf")
    got, wanted = got.detach().double(), wanted.detach().double()
    finite = wanted.isfinite()
    if not torch.equal(finite, got.isfinite()) or not torch.equal(got[~finite], wanted[~finite]):
        return float("inf")
    if not finite.any():
        return 0.0
    return float((got - wanted)[finite].abs().max() / wanted[finite].abs().max().clamp(min=1e-6))


def outcome(case: Case) -> Outcome:
    """Runs a case. An error of the engine is printed, and is an outcome like any other."""
    launched: dict[str, None] = {}

    def note(metadata: Any) -> None:
        launched.setdefault(metadata.get()["name"].partition(" ")[0])  # vLLM adds the sizes of some launches

    knobs.runtime.launch_enter_hook.add(note)
    torch.manual_seed(0)
    try:
        found = max(distance(got, wanted) for got, wanted in case.run())
        return Outcome(case, list(launched), found)
    except Exception as error:
        traceback.print_exc()
        first_line = next(iter(str(error).splitlines()), "")
        return Outcome(case, list(launched), float("inf"), f"{type(error).__name__}: {first_line}")
    finally:
        knobs.runtime.launch_enter_hook.remove(note)
