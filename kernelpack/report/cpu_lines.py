"""Which lines of source the CPU backend's stages come from. They say none themselves: here they are made once more, and watched.

Each line of LLVM IR comes from the operation that the innermost function on the stack works on while it writes the line. LLVM then
carries that into assembly. What is made here is shown only where it is, line by line, what was compiled.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from types import FrameType

from kernelpack.backends.cpu.emit.tiles_to_llir import _FunctionEmitter as FunctionEmitter
from kernelpack.backends.cpu.facts.features import level_for
from kernelpack.backends.cpu.plan.sinks import Materialize
from kernelpack.backends.cpu.plan.tile_program import Dot, For, If, Nest, Scalar, Statement, TileProgram, While
from kernelpack.ir.core import Operation, Value
from kernelpack.llvm import codegen
from kernelpack.llvm.debug_info import DebugInfo
from kernelpack.llvm.text import Emitter
from kernelpack.options import Options
from kernelpack.report.loops import chain_of
from kernelpack.report.places import Chain, Text, assembly_lines, is_code, llvm_lines
from kernelpack.target import Target

_FIRST = 1000
"""The first number of debug metadata, above those that the backend uses."""


def cpu_lines(program: TileProgram, target: Target, options: Options, llir: str, assembly: str) -> dict[str, Text]:
    """Returns the stages of a tile program with their lines, by name: those that come out as they were compiled, `llir` and `assembly`."""
    found = {"tiles": _aligned(str(program), Text(*_tiles(program)))}
    located = _located_llir(program, target, options)
    found["llir"] = _aligned(llir, llvm_lines(located))
    if found["llir"] is not None:
        machine = level_for(target, bf16="bfloat" in llir).machine
        found["asm"] = _aligned(assembly, assembly_lines(codegen.emit_assembly(located, machine)))
    return {name: text for name, text in found.items() if text is not None}


def _aligned(plain: str, located: Text) -> Text | None:
    """Returns a text with the chains of a located one whose code is the same; None where it is another."""
    lines = plain.rstrip("\n").split("\n")
    code = [(line, chain) for line, chain in zip(located.lines, located.chains, strict=True) if is_code(line)]
    if [line for line in lines if is_code(line)] != [line for line, _ in code]:
        return None
    chains = (chain for _, chain in code)
    return Text(tuple(lines), tuple(next(chains) if is_code(line) else () for line in lines))


# -- LLVM IR ----------------------------------------------------------------------------------------------------------------


class _Watched(Emitter):
    """An emitter whose lines say which operation they are of."""

    debug: DebugInfo
    subprogram: int | None
    operation: Operation

    def line(self, text: str) -> None:
        operation = _operation_in_work(sys._getframe(1)) or self.operation
        self.attachment = self.debug.at(self.subprogram, operation.location)
        super().line(text)


def _located_llir(program: TileProgram, target: Target, options: Options) -> str:
    """Returns the LLVM IR of a tile program with !dbg attachments."""
    name = program.entry.attributes["sym_name"]
    debug = DebugInfo(first=_FIRST)
    writer = FunctionEmitter(program, level_for(target, bf16=_has_bf16(program)), options)
    writer.em.__class__ = _Watched
    assert isinstance(writer.em, _Watched)
    writer.em.debug, writer.em.operation = debug, program.entry
    writer.em.subprogram = debug.function(name, program.entry.location)
    text, _ = writer.module()
    return "\n".join([text.replace(" #0 {", f" #0 !dbg !{writer.em.subprogram} {{", 1).rstrip("\n"), *debug.lines()]) + "\n"


def _has_bf16(program: TileProgram) -> bool:
    return any("bf16" in str(value.type) for op in program.entry.walk() for value in op.results)


def _operation_in_work(frame: FrameType | None) -> Operation | None:
    """Returns the operation that the innermost function has in hand, by the names that emitters give it."""
    while frame is not None:
        known = frame.f_locals
        for name in ("op", "root", "value", "statement"):
            found = _operation_of(known.get(name))
            if found is not None and found.location.source is not None:
                return found
        if frame.f_code is FunctionEmitter.module.__code__:
            return None
        frame = frame.f_back
    return None


def _operation_of(thing: object) -> Operation | None:
    if isinstance(thing, Operation):
        return thing
    if isinstance(thing, Value):
        return thing.defining_op
    if isinstance(thing, Materialize):
        return thing.value.defining_op
    if isinstance(thing, Nest):
        return _operation_of(thing.roots[0])
    op = getattr(thing, "op", None)
    return op if isinstance(op, Operation) else None


# -- tiles ------------------------------------------------------------------------------------------------------------------


def _tiles(program: TileProgram) -> tuple[tuple[str, ...], tuple[Chain, ...]]:
    """Returns the lines of a tile program's text, with their chains: its head, its buffers, and its statements in order."""
    lines = tuple(str(program).rstrip("\n").split("\n"))
    operations = [*_statements(program.statements)]
    head = len(lines) - len(operations)
    chains = [() if op is None else chain_of(op.location) for op in operations]
    return lines, (*((),) * head, *chains)


def _statements(statements: Sequence[Statement]) -> Iterator[Operation | None]:
    """Yields the operation of each line that a tile program prints for its statements."""
    for statement in statements:
        match statement:
            case Nest():
                yield None
                yield from map(_operation_of, statement.roots)
            case Dot():
                yield statement.op
            case Scalar():
                if statement.op.name != "arith.constant":
                    yield statement.op
            case For():
                yield statement.op
                yield from _statements(statement.body)
            case While():
                yield statement.op
                yield from _statements(statement.before)
                yield statement.op
                yield from _statements(statement.body)
            case If():
                yield statement.op
                yield from _statements(statement.then)
                if statement.otherwise:
                    yield statement.op
                    yield from _statements(statement.otherwise)
