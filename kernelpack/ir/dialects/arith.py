"""arith: integer and floating-point arithmetic on scalars and tensors."""

from collections.abc import Sequence

from kernelpack.ir.core import Attribute, Operation, Value
from kernelpack.ir.dialect import Dialect, OpDef, Trait, attr, row, same_as
from kernelpack.ir.formats import normal
from kernelpack.ir.types import I1, Type, bit_width, element_of, shape_of, with_element

_ELEMENTWISE = (Trait.PURE, Trait.ELEMENTWISE)

INT_PREDICATES = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")
FLOAT_PREDICATES = (
    "false",
    "oeq",
    "ogt",
    "oge",
    "olt",
    "ole",
    "one",
    "ord",
    "ueq",
    "ugt",
    "uge",
    "ult",
    "ule",
    "une",
    "uno",
    "true",
)


def _binary(name: str, constraint: str, commutative: bool) -> OpDef:
    return row(
        f"arith.{name}",
        f"lhs: {constraint}, rhs: {constraint}",
        traits=[*_ELEMENTWISE, Trait.SAME_TYPE, *([Trait.COMMUTATIVE] if commutative else [])],
        format="$lhs, $rhs : type($result)",
        infer=same_as(0),
    )


def _compare(name: str, constraint: str, predicates: tuple[str, ...]) -> OpDef:
    def infer(operands: Sequence[Value], attributes: dict[str, Attribute]) -> list[Type]:
        return [with_element(operands[0].type, I1)]

    def check(op: Operation) -> str | None:
        return None if op.operands[0].type == op.operands[1].type else "operands differ in type"

    return row(
        f"arith.{name}",
        f"lhs: {constraint}, rhs: {constraint}",
        attributes=[attr("predicate", predicates)],
        traits=[*_ELEMENTWISE, Trait.SAME_SHAPE],
        format="$predicate, $lhs, $rhs : type($lhs)",
        infer=infer,
        check=check,
    )


def _cast(name: str, source: str, result: str, wider: bool | None) -> OpDef:
    """A conversion between two kinds of numbers; `wider` says whether the result has more bits (True), fewer (False), or either (None)."""

    def check(op: Operation) -> str | None:
        before, after = bit_width(op.operands[0].type), bit_width(op.result.type)
        if wider is not None and (after <= before if wider else after >= before):
            return f"cannot take {op.operands[0].type} to {op.result.type}"
        return None

    return row(
        f"arith.{name}",
        f"in: {source}",
        result=result,
        traits=[*_ELEMENTWISE, Trait.SAME_SHAPE],
        format="$in : type($in) to type($result)",
        check=check,
    )


def _check_constant(op: Operation) -> str | None:
    value, element = op.attributes["value"], element_of(op.result.type)
    if not isinstance(value, (bool, int, float)):
        return f"{value!r} is not a number"
    try:
        only = normal(value, element)
    except (TypeError, ValueError, OverflowError):  # infinities and NaN are not integers
        return f"{value!r} does not fit {element}"
    if type(only) is not type(value) or (only != value and only == only):
        return f"{value!r} must be written {only!r} to be of type {element}"
    return None


def _check_select(op: Operation) -> str | None:
    condition, yes, no = (value.type for value in op.operands)
    if yes != no or yes != op.result.type:
        return "the two values and the result differ in type"
    return None if shape_of(condition) in ((), shape_of(yes)) else "condition and values differ in shape"


ARITH = Dialect(
    "arith",
    [
        row(
            "arith.constant",
            result="number",
            attributes=[attr("value", "value")],
            traits=[Trait.PURE],
            check=_check_constant,
        ),
        *(_binary(name, "int", True) for name in ("addi", "muli", "andi", "ori", "xori")),
        *(_binary(name, "int", True) for name in ("maxsi", "maxui", "minsi", "minui")),
        *(_binary(name, "int", False) for name in ("subi", "divsi", "divui", "remsi", "remui")),
        *(_binary(name, "int", False) for name in ("shli", "shrsi", "shrui")),
        *(_binary(name, "float", True) for name in ("addf", "mulf", "maximumf", "maxnumf", "minimumf", "minnumf")),
        *(_binary(name, "float", False) for name in ("subf", "divf", "remf")),
        row(
            "arith.negf",
            "operand: float",
            traits=[*_ELEMENTWISE, Trait.SAME_TYPE],
            format="$operand : type($result)",
            infer=same_as(0),
        ),
        _compare("cmpi", "int", INT_PREDICATES),
        _compare("cmpf", "float", FLOAT_PREDICATES),
        row(
            "arith.select",
            "condition: bool, true_value, false_value",
            traits=_ELEMENTWISE,
            format="$condition, $true_value, $false_value : type-if-shaped($condition) type($result)",
            infer=same_as(1),
            check=_check_select,
        ),
        *(_cast(name, "int", "int", True) for name in ("extsi", "extui")),
        _cast("trunci", "int", "int", False),
        _cast("extf", "float", "float", True),
        _cast("truncf", "float", "float", False),
        *(_cast(name, "int", "float", None) for name in ("sitofp", "uitofp")),
        *(_cast(name, "float", "int", None) for name in ("fptosi", "fptoui")),
        row(
            "arith.bitcast",
            "in: number",
            result="number",
            traits=[*_ELEMENTWISE, Trait.SAME_SHAPE],
            format="$in : type($in) to type($result)",
            check=lambda op: None if bit_width(op.operands[0].type) == bit_width(op.result.type) else "widths differ",
        ),
    ],
)
