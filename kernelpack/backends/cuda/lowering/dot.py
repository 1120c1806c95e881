"""Matrix products: mma.sync on fragments in registers, and fused multiply-adds over operands in shared memory."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from kernelpack.backends.cuda.machine.matrix import MmaInstruction, mma_instruction, splits_operands
from kernelpack.backends.gpu.facts.memory_layouts import memory_bits
from kernelpack.backends.gpu.lowering.linear_code import I32, i32
from kernelpack.backends.gpu.lowering.shared_memory import TileReader
from kernelpack.backends.gpu.lowering.state import Lowering
from kernelpack.ir.core import Operation, Value
from kernelpack.ir.dialect import attribute, operand
from kernelpack.ir.types import F32, element_of, shape_of
from kernelpack.ir.views import factors
from kernelpack.layout.encoding import layout_of
from kernelpack.layout.families import HARDWARE, dim
from kernelpack.layout.linear import Basis, LinearLayout, log2
from kernelpack.llvm.text import Val, float_literal, suffix


class _Fragments:
    """The registers of an operand by the coordinates they hold in the first thread."""

    def __init__(self, state: Lowering, value: Value) -> None:
        self.shape = shape_of(value.type)
        self.places = {place: index for index, place in enumerate(layout_of(value).images("register"))}
        self.registers = state.source(value)

    def __getitem__(self, place: Sequence[int]) -> Val:
        """Returns an element; a tile smaller than the fragment repeats."""
        return self.registers[self.places[tuple(x % size for x, size in zip(place, self.shape, strict=True))]]


def _steps(places: set[int], tile: int) -> list[int]:
    """Returns where the tiles of a dimension start, given the coordinates that a thread's registers hold."""
    return sorted({place - place % tile for place in places})


def _mma(state: Lowering, op: Operation) -> None:
    instruction = mma_instruction(op)
    assert instruction is not None
    if splits_operands(op):
        _mma_of_parts(state, op, instruction)
        return
    a, b = (_Words(state, tile, instruction) for tile in factors(op))
    c = _Fragments(state, operand(op, "c"))
    layout = layout_of(op.result)
    places = layout.images("register")
    registers: dict[Basis, Val] = {}
    batches = sorted({place[:-2] for place in places})
    rows = _steps({place[-2] for place in places}, 16)
    columns = _steps({place[-1] for place in places}, 8)
    depth = shape_of(operand(op, "a").type)[-1]
    for batch, k, n, m in itertools.product(batches, range(0, depth, instruction.k), columns, rows):
        corners = [(*batch, m + i, n + j) for i in (0, 8) for j in (0, 1)]
        total = [registers[corner] if k else c[corner] for corner in corners]
        total = _issue(state, instruction, a.a(batch, m, k), b.b(batch, k, n), total)
        registers.update(zip(corners, total, strict=True))
    state[op.result] = [registers[place] for place in places]


def _issue(state: Lowering, instruction: MmaInstruction, a: list[Val], b: list[Val], c: list[Val]) -> list[Val]:
    """Returns four sums; two halves share a register, neighbours in a row."""
    kind = c[0].type
    words = [state.pack(c[first : first + 2], instruction.word) for first in (0, 2)] if kind == "half" else c
    kinds = [word.type for word in words]
    results = state.fields(state.emit.call("{" + ", ".join(kinds) + "}", instruction.intrinsic, [*a, *b, *words]), kinds)
    return [half for word in results for half in state.unpack(word, kind, 2)] if kind == "half" else results


