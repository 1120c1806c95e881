"""Atomic operations on global memory: once for every element, however many threads hold a copy."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernelpack.backends.cuda.lowering.global_memory import from_memory, groups, to_memory
from kernelpack.backends.cuda.lowering.shared_memory import buffer_address, only_if, read_tile, write_tile
from kernelpack.backends.cuda.lowering.state import GLOBAL, Lowering, memory_type
from kernelpack.backends.cuda.machine.features import Feature
from kernelpack.backends.gpu.facts.memory_layouts import adds_vectors
from kernelpack.backends.gpu.facts.scratch import exchange_layout
from kernelpack.ir.core import Operation
from kernelpack.ir.dialect import attribute, operand, optional_operand
from kernelpack.ir.types import I1, TensorType, element_of
from kernelpack.layout.encoding import layout_of
from kernelpack.llvm.text import Val, literal

_OF_WIDTH = {16: ("i16", "half", "bfloat"), 32: ("i32", "float"), 64: ("i64", "double", GLOBAL)}
_BITS = {kind: f"b{bits}" for bits, kinds in _OF_WIDTH.items() for kind in kinds}
_SIGNED, _UNSIGNED = {"i32": "s32", "i64": "s64"}, {"i32": "u32", "i64": "u64"}
_TYPES: dict[str, dict[str, str]] = {
    "add": _UNSIGNED,
    "fadd": {"half": "noftz.f16", "bfloat": "noftz.bf16", "float": "f32", "double": "f64"},
    "max": _SIGNED, "min": _SIGNED, "umax": _UNSIGNED, "umin": _UNSIGNED,
    "and": _BITS, "or": _BITS, "xor": _BITS, "exch": _BITS, "cas": _BITS,
}  # fmt: skip
"""Update, type of the element in a register: how PTX writes the type (PTX ISA, atom)."""
_LETTERS = {"i16": "h", "i32": "r", "i64": "l"}
_SCOPES = {"gpu": ' syncscope("device")', "cta": ' syncscope("block")', "sys": ""}


def _atomic_rmw(state: Lowering, op: Operation) -> None:
    pointers, values = state[operand(op, "ptr")], state[operand(op, "val")]
    what: str = op.attributes["atomic_rmw_op"]
    scope, order = attribute(op, "scope"), attribute(op, "sem")
    in_hardware = values[0].type in _TYPES.get(what, ()) and (
        values[0].type != "bfloat" or Feature.BF16_ATOMICS in state.features.has
    )

    def update(registers: Sequence[int], predicate: Val | None) -> list[Val]:
        pointer, given = pointers[registers[0]], [values[register] for register in registers]
        if not in_hardware:
            return [_by_exchanges(state, what, pointer, given[0], scope, order, predicate)]
        name = {"fadd": "add", "umax": "max", "umin": "min"}.get(what, what)
        kind = _TYPES[what][given[0].type]
        if len(given) > 1:
            rounding, _, kind = kind.rpartition(".")
            kind = f"{rounding}.v{len(given)}.{kind}".lstrip(".")
        return _atom(state, f"{scope}.{order}.{name}.{kind}", pointer, [given], predicate)

    vectors = in_hardware and adds_vectors(op, Feature.VECTOR_ATOMICS in state.features.has)
    _atomic(state, op, update, groups(state, op) if vectors else None)


def _atomic_cas(state: Lowering, op: Operation) -> None:
    """Compares bits: numbers that are equal but differ in bits (zeros of both signs) count as different."""
    pointers, compared, values = (state[operand(op, name)] for name in ("ptr", "cmp", "val"))
    scope, order = attribute(op, "scope"), attribute(op, "sem")

    def exchange(registers: Sequence[int], predicate: Val | None) -> list[Val]:
        given = [[of[register] for register in registers] for of in (compared, values)]
        suffix = f"{order}.{scope}.cas.{_TYPES['cas'][given[0][0].type]}"
        return _atom(state, suffix, pointers[registers[0]], given, predicate)

    _atomic(state, op, exchange)


def _atomic(
    state: Lowering,
    op: Operation,
    update: Callable[[Sequence[int], Val | None], list[Val]],
    together: Sequence[Sequence[int]] | None = None,
) -> None:
    """Emits an atomic for every register that the thread owns, or for those that are updated `together`.

    `update` emits that of some registers, neighbours in memory, under a predicate. A scalar's atomic releases what the whole
    program wrote before: its threads meet first.
    """
    mask = optional_operand(op, "mask") if op.name == "tt.atomic_rmw" else None
    pointers = operand(op, "ptr").type
    owner = state.owner_of(pointers)
    if not isinstance(pointers, TensorType) and attribute(op, "sem") in ("release", "acq_rel"):
        state.barrier()
    results = list(state[operand(op, "val")])
    for registers in together or [[index] for index in range(len(results))]:
        predicate = state.both(owner, state[mask][registers[0]] if mask is not None else None)
        for register, old in zip(registers, update(registers, predicate), strict=True):
            results[register] = old
    if op.result.uses and owner is not None:
        results = _give_to_copies(state, op, results)
    state[op.result] = results


def _atom(state: Lowering, suffix: str, pointer: Val, operands: Sequence[Sequence[Val]], predicate: Val | None) -> list[Val]:
    """Emits PTX's atom under a predicate; where it does not hold, the results are zeros. An operand of several values is a vector."""
    kind, count = operands[0][0].type, len(operands[0])
    words = [state.as_integer(value) for values in operands for value in values]
    letter = _LETTERS[words[0].type]

    def listed(first: int) -> str:
        names = ", ".join(f"${first + index}" for index in range(count))
        return names if count == 1 else f"{{{names}}}"

    inputs = ", ".join(listed(2 * count + 1 + count * index) for index in range(len(operands)))
    condition = f"@${2 * count + 1 + len(words)} " if predicate is not None else ""
    ties = [str(index) for index in range(count)]
    constraints = [*[f"={letter}"] * count, *ties, "l", *[letter] * len(words), *(["b"] if predicate is not None else [])]
    arguments = [*[literal(0, words[0].type)] * count, pointer, *words, *([predicate] if predicate is not None else [])]
    text = f"{condition}atom.global.{suffix} {listed(0)}, [${2 * count}], {inputs};"
    result = words[0].type if count == 1 else "{" + ", ".join([words[0].type] * count) + "}"
    old = state.asm(result, text, ",".join([*constraints, "~{memory}"]), arguments)
    parts = [old] if count == 1 else state.fields(old, [words[0].type] * count)
    return [state.from_integer(part, kind) for part in parts]


