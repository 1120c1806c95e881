"""Which lines of source the CPU backend's stages come from. Packs have no line tables for CPUs: here the stages are made once more, with
lines, and shown only where their code is, line by line, what was compiled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kernelpack.backends.cpu.emit.tiles_to_llir import FIRST_FREE, tiles_to_llir
from kernelpack.backends.cpu.facts.features import level_of_llir
from kernelpack.backends.cpu.facts.tiles import level_of_kernel
from kernelpack.backends.cpu.plan.sinks import operation_of
from kernelpack.backends.cpu.plan.tile_program import Dot, For, If, Nest, Scalar, Statement, TileProgram, While
from kernelpack.ir.core import Operation
from kernelpack.llvm import codegen
from kernelpack.llvm.debug_info import DebugInfo
from kernelpack.options import Options
from kernelpack.report.loops import chain_of
from kernelpack.report.places import Chain, Text, assembly_lines, is_code, llvm_lines
from kernelpack.target import Target


def cpu_lines(program: TileProgram, target: Target, options: Options, llir: str, assembly: str) -> dict[str, Text]:
    """Returns the stages of a tile program with their lines, by name: those that come out as they were compiled, `llir` and `assembly`."""
    found = {"tiles": _aligned(str(program), Text(*_tiles(program)))}
    located = _located_llir(program, target, options)
    found["llir"] = _aligned(llir, llvm_lines(located))
    if found["llir"] is not None:
        machine = level_of_llir(target, llir).machine
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


def _located_llir(program: TileProgram, target: Target, options: Options) -> str:
    """Returns the LLVM IR of a tile program with !dbg attachments."""
    text, _ = tiles_to_llir(program, level_of_kernel(target, program.entry), options, DebugInfo(first=FIRST_FREE))
    return text


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
                yield from map(operation_of, statement.roots)
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
