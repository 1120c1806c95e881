"""Atomic operations of NVIDIA's GPUs: PTX's atom, which updates several neighbours where the hardware does."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernelpack.backends.cuda.lowering.state import CudaLowering
from kernelpack.backends.cuda.machine.features import Feature
from kernelpack.backends.gpu.facts.memory_layouts import adds_vectors
from kernelpack.backends.gpu.lowering.atomics import atomic, by_llvm
from kernelpack.backends.gpu.lowering.global_memory import groups
from kernelpack.backends.gpu.lowering.state import GLOBAL
from kernelpack.ir.core import Operation
from kernelpack.ir.dialect import attribute, operand
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


def _atomic_rmw(state: CudaLowering, op: Operation) -> None:
    pointers, values = state[operand(op, "ptr")], state[operand(op, "val")]
    what: str = op.attributes["atomic_rmw_op"]
    scope, order = attribute(op, "scope"), attribute(op, "sem")
    in_hardware = values[0].type in _TYPES.get(what, ()) and (
        values[0].type != "bfloat" or Feature.BF16_ATOMICS in state.features.has
    )

    def update(registers: Sequence[int], predicate: Val | None) -> list[Val]:
        pointer, given = pointers[registers[0]], [values[register] for register in registers]
        if not in_hardware:
            return [by_llvm(state, f"atomicrmw {what}", pointer, given, scope, order, predicate)]
        name = {"fadd": "add", "umax": "max", "umin": "min"}.get(what, what)
        kind = _TYPES[what][given[0].type]
        if len(given) > 1:
            rounding, _, kind = kind.rpartition(".")
            kind = f"{rounding}.v{len(given)}.{kind}".lstrip(".")
        return _atom(state, f"{scope}.{order}.{name}.{kind}", pointer, [given], predicate)

    vectors = in_hardware and adds_vectors(op, Feature.VECTOR_ATOMICS in state.features.has)
    atomic(state, op, update, groups(state, op) if vectors else None)


def _atomic_cas(state: CudaLowering, op: Operation) -> None:
    """Compares bits: numbers that are equal but differ in bits (zeros of both signs) count as different."""
    pointers, compared, values = (state[operand(op, name)] for name in ("ptr", "cmp", "val"))
    scope, order = attribute(op, "scope"), attribute(op, "sem")

    def exchange(registers: Sequence[int], predicate: Val | None) -> list[Val]:
        given = [[of[register] for register in registers] for of in (compared, values)]
        suffix = f"{order}.{scope}.cas.{_TYPES['cas'][given[0][0].type]}"
        return _atom(state, suffix, pointers[registers[0]], given, predicate)

    atomic(state, op, exchange)


def _atom(
    state: CudaLowering, suffix: str, pointer: Val, operands: Sequence[Sequence[Val]], predicate: Val | None
) -> list[Val]:
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


ATOMICS: dict[str, Callable[[CudaLowering, Operation], None]] = {"tt.atomic_rmw": _atomic_rmw, "tt.atomic_cas": _atomic_cas}
