"""The verifier: every rule that a dialect row states, plus dominance. Runs after every pass in tests."""

from __future__ import annotations

from kernelpack.errors import VerifyError
from kernelpack.ir.core import Block, Operation, Value
from kernelpack.ir.dialect import CONSTRAINTS, AttributeDef, OpDef, Trait, definition
from kernelpack.ir.types import TensorType, Type, shape_of


def verify(op: Operation) -> None:
    """Checks an operation with everything nested in it. Raises VerifyError that shows the operation."""
    _verify_op(op, set(), {})


def _fail(op: Operation, message: str) -> VerifyError:
    try:
        text = "\n  in: " + str(op).strip().split("\n")[0]
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):  # too broken to print
        text = ""
    return VerifyError(f"{op.name}: {message}{text}", location=op.location.source)


Uses = dict[Value, set[tuple[Operation, int]]]
"""The uses of values that were asked for, to look one up in."""


def _verify_op(op: Operation, visible: set[Value], uses: Uses) -> None:
    row = definition(op.name)
    for index, value in enumerate(op.operands):
        if value not in visible:
            raise _fail(op, f"operand {index} is used before it is defined, or outside its region")
        if value not in uses:
            uses[value] = set(value.uses)
        if (op, index) not in uses[value]:
            raise _fail(op, f"operand {index} does not list this use")
    _check_counts(op, row)
    _check_types(op, row)
    _check_attributes(op, row)
    inner = set() if Trait.ISOLATED in row.traits else visible
    for region in op.regions:
        if region.parent is not op:
            raise _fail(op, "a region has another parent")
        for block in region.blocks:
            _verify_block(op, block, set(inner), uses)
    if row.check is not None:
        message = row.check(op)
        if message:
            raise _fail(op, message)
    if row.infer is not None:
        for result, kind in zip(op.results, row.infer(op.operands, op.attributes), strict=True):
            if _without_encoding(result.type) != _without_encoding(kind):
                raise _fail(op, f"gives {kind}, the result has type {result.type}")


def _verify_block(parent: Operation, block: Block, visible: set[Value], uses: Uses) -> None:
    for index, argument in enumerate(block.arguments):
        if argument.owner is not block or argument.index != index:
            raise _fail(parent, f"block argument {index} does not know its place")
        if message := _bad_shape(argument.type):
            raise _fail(parent, message)
    visible.update(block.arguments)
    for position, op in enumerate(block.operations):
        if op.parent is not block:
            raise _fail(op, "the operation has another parent block")
        last = position == len(block.operations) - 1
        terminates = Trait.TERMINATOR in definition(op.name).traits
        if terminates and not last:
            raise _fail(op, "a terminator stands before the end of its block")
        if last and not terminates and parent.name != "builtin.module":
            raise _fail(op, f"the last operation in {parent.name} is not a terminator")
        _verify_op(op, visible, uses)
        visible.update(op.results)
    if not block.operations and parent.name != "builtin.module":
        raise _fail(parent, "a block is empty")


def _check_counts(op: Operation, row: OpDef) -> None:
    least = sum(1 for operand in row.operands if not operand.optional and not operand.variadic)
    variadic = sum(operand.variadic for operand in row.operands)
    most = None if variadic else len(row.operands)
    if len(op.operands) < least or (most is not None and len(op.operands) > most):
        raise _fail(op, f"takes {least if least == most else f'{least} to {most}'} operands, has {len(op.operands)}")
    if variadic and (len(op.operands) - (len(row.operands) - variadic)) % variadic:
        raise _fail(op, f"has {len(op.operands)} operands, which its {variadic} lists cannot share equally")
    if row.results is not None and len(op.results) != row.results:
        raise _fail(op, f"gives {row.results} results, has {len(op.results)}")
    if len(op.regions) != row.regions:
        raise _fail(op, f"takes {row.regions} regions, has {len(op.regions)}")
    for index, region in enumerate(op.regions):
        optional = index >= row.regions - row.optional_regions
        if len(region.blocks) != 1 and not (optional and not region.blocks):
            raise _fail(op, f"region {index} must have one block, has {len(region.blocks)}")


def _check_types(op: Operation, row: OpDef) -> None:
    for operand, place in zip(row.operands, row.places(len(op.operands)).values(), strict=True):
        for value in op.operands[place.start : place.stop]:
            if not CONSTRAINTS[operand.constraint](value.type):
                raise _fail(op, f"{operand.name} must be {operand.constraint}, is {value.type}")
    for result in op.results:
        if not CONSTRAINTS[row.result](result.type):
            raise _fail(op, f"the result must be {row.result}, is {result.type}")
        if message := _bad_shape(result.type):
            raise _fail(op, message)
    kinds = [value.type for value in (*op.operands, *op.results)]
    if Trait.SAME_TYPE in row.traits and len(set(kinds)) > 1:
        raise _fail(op, f"operands and result must have one type, have {', '.join(map(str, kinds))}")
    if Trait.SAME_SHAPE in row.traits and len({shape_of(kind) for kind in kinds}) > 1:
        raise _fail(op, f"operands and result must have one shape, have {', '.join(map(str, kinds))}")
    if Trait.ELEMENTWISE in row.traits:
        encodings = {kind.encoding for kind in kinds if isinstance(kind, TensorType)}
        if len(encodings) > 1:
            raise _fail(op, f"operands and result must have one encoding, have {', '.join(map(str, kinds))}")


def _bad_shape(kind: Type) -> str | None:
    if isinstance(kind, TensorType) and any(extent < 1 or extent & extent - 1 for extent in kind.shape):
        return f"the extents of {kind} must be powers of two"
    return None


def _without_encoding(kind: Type) -> Type:
    return TensorType(kind.shape, kind.element) if isinstance(kind, TensorType) else kind


def _check_attributes(op: Operation, row: OpDef) -> None:
    """Attributes are those of the row; others must carry a dialect's prefix (`tt.divisibility`)."""
    for name, attribute_row in row.attribute_defs.items():
        if name not in op.attributes:
            if attribute_row.required:
                raise _fail(op, f"attribute {name} is missing")
        elif not _fits(op.attributes[name], attribute_row):
            raise _fail(op, f"attribute {name} = {op.attributes[name]!r} is not {attribute_row.kind}")
    for name in op.attributes:
        if name not in row.attribute_defs and "." not in name:
            known = ", ".join(row.attribute_defs) or "none"
            raise _fail(op, f"has no attribute {name} (known: {known})")


def _fits(value: object, row: AttributeDef) -> bool:
    if value is None:
        return row.default is None and not row.required
    match row.kind:
        case tuple() as words:
            return value in words
        case "i32" | "i64":
            return isinstance(value, int) and not isinstance(value, bool)
        case "bool":
            return isinstance(value, bool)
        case "str":
            return isinstance(value, str)
        case "ints":
            return isinstance(value, tuple) and all(isinstance(entry, int) for entry in value)
        case _:
            return True
