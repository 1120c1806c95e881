"""Atomics: updates of memory that no other program can come between. Names as in Triton."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernelpack.kernel.builtin import Generator, builtin, member
from kernelpack.kernel.values import tensor
from kernelpack.semantics import atomics

__all__ = [
    "atomic_add",
    "atomic_and",
    "atomic_cas",
    "atomic_max",
    "atomic_min",
    "atomic_or",
    "atomic_xchg",
    "atomic_xor",
]


def _update(what: str, meaning: str) -> Callable[..., tensor]:
    def function(
        pointer: tensor, val: Any, mask: Any = None, sem: str | None = None, scope: str | None = None, *, _generator: Generator
    ) -> tensor:
        return atomics.update(_generator.builder, what, pointer, val, mask, sem, scope)

    function.__name__ = function.__qualname__ = f"atomic_{what}"
    function.__doc__ = (
        f"{meaning} atomically where `mask` is true; returns the values from before. `sem` is acquire, release, acq_rel (the "
        "default) or relaxed, `scope` gpu (the default), cta or sys."
    )
    return member(builtin(function))


atomic_add = _update("add", "Adds to integers of 32 or 64 bits, or floats of 16 or more, in memory")
atomic_max = _update("max", "Takes the maximum with integers, float32 or float64 in memory")
atomic_min = _update("min", "Takes the minimum with integers, float32 or float64 in memory")
atomic_and = _update("and", "Takes the bitwise and with integers in memory")
atomic_or = _update("or", "Takes the bitwise or with integers in memory")
atomic_xor = _update("xor", "Takes the bitwise exclusive or with integers in memory")
atomic_xchg = _update("xchg", "Exchanges integers, float32 or float64 in memory")


@member
@builtin
def atomic_cas(
    pointer: tensor, cmp: Any, val: Any, sem: str | None = None, scope: str | None = None, *, _generator: Generator
) -> tensor:
    """Writes `val` where memory holds `cmp`, bit for bit, atomically; returns the values from before. 16, 32 or 64 bits."""
    return atomics.compare_and_swap(_generator.builder, pointer, cmp, val, sem, scope)
