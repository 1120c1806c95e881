"""Plans small kernels for a CPU and gives the tile programs as text: the first plan, what its review learned, and the next one."""

from __future__ import annotations

import textwrap
from itertools import islice

from kernelpack.backends.cpu.facts.features import Level, level_of
from kernelpack.backends.cpu.plan.feedback import LESSONS
from kernelpack.backends.cpu.plan.tile_program import TileProgram, naming
from kernelpack.backends.cpu.plan.ttir_to_tiles import rounds, ttir_to_tiles
from kernelpack.compiler.stages import optimise_ttir
from kernelpack.frontend.ast_to_ttir import ast_to_ttir
from kernelpack.ir.core import Operation, entry_function
from kernelpack.kernel.jit import JITFunction
from kernelpack.target import Target

V3 = level_of(Target.parse("cpu:x86-64-v3"))
V4 = level_of(Target.parse("cpu:x86-64-v4"))
V4_VNNI = level_of(Target.parse("cpu:x86-64-v4+avx512vnni"))
ARM = level_of(Target.parse("cpu:aarch64"))
ARM_BF16 = level_of(Target.parse("cpu:aarch64+bf16"))
SVE2 = level_of(Target.parse("cpu:aarch64+sve2"))
BF16 = level_of(Target.parse("cpu:x86-64-v4+avx512bf16"))
AMX = level_of(Target.parse("cpu:x86-64-v4+amx"))


def ttir(kernel: JITFunction, **types: str | int | bool) -> Operation:
    """Returns a kernel's ttir. Parameters are pointers to float32, or of the type that a text names; other values are constants."""
    constants = {name: value for name, value in types.items() if not isinstance(value, str)}
    signature = {name: str(types.get(name, "*fp32")) for name in kernel.arg_names if name not in constants}
    return optimise_ttir(ast_to_ttir(kernel, signature, constants))


def text_of(program: TileProgram) -> str:
    """Returns a program without the line that names the kernel."""
    return textwrap.dedent(str(program).partition("\n")[2])


def plan(kernel: JITFunction, level: Level = V3, **types: str | int | bool) -> str:
    """Returns a kernel's tile program."""
    return text_of(ttir_to_tiles(ttir(kernel, **types), level))


def steps(lesson: str, kernel: JITFunction, level: Level = V3, **types: str | int | bool) -> tuple[str, str, str]:
    """Returns a kernel's first plan, what one lesson alone learns from it, and the next plan."""
    module = ttir(kernel, **types)
    chosen = [[known for group in LESSONS for known in group if known.name == lesson]]
    first, *others = [
        (text_of(made.program), made.known.text(naming(entry_function(module))))
        for made in islice(rounds(module, level, chosen), 2)
    ]
    return (*first, others[0][0] if others else first[0])


def same_text(got: str, expected: str) -> None:
    """Asserts that a text is the one that a test states, whose indentation does not count."""
    expected = textwrap.dedent(expected).strip("\n") + "\n"
    assert got.strip("\n") + "\n" == expected, f"it is\n{got}\ninstead of\n{expected}"


def check_lesson(
    lesson: str, kernel: JITFunction, before: str | None, learned: str, after: str | None, **types: str | int | bool
) -> None:
    """Asserts what a lesson learns from a kernel's first plan and, where they are given, that plan and the next one."""
    first, known, following = steps(lesson, kernel, **types)
    same_text(known, learned)
    if before is not None:
        same_text(first, before)
    if after is not None:
        same_text(following, after)


def learns_nothing(lesson: str, kernel: JITFunction, **types: str | int | bool) -> None:
    """Asserts that a lesson finds nothing wrong with a kernel's first plan."""
    first, known, following = steps(lesson, kernel, **types)
    assert (known, following) == ("", first)
