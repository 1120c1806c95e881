"""Gives every tile an encoding: memory accesses and dots choose, the rest follows, conversions join what differs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kernelpack.analysis.axis_info import AxisInfoAnalysis
from kernelpack.analysis.strides import SUMS, Strides
from kernelpack.backends.gpu.facts.memory_layouts import boundary_layout, choose_memory_layouts, default_layout
from kernelpack.backends.gpu.facts.partners import distance_of
from kernelpack.backends.gpu.facts.products import is_product
from kernelpack.backends.gpu.facts.roles import scopes
from kernelpack.backends.gpu.facts.scratch import ATOMICS
from kernelpack.backends.gpu.machine import Machine
from kernelpack.backends.gpu.passes.materialize import Materializer, free_values
from kernelpack.ir.core import Operation, Value
from kernelpack.ir.dialect import Trait, definition, operand
from kernelpack.ir.types import FunctionType, TensorType, shape_of
from kernelpack.ir.views import For, While, slot_of, slots
from kernelpack.layout.encoding import layout_of, with_layout
from kernelpack.layout.families import Threads, scan, spread
from kernelpack.layout.linear import LinearLayout
from kernelpack.layout.transfer import REARRANGING, operand_layout, remove_dim, result_layout

UNIFORM = ("tt.elementwise_inline_asm", "tt.map_elementwise")
"""Elementwise operations that may have several results."""
BROADCAST, WEAK, MEMORY, DOT, BOUNDARY = range(5)
"""How strongly a value wants a layout, weakest first: a layout whose copies a broadcast made; one that nobody asked for; that of an
access to memory; that of a matrix unit; that of arguments and results of called functions, which is the same at all calls."""


def assign_layouts(function: Operation, num_warps: int, machine: Machine) -> None:
    """Turns a ttir function into ttgir in place."""
    facts = AxisInfoAnalysis(function)
    for scope, warps in scopes(function, num_warps):
        threads = Threads(warps, machine.lanes)
        memory = choose_memory_layouts(scope, facts, threads, machine.adds_neighbours)
        _Assigner(scope, threads, machine, memory, facts).run()


class _Assigner:
    def __init__(
        self,
        function: Operation,
        threads: Threads,
        machine: Machine,
        memory: Mapping[Operation, LinearLayout],
        facts: AxisInfoAnalysis,
    ) -> None:
        """`function` is a kernel or a role; `memory` has the layout that each of its memory accesses would want for itself."""
        self.function = function
        self.threads = threads
        self.dots = {op: machine.accumulator_layout(op, threads.warps) for op in function.walk() if is_product(op)}
        self.operands = {op: machine.operand_layouts(op, threads.warps) for op in self.dots}
        self.homes: dict[Value, tuple[LinearLayout, int]] = {}
        self.free = free_values(function)
        self.memory = {op: layout for op, layout in memory.items() if not self._gathers(op, facts)}
        passed = [slot for op in function.walk() for slot in slots(op)]
        self.same = {value: slot.values for slot in passed for value in slot.values}
        self.same |= {part: tuple(op.results) for op in function.walk() if op.name == "tt.split" for part in op.results}
        self.becomes: dict[Value, list[Value]] = {}
        for slot in passed:
            for source in slot.source_values():
                self.becomes.setdefault(source, []).extend(slot.values)
        self.operations = dict.fromkeys(function.walk())
        self.pending = set(self.operations)

    def run(self) -> None:
        for argument, layout in zip(self.function.body.arguments, self._boundary(self.function)[0], strict=True):
            self._wish(argument, layout, BOUNDARY)
        self._propagate()
        self._ask_users()
        self._propagate()
        self._fill()
        operations = [op for op in self.function.walk() if op is not self.function]
        for value in list(_values(self.function)):
            if isinstance(value.type, TensorType):
                value.type = with_layout(value.type, self.homes[value][0])
        self._retype()
        convert = Materializer(self.free)
        for op in operations:
            for index, (value, wanted) in enumerate(zip(list(op.operands), self._requirements(op), strict=True)):
                if wanted is not None and layout_of(value) != wanted:
                    op.set_operand(index, convert(value, wanted))

    def _retype(self) -> None:
        """Writes the encodings of what passes between functions into the function's type."""
        if self.function.name == "tt.func":
            body = self.function.body
            results = zip(body.terminator.operands, self._boundary(self.function)[1], strict=True)
            self.function.attributes["function_type"] = FunctionType(
                tuple(argument.type for argument in body.arguments),
                tuple(value.type if layout is None else with_layout(value.type, layout) for value, layout in results),
            )

    # ---- where layouts come from ----

    def _gathers(self, op: Operation, facts: AxisInfoAnalysis) -> bool:
        """Whether a load takes elements from places that data decides: no layout coalesces it, so it takes that of its addresses."""
        if op.name != "tt.load":
            return False
        pointer = operand(op, "ptr")
        if pointer in self.free or any(count != 1 for count in facts[pointer].contiguity):
            return False
        data, strides = list(self._data_in(pointer, set())), Strides(facts)
        axes = [axis for axis, size in enumerate(shape_of(pointer.type)) if size > 1]
        return bool(data) and all(any(strides(term, axis) for term in data) for axis in axes)

    def _data_in(self, value: Value, seen: set[Value]) -> Iterator[Value]:
        """Yields what an address is a sum of and comes from memory, or is computed from what does."""
        if value in self.free or value in seen or not isinstance(value.type, TensorType):
            return
        seen.add(value)
        op = value.defining_op
        if (slot := slot_of(value)) is not None:
            parts = slot.source_values()
        elif op is not None and op.name in SUMS:
            parts = op.operands
        else:
            yield value
            return
        for part in parts:
            yield from self._data_in(part, seen)

    def _wish(self, value: Value, layout: LinearLayout | None, strength: int) -> None:
        if layout is None or not isinstance(value.type, TensorType) or value in self.free:
            return
        known = self.homes.get(value)
        if known is None or strength > known[1]:
            self._settle(value, layout, strength)

    def _settle(self, value: Value, layout: LinearLayout, strength: int) -> None:
        """Gives a value a layout: what goes around a loop has it inside and after the loop."""
        for same in self.same.get(value, (value,)):
            self.homes[same] = layout, strength
            for user in same.users():
                reader = user.parent_op if Trait.TERMINATOR in definition(user.name).traits else user
                if reader in self.operations:
                    self.pending.add(reader)

    def _propagate(self) -> None:
        """Carries layouts forward until nothing changes; stronger wishes replace weaker ones."""
        while self.pending:
            for op in self.operations:
                if op in self.pending:
                    self.pending.remove(op)
                    self._forward(op)

    def _forward(self, op: Operation) -> None:
        if op.name == "tt.load" and op not in self.memory:
            home = self._strongest(op.operands)
            if home is not None:
                self._wish(op.result, *home)
        elif op.name in ("tt.load", "tt.descriptor_load", *ATOMICS):
            self._wish(op.result, self.memory.get(op), MEMORY)
        elif is_product(op):
            self._wish(op.result, self.dots[op], DOT)
        elif op.name == "tt.call":
            for result, layout in zip(op.results, self._boundary(op)[1], strict=True):
                self._wish(result, layout, BOUNDARY)
        elif Trait.PASSES_ON in definition(op.name).traits:
            for value, result in zip(op.operands, op.results, strict=True):
                self._copy(value, result)
        elif op.name == "scf.for":
            loop = For.of(op)
            self._join(loop.arguments, loop.initial, loop.yielded)
        elif op.name == "scf.while":
            turns = While.of(op)
            self._join(turns.before.arguments, turns.initial, turns.yielded)
            for argument, value in zip(turns.after.arguments, turns.passed_on, strict=True):
                self._copy(value, argument)
        elif op.name == "scf.if":
            for region in op.regions:
                for result, value in zip(op.results, region.block.terminator.operands if region.blocks else (), strict=False):
                    self._copy(value, result)
        elif op.name == "tt.scan":
            for value, result in zip(op.operands, op.results, strict=True):
                home = self.homes.get(value)
                self._wish(result, scan(shape_of(value.type), op.attributes["axis"], self.threads), home[1] if home else WEAK)
        elif op.name == "tt.gather":
            self._copy(operand(op, "indices" if distance_of(op) is None else "src"), op.result)
        elif op.name in UNIFORM:
            home = self._neighbours(op) or self._strongest(op.operands)
            for result in op.results if home else ():
                assert home is not None
                self._wish(result, *home)
        elif op.name == "tt.reduce":
            home = self._reduced(op)
            for result in op.results if home else ():
                assert home is not None
                self._wish(result, remove_dim(home[0], op.attributes["axis"]), home[1])
        elif op.name in REARRANGING:
            home = self._strongest(op.operands)
            for result in op.results if home else ():
                assert home is not None
                self._wish(result, result_layout(op, home[0]), BROADCAST if op.name == "tt.broadcast" else home[1])
        elif Trait.ELEMENTWISE in definition(op.name).traits:
            home = self._strongest(op.operands)
            if home is not None:
                self._wish(op.result, *home)

    def _neighbours(self, op: Operation) -> tuple[LinearLayout, int] | None:
        """Returns the layout in which a thread holds the neighbours that a region takes at a time."""
        pack = op.attributes.get("pack", 1)
        if op.name != "tt.map_elementwise" or pack == 1:
            return None
        shape = shape_of(op.results[0].type)
        return spread(shape, min(pack, shape[-1]), tuple(reversed(range(len(shape)))), self.threads), MEMORY

    def _strongest(self, values: list[Value]) -> tuple[LinearLayout, int] | None:
        homes = [self.homes[value] for value in values if value in self.homes]
        return max(homes, key=lambda home: home[1], default=None)

    def _reduced(self, op: Operation) -> tuple[LinearLayout, int] | None:
        """Returns the layout of a reduction's operands, on which those that each user computes for itself have no say."""
        return self._strongest([value for value in op.operands if value not in self.free] or op.operands)

    def _copy(self, source: Value, target: Value) -> None:
        if source in self.homes:
            self._wish(target, *self.homes[source])

    def _join(self, arguments: Sequence[Value], initial: Sequence[Value], yielded: Sequence[Value]) -> None:
        """Joins what goes around a loop: the first value, and the value of every next iteration."""
        for argument, first, again in zip(arguments, initial, yielded, strict=True):
            self._copy(again, argument)
            self._copy(first, argument)

    def _ask_users(self) -> None:
        """Gives values that nothing decides (pointers, counters), or only a broadcast, the layout of the access they are for."""
        for value in _values(self.function):
            decided = self.homes.get(value, (None, BROADCAST))[1] > BROADCAST
            if isinstance(value.type, TensorType) and not decided and value not in self.free:
                wanted = self._wanted_by_users(value)
                if wanted is not None and self._can_be_in(value, wanted):
                    self._wish(value, wanted, WEAK)

    @staticmethod
    def _can_be_in(value: Value, layout: LinearLayout) -> bool:
        """Whether what defines a value gives it in any layout: operations that tie it to that of their operands do not."""
        op = value.defining_op
        if op is not None and op.name in REARRANGING:
            return operand_layout(op, layout) is not None
        return op is None or op.name not in ("tt.reduce", "tt.scan", *UNIFORM)

    def _wanted_by_users(self, value: Value) -> LinearLayout | None:
        seen: set[Value] = set()
        pending = [value]
        while pending:
            current = pending.pop(0)
            if current in seen:
                continue
            seen.add(current)
            pending += self.becomes.get(current, ())
            for user in current.users():
                if (
                    user in self.memory
                    and user.name != "tt.descriptor_load"
                    and shape_of(operand(user, "ptr").type) == shape_of(value.type)
                ):
                    return self.memory[user]
                if Trait.ELEMENTWISE in definition(user.name).traits:
                    known = self.homes.get(user.result, (None, WEAK))
                    if known[1] > WEAK:
                        return known[0]
                    pending.append(user.result)
        return None

    def _fill(self) -> None:
        """Gives every tile that is left a default, and lets it spread."""
        for value in _values(self.function):
            if isinstance(value.type, TensorType) and value not in self.homes:
                self._settle(value, self._default(value), WEAK)
                if value not in self.free:
                    self._propagate()

    def _default(self, value: Value) -> LinearLayout:
        """Returns the layout of a value that nothing decides; where the operation ties it to its operand, what follows from that."""
        op = value.defining_op
        if op is not None and (op.name in REARRANGING or op.name == "tt.reduce"):
            source, *_ = op.operands
            home = self._reduced(op) if op.name == "tt.reduce" else self._strongest(op.operands)
            layout = home[0] if home is not None else default_layout(shape_of(source.type), self.threads)
            tied = result_layout(op, layout) if op.name in REARRANGING else remove_dim(layout, op.attributes["axis"])
            if tied is not None:
                return tied
        return default_layout(shape_of(value.type), self.threads)

    # ---- what operations require ----

    def _requirements(self, op: Operation) -> list[LinearLayout | None]:
        """Returns the layout that each operand must have; None where any will do."""
        tiles = [isinstance(value.type, TensorType) for value in op.operands]

        def all_of(layout: LinearLayout) -> list[LinearLayout | None]:
            return [layout if tile else None for tile in tiles]

        if not any(tiles):
            return [None] * len(tiles)
        if op in self.memory:
            return all_of(self.memory[op])
        if is_product(op):
            return [*self.operands[op], layout_of(op.result)]
        if Trait.PASSES_ON in definition(op.name).traits:
            return [layout_of(result) for result in op.results]
        if op.name == "tt.call":
            return self._boundary(op)[0]
        if op.name == "tt.return":
            return self._boundary(self.function)[1]
        if op.name == "tt.reduce":
            home, (source, *_) = self._reduced(op), op.operands
            return all_of(home[0] if home is not None else layout_of(source))
        if op.name == "scf.for":
            loop = For.of(op)
            return [*(None for _ in loop.bounds), *map(_layout, loop.arguments)]
        if op.name == "scf.while":
            return [_layout(argument) for argument in While.of(op).before.arguments]
        if op.name in ("scf.yield", "scf.condition"):
            return self._yield_requirements(op)
        if op.name in REARRANGING:
            return all_of(_rearranged_from(op))
        if op.name == "tt.gather":
            return [None if distance_of(op) is None else layout_of(op.result), layout_of(op.result)]
        if op.name == "tt.histogram":
            return all_of(layout_of(operand(op, "src")))
        if op.name in UNIFORM:
            return all_of(layout_of(op.results[0])) if op.results else [None] * len(tiles)
        if op.name in ("tt.load", "tt.scan") or Trait.ELEMENTWISE in definition(op.name).traits:
            return all_of(layout_of(op.results[0]))
        return [None] * len(tiles)

    def _boundary(self, op: Operation) -> tuple[list[LinearLayout | None], list[LinearLayout | None]]:
        """Returns the layouts of what goes into a function, or a call of it, and comes out; None for scalars."""
        given: Sequence[Value] = op.operands if op.name == "tt.call" else op.body.arguments
        returned: Sequence[Value] = op.results if op.name == "tt.call" else op.body.terminator.operands
        signature = [value.type for value in (*given, *returned)]

        def layouts(values: Sequence[Value]) -> list[LinearLayout | None]:
            shapes = [shape_of(value.type) if isinstance(value.type, TensorType) else None for value in values]
            return [None if shape is None else boundary_layout(shape, signature, self.threads) for shape in shapes]

        return layouts(given), layouts(returned)

    @staticmethod
    def _yield_requirements(op: Operation) -> list[LinearLayout | None]:
        parent = op.parent_op
        assert parent is not None
        if op.name == "scf.condition":
            return [None, *(_layout(result) for result in parent.results)]
        targets: list[Value] = list(parent.results)
        if parent.name == "scf.while":
            targets = list(parent.body.arguments)
        return [_layout(target) for target in targets]


def _rearranged_from(op: Operation) -> LinearLayout:
    wanted = operand_layout(op, layout_of(op.results[0]))
    assert wanted is not None, f"{op.name} was given a layout that it cannot produce"
    return wanted


def _layout(value: Value) -> LinearLayout | None:
    return layout_of(value) if isinstance(value.type, TensorType) else None


def _values(function: Operation) -> Iterator[Value]:
    """Yields every value of a function in order."""
    for op in function.walk():
        if op is not function:
            yield from op.results
        for region in op.regions:
            for block in region.blocks:
                yield from block.arguments
