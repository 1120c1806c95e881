"""tt: functions, programs, memory, conversions, reductions and matrix products, as in Triton's IR of that name."""

from __future__ import annotations

from collections.abc import Sequence

from kernelpack.ir.core import Attribute, Operation, Value, find_function
from kernelpack.ir.dialect import Dialect, Effect, Trait, attr, definition, pointee_of, row, same_as
from kernelpack.ir.types import (
    I1,
    I32,
    FunctionType,
    Type,
    bit_width,
    element_of,
    is_float,
    is_pointer,
    shape_of,
    with_element,
    with_shape,
)

Operands = Sequence[Value]
Attributes = dict[str, Attribute]

AXES = ("x", "y", "z")
CACHE_MODIFIERS = ("none", "ca", "cg", "wb", "cs", "wt", "cv")
EVICTION_POLICIES = ("normal", "evict_first", "evict_last")
INPUT_PRECISIONS = ("ieee", "tf32", "tf32x3", "bf16x3", "bf16x6")
FLOAT_ATOMICS = ("fadd", "fmax", "fmin")
ATOMIC_OPS = ("and", "or", "xor", "add", *FLOAT_ATOMICS, "max", "min", "umax", "umin", "exch")
MEMORY_SEMANTICS = ("relaxed", "acquire", "release", "acq_rel")
MEMORY_SCOPES = ("gpu", "cta", "sys")
ROUNDING_MODES = ("rtne", "rtz")

_ELEMENTWISE = (Trait.PURE, Trait.ELEMENTWISE)
_CACHING = [
    attr("cache", CACHE_MODIFIERS, default="none"),
    attr("evict", EVICTION_POLICIES, default="normal"),
    attr("is_volatile", "bool", default=False),
]
_CACHING_TEXT = "(cacheModifier = $cache)? (evictionPolicy = $evict)?"


# ---- functions ----


def _check_func(op: Operation) -> str | None:
    kind = op.attributes["function_type"]
    if not isinstance(kind, FunctionType):
        return "function_type is not a function type"
    if tuple(argument.type for argument in op.body.arguments) != kind.inputs:
        return "entry block and function type differ"
    returned = op.body.terminator
    if returned.name != "tt.return":
        return "a function ends in tt.return"
    if tuple(value.type for value in returned.operands) != kind.results:
        return f"returns ({', '.join(str(value.type) for value in returned.operands)}), its type says {kind}"
    facts = op.attributes.get("arg_attrs")
    return None if facts is None or len(facts) == len(kind.inputs) else "arg_attrs needs one entry an argument"


def _check_call(op: Operation) -> str | None:
    module = next((outer for outer in op.ancestors() if outer.name == "builtin.module"), None)
    if module is None:
        return None
    try:
        callee = find_function(module, op.attributes["callee"])
    except KeyError:
        return f"no function is called {op.attributes['callee']}"
    kind = FunctionType(tuple(value.type for value in op.operands), tuple(result.type for result in op.results))
    expected = callee.attributes.get("function_type")
    return None if kind == expected else f"called as {kind}, the function is {expected}"


# ---- pointers and memory ----


def _check_addptr(op: Operation) -> str | None:
    same = shape_of(op.operands[0].type) == shape_of(op.operands[1].type)
    return None if same else "pointer and offset differ in shape"


def _infer_load(operands: Operands, attributes: Attributes) -> list[Type]:
    return [pointee_of(operands[0].type)]


def _check_access(op: Operation) -> str | None:
    """Checks loads (ptr, mask?, other?), stores and atomics (ptr, value, mask?)."""
    pointer = op.operands[0].type
    value_at, mask_at = (2, 1) if op.name == "tt.load" else (1, 2)
    for index, value in enumerate(op.operands[1:], 1):
        if index == value_at and value.type != pointee_of(pointer):
            return f"value of type {value.type} does not fit {pointer}"
        if index == mask_at and value.type != with_element(pointer, I1):
            return f"mask of type {value.type} does not fit {pointer}"
    return None


