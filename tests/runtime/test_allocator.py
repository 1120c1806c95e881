"""set_allocator: programs for Triton may call it; kernels need no memory for their descriptors."""

from __future__ import annotations

import pytest

import kernelpack as kp


def test_allocators_are_taken_and_never_called() -> None:
    def fail(size: int, alignment: int, stream: int | None) -> object:
        raise AssertionError("called")

    kp.set_allocator(fail)
    with pytest.raises(TypeError, match="an allocator is a function"):
        kp.set_allocator(None)
