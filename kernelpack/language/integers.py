"""Integer functions for host code, which kernels may call on compile-time values too."""

from __future__ import annotations

from kernelpack.kernel.jit import constexpr_function


@constexpr_function
def cdiv(x: int, y: int) -> int:
    """Returns x / y rounded up."""
    return -(-x // y)


@constexpr_function
def next_power_of_2(n: int) -> int:
    """Returns the smallest power of two that is not below n; 1 for n < 1."""
    return 1 << max(0, n - 1).bit_length()
