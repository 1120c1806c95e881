"""Removes layout conversions that cost more than doing without: loads and stores in the layout at hand, work done again."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kernelpack.analysis.axis_info import AxisInfoAnalysis
from kernelpack.analysis.loops import needed_by
from kernelpack.backends.gpu.facts.conversion_cost import conversion_cost
from kernelpack.backends.gpu.facts.memory_layouts import global_cost
from kernelpack.backends.gpu.facts.products import loads_for_dots
from kernelpack.backends.gpu.passes.materialize import Materializer, builder_after, free_values, operand_requirement
from kernelpack.ir.core import Operation, Value
from kernelpack.ir.dialect import (
    Effect,
    Trait,
    attribute,
    definition,
    effects_of,
    operand,
    operands_called,
    optional_operand,
    replace_operand,
)
from kernelpack.ir.types import TensorType, shape_of
from kernelpack.layout.encoding import layout_of, with_layout
from kernelpack.layout.linear import LinearLayout
from kernelpack.layout.transfer import REARRANGING

WRITES = frozenset({Effect.WRITE_GLOBAL, Effect.SYNCHRONISE, Effect.OTHER})
WIDENING = frozenset({"arith.extf", "arith.extsi", "arith.extui"})
"""Operations after which a tile takes more shared memory."""
MOST_REPEATED = 4
"""How often an element is widened at most, each time by another thread."""


def remove_conversions(function: Operation) -> None:
    """Rewrites a ttgir function in place."""
    _Remover(function).run()


class _Remover:
    def __init__(self, function: Operation) -> None:
        self.function = function
        self.facts = AxisInfoAnalysis(function)
        self.free = free_values(function, _indices(function))
        self.materialize = Materializer(self.free)

    def run(self) -> None:
        for op in list(self.function.walk()):
            if op.name == "ttg.convert_layout" and op.parent is not None and op.result.uses:
                self._convert(op)
            elif op.name == "tt.store":
                self._store(op)
        for op in list(self.function.walk()):
            if op.name == "ttg.convert_layout":
                self._shorten(op)

    # ---- conversions of what can be computed or loaded in the wanted layout ----

    def _convert(self, op: Operation) -> None:
        value, wanted = op.operand, layout_of(op.result)
        dots = [user for user in op.result.users() if user.name == "tt.dot"]
        if dots and not self._is_unpacked(value, wanted):
            return  # operands of dots come through shared memory, which the pipeliner fills ahead of time
        assert isinstance(value.type, TensorType)
        cost = self._cost(value, wanted, op)
        if cost is not None and cost <= conversion_cost(value.type, wanted):
            made = self._make(value, wanted)
            op.replace_with(made)
            if dots:
                self._sink(made, min(dots, key=lambda dot: dot.order))

    def _sink(self, value: Value, user: Operation) -> None:
        """Moves what makes a tile out of loads to its only user, as an operand takes many registers: it is read from shared memory there."""
        op, block = value.defining_op, user.parent
        if op is None or block is None or op.parent is not block or value in self.free or value.users() != [user]:
            return
        if op.name != "ttg.convert_layout" and not self._is_movable(op):
            return
        block.insert(block.index(user) - 1, op)
        for source in op.operands:
            self._sink(source, op)

    def _is_unpacked(self, value: Value, wanted: LinearLayout) -> bool:
        """Whether an operand of a dot may be better made in the layout that the dot wants than moved there: one that is only rearranged after it
        was loaded, or widened; or one that is computed from smaller tiles, such as words of several numbers, if no thread computes more."""
        moved, loads = self._sources(value)
        if not moved or any(load.name != "tt.load" for load in loads):
            return False
        if all(op.name in REARRANGING for op in moved):
            return True
        more = wanted.in_size("register") // layout_of(value).in_size("register")
        if more <= MOST_REPEATED and all(op.name in REARRANGING or op.name in WIDENING for op in moved):
            return True
        size = math.prod(shape_of(value.type))
        smaller = all(math.prod(shape_of(load.result.type)) < size for load in loads)
        return smaller and wanted.in_size("register") <= layout_of(value).in_size("register")

    def _sources(self, value: Value) -> tuple[set[Operation], set[Operation]]:
        """Returns the operations that can move which a tile is computed by, and those that cannot, whose results they take."""
        moved: set[Operation] = set()
        others: set[Operation] = set()
        pending = [value]
        while pending:
            op = (value := pending.pop()).defining_op
            if value in self.free or op is None or op in moved:
                continue
            if self._is_movable(op):
                moved.add(op)
                pending += [source for source in op.operands if isinstance(source.type, TensorType)]
            else:
                others.add(op)
        return moved, others

    def _cost(self, value: Value, wanted: LinearLayout, user: Operation) -> int | None:
        """Returns what having `value` in another layout costs more when its operation is moved to that layout; None if it cannot
        be moved: only values that nobody else uses move."""
        if value in self.free or layout_of(value) == wanted:
            return 0
        op = value.defining_op
        if op is None or value.users() != [user]:
            return None
        if op.name == "tt.load" and not attribute(op, "is_volatile"):
            if not all(value in self.free for value in op.operands):
                return None
            more = global_cost(wanted, op, self.facts) - global_cost(layout_of(value), op, self.facts)
            return None if more > 0 and _runs_ahead(op) else max(0, more)
        if not self._is_movable(op):
            return None
        needed = operand_requirement(op, wanted)
        if needed is None:
            return None
        return self._total([operand for operand in op.operands if isinstance(operand.type, TensorType)], needed, op)

    def _total(self, values: Sequence[Value], needed: LinearLayout, user: Operation) -> int | None:
        total = 0
        for value in values:
            assert isinstance(value.type, TensorType)
            moved = self._cost(value, needed, user)
            converted = conversion_cost(value.type, needed)
            total += converted if moved is None else min(moved, converted)
        return total

    @staticmethod
    def _is_movable(op: Operation) -> bool:
        if len(op.results) != 1:  # one of them may be wanted elsewhere as it is
            return False
        traits = definition(op.name).traits
        return {Trait.ELEMENTWISE, Trait.PURE} <= traits or (op.name in REARRANGING and len(op.operands) == 1)

    def _make(self, value: Value, wanted: LinearLayout) -> Value:
        """Builds what `_cost` decided."""
        if value in self.free or layout_of(value) == wanted:
            return self.materialize(value, wanted)
        op = value.defining_op
        assert op is not None
        if op.name == "tt.load":
            operands = [self.materialize(operand, wanted) for operand in op.operands]
        else:
            needed = operand_requirement(op, wanted)
            assert needed is not None
            operands = [self._operand(operand, needed, op) for operand in op.operands]
        types = [with_layout(result.type, wanted) for result in op.results]
        copy = Operation(op.name, operands, types, op.attributes, (), op.location)
        copy.result.name = value.name
        return builder_after(value).insert(copy).result

    def _operand(self, value: Value, needed: LinearLayout, user: Operation) -> Value:
        if not isinstance(value.type, TensorType):
            return value
        moved = self._cost(value, needed, user)
        if moved is not None and moved <= conversion_cost(value.type, needed):
            return self._make(value, needed)
        return self.materialize(value, needed)

    @staticmethod
    def _shorten(op: Operation) -> None:
        """Converts straight from what a conversion in front converts, where that costs no more."""
        wanted = layout_of(op.result)
        while (first := op.operand.defining_op) is not None and first.name == "ttg.convert_layout":
            between, before = first.result.type, first.operand.type
            assert isinstance(between, TensorType)
            assert isinstance(before, TensorType)
            if conversion_cost(before, wanted) > conversion_cost(between, wanted):
                break
            replace_operand(op, "src", first.operand)
        if layout_of(op.operand) == wanted:
            op.replace_with(op.operand)

    # ---- stores ----

    def _store(self, op: Operation) -> None:
        """Stores straight from the layout a value has where that is cheaper than converting first."""
        convert = operand(op, "value").defining_op
        if convert is None or convert.name != "ttg.convert_layout" or len(convert.result.uses) != 1:
            return
        pointer, mask = operand(op, "ptr"), optional_operand(op, "mask")
        if pointer not in self.free or (mask is not None and mask not in self.free):
            return
        value = convert.operand
        assert isinstance(value.type, TensorType)
        here = layout_of(value)
        direct = global_cost(here, op, self.facts)
        converted = global_cost(layout_of(pointer), op, self.facts) + conversion_cost(value.type, layout_of(pointer))
        if direct <= converted:
            replace_operand(op, "ptr", self.materialize(pointer, here))
            replace_operand(op, "value", value)
            if mask is not None:
                replace_operand(op, "mask", self.materialize(mask, here))


def _indices(function: Operation) -> set[Operation]:
    """Returns the loads of a few numbers that addresses of a dot's tiles are computed from, in a loop, such as the rows of a gather. They are
    done again in each layout: a conversion through shared memory would keep the loads of the tiles from running ahead.

    None in loops that write, or wait for others: what is loaded twice might differ.
    """
    found: set[Operation] = set()
    for loop in function.walk():
        if loop.name == "scf.for" and not effects_of(loop) & WRITES:
            for load in loads_for_dots(loop):
                addresses = (operand(load, "ptr"), *operands_called(load, "mask"))
                found.update(op for op in needed_by(loop.body, addresses) if _is_small(op))
    return found


def _is_small(op: Operation) -> bool:
    """Whether an operation loads one element for each thread, and nobody else may change it meanwhile."""
    if op.name != "tt.load" or attribute(op, "is_volatile") or not isinstance(op.result.type, TensorType):
        return False
    return layout_of(op.result).in_size("register") == 1


def _runs_ahead(load: Operation) -> bool:
    """Whether a loop loads tiles for dots: what it loads is copied into shared memory ahead of time, and read in any layout."""
    loop = load.parent_op
    return loop is not None and loop.name == "scf.for" and bool(loads_for_dots(loop))
