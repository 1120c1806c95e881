"""Joining the two sides of a run-time branch: what each yields, and the values that stand for both afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kernelpack.frontend.scope import (
    Scope,
    Undefined,
    describe_type,
    parts_of,
    replace_tensors,
    same_constant,
    same_kind,
    with_parts,
)
from kernelpack.ir.core import Block, Builder, Operation, Region, Value
from kernelpack.kernel.types import dtype, int64
from kernelpack.kernel.values import aggregate, tensor
from kernelpack.semantics import operators


@dataclass(frozen=True)
class Flow:
    """How control leaves some statements.

    The function has returned in any case (`returned`), where the run-time `flag` holds, or not at all (neither). `value` is
    what it returned.
    """

    returned: bool = False
    flag: Value | None = None
    value: Any = None
    by_end: bool = False
    """Whether the function has returned by its end, without a value: a path that other paths' values need not mind."""

    @property
    def falls(self) -> bool:
        """Whether the next statement always follows."""
        return not self.returned and self.flag is None


@dataclass
class Path:
    """One side of a branch: where its operations are, what names stand for at its end, and how it ends."""

    scope: Scope
    block: Block = field(default_factory=Block)
    flow: Flow = field(default_factory=Flow)


class Merge:
    """Collects what two paths yield, and creates the scf.if that they are the sides of.

    The tensors that `add` and `add_one_sided` give become the results of the scf.if once `create` is called.
    """

    def __init__(self, builder: Builder, first: Path, second: Path) -> None:
        self.builder = builder
        self.paths = (first, second)
        self.yields: tuple[list[Value], list[Value]] = ([], [])
        self.results: list[tensor] = []
        self.names: list[str] = []

    def add(self, first: Any, second: Any, *, name: str = "") -> Any:
        """Returns the value that is `first` on one path and `second` on the other; they must be `mergeable`."""
        if _is_same(first, second):
            return first
        if isinstance(first, (tuple, aggregate)):
            return with_parts(
                first, [self.add(a, b, name=name) for a, b in zip(parts_of(first), parts_of(second), strict=True)]
            )
        sides = []
        for path, value in zip(self.paths, (first, second), strict=True):
            with operators.inside(self.builder, path.block):
                sides.append(operators.to_tensor(self.builder, value))
        return self._result(sides[0].handle, sides[1].handle, sides[0].type, name)

    def add_one_sided(self, value: Any, side: int, name: str = "") -> Any:
        """Returns a value that path `side` has; on the other it is never used, and anything stands in for it."""

        def place(entry: tensor) -> tensor:
            with operators.inside(self.builder, self.paths[1 - side].block):
                stand_in = _anything(self.builder, entry.type)
            pair = (entry.handle, stand_in) if side == 0 else (stand_in, entry.handle)
            return self._result(*pair, entry.type, name)

        return replace_tensors(value, place)

    def _result(self, first: Value, second: Value, kind: dtype, name: str) -> tensor:
        self.yields[0].append(first)
        self.yields[1].append(second)
        self.results.append(tensor(Value(kind.to_ir()), kind))  # the value is a placeholder until `create`
        self.names.append(name)
        return self.results[-1]

    def create(self, condition: Value) -> Operation:
        """Ends both paths and creates the scf.if at the builder's place."""
        for path, values in zip(self.paths, self.yields, strict=True):
            with operators.inside(self.builder, path.block):
                self.builder.create("scf.yield", values)
        regions = [Region([path.block]) for path in self.paths]
        if not self.results and len(self.paths[1].block.operations) == 1:
            regions[1] = Region()
        op = self.builder.create("scf.if", [condition], None, [made.type.to_ir() for made in self.results], regions)
        for made, result, name in zip(self.results, op.results, self.names, strict=True):
            made.handle, result.name = result, name
        return op

    def scopes(self, outer: Scope, line: int) -> Scope:
        """Returns what names stand for after the branch; `outer` is what they stood for before it."""
        first, second = self.paths
        if first.flow.returned:
            return self._surviving(second.scope, 1, outer)
        if second.flow.returned:
            return self._surviving(first.scope, 0, outer)
        merged: Scope = {}
        for name in dict.fromkeys([*first.scope, *second.scope]):
            values = [path.scope.get(name, _MISSING) for path in self.paths]
            undefined = next((value for value in values if isinstance(value, Undefined)), None)
            if values[0] is values[1]:
                merged[name] = values[0]
            elif _MISSING in values:
                condition = "holds" if values[1] is _MISSING else "does not hold"
                merged[name] = Undefined(
                    f"it is assigned only where the condition of the `if` in line {line} {condition}",
                    "assign it before the `if` or in both branches",
                )
            elif undefined is not None:
                merged[name] = undefined
            elif mergeable(*values):
                merged[name] = self.add(*values, name=name)
            else:
                merged[name] = Undefined(
                    f"Mismatched type for {name}: after the `if` in line {line} it is {describe_type(values[0])} or "
                    f"{describe_type(values[1])}",
                    "give it one type in both branches, or make the condition tl.constexpr",
                )
        return merged

    def _surviving(self, scope: Scope, side: int, outer: Scope) -> Scope:
        """Only path `side` goes on: its variables are the variables from here on."""
        return {
            name: value if value is outer.get(name, _MISSING) else self.add_one_sided(value, side, name)
            for name, value in scope.items()
        }


_MISSING = object()


def mergeable(first: Any, second: Any, *, numbers: bool = False) -> bool:
    """Whether two values can be one run-time value, or are the same.

    A compile-time number goes with a run-time value of its type; with `numbers`, so do two different numbers.
    """
    if _is_same(first, second):
        return True
    if isinstance(first, (tuple, aggregate)) and isinstance(second, (tuple, aggregate)):
        pairs = zip(parts_of(first), parts_of(second), strict=False)
        return same_kind(first, second) and all(mergeable(a, b, numbers=numbers) for a, b in pairs)
    if not numbers and operators.is_number(first) and operators.is_number(second):
        return False
    kinds = _types(first, second)
    return kinds is not None and kinds[0] == kinds[1]


def _types(*values: Any) -> Sequence[dtype] | None:
    """Returns the types that values have at run time, or None where one has none."""
    kinds = []
    for value in values:
        if not isinstance(value, tensor) and not operators.is_number(value):
            return None
        kinds.append(value.type if isinstance(value, tensor) else operators.type_of_number(value))
    return kinds


def _is_same(first: Any, second: Any) -> bool:
    if isinstance(first, (tensor, tuple, aggregate)) or isinstance(second, (tensor, tuple, aggregate)):
        return first is second
    return same_constant(first, second)


def _anything(b: Builder, kind: dtype) -> Value:
    """Returns some value of a type."""
    if not kind.scalar.is_ptr():
        return operators.constant(b, 0, kind).handle
    address = operators.constant(b, 0, operators.like(tensor(Value(kind.to_ir()), kind), int64))
    return operators.cast(b, address, kind).handle
