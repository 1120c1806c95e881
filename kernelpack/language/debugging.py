"""What programs say while they run, to whoever looks for a mistake in a kernel: prints and assertions."""

from __future__ import annotations

from typing import Any

from kernelpack.errors import CompilationError
from kernelpack.kernel.builtin import Generator, builtin
from kernelpack.kernel.types import describe, int1
from kernelpack.semantics import operators

__all__ = ["device_assert", "device_print", "expect_zero"]


@builtin
def device_print(prefix: Any, *args: Any, hex: bool = False, _generator: Generator) -> None:
    """Prints run-time values, element by element, after a compile-time text; with `hex` in hexadecimal. `print` is the same."""
    if not isinstance(prefix, str):
        prefix, args = "", (prefix, *args)
    if not prefix.isascii():
        raise CompilationError(f"the text of device_print is {prefix!r}", cure="use ASCII characters only")
    if not prefix.endswith(" "):
        prefix += " "
    b = _generator.builder
    values = [operators.to_tensor(b, value) for value in args]
    signs = tuple(int(value.dtype.is_int_signed()) for value in values)
    b.create("tt.print", [value.handle for value in values], {"prefix": prefix, "hex": bool(hex), "is_signed": signs})


@builtin
def device_assert(cond: Any, msg: str = "", mask: Any = None, *, _generator: Generator) -> None:
    """Stops where a condition, or one element of a tile of conditions, does not hold, but only in kernels compiled with debug=True
    or KERNELPACK_DEBUG=1. `assert` of a run-time condition is the same. Where `mask` is false nothing is checked."""
    if not isinstance(msg, str):
        raise CompilationError(f"the message of device_assert is a compile-time string, got {describe(msg)}")
    if not _generator.debug:
        return
    b = _generator.builder
    condition = operators.cast(b, operators.to_tensor(b, cond), int1)
    if mask is not None:
        condition = operators.logical(b, "|", condition, operators.logical_not(b, operators.to_tensor(b, mask)))
    b.create("tt.assert", [condition.handle], {"message": msg})


@builtin
def expect_zero(x: Any, mask: Any, *, _generator: Generator) -> Any:
    """Returns x, of which the author knows that it is zero where `mask` is true. Checked as device_assert checks."""
    b = _generator.builder
    value = operators.to_tensor(b, x)
    if _generator.debug:
        holds = operators.logical(
            b, "|", operators.compare(b, "==", value, 0), operators.logical_not(b, operators.to_tensor(b, mask))
        )
        b.create("tt.assert", [holds.handle], {"message": "x is zero where mask is true"})
    return value
