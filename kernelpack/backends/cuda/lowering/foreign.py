"""Code from outside: functions of libdevice, PTX of the kernel's author."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from kernelpack.backends.gpu.lowering.state import Lowering, register_type
from kernelpack.errors import CompilationError
from kernelpack.ir.core import Operation
from kernelpack.ir.dialect import attribute
from kernelpack.ir.types import Type, bit_width
from kernelpack.llvm.text import Val

_LETTERS = {"h": "i16", "r": "i32", "l": "i64", "f": "float", "d": "double", "b": "i1"}
"""The types of the registers that constraint letters name (LLVM, NVPTX inline assembly)."""


def _extern(state: Lowering, op: Operation) -> None:
    """Calls a function of libdevice for every element."""
    operands = [state[value] for value in op.operands]
    kind = register_type(op.result.type)
    count = max(map(len, operands))
    state[op.result] = [
        state.emit.call(kind, op.attributes["symbol"], [registers[index % len(registers)] for registers in operands])
        for index in range(count)
    ]


# ---- PTX ----


def _inline_asm(state: Lowering, op: Operation) -> None:
    """Emits the text for `packed_element` registers of each operand at a time. Elements narrower than a 32-bit word share words as far
    as they come in one go; a group at the end that is not full is filled up."""
    pack = attribute(op, "packed_element")
    constraints = op.attributes["constraints"].replace(" ", "").split(",")
    outputs = [entry.lstrip("=&") for entry in constraints if entry.startswith("=")]
    inputs = [entry for entry in constraints if not entry.startswith(("=", "~"))]
    letters = [outputs[int(entry)] if entry.isdigit() else entry for entry in inputs]
    operands = [state[value] for value in op.operands]
    count = max(map(len, operands), default=1)
    results: list[list[Val]] = [[] for _ in op.results]
    for first in range(0, count, pack):
        words: list[Val] = []
        for value, registers in zip(op.operands, operands, strict=True):
            group = [registers[(first + index) % len(registers)] for index in range(pack)]
            per = _per_word(value.type, pack)
            words += [
                state.pack(group[at : at + per], f"i{bit_width(value.type) * per}") if per > 1 else group[at]
                for at in range(0, pack, per)
            ]
        if len(words) != len(letters):
            raise _mismatch(op, "inputs", len(letters), len(words))
        given = _emit(state, op, outputs, [_fit(state, word, letter) for word, letter in zip(words, letters, strict=True)])
        for result, registers in zip(op.results, results, strict=True):
            per = _per_word(result.type, pack)
            kind = register_type(result.type)
            for _ in range(0, pack, per):
                bits = f"i{bit_width(result.type) * per}"
                word = given.pop(0)
                registers += state.unpack(_unfit(state, word, bits), kind, per) if per > 1 else [_unfit(state, word, kind)]
    for result, registers in zip(op.results, results, strict=True):
        state[result] = registers[:count]


def _per_word(kind: Type, pack: int) -> int:
    """Returns how many elements share a register."""
    return min(pack, max(1, 32 // bit_width(kind)))


def _emit(state: Lowering, op: Operation, outputs: Sequence[str], words: Sequence[Val]) -> list[Val]:
    """Emits the assembly once and returns what its outputs hold."""
    expected = sum(
        -(-attribute(op, "packed_element") // _per_word(result.type, attribute(op, "packed_element"))) for result in op.results
    )
    if len(outputs) != expected:
        raise _mismatch(op, "outputs", len(outputs), expected)
    kinds = [_letter_type(op, letter) for letter in outputs]
    text = re.sub(r'[\\"\n\t]', lambda match: f"\\{ord(match[0]):02X}", op.attributes["asm_string"])
    aggregate = kinds[0] if len(kinds) == 1 else "{" + ", ".join(kinds) + "}" if kinds else "void"
    made = state.asm(aggregate, text, op.attributes["constraints"].replace(" ", ""), words, pure=attribute(op, "pure"))
    return [made] if len(kinds) == 1 else state.fields(made, kinds)


def _letter_type(op: Operation, letter: str) -> str:
    if letter not in _LETTERS:
        raise CompilationError(
            f"the constraint {letter!r} of inline assembly is not one of {', '.join(_LETTERS)}", location=op.location.source
        )
    return _LETTERS[letter]


def _mismatch(op: Operation, what: str, stated: int, needed: int) -> CompilationError:
    return CompilationError(
        f"the constraints {op.attributes['constraints']!r} have {stated} {what}, the operation has {needed}",
        location=op.location.source,
        cure="give one constraint for each register: pack elements of up to 32 bits share registers",
    )


def _fit(state: Lowering, value: Val, letter: str) -> Val:
    """Returns a value as the register that a constraint asks for: its bits, widened with zeros."""
    wanted = _LETTERS.get(letter)
    if wanted is None or value.type == wanted or (value.type.startswith("ptr") and wanted == "i64"):
        return value
    return state.from_integer(_resize(state, state.as_integer(value), _integer(wanted)), wanted)


def _unfit(state: Lowering, word: Val, kind: str) -> Val:
    if word.type == kind:
        return word
    return state.from_integer(_resize(state, state.as_integer(word), _integer(kind)), kind)


def _integer(kind: str) -> str:
    return {"float": "i32", "double": "i64", "half": "i16", "bfloat": "i16"}.get(
        kind, "i64" if kind.startswith("ptr") else kind
    )


def _resize(state: Lowering, bits: Val, kind: str) -> Val:
    before, after = int(bits.type[1:]), int(kind[1:])
    if before == after:
        return bits
    return state.emit.cast("zext" if after > before else "trunc", bits, kind)


FOREIGN: dict[str, Callable[[Lowering, Operation], None]] = {
    "tt.extern_elementwise": _extern,
    "tt.elementwise_inline_asm": _inline_asm,
}