def _by_exchanges(state: Lowering, what: str, pointer: Val, value: Val, scope: str, order: str, predicate: Val | None) -> Val:
    """Emits an update that the hardware does not have: LLVM makes a loop of compare-and-swap of it."""
    emit = state.emit
    text = f"atomicrmw {what} {pointer}, {value}{_SCOPES[scope]} {'monotonic' if order == 'relaxed' else order}"
    if predicate is None:
        return emit.op(value.type, text)
    then, end = emit.new_label("atomic"), emit.new_label("endatomic")
    before = emit.block
    emit.branch(predicate, then, end)
    emit.label(then)
    old = emit.op(value.type, text)
    emit.jump(end)
    emit.label(end)
    return emit.op(value.type, f"phi {value.type} [ {old.name}, %{then} ], [ {literal(0, value.type).name}, %{before} ]")


def _give_to_copies(state: Lowering, op: Operation, results: list[Val]) -> list[Val]:
    """Sends what the owners got to the threads that hold copies."""
    emit, address = state.emit, buffer_address(state, op)
    if not isinstance(op.result.type, TensorType):
        kind = op.result.type
        stored = to_memory(state, results[0])
        with only_if(state, state.owner_of(kind)):
            emit.store(stored, address, 4)
        state.barrier()
        return [from_memory(state, emit.load(memory_type(kind), address, 4), element_of(kind) == I1)]
    layout = layout_of(op.result)
    memory = exchange_layout(op.result.type.shape)
    write_tile(state, address, memory, layout, results)
    state.barrier()
    return read_tile(state, address, memory, layout, op.result.type)


ATOMICS: dict[str, Callable[[Lowering, Operation], None]] = {"tt.atomic_rmw": _atomic_rmw, "tt.atomic_cas": _atomic_cas}