def _infer_atomic(operands: Operands, attributes: Attributes) -> list[Type]:
    return [operands[1].type]


def _check_atomic(op: Operation) -> str | None:
    kind, what = op.operands[1].type, op.attributes["atomic_rmw_op"]
    if what != "exch" and is_float(kind) != (what in FLOAT_ATOMICS):
        return f"{what} does not apply to {kind}"
    return _check_access(op)


def _check_cas(op: Operation) -> str | None:
    pointer, compared, value = (operand.type for operand in op.operands)
    if compared != value or value != pointee_of(pointer):
        return f"{compared} and {value} do not fit {pointer}"
    return None


# ---- conversions ----


def _check_bitcast(op: Operation) -> str | None:
    before, after = op.operands[0].type, op.result.type
    if is_pointer(before) != is_pointer(after):
        return "a pointer becomes an integer by tt.ptr_to_int, an integer a pointer by tt.int_to_ptr"
    return None if bit_width(before) == bit_width(after) else "widths differ"


# ---- reductions ----


def _infer_reduce(operands: Operands, attributes: Attributes) -> list[Type]:
    axis = attributes["axis"]
    kinds: list[Type] = []
    for value in operands:
        shape = shape_of(value.type)
        kinds.append(with_shape(value.type, (*shape[:axis], *shape[axis + 1 :])))
    return kinds


def _check_combine(op: Operation) -> str | None:
    """The combine region of a reduction or scan takes two elements of each operand and gives one."""
    if not op.operands:
        return "takes at least one operand"
    shapes = {shape_of(value.type) for value in op.operands}
    if len(shapes) != 1:
        return "operands differ in shape"
    if not 0 <= op.attributes["axis"] < len(next(iter(shapes))):
        return f"axis {op.attributes['axis']} is out of range"
    elements = [element_of(value.type) for value in op.operands]
    if [argument.type for argument in op.body.arguments] != elements * 2:
        return "the combine region must take two elements of each operand"
    if op.body.terminator.name != op.name + ".return":
        return f"the combine region ends in {op.name}.return"
    returned = [value.type for value in op.body.terminator.operands]
    return None if returned == elements else "the combine region must give one element of each operand"


# ---- matrix products ----


def multiplies_together(a: Type, b: Type) -> bool:
    """Whether a matrix product takes operands of two element types: equal ones, or any two 8-bit floats."""
    return a == b or (is_float(a) and is_float(b) and bit_width(a) == bit_width(b) == 8)


def _check_dot(op: Operation) -> str | None:
    a, b, c = (value.type for value in op.operands)
    if not multiplies_together(element_of(a), element_of(b)):
        return f"a is {element_of(a)}, b is {element_of(b)}"
    if is_float(a) != is_float(c):
        return f"a and b are {element_of(a)}, c is {element_of(c)}"
    left, right, out = shape_of(a), shape_of(b), shape_of(c)
    if not (len(left) == len(right) == len(out) >= 2):
        return "a, b and c differ in rank"
    fits = left[-1] == right[-2] and out == (*left[:-1], right[-1]) and left[:-2] == right[:-2]
    return None if fits else f"shapes do not fit: {a} * {b} -> {c}"


