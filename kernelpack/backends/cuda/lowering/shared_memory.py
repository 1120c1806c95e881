"""Tiles in shared memory: buffers, vector and ldmatrix reads, swizzled writes, asynchronous copies, barriers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from kernelpack.backends.cuda.lowering.global_memory import elements_of, from_memory, masked_store, to_memory, word_of, words_of
from kernelpack.backends.cuda.lowering.linear_code import LinearOffsets, i32, thread_bases
from kernelpack.backends.cuda.lowering.state import Lowering, memory_type, register_type
from kernelpack.backends.cuda.machine.async_copy import async_copy_bits
from kernelpack.backends.cuda.machine.features import Feature
from kernelpack.backends.gpu.dialect import OFFSET, STRIDE
from kernelpack.backends.gpu.facts.memory_layouts import element_bits, memory_bits, vectorise
from kernelpack.ir.core import Operation, Value
from kernelpack.ir.dialect import Effect, effects_of, operand, optional_operand
from kernelpack.ir.types import I1, MemDescType, Type, element_of, shape_of
from kernelpack.layout.convert import MatrixLoad, SharedAccess, access_shared, match_ldmatrix
from kernelpack.layout.encoding import layout_of
from kernelpack.layout.linear import LinearLayout
from kernelpack.llvm.text import Val

PREDICATED_STORES = 4
"""Up to so many stores of a tile that several threads hold stand under a predicate instead of a branch."""


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


def _firsts(access: SharedAccess, inside: Sequence[int]) -> list[int]:
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
    bits = _register_bits(values[0])
    access = access_shared(layout, memory, bits)
    words = words_of(access.width, bits)
    owner = state.owner(layout)
    matrix = (
        match_ldmatrix(access, bits) if Feature.STMATRIX in state.features.has and words.count == 1 and owner is None else None
    )
    if matrix is not None:
        _write_matrices(state, base, access, matrix, values)
        return
    starts = _firsts(access, access.vector)
    # a few stores under a predicate leave the code in one piece, across which LLVM fuses products and sums
    predicate = owner if len(starts) <= PREDICATED_STORES else None
    with only_if(state, owner if predicate is None else None):
        addresses = Addresses(state, base, thread_bases(access.offsets, 0, bits // 8))
        for first in starts:
            members = [values[first | member] for member in subsets(access.vector)]
            per = words.per_word
            packed = [word_of(state, members[at : at + per], words.kind) for at in range(0, len(members), per)]
            address = addresses[_register_offset(access, first) * bits // 8]
            if predicate is None:
                _store_words(state, address, words.kind, packed, access.width * bits // 8)
            else:
                masked_store(state, address, words, packed, predicate, ".shared")


def _write_matrices(state: Lowering, base: Val, access: SharedAccess, matrix: MatrixLoad, values: Sequence[Val]) -> None:
    """Writes a tile of 16-bit elements by stmatrix, which takes what ldmatrix gives (PTX ISA, stmatrix)."""
    addresses = Addresses(state, base, thread_bases(_matrix_rows(access, matrix), 0, 2))
    name = f"llvm.nvvm.stmatrix.sync.aligned.m8n8.x{matrix.count}{'.trans' if matrix.transposed else ''}.b16.p3"
    for first in _firsts(access, (matrix.pair, *matrix.matrices)):
        members = [first | member for member in subsets(matrix.matrices)]
        packed = [state.pack([values[member], values[member | 1 << matrix.pair]]) for member in members]
        state.emit.call("void", name, [addresses[_register_offset(access, first) * 2], *packed])


def _register_bits(value: Val) -> int:
    widths = {"half": 16, "bfloat": 16, "float": 32, "double": 64}
    if value.type.startswith("ptr"):
        return 64
    return widths.get(value.type) or int(value.type[1:])


def _register_offset(access: SharedAccess, register: int) -> int:
    return access.offsets(register=register)[0]


def _store_words(state: Lowering, address: Val, kind: str, packed: Sequence[Val], align: int) -> None:
    emit = state.emit
    if len(packed) == 1:
        emit.store(packed[0], address, align)
        return
    vector_kind = f"<{len(packed)} x {kind}>"
    vector = Val(vector_kind, "poison")
    for index, word in enumerate(packed):
        vector = emit.op(vector_kind, f"insertelement {vector}, {word}, i64 {index}")
    emit.store(vector, address, align)


class TileReader:
    """A tile in shared memory whose registers are read when they are first asked for, a vector or a group of matrices at a time.

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
        self.matrix = match_ldmatrix(self.access, self.bits)
        self.members = subsets(self.access.vector) if self.matrix is None else subsets(self.matrix.matrices)
        self.found: dict[int, Val] = {}
        offsets = self.access.offsets if self.matrix is None else _matrix_rows(self.access, self.matrix)
        self.addresses = Addresses(state, base, thread_bases(offsets, 0, self.bits // 8), *more)

    def __getitem__(self, register: int) -> Val:
        if register not in self.found:
            if self.matrix is None:
                self._read_vector(register)
            else:
                self._read_matrices(register, self.matrix)
        return self.found[register]

    def all(self) -> list[Val]:
        return [self[register] for register in range(self.access.offsets.in_size("register"))]

    def _address(self, register: int) -> Val:
        return self.addresses[self.access.offsets(register=register)[0] * self.bits // 8]

    def _read_vector(self, register: int) -> None:
        state, access = self.state, self.access
        first = register & ~sum(1 << bit for bit in access.vector)
        words = words_of(access.width, self.bits)
        loaded = _load_words(state, self._address(first), words.count, words.kind, access.width * self.bits // 8)
        kind = memory_type(self.kind)
        elements = [element for word in loaded for element in elements_of(state, word, kind, words.per_word)]
        for member, element in zip(self.members, elements, strict=True):
            self.found[first | member] = from_memory(state, element, element_of(self.kind) == I1)

    def _read_matrices(self, register: int, matrix: MatrixLoad) -> None:
        state = self.state
        first = register & ~sum(1 << bit for bit in (matrix.pair, *matrix.matrices))
        name = f"llvm.nvvm.ldmatrix.sync.aligned.m8n8.x{matrix.count}{'.trans' if matrix.transposed else ''}.b16.p3"
        kinds = ["i32"] * matrix.count
        address = self._address(first)
        if matrix.count == 1:
            words = [state.emit.call("i32", name, [address])]
        else:
            words = state.fields(state.emit.call("{" + ", ".join(kinds) + "}", name, [address]), kinds)
        for member, word in zip(self.members, words, strict=True):
            low, high = state.unpack(word, register_type(self.kind), 2)
            self.found[first | member] = low
            self.found[first | member | 1 << matrix.pair] = high


def _matrix_rows(access: SharedAccess, matrix: MatrixLoad) -> LinearLayout:
    """Returns which offset each lane gives to ldmatrix: lane 8 j + i that of row i of matrix j (PTX ISA, ldmatrix)."""
    registers, lanes = access.offsets.bases("register"), access.offsets.bases("lane")
    rows = (registers[matrix.pair], *lanes[:2]) if matrix.transposed else lanes[2:]
    numbers = [registers[bit] for bit in matrix.matrices]
    return access.offsets.with_bases("lane", (*rows, *numbers, *[(0,)] * (2 - len(numbers))))


def _load_words(state: Lowering, address: Val, count: int, kind: str, align: int) -> list[Val]:
    emit = state.emit
    if count == 1:
        return [emit.load(kind, address, align)]
    vector = emit.load(f"<{count} x {kind}>", address, align)
    return [emit.extract(vector, index) for index in range(count)]


def read_tile(state: Lowering, base: Val, memory: LinearLayout, layout: LinearLayout, kind: Type) -> list[Val]:
    """Returns the registers of a tile read from the buffer at `base`, by ldmatrix where that fits."""
    return TileReader(state, base, memory, layout, kind).all()


# ---- operations ----


def buffer_address(state: Lowering, op: Operation) -> Val:
    """Returns the address that allocation gave to an operation's buffer or scratch space."""
    address = state.emit.offset(state.memory, op.attributes[OFFSET])
    if STRIDE not in op.attributes:
        return address
    assert state.copy is not None
    return state.emit.offset(address, state.emit.binary("mul", state.copy, i32(op.attributes[STRIDE])))


def _memory_layout(kind: Type) -> LinearLayout:
    assert isinstance(kind, MemDescType)
    return layout_of(kind)


def _local_alloc(state: Lowering, op: Operation) -> None:
    address = buffer_address(state, op)
    state.addresses[op.result] = address
    if op.operands:
        (source,) = op.operands
        write_tile(state, address, _memory_layout(op.result.type), layout_of(source), state[source])


def _local_dealloc(state: Lowering, op: Operation) -> None:
    """Allocation has already used it."""


def _local_store(state: Lowering, op: Operation) -> None:
    source, buffer = op.operands
    write_tile(state, state.addresses[buffer], _memory_layout(buffer.type), layout_of(source), state[source])


def _local_load(state: Lowering, op: Operation) -> None:
    buffer = operand(op, "src")
    memory = _memory_layout(buffer.type)
    reader = TileReader(state, state.addresses[buffer], memory, layout_of(op.result), op.result.type)
    if _can_wait(op):
        state.readers[op.result] = reader
    else:
        state[op.result] = reader.all()


def _can_wait(op: Operation) -> bool:
    """Whether a tile may be read when its only user, a dot, asks for it: nothing in between may change it."""
    users = op.result.users()
    if len(users) != 1 or users[0].name != "tt.dot" or users[0].parent is not op.parent or op.parent is None:
        return False
    operations = op.parent.operations
    between = operations[operations.index(op) + 1 : operations.index(users[0])]
    return not any({Effect.SYNCHRONISE, Effect.WRITE_SHARED} & effects_of(other) for other in between)


def _memdesc_index(state: Lowering, op: Operation) -> None:
    buffer, index = op.operands
    size = 1
    for extent in shape_of(op.result.type):
        size *= extent
    offset = state.emit.binary("mul", state.scalar(index), i32(size * memory_bits(op.result.type) // 8))
    state.addresses[op.result] = state.emit.offset(state.addresses[buffer], offset)


def _memdesc_trans(state: Lowering, op: Operation) -> None:
    state.addresses[op.result] = state.addresses[op.operand]


def _async_copy(state: Lowering, op: Operation) -> None:
    pointer, buffer = operand(op, "src"), operand(op, "dst")
    mask = optional_operand(op, "mask")
    layout, memory = layout_of(pointer), _memory_layout(buffer.type)
    bits = element_bits(op)
    vector = async_copy_bits(pointer, mask, memory, bits, state.facts)
    partial = vector if len(vector) > len(vectorise(layout, pointer, mask, bits, state.facts).bits) else ()
    size = bits << len(vector) >> 3
    access = access_shared(layout, memory, bits)
    # 16-byte copies can pass by the L1 cache, smaller ones cannot (PTX ISA, cp.async)
    name = f"llvm.nvvm.cp.async.{'cg' if size == 16 else 'ca'}.shared.global.{size}"
    with only_if(state, state.owner(layout)):
        addresses = Addresses(state, state.addresses[buffer], thread_bases(access.offsets, 0, bits // 8))
        for first in _firsts(access, vector):
            target = addresses[_register_offset(access, first) * bits // 8]
            source = state[pointer][first]
            if mask is None:
                state.emit.call("void", name, [target, source])
            else:
                members = [first]
                for bit in partial:
                    members += [member + (1 << bit) for member in members]
                factors = [[state[factor][member] for member in members] for factor in (_factors(mask) if partial else [mask])]
                state.emit.call("void", name + ".s", [target, source, _bytes_inside(state, factors, size)])


def _factors(mask: Value) -> list[Value]:
    """Returns the masks of which a mask is the conjunction."""
    op = mask.defining_op
    return [mask] if op is None or op.name != "arith.andi" else [factor for part in op.operands for factor in _factors(part)]


def _bytes_inside(state: Lowering, factors: Sequence[Sequence[Val]], size: int) -> Val:
    """Returns how many bytes of a copy are inside of masks that are true up to some element. Bytes are counted by masks of which the
    elements differ, which copies share; the others say whether they count."""
    emit = state.emit
    counted = [factor for factor in factors if len(set(factor)) > 1]
    inside = i32(size)
    if counted:
        elements = [functools.reduce(lambda a, b: emit.binary("and", a, b), element) for element in zip(*counted, strict=True)]
        parts = [emit.select(element, i32(size // len(elements)), i32(0)) for element in elements]
        inside = functools.reduce(lambda a, b: emit.binary("add", a, b), parts)
    for condition in (factor[0] for factor in factors if len(set(factor)) == 1):
        inside = emit.select(condition, inside, i32(0))
    return inside


def _commit(state: Lowering, op: Operation) -> None:
    state.emit.call("void", "llvm.nvvm.cp.async.commit.group", [])


def _wait(state: Lowering, op: Operation) -> None:
    state.emit.call("void", "llvm.nvvm.cp.async.wait.group", [i32(op.attributes["num"])])


def _barrier(state: Lowering, op: Operation) -> None:
    state.barrier()


SHARED_MEMORY: dict[str, Callable[[Lowering, Operation], None]] = {
    "ttg.local_alloc": _local_alloc,
    "ttg.local_dealloc": _local_dealloc,
    "ttg.local_store": _local_store,
    "ttg.local_load": _local_load,
    "ttg.memdesc_index": _memdesc_index,
    "ttg.memdesc_trans": _memdesc_trans,
    "ttg.async_copy_global_to_local": _async_copy,
    "ttg.async_commit_group": _commit,
    "ttg.async_wait": _wait,
    "gpu.barrier": _barrier,
}
