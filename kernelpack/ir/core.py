"""The SSA core: values, operations, blocks, regions. Everything else about an operation is its dialect's table row."""

from __future__ import annotations

import bisect
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernelpack.errors import SourceLocation
from kernelpack.ir.types import Type, element_of

Attribute = Any
"""An attribute value: int, bool, float, str, Type, Encoding, FunctionType, or a tuple or dict of these."""


class Value:
    """Something an operation can use: the result of an operation or the argument of a block.

    `name` is the user's variable, which printing makes a name of. `uses` lists (operation, operand index) pairs.
    """

    __slots__ = ("name", "type", "uses")

    def __init__(self, kind: Type, name: str = "") -> None:
        self.type = kind
        self.name = name
        self.uses: list[tuple[Operation, int]] = []

    @property
    def defining_op(self) -> Operation | None:
        """The operation this value is a result of; None for a block argument."""
        return None

    def users(self) -> list[Operation]:
        """Returns the operations that use this value, each once, in order of use."""
        return list(dict.fromkeys(op for op, _ in self.uses))

    def replace_all_uses_with(self, other: Value) -> None:
        if other is self:
            return
        for op, index in list(self.uses):
            op.set_operand(index, other)
        if not other.name:
            other.name = self.name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name or hex(id(self))}: {self.type}>"


class OpResult(Value):
    __slots__ = ("index", "owner")

    def __init__(self, owner: Operation, index: int, kind: Type) -> None:
        super().__init__(kind)
        self.owner = owner
        self.index = index

    @property
    def defining_op(self) -> Operation:
        return self.owner


class BlockArgument(Value):
    __slots__ = ("index", "owner")

    def __init__(self, owner: Block, index: int, kind: Type, name: str = "") -> None:
        super().__init__(kind, name)
        self.owner = owner
        self.index = index


@dataclass(frozen=True)
class Location:
    """Where an operation comes from; `callsite` is where the function it was inlined from was called."""

    source: SourceLocation | None = None
    callsite: Location | None = None


UNKNOWN = Location()


