"""Tiles in shared memory: buffers, vector reads, swizzled writes, barriers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from kernelpack.backends.gpu.dialect import OFFSET, STRIDE
from kernelpack.backends.gpu.facts.memory_layouts import memory_bits
from kernelpack.backends.gpu.facts.shared_accesses import can_wait
from kernelpack.backends.gpu.lowering.global_memory import (
    Words,
    elements_of,
    from_memory,
    store_words,
    to_memory,
    word_of,
    words_of,
)
from kernelpack.backends.gpu.lowering.linear_code import LinearOffsets, i32
from kernelpack.backends.gpu.lowering.state import Lowering, memory_type
from kernelpack.ir.core import Operation
from kernelpack.ir.dialect import operand
from kernelpack.ir.types import I1, MemDescType, Type, element_of, shape_of
from kernelpack.layout.convert import SharedAccess, access_shared
from kernelpack.layout.encoding import layout_of
from kernelpack.layout.linear import LinearLayout
from kernelpack.llvm.text import Val


class Addresses:
    """Addresses in a buffer: base plus an offset that is linear in the thread's index, other indices and a register's number."""

    def __init__(self, state: Lowering, base: Val, bases: Sequence[int], *more: tuple[Val, Sequence[int]]) -> None:
        self.state = state
        self.base = base
        self.offsets = LinearOffsets(state.emit, [(state.tid, bases), *more])
        self._moved: dict[Val, Val] = {}

    def __getitem__(self, constant: int) -> Val:
        """Returns the address whose offset is the thread's xor a constant number of bytes."""
        emit = self.state.emit
        varying, added = self.offsets.split(constant)
        if varying not in self._moved:
            self._moved[varying] = emit.offset(self.base, varying)
        return emit.offset(self._moved[varying], added)


def subsets(bits: Sequence[int]) -> list[int]:
    """Returns every combination of the given bits, the first bit changing fastest."""
    found = [0]
    for bit in bits:
        found += [member | 1 << bit for member in found]
    return found


def firsts(access: SharedAccess, inside: Sequence[int]) -> list[int]:
    """Returns the registers in which none of the bits `inside` is set."""
    mask = sum(1 << bit for bit in inside)
    return [register for register in range(access.offsets.in_size("register")) if not register & mask]


@contextmanager
def only_if(state: Lowering, condition: Val | None) -> Iterator[None]:
    """Emits what stands in the context under a condition; None stands for true. No value may leave the context."""
    if condition is None:
        yield
        return
    emit = state.emit
    then, end = emit.new_label("if"), emit.new_label("endif")
    emit.branch(condition, then, end)
    emit.label(then)
    yield
    emit.jump(end)
    emit.label(end)


