"""Loads and stores of global memory: which neighbours are one access of up to 16 bytes, and in which words it moves them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_

from kernelpack.backends.gpu.facts.memory_layouts import element_bits, vectorise
from kernelpack.backends.gpu.lowering.state import Lowering, memory_type, repeated_registers
from kernelpack.ir.core import Operation
from kernelpack.ir.dialect import attribute, operand, optional_operand
from kernelpack.ir.types import I1, TensorType, element_of
from kernelpack.layout.encoding import layout_of
from kernelpack.llvm.text import Val, literal


@dataclass(frozen=True)
class Words:
    """How one access is cut into machine words: `count` of them, each of `per_word` elements and LLVM type `kind`."""

    count: int
    per_word: int
    kind: str

    @property
    def bits(self) -> int:
        return int(self.kind[1:])


def words_of(width: int, bits: int) -> Words:
    """Returns the words of an access to `width` elements of `bits` bits."""
    word = bits if width == 1 or bits >= 32 else min(32, width * bits)
    return Words(width * bits // word, word // bits, f"i{word}")


def groups(state: Lowering, op: Operation) -> list[list[int]]:
    """Returns the registers of every access of a tile: neighbours in memory, in order."""
    pointer = operand(op, "ptr")
    if not isinstance(pointer.type, TensorType):
        return [[0]]
    layout = layout_of(pointer)
    vector = vectorise(layout, pointer, optional_operand(op, "mask"), element_bits(op), state.facts)
    members = [0]
    for bit in vector.bits:
        members += [member | 1 << bit for member in members]
    inside = sum(1 << bit for bit in vector.bits)
    return [[first | member for member in members] for first in range(layout.in_size("register")) if not first & inside]


def _repeated(state: Lowering, load: Operation) -> int:
    """Returns the bits of a register's number that make no difference to what a load reads: neighbours that read one place, under one mask,
    read it once, such as the scale of a group."""
    if attribute(load, "is_volatile"):
        return 0
    operands = (optional_operand(load, name) for name in ("ptr", "mask", "other"))
    return reduce(and_, (repeated_registers(state, value) for value in operands if value is not None))


def to_memory(state: Lowering, value: Val) -> Val:
    """Returns a register as it stands in memory: booleans as bytes."""
    return state.emit.cast("zext", value, "i8") if value.type == "i1" else value


def from_memory(state: Lowering, value: Val, boolean: bool) -> Val:
    return state.emit.compare("icmp", "ne", value, literal(0, "i8")) if boolean else value


def _zero(kind: str) -> Val:
    return Val(kind, "null") if kind.startswith("ptr") else literal(0, kind)


@dataclass(frozen=True)
class Access:
    """What one thread moves at once: `words` at `pointer`, which is a multiple of all their `size` bytes; None for `predicate`: always."""

    op: Operation
    pointer: Val
    words: Words
    size: int
    predicate: Val | None


LoadWords = Callable[[Lowering, Access, Callable[[], list[Val]]], list[Val]]
"""Returns the words of an access; where its predicate does not hold, they are made of the elements that the last argument gives."""
StoreWords = Callable[[Lowering, Access, Sequence[Val]], None]
"""Stores the words of an access."""


def load_by(load: LoadWords) -> Callable[[Lowering, Operation], None]:
    """Returns the lowering of tt.load whose accesses `load` makes."""

    def lower(state: Lowering, op: Operation) -> None:
        pointers = state[operand(op, "ptr")]
        mask, other = optional_operand(op, "mask"), optional_operand(op, "other")
        kind = memory_type(op.result.type)
        boolean = element_of(op.result.type) == I1
        bits = element_bits(op)
        repeated = _repeated(state, op)
        result: list[Val] = [literal(0, "i1")] * len(pointers)
        for members in groups(state, op):
            if members[0] & repeated:
                continue
            words = words_of(len(members), bits)
            predicate = state[mask][members[0]] if mask is not None else None

            def fill(members: list[int] = members) -> list[Val]:
                return [to_memory(state, state[other][member]) if other is not None else _zero(kind) for member in members]

            access = Access(op, pointers[members[0]], words, bits * len(members) // 8, predicate)
            loaded = load(state, access, fill)
            elements = [element for word in loaded for element in elements_of(state, word, kind, words.per_word)]
            for member, element in zip(members, elements, strict=True):
                result[member] = from_memory(state, element, boolean)
        state[op.result] = [result[register & ~repeated] for register in range(len(result))]

    return lower


def store_by(store: StoreWords) -> Callable[[Lowering, Operation], None]:
    """Returns the lowering of tt.store whose accesses `store` makes: one thread of those that hold copies stores."""

    def lower(state: Lowering, op: Operation) -> None:
        pointers, values = state[operand(op, "ptr")], state[operand(op, "value")]
        mask = optional_operand(op, "mask")
        bits = element_bits(op)
        owner = state.owner_of(operand(op, "ptr").type)
        for members in groups(state, op):
            words = words_of(len(members), bits)
            elements = [to_memory(state, values[member]) for member in members]
            per = words.per_word
            packed = [word_of(state, elements[at : at + per], words.kind) for at in range(0, len(elements), per)]
            predicate = state.both(owner, state[mask][members[0]] if mask is not None else None)
            store(state, Access(op, pointers[members[0]], words, bits * len(members) // 8, predicate), packed)

    return lower


def elements_of(state: Lowering, word: Val, kind: str, count: int) -> list[Val]:
    """Returns the elements of type `kind` in a word."""
    if count == 1:
        return [state.from_integer(word, kind)]
    return state.unpack(word, kind, count)


def word_of(state: Lowering, elements: Sequence[Val], kind: str) -> Val:
    """Returns a word of type `kind` that holds the elements."""
    if len(elements) == 1:
        return state.as_integer(elements[0])
    return state.pack(elements, kind)


def plain_load(state: Lowering, access: Access) -> list[Val]:
    """Loads the words of an access, whatever its predicate."""
    emit, words = state.emit, access.words
    if words.count == 1:
        return [emit.load(words.kind, access.pointer, access.size)]
    vector = emit.load(f"<{words.count} x {words.kind}>", access.pointer, access.size)
    return [emit.extract(vector, index) for index in range(words.count)]


def store_words(state: Lowering, address: Val, words: Words, packed: Sequence[Val], align: int) -> None:
    """Stores words that lie beside each other."""
    emit = state.emit
    if words.count == 1:
        emit.store(packed[0], address, align)
        return
    kind = f"<{words.count} x {words.kind}>"
    vector = Val(kind, "poison")
    for index, word in enumerate(packed):
        vector = emit.op(kind, f"insertelement {vector}, {word}, i64 {index}")
    emit.store(vector, address, align)
