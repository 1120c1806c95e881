"""Products of warpgroups: wgmma on tiles in swizzled shared memory, asynchronous until a wait."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernelpack.backends.cuda.lowering.state import CudaLowering
from kernelpack.backends.cuda.machine.warpgroup import (
    MOST_COLUMNS,
    ROWS,
    WARPS,
    OperandTile,
    WarpgroupInstruction,
    instruction_of,
    tile_of,
)
from kernelpack.backends.gpu.lowering.linear_code import I32, apply_linear, i32
from kernelpack.errors import CompilationError
from kernelpack.ir.core import Operation, Value
from kernelpack.ir.dialect import attribute
from kernelpack.ir.types import MemDescType, bit_width, element_of, shape_of
from kernelpack.ir.views import is_zero
from kernelpack.layout.encoding import layout_of
from kernelpack.layout.linear import Basis, LinearLayout, log2
from kernelpack.llvm.text import Val, llvm_type

FIRST_TURN_BARRIER = 8
"""Where the hardware barriers of `turns` begin (PTX ISA, barrier.cta: 16 of a block); kernels that name barriers have no turns."""
_REGISTERS = {"float": "f", "i32": "r"}
"""Constraint letters of the registers that accumulators lie in."""
_MOST_DESCRIPTORS = 16
"""So many moved descriptors of left operands in a loop may have registers: two each."""


class _Descriptors:
    """The descriptors of one operand: the address of its buffer and the warpgroup's part of it, moved by constants."""

    def __init__(self, state: CudaLowering, operand: Value, tile: OperandTile, moves: Sequence[int], late: bool) -> None:
        """`moves` says by how many bytes each bit of the warpgroup's number moves it. late: descriptors are moved where they are used. LLVM
        moves those of what a loop does not change before the loop, and keeps all of them in registers."""
        emit = state.emit
        self.state, self.tile, self.late = state, tile, late
        address = emit.cast("ptrtoint", state.addresses[operand], I32)
        if any(moves):
            address = emit.binary("add", address, apply_linear(emit, state.warpgroup(), moves))
        field = emit.binary("and", emit.binary("lshr", address, i32(4)), i32(0x3FFF))
        fixed = tile.fixed_bits - (1 << 64 if tile.fixed_bits >> 63 else 0)
        self.first = emit.binary("or", emit.cast("zext", field, "i64"), Val("i64", str(fixed)))

    def at(self, mn: int, k: int) -> Val:
        offset = self.tile.offset(mn, k) >> 4
        if not offset:
            return self.first
        if self.late:
            return self.state.asm("i64", f"add.s64 $0, $1, {offset};", "=l,l", [self.first])
        return self.state.emit.binary("add", self.first, Val("i64", str(offset)))


class _Rows:
    """Operand A in registers: for each k-step of each block of 64 rows the words that a thread passes, rows before columns."""

    def __init__(self, state: CudaLowering, value: Value, instruction: WarpgroupInstruction) -> None:
        places = {place: index for index, place in enumerate(layout_of(value).images("register"))}
        registers = state[value]
        per, half = 32 // instruction.bits, instruction.k // 2
        self.words: dict[Basis, list[Val]] = {}
        for m in sorted({place[0] - place[0] % ROWS for place in places}):
            for k in range(0, shape_of(value.type)[1], instruction.k):
                corners = [(m + row, k + column) for column in (0, half) for row in (0, 8)]
                elements = [[registers[places[row, column + step]] for step in range(per)] for row, column in corners]
                self.words[m, k] = [state.pack(word) for word in elements]

    def at(self, m: int, k: int) -> list[Val]:
        return self.words[m, k]


def _fence(state: CudaLowering, words: Sequence[Val]) -> list[Val]:
    """Orders what was written to registers before the products that read them: the words are tied, so that no write of them moves
    after the fence (the assembler would fence once more, message C7519)."""
    return _tied(state, "wgmma.fence.sync.aligned;", words)