class Operation:
    """One operation: a name that selects its dialect row, operands, results, attributes and regions.

    A module is an operation (`builtin.module`) like every other.
    """

    __slots__ = ("attributes", "location", "name", "operands", "order", "parent", "regions", "results")

    def __init__(
        self,
        name: str,
        operands: Sequence[Value] = (),
        result_types: Sequence[Type] = (),
        attributes: Mapping[str, Attribute] | None = None,
        regions: Sequence[Region] = (),
        location: Location = UNKNOWN,
    ) -> None:
        self.name = name
        self.operands: list[Value] = list(operands)
        for index, value in enumerate(self.operands):
            value.uses.append((self, index))
        self.results = [OpResult(self, index, kind) for index, kind in enumerate(result_types)]
        self.attributes: dict[str, Attribute] = dict(attributes or {})
        self.regions: list[Region] = list(regions)
        for region in self.regions:
            region.parent = self
        self.location = location
        self.parent: Block | None = None
        self.order = 0
        """Greater than that of the operations before it in its block."""

    @property
    def operand(self) -> Value:
        """The only operand. The dialect row names those of operations that have several: see `operand` in dialect.py."""
        if len(self.operands) != 1:
            raise ValueError(f"{self.name} has {len(self.operands)} operands, not one")
        return self.operands[0]

    @property
    def result(self) -> OpResult:
        """The only result."""
        if len(self.results) != 1:
            raise ValueError(f"{self.name} has {len(self.results)} results, not one")
        return self.results[0]

    @property
    def body(self) -> Block:
        """The first block of the first region."""
        return self.regions[0].block

    @property
    def parent_op(self) -> Operation | None:
        return self.parent.parent.parent if self.parent is not None and self.parent.parent is not None else None

    def ancestors(self) -> Iterator[Operation]:
        """Yields the operations this one is nested in, innermost first."""
        op = self.parent_op
        while op is not None:
            yield op
            op = op.parent_op

    def within(self, block: Block) -> Operation:
        """Returns the operation of a block that this one is, or is nested in. Raises StopIteration where there is none."""
        return next(op for op in (self, *self.ancestors()) if op.parent is block)

    def set_operand(self, index: int, value: Value) -> None:
        self.operands[index].uses.remove((self, index))
        self.operands[index] = value
        value.uses.append((self, index))

    def set_operands(self, values: Sequence[Value]) -> None:
        """Replaces the whole operand list."""
        for index, old in enumerate(self.operands):
            old.uses.remove((self, index))
        self.operands = list(values)
        for index, new in enumerate(self.operands):
            new.uses.append((self, index))

    def erase_result(self, index: int) -> None:
        if self.results[index].uses:
            raise ValueError("cannot erase a result that is still used")
        del self.results[index]
        for position, result in enumerate(self.results):
            result.index = position

    def detach(self) -> None:
        """Takes the operation out of its block without dropping its uses."""
        if self.parent is not None:
            del self.parent.operations[self.parent.index(self)]
            self.parent = None

    def erase(self) -> None:
        """Removes the operation for good. Its results must be unused."""
        used = [result for result in self.results if result.uses]
        if used:
            raise ValueError(f"cannot erase {self.name}: {used[0]!r} is still used by {used[0].uses[0][0].name}")
        self.drop()

    def drop(self) -> None:
        """Removes the operation and everything nested in it, whether used or not."""
        for region in self.regions:
            for block in region.blocks:
                for op in reversed(list(block.operations)):
                    op.drop()
        self.set_operands(())
        self.detach()

    def replace_with(self, *values: Value) -> None:
        """Gives the users of each result the value in its place, then erases the operation."""
        if len(values) != len(self.results):
            raise ValueError(f"{self.name} has {len(self.results)} results, got {len(values)} replacements")
        for result, value in zip(self.results, values, strict=True):
            result.replace_all_uses_with(value)
        self.erase()

    def clone(self, mapping: dict[Value, Value] | None = None) -> Operation:
        """Returns a detached deep copy. Operands are looked up in `mapping`, which gains the copied results."""
        mapping = {} if mapping is None else mapping
        copy = self.clone_alone(mapping)
        for region, copied in zip(self.regions, copy.regions, strict=True):
            region.fill(copied, mapping)
        return copy

    def clone_alone(self, mapping: dict[Value, Value]) -> Operation:
        """Returns a detached copy whose blocks are empty. Operands are looked up in `mapping`, which gains results and block arguments."""
        copy = Operation(
            self.name,
            [mapping.get(value, value) for value in self.operands],
            [result.type for result in self.results],
            self.attributes,
            [region.clone_empty(mapping) for region in self.regions],
            self.location,
        )
        for old, new in zip(self.results, copy.results, strict=True):
            new.name = old.name
            mapping[old] = new
        return copy

    def walk(self) -> Iterator[Operation]:
        """Yields this operation and everything nested in it, parents before children, in order.

        Safe against removal of the yielded operation.
        """
        yield self
        pending = [self._nested()]
        while pending:
            op = next(pending[-1], None)
            if op is None:
                pending.pop()
                continue
            yield op
            if op.regions:
                pending.append(op._nested())

    def _nested(self) -> Iterator[Operation]:
        for region in self.regions:
            for block in region.blocks:
                yield from list(block.operations)

    def __str__(self) -> str:
        from kernelpack.ir.printer import print_op  # late: it is written in terms of these classes

        return print_op(self)

    def __repr__(self) -> str:
        return f"<Operation {self.name}>"


_GAP = 1 << 40
"""How far apart the numbers of neighbours are at first: some four hundred more fit between them, one after the other."""
_order = operator.attrgetter("order")


class Block:
    """A list of operations with arguments. The last operation is the terminator."""

    __slots__ = ("arguments", "operations", "parent")

    def __init__(self, argument_types: Sequence[Type] = (), names: Sequence[str] = ()) -> None:
        self.arguments = [
            BlockArgument(self, index, kind, names[index] if index < len(names) else "")
            for index, kind in enumerate(argument_types)
        ]
        self.operations: list[Operation] = []
        self.parent: Region | None = None

    @property
    def terminator(self) -> Operation:
        return self.operations[-1]

    def add_argument(self, kind: Type, name: str = "") -> BlockArgument:
        argument = BlockArgument(self, len(self.arguments), kind, name)
        self.arguments.append(argument)
        return argument

    def erase_argument(self, index: int) -> None:
        if self.arguments[index].uses:
            raise ValueError("cannot erase a block argument that is still used")
        del self.arguments[index]
        for position, argument in enumerate(self.arguments):
            argument.index = position

    def append(self, op: Operation) -> Operation:
        return self.insert(len(self.operations), op)

    def insert(self, index: int, op: Operation) -> Operation:
        op.detach()
        index = min(index, len(self.operations))
        before = self.operations[index - 1].order if index else 0
        after = self.operations[index].order if index < len(self.operations) else before + 16 * _GAP
        self.operations.insert(index, op)
        op.parent = self
        op.order = before + (after - before) // 16  # what comes next mostly stands after it
        if op.order == before:  # no number is left between the two
            for place, other in enumerate(self.operations):
                other.order = (place + 1) * _GAP
        return op

    def index(self, op: Operation) -> int:
        """Returns the position of an operation, found by halves: blocks have thousands. Raises ValueError for one of another block."""
        if op.parent is not self:
            raise ValueError(f"{op.name} is in another block")
        return bisect.bisect_left(self.operations, op.order, key=_order)