class _Words:
    """The 32-bit registers of operand a or b of an mma, packed from elements along K; each is made once."""

    def __init__(self, state: Lowering, value: Value, instruction: MmaInstruction) -> None:
        self.state = state
        self.fragments = _Fragments(state, value)
        self.instruction = instruction
        self.tf32 = element_of(value.type) == F32
        self.known: dict[tuple[Basis, bool], Val] = {}

    def a(self, batch: Basis, m: int, k: int) -> list[Val]:
        half = self.instruction.k // 2
        return [self.word((*batch, m + i, k + j), -1) for j in (0, half) for i in (0, 8)]

    def b(self, batch: Basis, k: int, n: int) -> list[Val]:
        return [self.word((*batch, k + j, n), -2) for j in (0, self.instruction.k // 2)]

    def word(self, place: Basis, axis: int) -> Val:
        place = tuple(x % size for x, size in zip(place, self.fragments.shape, strict=True))
        key = place, axis == -1
        if key not in self.known:
            position = len(place) + axis
            elements = []
            for step in range(32 // self.instruction.bits):
                elements.append(self.fragments[(*place[:position], place[position] + step, *place[position + 1 :])])
            self.known[key] = self.tensor_float(elements[0]) if self.tf32 else self.state.pack(elements, self.instruction.word)
        return self.known[key]

    def tensor_float(self, value: Val) -> Val:
        """Rounds to tf32; without it the tensor core would cut the low bits off."""
        return self.state.asm(I32, "cvt.rna.tf32.f32 $0, $1;", "=r,f", [value], pure=True)


# ---- float32 in three products of tf32 ----

_GROUP = 4
"""How many neighbouring tiles of columns are summed side by side."""
_RUN = 64
"""Over so much of the summed dimension at most do tensor cores add up the large products."""
_TF32_BITS = -8192
"""Sign, exponent and the ten upper bits of the fraction: 0xFFFFE000."""
_HALF_UP = 1 + 11 * 2.0**-15
"""Adds 0.69 to 1.38 halves of a unit in tf32's last place: cut off after that, numbers are rounded to the nearest on average, which a
conversion would do exactly in twice as many instructions."""


def _mma_of_parts(state: Lowering, op: Operation, instruction: MmaInstruction) -> None:
    """Cuts float32 operands into two tf32 numbers each, and multiplies them but for the two small ones.

    What tensor cores sum, they cut off. So the small products have a sum of their own, and the total is added up by ordinary additions. An
    infinite number's small part is NaN, and then the small sum says nothing.
    """
    emit = state.emit
    a, b = (_Parts(state, tile) for tile in factors(op))
    c = _Fragments(state, operand(op, "c"))
    places = layout_of(op.result).images("register")
    registers: dict[Basis, Val] = {}
    rows = _steps({place[-2] for place in places}, 16)
    columns = _steps({place[-1] for place in places}, 8)
    depth = shape_of(operand(op, "a").type)[-1]
    zero = Val("float", float_literal(0.0, "float"))
    groups = [columns[at : at + _GROUP] for at in range(0, len(columns), _GROUP)]
    for batch, group in itertools.product(sorted({place[:-2] for place in places}), groups):
        tiles = list(itertools.product(group, rows))
        small = {tile: [zero] * 4 for tile in tiles}
        total: dict[Basis, Val] = {}
        for start in range(0, depth, _RUN):
            large = {tile: [zero] * 4 for tile in tiles}
            for k in range(start, min(start + _RUN, depth), instruction.k):
                for n, m in tiles:
                    (a_large, a_small), (b_large, b_small) = a.a(batch, m, k), b.b(batch, k, n)
                    small[n, m] = _issue(state, instruction, a_small, b_large, small[n, m])
                    small[n, m] = _issue(state, instruction, a_large, b_small, small[n, m])
                    large[n, m] = _issue(state, instruction, a_large, b_large, large[n, m])
            for n, m in tiles:
                corners = [(*batch, m + i, n + j) for i in (0, 8) for j in (0, 1)]
                for corner, part in zip(corners, large[n, m], strict=True):
                    total[corner] = emit.binary("fadd", total[corner], part) if start else part
        for n, m in tiles:
            corners = [(*batch, m + i, n + j) for i in (0, 8) for j in (0, 1)]
            for corner, part in zip(corners, small[n, m], strict=True):
                rest = emit.select(emit.compare("fcmp", "uno", part, part), zero, part)
                whole = emit.binary("fadd", total[corner], rest)
                registers[corner] = whole if c[corner] == zero else emit.binary("fadd", c[corner], whole)
    state[op.result] = [registers[place] for place in places]


class _Parts:
    """The registers of operand a or b of a dot in three products: large and small parts. Threads hold neighbours along K."""

    def __init__(self, state: Lowering, value: Value) -> None:
        self.state = state
        self.fragments = _Fragments(state, value)
        self.known: dict[Basis, tuple[Val, Val]] = {}

    def a(self, batch: Basis, m: int, k: int) -> tuple[list[Val], list[Val]]:
        return self._parts([(*batch, m + i, k + j) for j in (0, 1) for i in (0, 8)])

    def b(self, batch: Basis, k: int, n: int) -> tuple[list[Val], list[Val]]:
        return self._parts([(*batch, k + j, n) for j in (0, 1)])

    def _parts(self, places: list[Basis]) -> tuple[list[Val], list[Val]]:
        parts = [self._cut(place) for place in places]
        return [large for large, _ in parts], [small for _, small in parts]

    def _cut(self, place: Basis) -> tuple[Val, Val]:
        if place not in self.known:
            emit = self.state.emit
            value = self.fragments[place]
            up = emit.binary("fmul", value, Val("float", float_literal(_HALF_UP, "float")))
            large = emit.binary("and", emit.cast("bitcast", up, I32), i32(_TF32_BITS))
            small = emit.binary("fsub", value, emit.cast("bitcast", large, "float"))
            self.known[place] = large, emit.cast("bitcast", small, I32)
        return self.known[place]


# ---- ordinary cores ----

_CHUNK = 8
"""How many steps along the summed dimension one round of the loop of an ordinary dot takes."""
_STRAIGHT = 2048
"""How many products of a thread a round has where each is added straight to its sum: code for so many stays in the caches."""


@dataclass(frozen=True)
class _Side:
    """Operand a or b of an ordinary dot: its buffer, its summed axis, and the layout of one chunk of what a thread reads of it."""

    axis: int
    address: Val
    memory: LinearLayout
    chunk: LinearLayout


def _fma_dot(state: Lowering, op: Operation) -> None:
    """A loop over the summed dimension; each round reads a chunk of the thread's rows of A and columns of B."""
    layout = layout_of(op.result)
    rank = len(layout.shape)
    depth = shape_of(operand(op, "a").type)[-1]
    initial = state[operand(op, "c")]
    axes = rank - 1, rank - 2
    if attribute(op, "straight"):
        state[op.result] = _sum_straight(state, op, axes, initial)
        return
    step = min(_CHUNK, depth)
    sides = [_side(state, tile, layout, axis, step) for tile, axis in zip(factors(op), axes, strict=True)]
    places = layout.images("register")
    if depth == step:
        state[op.result] = _round(state, op, sides, places, initial, None)
    else:
        state[op.result] = _rounds(state, depth, step, initial, lambda k, sums: _round(state, op, sides, places, sums, k))


def _rounds(
    state: Lowering, depth: int, step: int, initial: Sequence[Val], body: Callable[[Val, list[Val]], list[Val]]
) -> list[Val]:
    """Returns what values become in a loop over the summed dimension: `body` takes where a chunk begins, and the values."""
    emit = state.emit
    head, inside, end = (emit.new_label(name) for name in ("dot", "step", "enddot"))
    before = emit.block
    emit.jump(head)
    emit.label(head)
    start = len(emit.lines)
    emit.lines += [""] * (len(initial) + 1)
    k = Val(I32, emit.fresh("k"))
    values = [Val(value.type, emit.fresh("sum")) for value in initial]
    emit.branch(emit.compare("icmp", "slt", k, i32(depth)), inside, end)
    emit.label(inside)
    advanced = body(k, values)
    following = emit.binary("add", k, i32(step))
    emit.lines[start] = f"  {k.name} = phi i32 [ 0, %{before} ], [ {following.name}, %{emit.block} ]"
    for index, (value, first, again) in enumerate(zip(values, initial, advanced, strict=True), start + 1):
        emit.lines[index] = f"  {value.name} = phi {value.type} [ {first.name}, %{before} ], [ {again.name}, %{emit.block} ]"
    emit.jump(head)
    emit.label(end)
    return values


def _side(state: Lowering, tile: Value, result: LinearLayout, skip: int, step: int) -> _Side:
    """Returns an operand as the threads that own the result read it: `skip` is its summed dimension."""
    shape = list(shape_of(tile.type))
    rank = len(shape)

    def along_k(basis: Basis) -> Basis:
        return tuple(0 if axis == skip else x for axis, x in enumerate(basis))

    ins = {name: [along_k(basis) for basis in result.bases(name)] for name in HARDWARE}
    ks = [tuple(1 << bit if axis == skip else 0 for axis in range(rank)) for bit in range(log2(step))]
    ins["register"] = [*ks, *(basis for basis in ins["register"] if any(basis))]
    memory = layout_of(tile)
    chunk = LinearLayout.make(ins, {dim(axis): size for axis, size in enumerate(shape)})
    return _Side(skip, state.addresses[tile], memory, chunk)


def _round(
    state: Lowering, op: Operation, sides: list[_Side], places: list[Basis], totals: list[Val], k: Val | None
) -> list[Val]:
    """Adds one chunk's products to the totals; `k` is where the chunk starts, None for the only one."""
    a, b = (
        dict(zip(side.chunk.images("register"), reader.all(), strict=True))
        for side, reader in zip(sides, _readers(state, op, sides, k), strict=True)
    )
    depth = 1 + max(place[-1] for place in a)
    result = []
    for place, total in zip(places, totals, strict=True):
        pairs = [(a[(*place[:-1], inner)], b[(*place[:-2], inner, place[-1])]) for inner in range(depth)]
        result.append(_add_products(state, [[_widen(state, value, total.type) for value in pair] for pair in pairs], total))
    return result


def _readers(state: Lowering, op: Operation, sides: list[_Side], k: Val | None) -> Iterator[TileReader]:
    """Yields what reads a chunk of each operand; `k` is where the chunk starts, None for the only one."""
    kind = operand(op, "a").type
    for side in sides:
        more = [] if k is None else [(k, _offsets_along(side.memory, side.axis, memory_bits(kind) // 8))]
        yield state.tiles.reader(state, side.address, side.memory, side.chunk, kind, *more)


def _sum_straight(state: Lowering, op: Operation, axes: tuple[int, int], initial: list[Val]) -> list[Val]:
    """Adds products to the sums one step after the other, along rows in turn and back: a product then has an operand that the one
    before it had, and reads fewer registers.

    Where both operands lie along the summed dimension, ptxas multiplies all steps that a thread holds of a row before the next row.
    The more steps there are, the more products then read three registers of one bank: rounds are short.
    """
    layout = layout_of(op.result)
    depth = shape_of(operand(op, "a").type)[-1]
    places = layout.images("register")
    along = all(layout_of(tile).bases("offset")[0][axis] for tile, axis in zip(factors(op), axes, strict=True))
    step = min(_CHUNK if along else max(_CHUNK, _STRAIGHT // len(places)), depth)
    sides = [_side(state, tile, layout, axis, step) for tile, axis in zip(factors(op), axes, strict=True)]
    a_at, b_at = ({place: index for index, place in enumerate(side.chunk.images("register"))} for side in sides)
    order = _winding(places, -1 if along else -2)

    def add(k: Val | None, totals: list[Val]) -> list[Val]:
        readers = _readers(state, op, sides, k)
        a, b = (reader.all() for reader in readers) if along else readers
        sums = dict(zip(places, totals, strict=True))
        for inner in range(step):
            for place in order:
                x, y, total = a[a_at[(*place[:-1], inner)]], b[b_at[(*place[:-2], inner, place[-1])]], sums[place]
                sums[place] = _add_product(state, _widen(state, x, total.type), _widen(state, y, total.type), total)
        return [sums[place] for place in places]

    return add(None, initial) if step == depth else _rounds(state, depth, step, initial, add)


def _winding(places: list[Basis], axis: int) -> list[Basis]:
    """Returns places in the order of their coordinates along an axis; those that share one stand in turn, up and down."""
    lines: dict[Basis, list[Basis]] = {}
    for place in sorted(places):
        lines.setdefault((*place[:-2], place[axis]), []).append(place)
    ordered = [lines[key] for key in sorted(lines)]
    return [place for index, line in enumerate(ordered) for place in (reversed(line) if index % 2 else line)]


def _offsets_along(memory: LinearLayout, axis: int, scale: int) -> list[int]:
    """Returns what each bit of a coordinate adds to an offset in bytes."""
    inverse = memory.invert()
    return [basis[0] * scale for basis in inverse.bases(dim(axis))]


def _widen(state: Lowering, value: Val, kind: str) -> Val:
    if value.type == kind:
        return value
    return state.emit.cast("sext" if kind.startswith("i") else "fpext", value, kind)


def _add_products(state: Lowering, pairs: Sequence[Sequence[Val]], total: Val) -> Val:
    """Adds a chunk's products to a total. Floats are summed from zero first: errors then grow with the number of chunks, and not
    with that of the products."""
    emit = state.emit
    if total.type.startswith("i"):
        for a, b in pairs:
            total = _add_product(state, a, b, total)
        return total
    part = emit.binary("fmul", *pairs[0])
    for a, b in pairs[1:]:
        part = _add_product(state, a, b, part)
    return emit.binary("fadd", total, part)


def _add_product(state: Lowering, a: Val, b: Val, total: Val) -> Val:
    if total.type.startswith("i"):
        return state.emit.binary("add", state.emit.binary("mul", a, b), total)
    return state.emit.call(total.type, f"llvm.fma.{suffix(total.type)}", [a, b, total])


DOT: dict[str, Callable[[Lowering, Operation], None]] = {"tt.dot": _mma, "ttg.fma_dot": _fma_dot}