def _warp_group_dot(state: CudaLowering, op: Operation) -> None:
    a, b, c = op.operands
    instruction = instruction_of(element_of(a.type), element_of(b.type), element_of(c.type))
    assert instruction is not None
    layout = layout_of(op.result)
    halves = _is_half(c)
    # two halves share a register, neighbours in a row: the first one names it
    places = [place for place in layout.images("register") if not halves or place[1] % 2 == 0]
    initial = None if is_zero(c) else _paired(state, layout, state[c]) if halves else state[c]
    # in one of the N warpgroups along the columns, a thread holds these; an instruction computes up to 256 of them
    columns = _extent(layout, 1)
    width = min(columns, MOST_COLUMNS)
    late = _has_many_descriptors(op)
    right = _Descriptors(state, b, _tile(op, b, 0), _moves(layout, _tile(op, b, 0), 1), late)
    left: _Descriptors | _Rows
    if isinstance(a.type, MemDescType):
        left = _Descriptors(state, a, _tile(op, a, 1), _moves(layout, _tile(op, a, 1), 0), late)
    else:
        left = _Rows(state, a, instruction)
    transposed = [descriptors.tile.mn_major for descriptors in (left, right) if isinstance(descriptors, _Descriptors)]
    rows = left.words if isinstance(left, _Rows) else {}
    fenced = iter(_fence(state, [*(initial or ()), *(word for words in rows.values() for word in words)]))
    registers: dict[Basis, Val | None] = {place: None if initial is None else next(fenced) for place in places}
    for words in rows.values():
        words[:] = [next(fenced) for _ in words]
    first, end = _part(op)
    for m in sorted({place[0] - place[0] % ROWS for place in places}):
        for n in range(0, columns, width):
            held = [place for place in places if place[0] // ROWS * ROWS == m and n <= place[1] < n + width]
            held.sort(key=lambda place: (place[1] // 8, place[0] % 16, place[1]))
            total = [registers[place] for place in held]
            for k in range(first, end, instruction.k):
                total = _issue(state, instruction, width, left.at(m, k), right.at(n, k), total, transposed)
            registers.update(zip(held, total, strict=True))
    state.asm("void", "wgmma.commit_group.sync.aligned;", "~{memory}", [], convergent=True)
    result = [register for place in places if (register := registers[place]) is not None]
    if halves:  # they are taken apart here, so that none may be in flight
        # copies: words that are sums and then rows of another product are too many registers for ptxas (message C7511)
        words = [state.asm(I32, "mov.b32 $0, $1;", "=r,r", [word], pure=True) for word in _wait(state, 0, result)]
        state[op.result] = _apart(state, layout, words)
    else:
        state[op.result] = result if attribute(op, "isAsync") else _wait(state, 0, result)


def _has_many_descriptors(op: Operation) -> bool:
    """Returns whether the products around one have more descriptors of left operands than may have registers."""
    assert op.parent is not None
    bits = 0
    for one in op.parent.operations:
        if one.name == op.name:
            a, _, _ = one.operands
            first, end = _part(one)
            bits += (end - first) * bit_width(a.type) if isinstance(a.type, MemDescType) else 0
    return bits > _MOST_DESCRIPTORS * 256  # an instruction takes 256 bits along k


def _part(op: Operation) -> tuple[int, int]:
    """Returns which part of the summed dimension a product multiplies."""
    a, _, _ = op.operands
    return attribute(op, "part") or (0, shape_of(a.type)[-1])


def _is_half(sums: Value) -> bool:
    return bit_width(sums.type) == 16


def _paired(state: CudaLowering, layout: LinearLayout, registers: Sequence[Val]) -> list[Val]:
    """Returns words of two neighbours in a row each, in the order of their first elements."""
    elements = dict(zip(layout.images("register"), registers, strict=True))
    return [state.pack([half, elements[row, column + 1]]) for (row, column), half in elements.items() if column % 2 == 0]


def _apart(state: CudaLowering, layout: LinearLayout, words: Sequence[Val]) -> list[Val]:
    """Returns what `_paired` made words of."""
    places = layout.images("register")
    pairs = dict(zip([place for place in places if place[1] % 2 == 0], words, strict=True))
    halves = {place: state.unpack(word, "half", 2) for place, word in pairs.items()}
    return [halves[row, column - column % 2][column % 2] for row, column in places]


def _issue(
    state: CudaLowering,
    instruction: WarpgroupInstruction,
    width: int,
    a: Val | list[Val],
    b: Val,
    total: Sequence[Val | None],
    transposed: Sequence[bool],
) -> list[Val | None]:
    """Emits one wgmma (PTX ISA, wgmma.mma_async) whose results are tied to the sums that it adds to."""
    kind = I32 if bit_width(instruction.accumulator) == 16 else llvm_type(instruction.accumulator)
    count = len(total)
    empty = total[0] is None
    sources = a if isinstance(a, list) else [a]
    outputs = ", ".join(f"${index}" for index in range(count))
    left = ", ".join(f"${count + index}" for index in range(len(sources)))
    right = f"${count + len(sources)}"
    flags = ["p"]
    if instruction.scales:
        flags += ["1", "1"]
    if instruction.transposes:
        flags += [str(int(flag)) for flag in transposed]
    text = (
        "{\n.reg .pred p;\n"
        f"setp.ne.b32 p, {0 if empty else 1}, 0;\n"
        f"wgmma.mma_async.sync.aligned.m{ROWS}n{width}k{instruction.k}.{instruction.types} "
        f"{{{outputs}}}, {'{' + left + '}' if isinstance(a, list) else left}, {right}, {', '.join(flags)};\n}}"
    )
    letters = ["r"] * len(sources) if isinstance(a, list) else ["l"]
    constraints = ",".join([f"={_REGISTERS[kind]}"] * count + letters + ["l"] + [str(index) for index in range(count)])
    arguments = [*sources, b, *(Val(kind, "undef") if value is None else value for value in total)]
    result = state.asm("{" + ", ".join([kind] * count) + "}", text, constraints, arguments, convergent=True)
    return list(state.fields(result, [kind] * count))


def _extent(layout: LinearLayout, axis: int) -> int:
    """Returns how many elements along a dimension a warpgroup holds: one after the other."""
    inside = [basis[axis] for name in ("register", "lane") for basis in layout.bases(name)]
    inside += [basis[axis] for basis in layout.bases("warp")[: log2(WARPS)]]
    return 1 << sum(1 for value in inside if value)


def _tile(op: Operation, operand: Value, k_axis: int) -> OperandTile:
    tile = tile_of(operand.type, k_axis)
    if tile is None:
        raise CompilationError(
            f"wgmma cannot read a tile of shared memory of type {operand.type}",
            location=op.location.source,
            cure="its buffer needs the layout of a TMA tile, and 8-bit and 32-bit elements lie along the summed dimension",
        )
    return tile


def _moves(layout: LinearLayout, tile: OperandTile, axis: int) -> list[int]:
    """Returns by how many bytes each bit of the warpgroup's number moves what it reads of an operand: of A axis 0, of B axis 1."""
    return [tile.offset(basis[axis], 0) for basis in layout.bases("warp")[log2(WARPS) :]]


def _warp_group_dot_wait(state: CudaLowering, op: Operation) -> None:
    sums = [(operand, result) for operand, result in zip(op.operands, op.results, strict=True) if not _is_half(operand)]
    registers = [register for operand, _ in sums for register in state[operand]]
    waited = _wait(state, op.attributes["pendings"], registers)
    for operand, result in zip(op.operands, op.results, strict=True):
        if _is_half(operand):  # never in flight
            state[result] = state[operand]
            continue
        count = len(state[operand])
        state[result], waited = waited[:count], waited[count:]


def _wait(state: CudaLowering, pendings: int, registers: Sequence[Val]) -> list[Val]:
    """Waits until at most `pendings` groups are in flight. The registers that become readable are tied, which is what tells LLVM
    that they may not be read before."""
    return _tied(state, f"wgmma.wait_group.sync.aligned {pendings};", registers)


def _tied(state: CudaLowering, text: str, registers: Sequence[Val]) -> list[Val]:
    """Emits an instruction that registers pass through: what comes before or after it stays there."""
    if not registers:
        state.asm("void", text, "~{memory}", [], convergent=True)
        return []
    kinds = [register.type for register in registers]
    outputs = [f"={_REGISTERS[kind]}" for kind in kinds]
    constraints = ",".join([*outputs, *map(str, range(len(kinds))), "~{memory}"])
    if len(kinds) == 1:
        return [state.asm(kinds[0], text, constraints, registers, convergent=True)]
    return state.fields(state.asm("{" + ", ".join(kinds) + "}", text, constraints, registers, convergent=True), kinds)


def _turn_barrier(state: CudaLowering, turn: Val, ahead: int) -> tuple[Val, int]:
    """Returns the number of the hardware barrier of the warpgroup that comes `ahead` of this one, and how many threads meet there.

    Every warpgroup has two, for steps in turn: a warpgroup may announce a step while another one still waits for the last.
    """
    emit = state.emit
    groups = state.num_warps // WARPS
    group = emit.binary("and", emit.binary("add", state.warpgroup(), i32(ahead)), i32(groups - 1))
    number = emit.binary("add", emit.binary("shl", group, i32(1)), turn)
    return emit.binary("add", number, i32(FIRST_TURN_BARRIER)), 32 * state.num_warps


def _arrive_turn(state: CudaLowering, op: Operation) -> None:
    for ahead in range(1, state.num_warps // WARPS):
        number, threads = _turn_barrier(state, state.scalar(op.operand), ahead)
        state.emit.call("void", "llvm.nvvm.barrier.cta.arrive.aligned.count", [number, i32(threads)])


def _wait_turn(state: CudaLowering, op: Operation) -> None:
    number, threads = _turn_barrier(state, state.scalar(op.operand), 0)
    state.emit.call("void", "llvm.nvvm.barrier.cta.sync.aligned.count", [number, i32(threads)])


def _fence_async_shared(state: CudaLowering, op: Operation) -> None:
    state.asm("void", "fence.proxy.async.shared::cta;", "~{memory}", [])


WGMMA: dict[str, Callable[[CudaLowering, Operation], None]] = {
    "ttng.warp_group_dot": _warp_group_dot,
    "ttng.warp_group_dot_wait": _warp_group_dot_wait,
    "ttng.arrive_turn": _arrive_turn,
    "ttng.wait_turn": _wait_turn,
    "ttng.fence_async_shared": _fence_async_shared,
}