def write_tile(state: Lowering, base: Val, memory: LinearLayout, layout: LinearLayout, registers: Sequence[Val]) -> None:
    """Writes a tile to the buffer at `base`; of threads that hold copies, one writes."""
    values = [to_memory(state, register) for register in registers]
    bits = bits_of(values[0])
    access = access_shared(layout, memory, bits)
    words = words_of(access.width, bits)
    owner = state.owner(layout)
    if owner is None and state.tiles.write(state, base, access, values):
        return
    starts = firsts(access, access.vector)
    # a few stores under a predicate leave the code in one piece, across which LLVM fuses products and sums
    predicate = owner if len(starts) <= state.tiles.predicated_stores else None
    with only_if(state, owner if predicate is None else None):
        addresses = Addresses(state, base, state.bases(access.offsets, 0, bits // 8))
        for first in starts:
            members = [values[first | member] for member in subsets(access.vector)]
            per = words.per_word
            packed = [word_of(state, members[at : at + per], words.kind) for at in range(0, len(members), per)]
            address = addresses[register_offset(access, first) * bits // 8]
            if predicate is None:
                store_words(state, address, words, packed, access.width * bits // 8)
            else:
                state.tiles.store_if(state, predicate, address, words, packed)


def bits_of(value: Val) -> int:
    """Returns the width of a register."""
    widths = {"half": 16, "bfloat": 16, "float": 32, "double": 64}
    if value.type.startswith("ptr"):
        return 64
    return widths.get(value.type) or int(value.type[1:])


def register_offset(access: SharedAccess, register: int) -> int:
    """Returns where a register of the first thread lies, in elements."""
    return access.offsets(register=register)[0]


class TileReader:
    """A tile in shared memory whose registers are read when they are first asked for, a vector at a time.

    The product of a dot reads its operands in the order in which it needs them: few registers are then in use at once.
    """

    def __init__(
        self,
        state: Lowering,
        base: Val,
        memory: LinearLayout,
        layout: LinearLayout,
        kind: Type,
        *more: tuple[Val, Sequence[int]],
    ) -> None:
        """`more` are run-time indices besides the thread's that move the whole tile, with what their bits add in bytes."""
        self.state = state
        self.kind = kind
        self.bits = memory_bits(kind)
        self.access = access_shared(layout, memory, self.bits)
        self.found: dict[int, Val] = {}
        self.addresses = Addresses(state, base, state.bases(self.offsets(), 0, self.bits // 8), *more)

    def offsets(self) -> LinearLayout:
        """Returns where the tile's elements lie whose addresses threads compute."""
        return self.access.offsets

    def __getitem__(self, register: int) -> Val:
        if register not in self.found:
            self.read(register)
        return self.found[register]

    def all(self) -> list[Val]:
        return [self[register] for register in range(self.access.offsets.in_size("register"))]

    def address(self, register: int) -> Val:
        return self.addresses[register_offset(self.access, register) * self.bits // 8]

    def read(self, register: int) -> None:
        """Reads a register, and those beside it."""
        state, access = self.state, self.access
        first = register & ~sum(1 << bit for bit in access.vector)
        words = words_of(access.width, self.bits)
        loaded = _load_words(state, self.address(first), words, access.width * self.bits // 8)
        kind = memory_type(self.kind)
        elements = [element for word in loaded for element in elements_of(state, word, kind, words.per_word)]
        for member, element in zip(subsets(access.vector), elements, strict=True):
            self.found[first | member] = from_memory(state, element, element_of(self.kind) == I1)


class TileAccess:
    """How threads read and write tiles: vector by vector. A vendor whose instructions do more has a subclass."""

    predicated_stores = 0
    """Up to so many stores of a tile that several threads hold stand under a predicate instead of a branch."""

    def reader(
        self,
        state: Lowering,
        base: Val,
        memory: LinearLayout,
        layout: LinearLayout,
        kind: Type,
        *more: tuple[Val, Sequence[int]],
    ) -> TileReader:
        return TileReader(state, base, memory, layout, kind, *more)

    def write(self, state: Lowering, base: Val, access: SharedAccess, values: Sequence[Val]) -> bool:
        """Writes a tile by other means than vectors. Returns whether it did."""
        return False

    def store_if(self, state: Lowering, predicate: Val, address: Val, words: Words, packed: Sequence[Val]) -> None:
        """Stores words under a predicate."""
        raise NotImplementedError


def _load_words(state: Lowering, address: Val, words: Words, align: int) -> list[Val]:
    emit = state.emit
    if words.count == 1:
        return [emit.load(words.kind, address, align)]
    vector = emit.load(f"<{words.count} x {words.kind}>", address, align)
    return [emit.extract(vector, index) for index in range(words.count)]


def read_tile(state: Lowering, base: Val, memory: LinearLayout, layout: LinearLayout, kind: Type) -> list[Val]:
    """Returns the registers of a tile read from the buffer at `base`."""
    return state.tiles.reader(state, base, memory, layout, kind).all()


# ---- operations ----


def buffer_address(state: Lowering, op: Operation) -> Val:
    """Returns the address that allocation gave to an operation's buffer or scratch space."""
    address = state.emit.offset(state.memory, op.attributes[OFFSET])
    if STRIDE not in op.attributes:
        return address
    assert state.copy is not None
    return state.emit.offset(address, state.emit.binary("mul", state.copy, i32(op.attributes[STRIDE])))


def memory_layout(kind: Type) -> LinearLayout:
    assert isinstance(kind, MemDescType)
    return layout_of(kind)


def _local_alloc(state: Lowering, op: Operation) -> None:
    address = buffer_address(state, op)
    state.addresses[op.result] = address
    if op.operands:
        (source,) = op.operands
        write_tile(state, address, memory_layout(op.result.type), layout_of(source), state[source])


def _local_dealloc(state: Lowering, op: Operation) -> None:
    """Allocation has already used it."""


def _local_store(state: Lowering, op: Operation) -> None:
    source, buffer = op.operands
    write_tile(state, state.addresses[buffer], memory_layout(buffer.type), layout_of(source), state[source])


def _local_load(state: Lowering, op: Operation) -> None:
    buffer = operand(op, "src")
    memory = memory_layout(buffer.type)
    reader = state.tiles.reader(state, state.addresses[buffer], memory, layout_of(op.result), op.result.type)
    users = op.result.users()
    if len(users) == 1 and users[0].name == "tt.dot" and can_wait(op, users[0]):  # which asks for it when it needs it
        state.readers[op.result] = reader
    else:
        state[op.result] = reader.all()


def _memdesc_index(state: Lowering, op: Operation) -> None:
    buffer, index = op.operands
    size = 1
    for extent in shape_of(op.result.type):
        size *= extent
    offset = state.emit.binary("mul", state.scalar(index), i32(size * memory_bits(op.result.type) // 8))
    state.addresses[op.result] = state.emit.offset(state.addresses[buffer], offset)


def _memdesc_trans(state: Lowering, op: Operation) -> None:
    state.addresses[op.result] = state.addresses[op.operand]


def _barrier(state: Lowering, op: Operation) -> None:
    state.barrier()


SHARED_MEMORY: dict[str, Callable[[Lowering, Operation], None]] = {
    "ttg.local_alloc": _local_alloc,
    "ttg.local_dealloc": _local_dealloc,
    "ttg.local_store": _local_store,
    "ttg.local_load": _local_load,
    "ttg.memdesc_index": _memdesc_index,
    "ttg.memdesc_trans": _memdesc_trans,
    "gpu.barrier": _barrier,
}
