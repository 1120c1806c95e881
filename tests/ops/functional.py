"""Ops as functions of their arguments, also those that write to some: what tests compare with references."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from tests.ops.layouts import copied


def module_of(op: str) -> ModuleType:
    """Returns the op's file: kernels, host function, `reference`, `RANGES`."""
    return importlib.import_module(f"ops.{op}")


def written(op: str) -> dict[str, int]:
    """Returns the arguments that an op writes to, and their places."""
    schema = getattr(module_of(op), op).schema
    return {argument.name: place for place, argument in enumerate(schema.arguments) if argument.mutated}


def has_out(op: str) -> bool:
    """Whether an op has an `.out` overload with one result, `out`: tests of that overload leave others out."""
    return len(getattr(module_of(op), op).schema.returns) == 1


def results_of(given: Any) -> tuple[torch.Tensor, ...]:
    """Returns results as a tuple: of an op that returns none, an empty one."""
    return () if given is None else tuple(given) if isinstance(given, (tuple, list)) else (given,)


def functional(op: str, run: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Returns a function that calls an op on copies of the arguments that it writes to, and returns what `reference` does: the op's
    result, or where it writes to arguments, a tuple of its results and of these. `run` is the built op, if none is given."""
    places = written(op)

    def call(*args: Any, **kwargs: Any) -> Any:
        own = [copied(value) if place in places.values() else value for place, value in enumerate(args)]
        result = (run or getattr(torch.ops.kernelpack, op))(*own, **kwargs)
        return (*results_of(result), *(own[place] for place in places.values())) if places else result

    return call
