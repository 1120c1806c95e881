"""What a dialect is: a table whose rows say what an operation takes, gives, does and how it reads as text."""

from __future__ import annotations

import enum
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module

from kernelpack.errors import VerifyError
from kernelpack.ir.core import Attribute, Operation, Value
from kernelpack.ir.types import (
    I1,
    IntegerType,
    MemDescType,
    PointerType,
    TensorDescType,
    TensorType,
    TokenType,
    Type,
    element_of,
    is_float,
    is_int,
    is_pointer,
    shape_of,
)


class Trait(enum.Enum):
    PURE = "no effect, result depends on operands only: may be moved, merged and removed"
    ELEMENTWISE = "one result element depends on the elements at the same place"
    SAME_TYPE = "all operands and results have one type"
    SAME_SHAPE = "all operands and results have one shape and encoding"
    COMMUTATIVE = "the first two operands may be swapped"
    TERMINATOR = "ends its block"
    ISOLATED = "its regions use no value from outside"
    PRODUCT = "multiplies matrices: a, b, and a sum that it adds to"
    PASSES_ON = "each result is the operand at its place, once that is there"


class Effect(enum.Enum):
    """What an operation does to the world besides giving results."""

    READ_GLOBAL = "reads global memory"
    WRITE_GLOBAL = "writes global memory"
    READ_SHARED = "reads shared memory"
    WRITE_SHARED = "writes shared memory"
    ALLOCATE_SHARED = "allocates shared memory"
    SYNCHRONISE = "orders threads"
    OTHER = "prints, traps or does something else that must stay"


CONSTRAINTS: dict[str, Callable[[Type], bool]] = {
    "any": lambda kind: True,
    "int": is_int,
    "bool": lambda kind: element_of(kind) == I1,
    "float": is_float,
    "number": lambda kind: is_int(kind) or is_float(kind),
    "pointer": is_pointer,
    "bits": lambda kind: is_int(kind) or is_float(kind) or is_pointer(kind),
    "scalar": lambda kind: not shape_of(kind),
    "int_scalar": lambda kind: isinstance(kind, IntegerType),
    "tensor": lambda kind: isinstance(kind, TensorType),
    "memdesc": lambda kind: isinstance(kind, MemDescType),
    "tensordesc": lambda kind: isinstance(kind, TensorDescType),
    "token": lambda kind: isinstance(kind, TokenType),
}


@dataclass(frozen=True)
class OperandDef:
    """An operand: its name, which types it takes, and whether it may be left out or stands for many."""

    name: str
    constraint: str = "any"
    optional: bool = False
    variadic: bool = False

    @staticmethod
    def parse(text: str) -> OperandDef:
        """Parses `name`, `name: constraint`, `name?: constraint` (optional) or `name*: constraint` (variadic)."""
        name, _, constraint = (part.strip() for part in text.partition(":"))
        return OperandDef(name.rstrip("?*"), constraint or "any", name.endswith("?"), name.endswith("*"))


@dataclass(frozen=True)
class AttributeDef:
    """An attribute of an operation. `kind` is i32, i64, bool, str, ints, type, value or an enum's words.

    An attribute with a default may be left out; the text leaves it out where it equals the default.
    """

    name: str
    kind: str | tuple[str, ...]
    default: Attribute = None
    required: bool = True


def attr(name: str, kind: str | tuple[str, ...], **default: Attribute) -> AttributeDef:
    """Returns a required attribute, or with `default=...` one that may be left out."""
    return AttributeDef(name, kind, default.get("default"), "default" not in default)


Infer = Callable[[Sequence[Value], dict[str, Attribute]], list[Type]]


@dataclass(frozen=True)
class OpDef:
    """One row of a dialect table.

    `result` constrains every result as the operands' constraints do theirs. `format` describes the text after the
    operation's name, in a small form of MLIR's declarative assembly format (see assembly_format.py); None means the generic
    form. `infer` gives the result types where operands and attributes determine them, and the verifier holds results to it
    (encodings aside). `check` returns a message for what constraints cannot say; it sees operands and attributes of the right
    kinds, and runs before `infer`. The last `optional_regions` regions may be empty.
    """

    name: str
    operands: tuple[OperandDef, ...] = ()
    results: int | None = 1  # None: any number
    result: str = "any"
    attributes: tuple[AttributeDef, ...] = ()
    regions: int = 0
    optional_regions: int = 0
    traits: frozenset[Trait] = frozenset()
    effects: frozenset[Effect] = frozenset()
    format: str | None = None
    infer: Infer | None = None
    check: Callable[[Operation], str | None] | None = None

    def places(self, count: int) -> dict[str, range]:
        """Returns which of `count` operands each name stands for. Variadic operands share equally what the others leave."""
        known = self._places.get(count)
        if known is None:
            known = self._places[count] = dict(self._spread(count))
        return known

    @functools.cached_property
    def _places(self) -> dict[int, dict[str, range]]:
        return {}

    def _spread(self, count: int) -> Iterator[tuple[str, range]]:
        variadic = sum(row.variadic for row in self.operands)
        share = (count - len(self.operands) + variadic) // variadic if variadic else 0
        start = 0
        for row in self.operands:
            end = start + max(0, share) if row.variadic else min(start + 1, count)
            yield row.name, range(start, end)
            start = end

    def fixed(self) -> dict[str, int]:
        """Returns where operands stand whose place does not depend on how many there are: those before a variadic one."""
        names = [row.name for row in itertools.takewhile(lambda row: not row.variadic, self.operands)]
        return {name: index for index, name in enumerate(names)}

    @functools.cached_property
    def attribute_defs(self) -> dict[str, AttributeDef]:
        return {row.name: row for row in self.attributes}

    def infer_results(self, operands: Sequence[Value], attributes: dict[str, Attribute]) -> list[Type]:
        """Returns the result types. Raises TypeError where the row cannot tell."""
        if self.results == 0:
            return []
        if self.infer is None:
            raise TypeError(f"{self.name}: result types must be given")
        return self.infer(operands, attributes)

    @functools.cached_property
    def pure(self) -> bool:
        return Trait.PURE in self.traits


