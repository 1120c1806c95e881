"""Reductions and scans: within a thread, then over the lanes of a warp; scans go on over warps through shared memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernelpack.backends.gpu.facts.scratch import scan_exchange_bytes, scan_warps
from kernelpack.backends.gpu.lowering.control_flow import inline
from kernelpack.backends.gpu.lowering.global_memory import from_memory, to_memory
from kernelpack.backends.gpu.lowering.linear_code import apply_linear, i32
from kernelpack.backends.gpu.lowering.shared_memory import buffer_address, only_if
from kernelpack.backends.gpu.lowering.state import Lowering, memory_type
from kernelpack.ir.core import Block, Operation
from kernelpack.ir.dialect import attribute
from kernelpack.ir.types import I1, bit_width, element_of, shape_of
from kernelpack.layout.encoding import layout_of
from kernelpack.layout.linear import Basis, LinearLayout, log2
from kernelpack.layout.transfer import remove_dim
from kernelpack.llvm.text import Val

Tuple = list[Val]
"""One element of every operand of a reduction or scan."""


def _rows(layout: LinearLayout, axis: int) -> dict[Basis, list[int]]:
    """Returns the registers of each row along an axis, in order along it, by their other coordinates."""
    rows: dict[Basis, list[int]] = {}
    places = layout.images("register")
    for register in sorted(range(len(places)), key=lambda register: places[register][axis]):
        place = places[register]
        rows.setdefault((*place[:axis], *place[axis + 1 :]), []).append(register)
    return rows


def _combine(state: Lowering, body: Block, a: Tuple, b: Tuple) -> Tuple:
    return inline(state, body, [*a, *b])


def _select(state: Lowering, condition: Val, yes: Tuple, no: Tuple) -> Tuple:
    return [state.emit.select(condition, one, other) for one, other in zip(yes, no, strict=True)]


def _reduce(state: Lowering, op: Operation) -> None:
    axis, body, (source, *_) = op.attributes["axis"], op.body, op.operands
    layout = layout_of(source)
    columns = [state[value] for value in op.operands]
    totals: dict[Basis, Tuple] = {}
    for row, registers in _rows(layout, axis).items():
        elements = [[column[register] for column in columns] for register in registers]
        while len(elements) > 1:  # neighbours first: a balanced tree is short and sums floats accurately
            elements = [_combine(state, body, *pair) for pair in zip(elements[::2], elements[1::2], strict=True)]
        totals[row] = elements[0]
    for bit, basis in enumerate(layout.bases("lane")):
        if basis[axis]:
            assert not any(x for other, x in enumerate(basis) if other != axis), "a lane bit moves along two dimensions"
            for row, mine in totals.items():
                theirs = [state.shuffle("bfly", value, i32(1 << bit)) for value in mine]
                totals[row] = _combine(state, body, mine, theirs)
    assert not any(basis[axis] for basis in layout.bases("warp")), "reductions over warps are split before lowering"
    order = remove_dim(layout, axis).images("register")
    for number, result in enumerate(op.results):
        state[result] = [totals[row][number] for row in order]


# ---- scans ----


class _Scan:
    """A scan in the layout that families.scan gives: the axis runs over a thread's registers, then lanes, then warps.

    A reverse scan is the same with every order turned round.
    """

    def __init__(self, state: Lowering, op: Operation) -> None:
        self.state = state
        self.op = op
        self.axis = op.attributes["axis"]
        self.reverse = attribute(op, "reverse")
        source, *_ = op.operands
        self.layout = layout_of(source)
        self.lane_bits = [bit for bit, basis in enumerate(self.layout.bases("lane")) if basis[self.axis]]
        assert self.lane_bits == list(range(len(self.lane_bits))), "the axis of a scan lies in the lowest lanes"
        self.per_thread = self.layout.shape[self.axis] >> (len(self.lane_bits) + log2(scan_warps(op)))

    def combine(self, earlier: Tuple, later: Tuple) -> Tuple:
        return _combine(self.state, self.op.body, earlier, later)

    def combine_where(self, condition: Val, earlier: Tuple, later: Tuple) -> Tuple:
        """Returns the combination where the condition holds, elsewhere what is later. There the function's assertions do not count."""
        self.state.assertions_count = condition
        combined = self.combine(earlier, later)
        self.state.assertions_count = None
        return _select(self.state, condition, combined, later)

    def run(self) -> None:
        state, op = self.state, self.op
        columns = [state[operand] for operand in op.operands]
        results: list[list[Val]] = [list(column) for column in columns]
        rows = _rows(self.layout, self.axis)
        scanned: dict[Basis, list[Tuple]] = {}
        for row, order in rows.items():
            ordered = order[::-1] if self.reverse else order
            running = [[column[ordered[0]] for column in columns]]
            for register in ordered[1:]:
                running.append(self.combine(running[-1], [column[register] for column in columns]))
            scanned[row] = self.over_lanes(running)
        if scan_warps(op) > 1:
            self.over_warps(scanned)
        for row, order in rows.items():
            ordered = order[::-1] if self.reverse else order
            for register, element in zip(ordered, scanned[row], strict=True):
                for result, value in zip(results, element, strict=True):
                    result[register] = value
        for index, registers in enumerate(results):
            state[op.results[index]] = registers

    def position(self, size: int) -> Val:
        """Returns the lane's number along the axis, counted in the direction of the scan."""
        emit = self.state.emit
        number = emit.binary("and", self.state.tid, i32(size - 1))
        return emit.binary("xor", number, i32(size - 1)) if self.reverse else number

    def over_lanes(self, running: list[Tuple]) -> list[Tuple]:
        """Adds to a thread's elements the total of the lanes before it (Hillis and Steele)."""
        size = 1 << len(self.lane_bits)
        if size == 1:
            return running
        state, emit = self.state, self.state.emit
        mode = "down" if self.reverse else "up"
        position = self.position(size)
        total = running[-1]
        for bit in range(len(self.lane_bits)):
            before = [state.shuffle(mode, value, i32(1 << bit)) for value in total]
            has = emit.compare("icmp", "uge", position, i32(1 << bit))
            total = self.combine_where(has, before, total)
        before = [state.shuffle(mode, value, i32(1)) for value in total]
        follows = emit.compare("icmp", "ne", position, i32(0))
        return [self.combine_where(follows, before, element) for element in running]

    def over_warps(self, scanned: dict[Basis, list[Tuple]]) -> None:
        """Exchanges the warps' totals through shared memory and adds those of the warps before."""
        state, emit, warps = self.state, self.state.emit, scan_warps(self.op)
        axis_step = self.per_thread << len(self.lane_bits)
        along = apply_linear(emit, state.tid, state.bases(self.layout, self.axis))
        warp = emit.binary("lshr", along, i32(log2(axis_step)))
        number = emit.binary("xor", warp, i32(warps - 1)) if self.reverse else warp
        last = emit.compare("icmp", "eq", self.position(1 << len(self.lane_bits)), i32((1 << len(self.lane_bits)) - 1))
        slots = {row: self.slots(row) for row in scanned}
        with only_if(state, state.both(last, state.owner(self.layout))):
            for row, elements in scanned.items():
                for (base, bytes_), value in zip(slots[row], elements[-1], strict=True):
                    stored = to_memory(state, value)
                    place = emit.offset(base, emit.binary("mul", number, i32(bytes_)))
                    emit.store(stored, place, bytes_)
        state.barrier()
        for row, elements in scanned.items():
            before = self.read(slots[row], 0)
            for other in range(1, warps - 1):
                more = self.combine(before, self.read(slots[row], other))
                before = _select(state, emit.compare("icmp", "ugt", number, i32(other)), more, before)
            follows = emit.compare("icmp", "ne", number, i32(0))
            scanned[row] = [self.combine_where(follows, before, element) for element in elements]

    def slots(self, row: Basis) -> list[tuple[Val, int]]:
        """Returns for each operand the address of the first warp's total of a row, and an element's bytes."""
        state, emit, warps = self.state, self.state.emit, scan_warps(self.op)
        source, *_ = self.op.operands
        shape = shape_of(source.type)
        others = [other for other in range(len(shape)) if other != self.axis]
        index, rows = i32(0), 1
        for coordinate, other in zip(reversed(row), reversed(others), strict=True):
            place = emit.binary("add", state.coordinate(self.layout, other), i32(coordinate))
            index = emit.binary("add", index, emit.binary("mul", place, i32(rows)))
            rows *= shape[other]
        base, found = buffer_address(state, self.op), []
        for operand in self.op.operands:
            bytes_ = max(8, bit_width(operand.type)) // 8
            found.append((emit.offset(base, emit.binary("mul", index, i32(warps * bytes_))), bytes_))
            base = emit.offset(base, scan_exchange_bytes(self.op, operand))
        return found

    def read(self, slots: Sequence[tuple[Val, int]], warp: int) -> Tuple:
        state, values = self.state, []
        for (base, bytes_), operand in zip(slots, self.op.operands, strict=True):
            loaded = state.emit.load(memory_type(operand.type), state.emit.offset(base, warp * bytes_), bytes_)
            values.append(from_memory(state, loaded, element_of(operand.type) == I1))
        return values


def _scan(state: Lowering, op: Operation) -> None:
    _Scan(state, op).run()


REDUCE: dict[str, Callable[[Lowering, Operation], None]] = {"tt.reduce": _reduce, "tt.scan": _scan}
