"""The meaning of ttir in NumPy: the one definition of what numbers a kernel computes, and the reference for every backend.

Values are NumPy arrays (tensors) or NumPy scalars, in the carriers of `ir/formats.py`. Where hardware may differ, this is what
holds here; a backend may differ only where it says "unspecified".

- Integers wrap in two's complement. Signed division and remainder truncate toward zero; the smallest integer divided by -1
  wraps. Division by zero is unspecified, never a trap (here x / 0 = 0 and x % 0 = x); so are shifts by the width or more
  (here as PTX: zero, or the sign for shrsi).
- Floats: +, -, *, /, sqrt, fma and conversions are rounded once, to nearest even, to the type. Elementary functions are
  computed in float64 and rounded. NaN payloads are unspecified. maximumf and minimumf give NaN if an operand is NaN,
  maxnumf, minnumf and clampf (propagateNan = none) the other operand; all take -0 < +0.
- Floats to integers saturate, NaN gives 0. Conversions to fp8 saturate (see `formats.round_to`).
- tt.dot multiplies its inputs as they are, whatever `inputPrecision` says, adds in float64 and rounds once to the result's
  type. The order of addition is unspecified. Integers wrap.
- tt.reduce combines neighbours pairwise, as a tree; order and association are unspecified. tt.scan combines by doubling distances:
  order is kept, association unspecified.
- A load gives zero where the mask is off and there is no `other`. Masked-off pointers are never looked at.
- What a block of a tensor descriptor has outside of the tensor reads as its padding, and is not written.
- Which lane of a store wins that write one place is unspecified, and so is the order of atomics (here row-major order, the last one
  wins). Programs run one after the other.
- scf.for counts like Python's range: it tests before the first trip, and never overflows. The step must be positive.
"""

from kernelpack.ir.interpret.machine import evaluate, launch

__all__ = ["evaluate", "launch"]
