"""set_allocator: for programs that give Triton memory for descriptors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def set_allocator(allocator: Callable[[int, int, int | None], Any]) -> None:
    """Takes a function from size, alignment and stream to memory, as triton.set_allocator does, and never calls it: what a kernel
    knows of a tensor descriptor travels with its arguments."""
    if not callable(allocator):
        raise TypeError(f"an allocator is a function from size, alignment and stream to memory, not {allocator!r}")
