"""Loads, stores and atomics on global memory: vectors of up to 16 bytes, under predicates where masks or copies ask for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kernelpack.backends.cuda.lowering.state import Lowering, memory_type
from kernelpack.backends.cuda.machine.features import Feature
from kernelpack.backends.gpu.facts.memory_layouts import element_bits, vectorise
from kernelpack.ir.core import Operation
from kernelpack.ir.dialect import attribute, operand, optional_operand
from kernelpack.ir.types import I1, TensorType, element_of
from kernelpack.layout.encoding import layout_of
from kernelpack.llvm.text import Val, literal

_CONSTRAINTS = {"i8": "h", "i16": "h", "i32": "r", "i64": "l"}


@dataclass(frozen=True)
class Words:
    """How one access is cut into machine words: `count` of them, each of `per_word` elements and LLVM type `kind`."""

    count: int
    per_word: int
    kind: str

    @property
    def bits(self) -> int:
        return int(self.kind[1:])

    @property
    def constraint(self) -> str:
        return _CONSTRAINTS[self.kind]

    @property
    def suffix(self) -> str:
        return (f".v{self.count}" if self.count > 1 else "") + f".b{self.bits}"


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


def to_memory(state: Lowering, value: Val) -> Val:
    """Returns a register as it stands in memory: booleans as bytes."""
    return state.emit.cast("zext", value, "i8") if value.type == "i1" else value


def from_memory(state: Lowering, value: Val, boolean: bool) -> Val:
    return state.emit.compare("icmp", "ne", value, literal(0, "i8")) if boolean else value


def _zero(kind: str) -> Val:
    return Val(kind, "null") if kind.startswith("ptr") else literal(0, kind)


def _load(state: Lowering, op: Operation) -> None:
    pointers = state[operand(op, "ptr")]
    mask, other = optional_operand(op, "mask"), optional_operand(op, "other")
    kind = memory_type(op.result.type)
    boolean = element_of(op.result.type) == I1
    bits = element_bits(op)
    qualifiers = _load_qualifiers(op)
    result: list[Val] = [literal(0, "i1")] * len(pointers)
    for members in groups(state, op):
        first = pointers[members[0]]
        words = words_of(len(members), bits)
        if mask is None and not qualifiers:
            loaded = _plain_load(state, first, words, bits * len(members) // 8)
        else:
            predicate = state[mask][members[0]] if mask is not None else None
            fill = [to_memory(state, state[other][member]) if other is not None else _zero(kind) for member in members]
            loaded = _masked_load(state, first, words, predicate, fill, qualifiers)
        elements = [element for word in loaded for element in elements_of(state, word, kind, words.per_word)]
        for member, element in zip(members, elements, strict=True):
            result[member] = from_memory(state, element, boolean)
    state[op.result] = result


def elements_of(state: Lowering, word: Val, kind: str, count: int) -> list[Val]:
    """Returns the elements of type `kind` in a word."""
    if count == 1:
        return [state.from_integer(word, kind)]
    return state.unpack(word, kind, count)


def _plain_load(state: Lowering, pointer: Val, words: Words, align: int) -> list[Val]:
    emit = state.emit
    if words.count == 1:
        return [emit.load(words.kind, pointer, align)]
    vector = emit.load(f"<{words.count} x {words.kind}>", pointer, align)
    return [emit.extract(vector, index) for index in range(words.count)]


def _masked_load(
    state: Lowering, pointer: Val, words: Words, predicate: Val | None, fill: Sequence[Val], qualifiers: str
) -> list[Val]:
    """Loads where the predicate holds; elsewhere the words keep what they are filled with."""
    # a byte travels in a 16-bit register
    kind = "i16" if words.kind == "i8" else words.kind
    per = words.per_word
    initial = [word_of(state, fill[at : at + per], words.kind) for at in range(0, len(fill), per)]
    if words.kind == "i8":
        initial = [state.emit.cast("zext", word, "i16") for word in initial]
    count = words.count
    outputs = [f"${index}" for index in range(count)]
    list_text = outputs[0] if count == 1 else "{" + ", ".join(outputs) + "}"
    address, condition = f"${2 * count}", f"@${2 * count + 1} " if predicate is not None else ""
    # each output starts as the input tied to it, so that lanes whose predicate is false keep the fill
    text = f"{condition}ld{qualifiers or '.global'}{words.suffix} {list_text}, [{address}];"
    constraints = ",".join(
        [f"={words.constraint}"] * count + [str(index) for index in range(count)] + ["l"] + (["b"] if predicate else [])
    )
    arguments = [*initial, pointer, *([predicate] if predicate is not None else [])]
    aggregate = kind if count == 1 else "{" + ", ".join([kind] * count) + "}"
    loaded = state.asm(aggregate, text, constraints, arguments)
    parts = [loaded] if count == 1 else state.fields(loaded, [kind] * count)
    return [state.emit.cast("trunc", part, "i8") if words.kind == "i8" else part for part in parts]


def word_of(state: Lowering, elements: Sequence[Val], kind: str) -> Val:
    """Returns a word of type `kind` that holds the elements."""
    if len(elements) == 1:
        return state.as_integer(elements[0])
    return state.pack(elements, kind)


def _load_qualifiers(op: Operation) -> str:
    """Returns the PTX qualifiers of a load that asks for more than the default (PTX ISA, ld)."""
    if attribute(op, "is_volatile"):
        return ".volatile.global"
    return _cache_qualifiers(op, {"ca": ".ca", "cg": ".cg", "cs": ".cs", "cv": ".cv"})


def _cache_qualifiers(op: Operation, operators: dict[str, str]) -> str:
    cache, evict = attribute(op, "cache"), attribute(op, "evict")
    if cache in operators:
        return ".global" + operators[cache]  # a cache operator and an eviction priority exclude each other
    return f".global.L1::{evict}" if evict != "normal" else ""


def _store(state: Lowering, op: Operation) -> None:
    pointers, values = state[operand(op, "ptr")], state[operand(op, "value")]
    mask = optional_operand(op, "mask")
    bits = element_bits(op)
    owner = state.owner_of(operand(op, "ptr").type)
    qualifiers = _cache_qualifiers(op, {"wb": ".wb", "cg": ".cg", "cs": ".cs", "wt": ".wt"})
    for members in groups(state, op):
        first = pointers[members[0]]
        words = words_of(len(members), bits)
        elements = [to_memory(state, values[member]) for member in members]
        per = words.per_word
        packed = [word_of(state, elements[at : at + per], words.kind) for at in range(0, len(elements), per)]
        predicate = state.both(owner, state[mask][members[0]] if mask is not None else None)
        if predicate is None and not qualifiers:
            _plain_store(state, first, words, packed, bits * len(members) // 8)
        else:
            masked_store(state, first, words, packed, predicate, qualifiers)


def _plain_store(state: Lowering, pointer: Val, words: Words, packed: Sequence[Val], align: int) -> None:
    emit = state.emit
    if words.count == 1:
        emit.store(packed[0], pointer, align)
        return
    kind = f"<{words.count} x {words.kind}>"
    vector = Val(kind, "poison")
    for index, word in enumerate(packed):
        vector = emit.op(kind, f"insertelement {vector}, {word}, i64 {index}")
    emit.store(vector, pointer, align)


def masked_store(
    state: Lowering, pointer: Val, words: Words, packed: Sequence[Val], predicate: Val | None, qualifiers: str
) -> None:
    inputs = [f"${index + 1}" for index in range(words.count)]
    list_text = inputs[0] if words.count == 1 else "{" + ", ".join(inputs) + "}"
    condition = f"@${words.count + 1} " if predicate is not None else ""
    if words.kind == "i8":
        packed = [state.emit.cast("zext", word, "i16") for word in packed]
    address = "r" if qualifiers == ".shared" else "l"
    constraints = ",".join([address] + [words.constraint] * words.count + (["b"] if predicate is not None else []))
    text = f"{condition}st{qualifiers or '.global'}{words.suffix} [$0], {list_text};"
    state.asm("void", text, constraints, [pointer, *packed, *([predicate] if predicate is not None else [])])


def _dependent_launch(instruction: str) -> Callable[[Lowering, Operation], None]:
    """griddepcontrol (PTX ISA, from sm_90 on). Elsewhere a launch begins when the one before has ended: nothing to do."""

    def lower(state: Lowering, op: Operation) -> None:
        if Feature.DEPENDENT_LAUNCH in state.features.has:
            state.asm("void", f"griddepcontrol.{instruction};", "~{memory}", [])

    return lower


GLOBAL_MEMORY: dict[str, Callable[[Lowering, Operation], None]] = {
    "tt.load": _load,
    "tt.store": _store,
    "gpu.gdc_wait": _dependent_launch("wait"),
    "gpu.gdc_launch_dependents": _dependent_launch("launch_dependents"),
}