TT = Dialect(
    "tt",
    [
        row(
            "tt.func",
            results=0,
            attributes=[
                attr("sym_name", "str"),
                attr("function_type", "type"),
                attr("sym_visibility", "str", default=None),
                attr("arg_attrs", "value", default=None),
                attr("noinline", "bool", default=False),
            ],
            regions=1,
            traits=[Trait.ISOLATED],
            check=_check_func,
        ),
        row("tt.return", "values*", results=0, traits=[Trait.TERMINATOR], format="($values : type($values))?"),
        # a call's effects are those of the callee: analyses look it up, others must assume the worst
        row(
            "tt.call",
            "arguments*",
            results=None,
            attributes=[attr("callee", "str")],
            check=_check_call,
            effects=[Effect.READ_GLOBAL, Effect.WRITE_GLOBAL, Effect.SYNCHRONISE, Effect.OTHER],
        ),
        row(
            "tt.get_program_id",
            attributes=[attr("axis", AXES)],
            traits=[Trait.PURE],
            format="$axis : type($result)",
            infer=lambda operands, attributes: [I32],
        ),
        row(
            "tt.get_num_programs",
            attributes=[attr("axis", AXES)],
            traits=[Trait.PURE],
            format="$axis : type($result)",
            infer=lambda operands, attributes: [I32],
        ),
        row(
            "tt.addptr",
            "ptr: pointer, offset: int",
            traits=_ELEMENTWISE,
            format="$ptr, $offset : type($result), type($offset)",
            infer=same_as(0),
            check=_check_addptr,
        ),
        row(
            "tt.load",
            "ptr: pointer, mask?: bool, other?",
            attributes=_CACHING,
            effects=[Effect.READ_GLOBAL],
            format=f"$ptr (, $mask)? (, $other)? {_CACHING_TEXT} attr-dict : type($ptr)",
            infer=_infer_load,
            check=_check_access,
        ),
        row(
            "tt.store",
            "ptr: pointer, value, mask?: bool",
            results=0,
            attributes=_CACHING[:2],
            effects=[Effect.WRITE_GLOBAL],
            format=f"$ptr, $value (, $mask)? {_CACHING_TEXT} attr-dict : type($ptr)",
            check=_check_access,
        ),
        row(
            "tt.atomic_rmw",
            "ptr: pointer, val, mask?: bool",
            attributes=[
                attr("atomic_rmw_op", ATOMIC_OPS),
                attr("sem", MEMORY_SEMANTICS, default="acq_rel"),
                attr("scope", MEMORY_SCOPES, default="gpu"),
            ],
            effects=[Effect.READ_GLOBAL, Effect.WRITE_GLOBAL],
            format="$atomic_rmw_op, $sem, $scope, $ptr, $val (, $mask)? attr-dict : functional-type",
            infer=_infer_atomic,
            check=_check_atomic,
        ),
        row(
            "tt.atomic_cas",
            "ptr: pointer, cmp, val",
            attributes=[
                attr("sem", MEMORY_SEMANTICS, default="acq_rel"),
                attr("scope", MEMORY_SCOPES, default="gpu"),
            ],
            effects=[Effect.READ_GLOBAL, Effect.WRITE_GLOBAL],
            format="$sem, $scope, $ptr, $cmp, $val attr-dict : functional-type",
            infer=lambda operands, attributes: [operands[2].type],
            check=_check_cas,
        ),
        row(
            "tt.bitcast",
            "src: bits",
            result="bits",
            traits=[*_ELEMENTWISE, Trait.SAME_SHAPE],
            format="$src : type($src) -> type($result)",
            check=_check_bitcast,
        ),
        row(
            "tt.int_to_ptr",
            "src: int",
            result="pointer",
            traits=[*_ELEMENTWISE, Trait.SAME_SHAPE],
            format="$src : type($src) -> type($result)",
        ),
        row(
            "tt.ptr_to_int",
            "src: pointer",
            result="int",
            traits=[*_ELEMENTWISE, Trait.SAME_SHAPE],
            format="$src : type($src) -> type($result)",
        ),
        row(
            "tt.fp_to_fp",
            "src: float",
            result="float",
            attributes=[attr("rounding", ROUNDING_MODES, default="rtne")],
            traits=[*_ELEMENTWISE, Trait.SAME_SHAPE],
            format="$src (, rounding = $rounding)? : type($src) -> type($result)",
        ),
        row(
            "tt.clampf",
            "x: float, min: float, max: float",
            attributes=[attr("propagate_nan", ("none", "all"), default="none")],
            traits=[*_ELEMENTWISE, Trait.SAME_TYPE],
            format="$x, $min, $max (, propagateNan = $propagate_nan)? : type($result)",
            infer=same_as(0),
        ),
        row(
            "tt.precise_sqrt",
            "x: float",
            traits=[*_ELEMENTWISE, Trait.SAME_TYPE],
            format="$x : type($result)",
            infer=same_as(0),
        ),
        row(
            "tt.precise_divf",
            "x: float, y: float",
            traits=[*_ELEMENTWISE, Trait.SAME_TYPE],
            format="$x, $y : type($result)",
            infer=same_as(0),
        ),
        row(
            "tt.mulhiui",
            "x: int, y: int",
            traits=[*_ELEMENTWISE, Trait.SAME_TYPE, Trait.COMMUTATIVE],
            format="$x, $y : type($result)",
            infer=same_as(0),
        ),
        row(
            "tt.dot",
            "a: tensor, b: tensor, c: tensor",
            attributes=[
                attr("input_precision", INPUT_PRECISIONS, default="ieee"),
                attr("max_num_imprecise_acc", "i32", default=0),
            ],
            traits=[Trait.PURE, Trait.PRODUCT],
            format="$a, $b, $c (, inputPrecision = $input_precision)? attr-dict : type($a) * type($b) -> type($result)",
            infer=same_as(2),
            check=_check_dot,
        ),
        *(
            row(
                f"tt.{name}",
                "srcs*: tensor",
                results=None,
                attributes=attributes,
                regions=1,
                traits=[Trait.PURE],
                infer=infer,
                check=_check_combine,
            )
            for name, attributes, infer in (
                ("reduce", [attr("axis", "i32")], _infer_reduce),
                (
                    "scan",
                    [attr("axis", "i32"), attr("reverse", "bool", default=False)],
                    lambda operands, attributes: [value.type for value in operands],
                ),
            )
        ),
        *(
            row(f"tt.{name}.return", "values*", results=0, traits=[Trait.TERMINATOR], format="$values : type($values)")
            for name in ("reduce", "scan")
        ),
    ],
)