@dataclass
class Dialect:
    """A named table of operations. Creating one makes its operations known."""

    name: str
    rows: dict[str, OpDef] = field(default_factory=dict)

    def __init__(self, name: str, rows: Iterable[OpDef]) -> None:
        self.name = name
        self.rows = {row.name: row for row in rows}
        _TABLE.update(self.rows)
        _FIXED.update((row.name, row.fixed()) for row in self.rows.values())


_TABLE: dict[str, OpDef] = {}
_FIXED: dict[str, dict[str, int]] = {}
"""Of each operation, OpDef.fixed: operands are looked up by name hundreds of thousands of times a build."""


def definition(name: str) -> OpDef:
    """Returns the row of an operation. Raises VerifyError for a name no dialect knows."""
    if not is_known(name):
        raise VerifyError(f"unknown operation {name!r}")
    return _TABLE[name]


def is_known(name: str) -> bool:
    """Whether any dialect has the operation."""
    if name not in _TABLE:
        import_module("kernelpack.ir.dialects")  # which fills the table; they are made of this module's classes
    return name in _TABLE


def row(
    name: str,
    operands: str = "",
    *,
    results: int | None = 1,
    result: str = "any",
    attributes: Iterable[AttributeDef] = (),
    regions: int = 0,
    optional_regions: int = 0,
    traits: Iterable[Trait] = (),
    effects: Iterable[Effect] = (),
    format: str | None = None,
    infer: Infer | None = None,
    check: Callable[[Operation], str | None] | None = None,
) -> OpDef:
    """Returns a table row; `operands` reads like `"ptr: pointer, mask?: bool"`."""
    defs = tuple(OperandDef.parse(part) for part in operands.split(",") if part.strip())
    return OpDef(
        name,
        defs,
        results,
        result,
        tuple(attributes),
        regions,
        optional_regions,
        frozenset(traits),
        frozenset(effects),
        format,
        infer,
        check,
    )


def operand(op: Operation, name: str) -> Value:
    """Returns the operand called `name`. Raises KeyError where it was left out."""
    try:
        return op.operands[_FIXED[op.name][name]]
    except LookupError:
        values = operands_called(op, name)
        if not values:
            raise KeyError(f"{op.name} has no operand {name!r} here") from None
        return values[0]


def optional_operand(op: Operation, name: str) -> Value | None:
    """Returns the operand called `name`, or None where it was left out."""
    values = operands_called(op, name)
    return values[0] if values else None


def operands_called(op: Operation, name: str) -> list[Value]:
    """Returns the operands that a name stands for: any number of a variadic one, none where it was left out."""
    place = definition(op.name).places(len(op.operands)).get(name)
    if place is None:
        raise KeyError(f"{op.name} has no operand called {name!r}")
    return op.operands[place.start : place.stop]


def replace_operand(op: Operation, name: str, value: Value) -> None:
    """Puts a value in the place of the operand called `name`. Raises KeyError where it was left out."""
    place = definition(op.name).places(len(op.operands)).get(name)
    if not place:
        raise KeyError(f"{op.name} has no operand {name!r} here")
    op.set_operand(place.start, value)


def operand_name(op: Operation, index: int) -> str:
    """Returns what the row calls an operand."""
    places = definition(op.name).places(len(op.operands))
    return next(name for name, place in places.items() if index in place)


def attribute(op: Operation, name: str) -> Attribute:
    """Returns an attribute's value, or its default."""
    if name in op.attributes:
        return op.attributes[name]
    row_attribute = definition(op.name).attribute_defs.get(name)
    if row_attribute is None or row_attribute.required:
        raise KeyError(f"{op.name} has no attribute {name!r}")
    return row_attribute.default


def facts(op: Operation) -> dict[str, Attribute]:
    """Returns the attributes that other dialects, or promises about the result, left on an operation: those with a dot."""
    return {name: value for name, value in op.attributes.items() if "." in name}


def effects_of(op: Operation) -> frozenset[Effect]:
    """Returns the effects of an operation and of everything nested in it."""
    found = set(definition(op.name).effects)
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                found |= effects_of(inner)
    return frozenset(found)


def computes(op: Operation) -> bool:
    """Whether an operation by itself only computes its results: its row is pure, and it does not say `pure = false`."""
    return definition(op.name).pure and op.attributes.get("pure") is not False


def is_pure(op: Operation) -> bool:
    """Whether an operation, with everything nested in it, only computes its results."""
    return computes(op) and all(
        is_pure(inner) or Trait.TERMINATOR in definition(inner.name).traits
        for region in op.regions
        for block in region.blocks
        for inner in block.operations
    )


def same_as(index: int) -> Infer:
    """The result has the type of operand `index`."""
    return lambda operands, attributes: [operands[index].type]


def pointee_of(kind: Type) -> Type:
    """Returns what a pointer, or a tensor of pointers, points to; tensors stay tensors."""
    pointer = element_of(kind)
    if not isinstance(pointer, PointerType):
        raise TypeError(f"{kind} is not a pointer")
    return TensorType(kind.shape, pointer.pointee, kind.encoding) if isinstance(kind, TensorType) else pointer.pointee
