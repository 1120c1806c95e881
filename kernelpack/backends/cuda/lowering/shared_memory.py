"""Tiles in shared memory on NVIDIA's GPUs: matrices that a warp reads and writes at once, asynchronous copies."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from kernelpack.backends.cuda.lowering.global_memory import masked_store
from kernelpack.backends.cuda.machine.async_copy import async_copy_bits
from kernelpack.backends.gpu.facts.memory_layouts import element_bits, memory_bits, vectorise
from kernelpack.backends.gpu.lowering import shared_memory as shared
from kernelpack.backends.gpu.lowering.global_memory import Words, words_of
from kernelpack.backends.gpu.lowering.linear_code import i32
from kernelpack.backends.gpu.lowering.shared_memory import (
    Addresses,
    TileAccess,
    TileReader,
    bits_of,
    firsts,
    memory_layout,
    only_if,
    register_offset,
    subsets,
)
from kernelpack.backends.gpu.lowering.state import Lowering, register_type
from kernelpack.ir.core import Operation, Value
from kernelpack.ir.dialect import operand, optional_operand
from kernelpack.ir.types import Type
from kernelpack.layout.convert import MatrixLoad, SharedAccess, access_shared, match_ldmatrix
from kernelpack.layout.encoding import layout_of
from kernelpack.layout.linear import LinearLayout
from kernelpack.llvm.text import Val


class CudaTiles(TileAccess):
    """Reads by ldmatrix where that fits; with `stmatrix`, writes so too."""

    predicated_stores = 4

    def __init__(self, stmatrix: bool) -> None:
        self.stmatrix = stmatrix

    def reader(
        self,
        state: Lowering,
        base: Val,
        memory: LinearLayout,
        layout: LinearLayout,
        kind: Type,
        *more: tuple[Val, Sequence[int]],
    ) -> TileReader:
        bits = memory_bits(kind)
        fits = match_ldmatrix(access_shared(layout, memory, bits), bits) is not None
        return (_MatrixReader if fits else TileReader)(state, base, memory, layout, kind, *more)

    def write(self, state: Lowering, base: Val, access: SharedAccess, values: Sequence[Val]) -> bool:
        bits = bits_of(values[0])
        one_word = words_of(access.width, bits).count == 1
        matrix = match_ldmatrix(access, bits) if self.stmatrix and one_word else None
        if matrix is not None:
            _write_matrices(state, base, access, matrix, values)
        return matrix is not None

    def store_if(self, state: Lowering, predicate: Val, address: Val, words: Words, packed: Sequence[Val]) -> None:
        masked_store(state, address, words, packed, predicate, ".shared")


def _write_matrices(state: Lowering, base: Val, access: SharedAccess, matrix: MatrixLoad, values: Sequence[Val]) -> None:
    """Writes a tile of 16-bit elements by stmatrix, which takes what ldmatrix gives (PTX ISA, stmatrix)."""
    addresses = Addresses(state, base, state.bases(_matrix_rows(access, matrix), 0, 2))
    name = f"llvm.nvvm.stmatrix.sync.aligned.m8n8.x{matrix.count}{'.trans' if matrix.transposed else ''}.b16.p3"
    for first in firsts(access, (matrix.pair, *matrix.matrices)):
        members = [first | member for member in subsets(matrix.matrices)]
        packed = [state.pack([values[member], values[member | 1 << matrix.pair]]) for member in members]
        state.emit.call("void", name, [addresses[register_offset(access, first) * 2], *packed])


class _MatrixReader(TileReader):
    """A tile that is read a group of matrices at a time."""

    def offsets(self) -> LinearLayout:
        return _matrix_rows(self.access, self.matrix)

    @property
    def matrix(self) -> MatrixLoad:
        found = match_ldmatrix(self.access, self.bits)
        assert found is not None
        return found

    def read(self, register: int) -> None:
        state, matrix = self.state, self.matrix
        first = register & ~sum(1 << bit for bit in (matrix.pair, *matrix.matrices))
        name = f"llvm.nvvm.ldmatrix.sync.aligned.m8n8.x{matrix.count}{'.trans' if matrix.transposed else ''}.b16.p3"
        kinds = ["i32"] * matrix.count
        address = self.address(first)
        if matrix.count == 1:
            words = [state.emit.call("i32", name, [address])]
        else:
            words = state.fields(state.emit.call("{" + ", ".join(kinds) + "}", name, [address]), kinds)
        for member, word in zip(subsets(matrix.matrices), words, strict=True):
            low, high = state.unpack(word, register_type(self.kind), 2)
            self.found[first | member] = low
            self.found[first | member | 1 << matrix.pair] = high


def _matrix_rows(access: SharedAccess, matrix: MatrixLoad) -> LinearLayout:
    """Returns which offset each lane gives to ldmatrix: lane 8 j + i that of row i of matrix j (PTX ISA, ldmatrix)."""
    registers, lanes = access.offsets.bases("register"), access.offsets.bases("lane")
    rows = (registers[matrix.pair], *lanes[:2]) if matrix.transposed else lanes[2:]
    numbers = [registers[bit] for bit in matrix.matrices]
    return access.offsets.with_bases("lane", (*rows, *numbers, *[(0,)] * (2 - len(numbers))))


def _async_copy(state: Lowering, op: Operation) -> None:
    pointer, buffer = operand(op, "src"), operand(op, "dst")
    mask = optional_operand(op, "mask")
    layout, memory = layout_of(pointer), memory_layout(buffer.type)
    bits = element_bits(op)
    vector = async_copy_bits(pointer, mask, memory, bits, state.facts)
    partial = vector if len(vector) > len(vectorise(layout, pointer, mask, bits, state.facts).bits) else ()
    size = bits << len(vector) >> 3
    access = access_shared(layout, memory, bits)
    # 16-byte copies can pass by the L1 cache, smaller ones cannot (PTX ISA, cp.async)
    name = f"llvm.nvvm.cp.async.{'cg' if size == 16 else 'ca'}.shared.global.{size}"
    with only_if(state, state.owner(layout)):
        addresses = Addresses(state, state.addresses[buffer], state.bases(access.offsets, 0, bits // 8))
        for first in firsts(access, vector):
            target = addresses[register_offset(access, first) * bits // 8]
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


SHARED_MEMORY: dict[str, Callable[[Lowering, Operation], None]] = {
    **shared.SHARED_MEMORY,
    "ttg.async_copy_global_to_local": _async_copy,
    "ttg.async_commit_group": _commit,
    "ttg.async_wait": _wait,
}