class Region:
    """What an operation encloses. Structured control flow needs one block a region; functions too."""

    __slots__ = ("blocks", "parent")

    def __init__(self, blocks: Iterable[Block] = ()) -> None:
        self.blocks: list[Block] = []
        self.parent: Operation | None = None
        for block in blocks:
            self.append(block)

    def append(self, block: Block) -> Block:
        block.parent = self
        self.blocks.append(block)
        return block

    @property
    def block(self) -> Block:
        """The only block."""
        if len(self.blocks) != 1:
            raise ValueError(f"region has {len(self.blocks)} blocks, not one")
        return self.blocks[0]

    def clone(self, mapping: dict[Value, Value]) -> Region:
        copy = self.clone_empty(mapping)
        self.fill(copy, mapping)
        return copy

    def fill(self, copy: Region, mapping: dict[Value, Value]) -> None:
        """Adds copies of the operations to what `clone_empty` has returned."""
        for block, copied in zip(self.blocks, copy.blocks, strict=True):
            for op in block.operations:
                copied.append(op.clone(mapping))

    def clone_empty(self, mapping: dict[Value, Value]) -> Region:
        """Returns a region with blocks of the same arguments and no operations. `mapping` gains the copied arguments."""
        copy = Region()
        for block in self.blocks:
            names = [argument.name for argument in block.arguments]
            new = copy.append(Block([argument.type for argument in block.arguments], names))
            mapping.update(zip(block.arguments, new.arguments, strict=True))
        return copy


class Builder:
    """Creates operations at an insertion point.

    Result types that the dialect row can infer need not be given.
    """

    def __init__(self, block: Block, index: int | None = None, location: Location = UNKNOWN) -> None:
        self.block = block
        self.index = index
        self.location = location

    @staticmethod
    def before(op: Operation) -> Builder:
        """Returns a builder that inserts before `op`, with its location."""
        assert op.parent is not None
        return Builder(op.parent, op.parent.index(op), op.location)

    @staticmethod
    def after(op: Operation) -> Builder:
        """Returns a builder that inserts after `op`, with its location."""
        assert op.parent is not None
        return Builder(op.parent, op.parent.index(op) + 1, op.location)

    def insert(self, op: Operation) -> Operation:
        if self.index is None:
            self.block.append(op)
        else:
            self.block.insert(self.index, op)
            self.index += 1
        return op

    def create(
        self,
        name: str,
        operands: Sequence[Value | None] = (),
        attributes: Mapping[str, Attribute] | None = None,
        result_types: Sequence[Type] | None = None,
        regions: Sequence[Region] = (),
    ) -> Operation:
        """Inserts and returns a new operation. Trailing optional operands may be given as None."""
        from kernelpack.ir.dialect import definition  # late: the tables are of operations

        present = list(operands)
        while present and present[-1] is None:
            present.pop()
        values = [value for value in present if value is not None]
        if len(values) != len(present):
            raise ValueError(f"{name}: only trailing operands can be left out")
        if result_types is None:
            result_types = definition(name).infer_results(values, dict(attributes or {}))
        return self.insert(Operation(name, values, result_types, attributes, regions, self.location))

    def value(
        self,
        name: str,
        operands: Sequence[Value | None] = (),
        attributes: Mapping[str, Attribute] | None = None,
        result_type: Type | None = None,
    ) -> Value:
        """Inserts an operation with one result and returns the result."""
        return self.create(name, operands, attributes, None if result_type is None else [result_type]).result

    def constant(self, value: bool | int | float, kind: Type) -> Value:
        """Returns an `arith.constant`: a scalar, or a tensor filled with `value`, which is rounded or wrapped to the type."""
        from kernelpack.ir.formats import normal  # late: it needs NumPy, which an installation that only serves may lack

        return self.value("arith.constant", (), {"value": normal(value, element_of(kind))}, kind)


def module(operations: Iterable[Operation] = ()) -> Operation:
    """Returns a new `builtin.module` that holds `operations`."""
    block = Block()
    op = Operation("builtin.module", regions=[Region([block])])
    for inner in operations:
        block.append(inner)
    return op


def functions(mod: Operation) -> list[Operation]:
    """Returns the functions of a module in order."""
    return [op for op in mod.body.operations if op.name == "tt.func"]


def find_function(mod: Operation, name: str) -> Operation:
    """Returns the function called `name`. Raises KeyError."""
    for op in functions(mod):
        if op.attributes["sym_name"] == name:
            return op
    raise KeyError(name)


def entry_function(mod: Operation) -> Operation:
    """Returns the module's only public function, the kernel."""
    public = [op for op in functions(mod) if op.attributes.get("sym_visibility") == "public"]
    if len(public) != 1:
        raise ValueError(f"module has {len(public)} public functions, not one")
    return public[0]
