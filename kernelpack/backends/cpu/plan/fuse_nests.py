"""Loop fusion: decides which roots share a nest, by what evaluating each of them reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kernelpack.backends.cpu.facts.in_place import overwrites, stores_over
from kernelpack.backends.cpu.plan.buffers import BUFFERED, Buffer
from kernelpack.backends.cpu.plan.sinks import (
    ALONE,
    WRITES,
    Materialize,
    Message,
    Reduce,
    Root,
    Store,
    domain_of,
    made_by,
    turned_axis,
    values_of,
)
from kernelpack.backends.cpu.plan.tile_program import Nest, Scalar, Statement
from kernelpack.ir.core import Block, Operation, Value
from kernelpack.ir.dialect import Trait, definition
from kernelpack.ir.types import TensorType

Held = Mapping[Value, Mapping[int, Buffer]]
"""The buffers that hold a tile, by innermost axis."""


class FusedStatements:
    """The statements of a block so far. A root joins the latest nest of its domain that it does not have to wait for; `held` says
    which tiles are in buffers by now. Positions of roots are those of the block's operations."""

    def __init__(self, block: Block, held: Held) -> None:
        self.block = block
        self.held = held
        self.statements: list[Statement] = []

    def append(self, statement: Statement) -> None:
        self.statements.append(statement)

    def add(self, root: Root, lane_axis: int) -> None:
        """Adds a root to the nest that it joins, or a nest of its own."""
        reach = reach_of(root, self.held)
        for statement in reversed(self.statements):
            if isinstance(statement, Scalar):
                if definition(statement.op.name).pure and not reach.scalars & set(statement.op.results):
                    continue
                break
            if not isinstance(statement, Nest):
                break
            if self.joins(root, reach, statement, lane_axis):
                statement.roots.append(root)
                return
            if isinstance(root, (*WRITES, Message)) or self.waits(root, reach, statement):
                break
        self.statements.append(Nest(domain_of(root), lane_axis, [root]))

    def waits(self, root: Root, reach: Reach, nest: Nest) -> bool:
        """Whether a root needs something that a nest makes, or must stay after its stores, or after what it checks."""
        if reach.needs & {value for made in nest.roots for value in made_by(made)}:
            return True
        first = [made.position for made in nest.roots if isinstance(made, (*WRITES, Message))]
        return any(position < root.position for position in first) and bool(reach.loads)

    def joins(self, root: Root, reach: Reach, nest: Nest, lane_axis: int) -> bool:
        """Whether a root, evaluated at a place after the nest's own, finds there what it would find after the nest."""
        if domain_of(root) != nest.shape or lane_axis != nest.lane_axis:
            return False
        if isinstance(root, ALONE) or turned_axis(root, lane_axis) is not None:
            return False
        for made in nest.roots:
            if isinstance(made, ALONE) or turned_axis(made, lane_axis) is not None:
                return False
            if isinstance(made, Reduce) and (
                set(made.op.results) & reach.needs or (isinstance(root, Reduce) and root.axis != made.axis)
            ):
                return False
            if isinstance(made, Materialize) and made.value in reach.elsewhere:
                return False
            if isinstance(made, Materialize) and isinstance(root, Materialize) and root.into is made.into:
                return False
            if isinstance(made, Store) and any(self.position(load) > made.position for load in reach.loads):
                return False
            if isinstance(root, Store) and self.overwrites(root, made):
                return False
        return True

    def overwrites(self, store: Store, made: Root) -> bool:
        """Whether a store may change what another root of its nest, which comes before it, reads or stores later."""
        if isinstance(made, Store) and stores_over(store.op, made.op):
            return True
        before = reach_of(made, self.held)
        return any(overwrites(store.op, load, load.result in before.elsewhere) for load in before.loads)

    def position(self, load: Operation) -> int:
        """Returns where a load stands in the block; loads from outside come first."""
        return self.block.index(load) if load.parent is self.block else -1


@dataclass
class Reach:
    """What evaluating a root's tiles touches.

    `values`: all tiles on the way; `elsewhere`: those read at another place than the one being computed; `scalars`; `loads`.
    """

    values: set[Value] = field(default_factory=set)
    elsewhere: set[Value] = field(default_factory=set)
    scalars: set[Value] = field(default_factory=set)
    loads: list[Operation] = field(default_factory=list)

    @property
    def needs(self) -> set[Value]:
        return self.values | self.scalars


def reach_of(root: Root, held: Held) -> Reach:
    """Walks from a root's tiles to what is in buffers, memory and scalars."""
    reach = Reach()
    pending = [(value, True) for value in values_of(root)]
    first = {root.value} if isinstance(root, Materialize) else set()
    seen: set[tuple[Value, bool]] = set()
    while pending:
        value, same = pending.pop()
        if (value, same) in seen:
            continue
        seen.add((value, same))
        if not isinstance(value.type, TensorType):
            reach.scalars.add(value)
            continue
        reach.values.add(value)
        if not same:
            reach.elsewhere.add(value)
        op = value.defining_op
        if op is None or op.name in BUFFERED or (value in held and value not in first):
            continue
        if op.name == "tt.load":
            reach.loads.append(op)
        here = same and (Trait.ELEMENTWISE in definition(op.name).traits or op.name == "tt.load")
        pending += [(operand, here) for operand in op.operands]
    return reach
