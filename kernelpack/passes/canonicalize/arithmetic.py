"""Folds of arithmetic: constants, identities, comparisons, selects, conversions."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kernelpack.ir.core import Builder, Operation, Value
from kernelpack.ir.dialect import operand
from kernelpack.ir.formats import min_normal, normal
from kernelpack.ir.interpret import evaluate
from kernelpack.ir.interpret.tiles import constant
from kernelpack.ir.rewrite import Fold, Rewriter
from kernelpack.ir.types import I1, FloatType, Type, bit_width, element_of, is_float

Number = bool | int | float


def constant_of(value: Value) -> Number | None:
    """Returns the number that a scalar, or every element of a tensor, is known to be."""
    op = value.defining_op
    if op is None or op.name != "arith.constant":
        return None
    number: Number = op.attributes["value"]
    return number


def is_constant(value: Value, number: Number) -> bool:
    """Whether a value is known to be this number, in its type; 0.0 is not -0.0."""
    known = constant_of(value)
    if known is None:
        return False
    wanted = normal(number, element_of(value.type))
    return known == wanted and math.copysign(1.0, known) == math.copysign(1.0, wanted)


def made_by(value: Value, *names: str) -> Operation | None:
    """Returns the operation that a value is the result of, if it has one of these names."""
    op = value.defining_op
    return op if op is not None and op.name in names else None


# ---- any operation ----


def fold_constants(op: Operation, build: Rewriter) -> Value | None:
    """An elementwise operation on constants is a constant."""
    numbers = [constant_of(value) for value in op.operands]
    element = element_of(op.result.type)
    if not numbers or any(number is None for number in numbers):
        return None
    scalars = [
        constant(number, element_of(value.type))
        for number, value in zip(numbers, op.operands, strict=True)
        if number is not None
    ]
    try:
        found = normal(evaluate(op, scalars)[0].item(), element)
    except TypeError:  # a pointer
        return None
    if found != found and op.name in ("arith.bitcast", "tt.bitcast"):
        return None  # constants keep no NaN payload
    return build.constant(found, op.result.type)


def constant_to_the_right(op: Operation, build: Rewriter) -> Value | None:
    lhs, rhs, *more = op.operands
    if constant_of(lhs) is None or constant_of(rhs) is not None:
        return None
    return build.value(op.name, [rhs, lhs, *more], op.attributes, op.result.type)


# ---- identities ----

_NEUTRAL: dict[str, Number] = {
    "arith.addi": 0,
    "arith.subi": 0,
    "arith.muli": 1,
    "arith.divsi": 1,
    "arith.divui": 1,
    "arith.andi": -1,
    "arith.ori": 0,
    "arith.xori": 0,
    "arith.shli": 0,
    "arith.shrsi": 0,
    "arith.shrui": 0,
    "arith.addf": -0.0,
    "arith.subf": 0.0,
    "arith.mulf": 1.0,
    "arith.divf": 1.0,
    "tt.precise_divf": 1.0,
    "tt.addptr": 0,
}
"""x op c is x."""

_ABSORBING: dict[str, tuple[Number, Number]] = {
    "arith.muli": (0, 0),
    "arith.andi": (0, 0),
    "arith.ori": (-1, -1),
    "arith.remsi": (1, 0),
    "arith.remui": (1, 0),
}
"""x op c is another constant."""

_IDEMPOTENT = (
    "arith.andi", "arith.ori", "arith.maxsi", "arith.maxui", "arith.minsi", "arith.minui",
    "arith.maximumf", "arith.minimumf", "arith.maxnumf", "arith.minnumf",
)  # fmt: skip
"""x op x is x."""

_SELF_INVERSE = ("arith.subi", "arith.xori")
"""x op x is 0."""

_ASSOCIATIVE = ("arith.addi", "arith.muli", "arith.andi", "arith.ori", "arith.xori")


def neutral(op: Operation, build: Rewriter) -> Value | None:
    lhs, rhs = op.operands
    return lhs if is_constant(rhs, _NEUTRAL[op.name]) else None


def absorbing(op: Operation, build: Rewriter) -> Value | None:
    number, result = _ABSORBING[op.name]
    return build.constant(result, op.result.type) if is_constant(operand(op, "rhs"), number) else None


def idempotent(op: Operation, build: Rewriter) -> Value | None:
    lhs, rhs = op.operands
    return lhs if lhs is rhs else None


def self_inverse(op: Operation, build: Rewriter) -> Value | None:
    lhs, rhs = op.operands
    return build.constant(0, op.result.type) if lhs is rhs else None


def gather_constants(op: Operation, build: Rewriter) -> Value | None:
    """(x op c) op d is x op (c op d), for integers."""
    lhs, rhs = op.operands
    inner = made_by(lhs, op.name)
    if inner is None or constant_of(rhs) is None or constant_of(operand(inner, "rhs")) is None:
        return None
    constants = build.value(op.name, [operand(inner, "rhs"), rhs])
    return build.value(op.name, [operand(inner, "lhs"), constants])


def subtract_constant(op: Operation, build: Rewriter) -> Value | None:
    """x - c is x + (-c), so that additions gather."""
    lhs, rhs = op.operands
    number = constant_of(rhs)
    if number is None:
        return None
    return build.value("arith.addi", [lhs, build.constant(-number, op.result.type)])


def divide_by_power_of_two(op: Operation, build: Rewriter) -> Value | None:
    """x / c is x * (1 / c) where the reciprocal is exact and neither number is subnormal."""
    dividend, divisor = op.operands
    number, kind = constant_of(divisor), element_of(op.result.type)
    if number is None or number == 0 or not math.isfinite(number) or abs(math.frexp(number)[0]) != 0.5:
        return None
    assert isinstance(kind, FloatType)
    if min(abs(number), abs(1.0 / number)) < min_normal(kind) or not math.isfinite(normal(1.0 / number, kind)):
        return None
    return build.value("arith.mulf", [dividend, build.constant(1.0 / number, op.result.type)])


def negate_twice(op: Operation, build: Rewriter) -> Value | None:
    inner = made_by(op.operand, "arith.negf")
    return inner.operand if inner is not None else None


def ignore_sign(op: Operation, build: Rewriter) -> Value | None:
    """|-x| and ||x|| are |x|."""
    inner = made_by(op.operand, "arith.negf", op.name)
    return build.value(op.name, [inner.operand]) if inner is not None else None


# ---- comparisons and selects ----

_SWAPPED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
_INVERSE = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}


def _swap(predicate: str) -> str:
    return predicate[:-2] + _SWAPPED.get(predicate[-2:], predicate[-2:])


def _invert(predicate: str, *, floats: bool) -> str:
    if not floats:
        return predicate[:-2] + _INVERSE[predicate[-2:]]
    words = {"false": "true", "true": "false", "ord": "uno", "uno": "ord"}
    return words.get(predicate) or ("u" if predicate[0] == "o" else "o") + _INVERSE[predicate[1:]]


def compare_with_itself(op: Operation, build: Rewriter) -> Value | None:
    lhs, rhs = op.operands
    if lhs is not rhs:
        return None
    return build.constant(op.attributes["predicate"] in ("eq", "sle", "sge", "ule", "uge"), op.result.type)


def compare_constant_on_the_right(op: Operation, build: Rewriter) -> Value | None:
    lhs, rhs = op.operands
    if constant_of(lhs) is None or constant_of(rhs) is not None:
        return None
    predicate = op.attributes["predicate"]
    swapped = predicate if predicate in ("false", "true", "ord", "uno") else _swap(predicate)
    return build.value(op.name, [rhs, lhs], {"predicate": swapped})


def compare_always(op: Operation, build: Rewriter) -> Value | None:
    """The predicates `false` and `true` look at nothing."""
    predicate = op.attributes["predicate"]
    return build.constant(predicate == "true", op.result.type) if predicate in ("false", "true") else None


def invert_comparison(op: Operation, build: Rewriter) -> Value | None:
    """not (a < b) is a >= b; of floats, it also holds where they are unordered."""
    lhs, rhs = op.operands
    compare = made_by(lhs, "arith.cmpi", "arith.cmpf")
    if compare is None or not is_constant(rhs, -1) or element_of(op.result.type) != I1:
        return None
    inverse = _invert(compare.attributes["predicate"], floats=compare.name == "arith.cmpf")
    return build.value(compare.name, compare.operands, {"predicate": inverse})


def select(op: Operation, build: Rewriter) -> Value | None:
    condition, yes, no = op.operands
    known = constant_of(condition)
    if known is not None:
        return yes if known else no
    if yes is no:
        return yes
    if condition.type == op.result.type and is_constant(yes, 1) and is_constant(no, 0):
        return condition
    if condition.type == op.result.type and is_constant(yes, 0) and is_constant(no, 1):
        return build.value("arith.xori", [condition, build.constant(True, condition.type)])
    return None


# ---- conversions ----


def _convert(build: Builder, name: str, value: Value, kind: Type) -> Value:
    return build.value(name, [value], None, kind)


def extend_twice(op: Operation, build: Rewriter) -> Value | None:
    """A second extension adds nothing; one of an unsigned number is unsigned."""
    inner = made_by(op.operand, "arith.extui", op.name)
    return _convert(build, inner.name, inner.operand, op.result.type) if inner is not None else None


def truncate_extended(op: Operation, build: Rewriter) -> Value | None:
    """Bits that were added are cut off again, or never existed."""
    inner = made_by(op.operand, "arith.extsi", "arith.extui", "arith.trunci")
    if inner is None:
        return None
    source = inner.operand
    before, after = bit_width(source.type), bit_width(op.result.type)
    if before == after:
        return source
    return _convert(build, op.name if before > after else inner.name, source, op.result.type)


def truncate_extended_float(op: Operation, build: Rewriter) -> Value | None:
    """Extending is exact: what comes back to its own type is unchanged (but for fp8, where infinities saturate)."""
    inner = made_by(op.operand, "arith.extf", "tt.fp_to_fp")
    if inner is None or inner.operand.type != op.result.type or not _is_exact(inner) or bit_width(op.result.type) == 8:
        return None
    return inner.operand


def _is_exact(op: Operation) -> bool:
    source, target = element_of(op.operand.type), element_of(op.result.type)
    assert isinstance(source, FloatType)
    assert isinstance(target, FloatType)
    wider = target.exponent >= source.exponent and target.mantissa >= source.mantissa
    return wider and target.width > source.width


def same_type(op: Operation, build: Rewriter) -> Value | None:
    """A conversion to the type that the value has is none (fp8 infinities saturate even so)."""
    value = op.operand
    if value.type != op.result.type or (is_float(value.type) and bit_width(value.type) == 8 and op.name == "tt.fp_to_fp"):
        return None
    return value


def bitcast_twice(op: Operation, build: Rewriter) -> Value | None:
    inner = made_by(op.operand, "arith.bitcast", "tt.bitcast")
    return _convert(build, op.name, inner.operand, op.result.type) if inner is not None else None


def pointer_and_back(op: Operation, build: Rewriter) -> Value | None:
    """A pointer that becomes an i64 and a pointer again, or an i64 a pointer and an i64 again."""
    inner = made_by(op.operand, "tt.ptr_to_int", "tt.int_to_ptr")
    narrow = min(bit_width(op.operand.type), bit_width(op.result.type)) < 64
    if inner is None or narrow or inner.name == op.name or inner.operand.type != op.result.type:
        return None
    return inner.operand


def _table() -> dict[str, Sequence[Fold]]:
    table: dict[str, list[Fold]] = {}
    for names, fold in (
        (_NEUTRAL, neutral),
        (_ABSORBING, absorbing),
        (_IDEMPOTENT, idempotent),
        (_SELF_INVERSE, self_inverse),
        (_ASSOCIATIVE, gather_constants),
        (("arith.subi",), subtract_constant),
        (("arith.divf", "tt.precise_divf"), divide_by_power_of_two),
        (("arith.negf",), negate_twice),
        (("math.absf",), ignore_sign),
        (("arith.cmpi",), compare_with_itself),
        (("arith.cmpf",), compare_always),
        (("arith.cmpi", "arith.cmpf"), compare_constant_on_the_right),
        (("arith.xori",), invert_comparison),
        (("arith.select",), select),
        (("arith.extsi", "arith.extui"), extend_twice),
        (("arith.trunci",), truncate_extended),
        (("arith.truncf", "tt.fp_to_fp"), truncate_extended_float),
        (("arith.bitcast", "tt.bitcast", "tt.fp_to_fp"), same_type),
        (("arith.bitcast", "tt.bitcast"), bitcast_twice),
        (("tt.int_to_ptr", "tt.ptr_to_int"), pointer_and_back),
    ):
        for name in names:
            table.setdefault(name, []).append(fold)
    return {name: tuple(found) for name, found in table.items()}


FOLDS = _table()
