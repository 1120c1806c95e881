"""Refuses operators on integers that a right side known at compile time leaves without a result: x // 0, x << 100."""

from __future__ import annotations

from kernelpack.errors import CompilationError
from kernelpack.kernel.types import dtype
from kernelpack.kernel.values import tensor


def check_right_side(symbol: str, kind: dtype, right: tensor | float) -> None:
    """Raises CompilationError where `symbol` has no result in the integer type `kind` for a right side that is a number, or a tile of
    one: processors trap there, or give what they like. Dividing floats by 0 gives infinity or NaN."""
    if symbol not in ("//", "%", "<<", ">>"):
        return
    known = _known(right)
    if known is None:
        return
    if symbol in ("<<", ">>"):
        most = kind.int_bitwidth - 1
        wider = ", or shift a wider type: x.to(tl.int64)" if known > most and most < 63 else ""
        has_result, cure = 0 <= known <= most, f"shift by 0 to {most}{wider}"
    else:
        has_result, cure = (
            known != 0,
            "leave the code out by an `if` where the right side is 0, or divide floats: x.to(tl.float32) / y",
        )
    if not has_result:
        raise CompilationError(f"{kind} {symbol} {known} has no result", cure=cure)


def _known(value: tensor | float) -> int | None:
    """Returns the integer that a value is at compile time, if it is one."""
    if not isinstance(value, tensor):
        return int(value)
    made_by = value.handle.defining_op
    if made_by is None or made_by.name != "arith.constant":
        return None
    number = int(made_by.attributes["value"])
    return number % 2**value.dtype.int_bitwidth if value.dtype.is_int_unsigned() else number