def combine_name(op: Operation) -> str | None:
    """Returns the one operation that a reduction's region applies to its two arguments (`arith.addf`, ...), if it is that simple."""
    body = op.body
    if len(op.operands) != 1 or len(body.operations) != 2:
        return None
    inner = body.operations[0]
    simple = list(inner.operands) == list(body.arguments) and body.terminator.operands == inner.results
    swapped = Trait.COMMUTATIVE in definition(inner.name).traits and list(inner.operands) == list(body.arguments)[::-1]
    return inner.name if simple or (swapped and body.terminator.operands == inner.results) else None


def extremum_of(op: Operation) -> str | None:
    """Returns `max` or `min` where a reduction's region compares its two arguments and selects one, the first one also where that is NaN,
    as Inductor's do."""
    body = op.body
    if len(op.operands) != 1 or len(body.operations) < 3:
        return None
    (a, b), (first, *between, select, _) = body.arguments, body.operations
    which = {"ogt": "max", "sgt": "max", "ugt": "max", "olt": "min", "slt": "min", "ult": "min"}.get(
        first.attributes.get("predicate", "")
    )
    condition = first.results
    if between:
        names = [inner.name for inner in between]
        if names != ["arith.cmpf", "arith.ori"] or between[0].attributes["predicate"] not in ("une", "uno"):
            return None
        nan, either = between
        if list(nan.operands) != [a, a] or set(either.operands) != {first.result, nan.result}:
            return None
        condition = either.results
    chosen = select.name == "arith.select" and list(select.operands) == [*condition, a, b]
    return which if chosen and list(first.operands) == [a, b] and body.terminator.operands == select.results else None


def argument_facts(func: Operation) -> list[dict[str, Attribute]]:
    """Returns one dict a function argument: `tt.divisibility` and other facts that callers promise."""
    facts = func.attributes.get("arg_attrs")
    return [dict(entry) for entry in facts] if facts else [{} for _ in func.body.arguments]
