"""The operations of the host IR: one row says how each reads in C++ and in Python, and what it gives when all is known."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kernelpack.opgen.host import runtime as host_runtime
from kernelpack.opgen.host.ir import BOOL, DEVICE, DTYPE, FLOAT, INT, INTS, Apply, Const, Expr, HostType

ATOM, UNARY, PRODUCT, SUM, SHIFT, BITS, COMPARE, AND, OR, CONDITIONAL = 100, 80, 70, 60, 55, 50, 40, 30, 20, 10
"""How tightly a form binds; the order of C++ and Python agrees for these, and mixed forms get parentheses anyway."""


@dataclass(frozen=True)
class HostOp:
    """A row. `cpp` and `python` are the forms: `{0}`, `{1}`, ... are operands, `{*}` all of them, `{*1}` all from the first on.

    `binds` counts where the form is infix; forms that enclose their operands bind like atoms.
    `size_dependent`: the result is a symbol while exporting with dynamic shapes.
    """

    cpp: str
    python: str
    evaluate: Callable[..., Any] | None = None
    binds: int = ATOM
    size_dependent: bool = False


def _infix(symbol: str, binds: int, evaluate: Callable[..., Any], python: str | None = None) -> HostOp:
    return HostOp(f"{{0}} {symbol} {{1}}", f"{{0}} {python or symbol} {{1}}", evaluate, binds)


OPS: dict[str, HostOp] = {
    # arithmetic, with Python's meaning of // and %
    "add": _infix("+", SUM, operator.add),
    "sub": _infix("-", SUM, operator.sub),
    "mul": _infix("*", PRODUCT, operator.mul),
    "floordiv": HostOp("kp::floor_div({0}, {1})", "{0} // {1}", operator.floordiv, PRODUCT),
    "mod": HostOp("kp::floor_mod({0}, {1})", "{0} % {1}", operator.mod, PRODUCT),
    "truediv": HostOp("kp::true_div({0}, {1})", "{0} / {1}", operator.truediv, PRODUCT),
    "pow_int": HostOp("kp::integer_pow({0}, {1})", "{0} ** {1}", operator.pow, UNARY),
    "pow_float": HostOp("std::pow({0}, {1})", "{0} ** {1}", operator.pow, UNARY),
    "neg": HostOp("-{0}", "-{0}", operator.neg, UNARY),
    "invert": HostOp("~{0}", "~{0}", operator.invert, UNARY),
    "bit_and": _infix("&", BITS, operator.and_),
    "bit_or": _infix("|", BITS, operator.or_),
    "bit_xor": _infix("^", BITS, operator.xor),
    "lshift": HostOp("kp::shift_left({0}, {1})", "{0} << {1}", operator.lshift, SHIFT),
    "rshift": HostOp("kp::shift_right({0}, {1})", "{0} >> {1}", operator.rshift, SHIFT),
    "min": HostOp("kp::min({0}, {1})", "torch.sym_min({0}, {1})", min),
    "max": HostOp("kp::max({0}, {1})", "torch.sym_max({0}, {1})", max),
    "abs": HostOp("std::abs({0})", "abs({0})", abs),
    "to_float": HostOp("static_cast<double>({0})", "torch.sym_float({0})", float),
    "to_int": HostOp("kp::to_int({0})", "torch.sym_int({0})", int),
    "to_bool": HostOp("{0} != 0", "{0} != 0", bool, COMPARE),
    "cdiv": HostOp("kp::cdiv({0}, {1})", "cdiv({0}, {1})", host_runtime.cdiv),
    "next_power_of_2": HostOp("kp::next_power_of_2({0})", "next_power_of_2({0})", host_runtime.next_power_of_2),
    "num_threads": HostOp("kp::num_threads()", "num_threads()"),
    "sqrt": HostOp("kp::checked_sqrt({0})", "torch.sym_sqrt({0})", math.sqrt),
    "exp": HostOp("std::exp({0})", "math.exp({0})", math.exp),
    "log": HostOp("kp::checked_log({0})", "math.log({0})", math.log),
    "log2": HostOp("kp::checked_log2({0})", "math.log2({0})", math.log2),
    "floor": HostOp("kp::to_int(std::floor({0}))", "math.floor({0})", math.floor),
    "ceil": HostOp("kp::to_int(std::ceil({0}))", "math.ceil({0})", math.ceil),
    # conditions
    "eq": _infix("==", COMPARE, operator.eq),
    "ne": _infix("!=", COMPARE, operator.ne),
    "lt": _infix("<", COMPARE, operator.lt),
    "le": _infix("<=", COMPARE, operator.le),
    "gt": _infix(">", COMPARE, operator.gt),
    "ge": _infix(">=", COMPARE, operator.ge),
    "same_ints": HostOp("kp::same({0}, {1})", "same_shape({0}, {1})", operator.eq),
    "and": _infix("&&", AND, lambda a, b: a and b, "and"),
    "or": _infix("||", OR, lambda a, b: a or b, "or"),
    "not": HostOp("!{0}", "not {0}", operator.not_, UNARY),
    "select": HostOp("{0} ? {1} : {2}", "{1} if {0} else {2}", lambda c, a, b: a if c else b, CONDITIONAL),
    "is_none": HostOp("kp::is_none({0})", "{0} is None", None, COMPARE),
    "value": HostOp("kp::unwrap({0})", "{0}"),
    # tensors
    "shape": HostOp("{0}.shape()", "{0}.shape", size_dependent=True),
    "strides": HostOp("{0}.strides()", "{0}.stride()", size_dependent=True),
    "size": HostOp("{0}.size({1})", "{0}.shape[{1}]", size_dependent=True),
    "stride": HostOp("{0}.stride({1})", "{0}.stride({1})", size_dependent=True),
    "numel": HostOp("{0}.numel()", "{0}.numel()", size_dependent=True),
    "dim": HostOp("{0}.dim()", "{0}.dim()"),
    "dtype": HostOp("{0}.dtype()", "{0}.dtype"),
    "device": HostOp("{0}.device()", "{0}.device"),
    "is_contiguous": HostOp("{0}.is_contiguous()", "{0}.is_contiguous()", size_dependent=True),
    "is_cuda": HostOp("{0}.is_cuda()", "{0}.is_cuda"),
    "element_size": HostOp("{0}.element_size()", "{0}.element_size()"),
    # lists of integers: shapes and strides
    "ints": HostOp("kp::Ints{{*}}", "({*},)"),
    "floats": HostOp("kp::Floats{{*}}", "({*},)"),
    "concat": HostOp("kp::concat({0}, {1})", "(*{0}, *{1})"),
    "slice": HostOp("kp::slice({0}, {1}, {2})", "{0}[{1}:{2}]"),
    "at": HostOp("{0}.at({1})", "{0}[{1}]"),
    "len": HostOp("{0}.size()", "len({0})"),
    "prod": HostOp("kp::product({0})", "product({0})"),
    # views that need no copy
    "broadcast_strides": HostOp("kp::broadcast_strides({0}, {1})", "broadcast_strides({0}, {1})", size_dependent=True),
    "strides_like": HostOp("kp::strides_like({0}, {1})", "strides_like({0}, {1})", size_dependent=True),
    "broadcast_shapes": HostOp("kp::broadcast_shapes({0}, {1})", "broadcast_shapes({0}, {1})"),
    "collapse_batches": HostOp("kp::collapse_batches<{0}>({*1})", "collapse_batches({*1}, ndims={0})", size_dependent=True),
    "collapse_rows": HostOp("kp::collapse_rows<{0}>({*1})", "collapse_rows({*1}, ndims={0})", size_dependent=True),
    "rows_size": HostOp("{0}.sizes[{1}]", "{0}[0][{1}]", size_dependent=True),
    "rows_stride": HostOp("{0}.strides[{1}][{2}]", "{0}[{1} + 1][{2}]", size_dependent=True),
    # of the variant chosen for a launch
    "meta": HostOp("variant.meta[{0}]", 'meta["{0}"]'),
}

_ARITHMETIC_RESULT: dict[str, HostType] = dict.fromkeys(
    ("eq", "ne", "lt", "le", "gt", "ge", "same_ints", "and", "or", "not", "is_none", "to_bool"), BOOL
)
_ARITHMETIC_RESULT |= dict.fromkeys(("size", "stride", "numel", "dim", "element_size", "to_int", "floor", "ceil"), INT)
_ARITHMETIC_RESULT |= dict.fromkeys(("cdiv", "next_power_of_2", "len", "prod", "meta", "rows_size", "rows_stride"), INT)
_ARITHMETIC_RESULT |= dict.fromkeys(("truediv", "to_float", "sqrt", "exp", "log", "log2", "pow_float"), FLOAT)
_ARITHMETIC_RESULT |= dict.fromkeys(
    ("shape", "strides", "ints", "concat", "slice", "broadcast_shapes", "broadcast_strides", "strides_like"), INTS
)
_ARITHMETIC_RESULT |= {
    "is_contiguous": BOOL,
    "is_cuda": BOOL,
    "dtype": DTYPE,
    "device": DEVICE,
    "pow_int": INT,
    "num_threads": INT,
}


def apply(op: str, *operands: Expr, type: HostType | None = None) -> Expr:
    """Returns the operation on operands, computed here where all of them are known numbers.

    `type` is needed where the row's result has its operand's type (add, select, ...). Raises ArithmeticError and ValueError
    as Python would.
    """
    row = OPS[op]
    result = type or _ARITHMETIC_RESULT.get(op) or operands[0].type
    numbers = (bool, int, float)
    if row.evaluate is not None and all(isinstance(x, Const) and isinstance(x.value, numbers) for x in operands):
        value = row.evaluate(*(x.value for x in operands if isinstance(x, Const)))
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise OverflowError(f"{value} does not fit 64 bits")
        return Const(float(value) if result == FLOAT else value, result)
    return Apply(op, operands, result)


_PLACEHOLDER = re.compile(r"\{(\*?)(\d*)\}")


def render(expr: Expr, leaf: Callable[[Expr], str], language: str) -> str:
    """Returns an expression as text. `leaf` prints constants and variables, `language` is `cpp` or `python`."""
    return _render(expr, leaf, language)[0]


def _render(expr: Expr, leaf: Callable[[Expr], str], language: str) -> tuple[str, int]:
    """Returns the text and how tightly it binds."""
    if not isinstance(expr, Apply):
        text = leaf(expr)
        return text, UNARY if text.startswith("-") else ATOM
    special = leaf(expr)  # a language's own form for this operation, or ""
    if special:
        return special, ATOM
    row = OPS[expr.op]
    template = row.cpp if language == "cpp" else row.python
    parts = [_render(operand, leaf, language) for operand in expr.operands]
    binds = row.binds if _is_infix(template) else ATOM

    def operand(match: re.Match[str]) -> str:
        star, digits = match.groups()
        if star:
            return ", ".join(text for text, _ in parts[int(digits or 0) :])
        index = int(digits)
        text, own = parts[index]
        if template.startswith(match[0]) and template[match.end() :].startswith((".", "[")):
            return text if own == ATOM else f"({text})"
        if binds == ATOM:
            return text
        loose = own < binds or (own == binds and (index > 0 or binds in (COMPARE, UNARY)))
        mixed = own != ATOM and own in (BITS, SHIFT, AND, OR) and own != binds
        return f"({text})" if loose or mixed else text

    return _PLACEHOLDER.sub(operand, template), binds


def _is_infix(template: str) -> bool:
    """Whether operands stand in the open, not inside parentheses, brackets or braces."""
    depth = 0
    for index, character in enumerate(template):
        if character == "{" and depth == 0 and _PLACEHOLDER.match(template, index):
            follows = template[index + 3 : index + 4]
            if follows not in (".", "["):
                return True
        depth += character in "([" or template[index : index + 2] == "{{"
        depth -= character in ")]" or template[index : index + 2] == "}}"
    return False
