"""Reads inline assembly: a template of PTX, its operands by number, and the instructions in it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kernelpack.errors import UnsupportedError

Atom = str | int
"""A register of the template (`$3`, or a name it declares) or an immediate value."""


@dataclass(frozen=True)
class Operand:
    """`{a, b}`, `[a + 16]`, `a` or `5`: its atoms, and for an address what is added."""

    atoms: tuple[Atom, ...]
    address: bool = False
    offset: int = 0

    @property
    def atom(self) -> Atom:
        (only,) = self.atoms
        return only


@dataclass(frozen=True)
class Instruction:
    """One instruction; `guard` is the predicate it runs under, `label` stands before it. A label alone has no opcode."""

    opcode: str
    operands: tuple[Operand, ...]
    guard: Atom | None = None
    negated: bool = False
    label: str | None = None

    @property
    def target(self) -> Operand:
        """The first operand: what most instructions write."""
        target, *_ = self.operands
        return target

    @property
    def sources(self) -> list[Operand]:
        """The operands after the first."""
        _, *sources = self.operands
        return sources


@dataclass(frozen=True)
class Assembly:
    """A template with its constraints: how many outputs, to which output each input is tied, and the instructions."""

    outputs: int
    ties: tuple[int | None, ...]
    declared: tuple[str, ...]
    instructions: tuple[Instruction, ...]


def parse_assembly(text: str, constraints: str) -> Assembly:
    """Parses a template as LLVM IR has it (`\\0A` for a line's end). Raises UnsupportedError for what is no PTX known here."""
    outputs, ties = 0, []
    for constraint in constraints.split(",") if constraints else []:
        if constraint.startswith("="):
            outputs += 1
        elif not constraint.startswith("~"):
            ties.append(int(constraint) if constraint.isdigit() else None)
    body = re.sub(r"\\([0-9A-Fa-f]{2})", lambda code: chr(int(code[1], 16)), text)
    body = re.sub(r"//[^\n]*", "", body)
    declared: list[str] = []
    instructions: list[Instruction] = []
    for statement in body.split(";"):
        instructions += _statement(statement, declared)
    return Assembly(outputs, tuple(ties), tuple(dict.fromkeys(declared)), tuple(instructions))


def _statement(text: str, declared: list[str]) -> list[Instruction]:
    found = []
    # what opens or closes a scope, all of which share their names here, or a label
    while match := re.match(r"[\s{}]+|([A-Za-z_$%][\w$%]*):", text):
        found += [Instruction("", (), label=match[1])] if match[1] else []
        text = text[match.end() :]
    text = text.rstrip()
    if text.startswith(".reg"):
        for name in text.split(None, 2)[2].split(","):
            many = re.fullmatch(r"(\S+)<(\d+)>", name.strip())
            declared += [f"{many[1]}{number}" for number in range(int(many[2]))] if many else [name.strip()]
        return found
    if not text:
        return found
    guard, negated = None, False
    if match := re.match(r"@(!?)([$\w%]+)\s+", text):
        guard, negated = match[2], bool(match[1])
        text = text[match.end() :]
    opcode, _, rest = text.partition(" ")
    operands = tuple(_operand(part) for part in _split(rest))
    return [*found, Instruction(opcode, operands, guard, negated)]


def _split(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for index, letter in enumerate(text):
        depth += letter in "{[("
        depth -= letter in "}])"
        if letter == "," and not depth:
            parts.append(text[start:index].strip())
            start = index + 1
    parts.append(text[start:].strip())
    return [part for part in parts if part]


def _operand(text: str) -> Operand:
    if text.startswith("{"):
        return Operand(tuple(_atom(part) for part in _split(text[1:-1])))
    if text.startswith("["):
        parts = _split(text[1:-1])
        if len(parts) > 1:  # a tensor map and coordinates
            return Operand(tuple(atom for part in parts for atom in _operand(part).atoms), address=True)
        base, _, offset = parts[0].partition("+")
        return Operand((_atom(base.strip()),), True, int(offset, 0) if offset.strip() else 0)
    return Operand(tuple(_atom(part) for part in text.split("|")))


def _atom(text: str) -> Atom:
    if re.fullmatch(r"-?(0[xX][0-9a-fA-F]+|\d+)U?", text):
        return int(text.rstrip("U"), 0)
    if match := re.fullmatch(r"0[fF]([0-9a-fA-F]{8})|0[dD]([0-9a-fA-F]{16})", text):
        return int(match[1] or match[2], 16)
    if re.fullmatch(r"\$\{?\d+\}?|[A-Za-z_%][\w$%]*", text):
        return text.replace("{", "").replace("}", "").split(":")[0]
    raise UnsupportedError(f"the emulator cannot read the operand {text!r} of inline assembly")
