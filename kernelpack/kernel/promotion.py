"""In which type an operation on two scalar types is done, as in Triton."""

from __future__ import annotations

from kernelpack.errors import CompilationError
from kernelpack.kernel.types import bfloat16, dtype, float16, float32, float64


def promote_integers(a: dtype, b: dtype) -> dtype:
    """Returns the common type of two integer types: C's usual arithmetic conversions without promotion to int."""
    if a.int_signedness == b.int_signedness:
        return a if a.int_bitwidth > b.int_bitwidth else b
    unsigned, signed = (a, b) if a.is_int_unsigned() else (b, a)
    return unsigned if unsigned.int_bitwidth >= signed.int_bitwidth else signed


def computation_type(a: dtype, a_weak: bool, b: dtype, b_weak: bool, division: bool) -> dtype:
    """Returns the type in which an operation on two scalar types is done; `weak` marks Python numbers.

    `division` (/ // %) of 16-bit floats is done in float32. Two types of 8-bit floats have float16 in common. Raises
    CompilationError for an 8-bit float with an integer, and for a division of a signed by an unsigned integer or the other way
    round.
    """
    if a_weak != b_weak:
        weak, strong = (a, b) if a_weak else (b, a)
        if weak.kind() <= strong.kind():
            return float32 if division and strong in (float16, bfloat16) else strong
    for wide in (float64, float32):
        if wide in (a, b):
            return wide
    if float16 in (a, b):
        return float32 if division else float16
    if bfloat16 in (a, b):
        return bfloat16 if a == b and not division else float32
    if a.is_fp8() and b.is_fp8():
        return a if a == b else float16
    if a.is_fp8() or b.is_fp8():
        raise CompilationError(f"there is no arithmetic on {a} and {b}", cure="cast to float16 first: x.to(tl.float16)")
    if division and a.int_signedness != b.int_signedness:
        raise CompilationError(
            f"Cannot use /, // or % with {a} and {b} because they have different signedness",
            cure="cast one of them with .to()",
        )
    return promote_integers(a, b)
