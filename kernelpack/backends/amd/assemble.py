"""LLVM IR -> assembly and relocatable object by LLVM, and the image by lld: an ELF shared object, as AMD's runtime loads them (.hsaco)."""

from __future__ import annotations

import functools
import importlib.util
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from kernelpack.backends.amd.context import AmdContext
from kernelpack.errors import BuildError
from kernelpack.llvm import codegen

_REGISTERS = re.compile(r"\.vgpr_count: +(\d+)\n +\.vgpr_spill_count: (\d+)\n")
_LINES = re.compile(r"^(\t\.(loc|file)\b.*|\.L(tmp|func_begin|func_end)\d+:)\n", re.MULTILINE)
CURE = "pip install ziglang (requirements-amd.txt), or put ld.lld of LLVM or ROCm on PATH"


@dataclass(frozen=True)
class Linker:
    """A program that is lld for ELF, and what it says of its version."""

    command: tuple[str, ...]
    version: str


def llir_to_amdgcn(llir: str, context: AmdContext) -> str:
    """Returns the assembly that LLVM makes; the object stage hands on the object of the same code."""
    assembly, context.object = codegen.emit_code(llir, context.machine.code)
    for registers, spilled in _REGISTERS.findall(assembly):
        context.figures.update(registers=int(registers), spills=4 * int(spilled))
    return assembly


def without_lines(assembly: str) -> str:
    """Returns assembly without where its code comes from."""
    return _LINES.sub("", assembly)


def relocatable(assembly: str, context: AmdContext) -> bytes:
    return context.object


def link(data: bytes, context: AmdContext) -> bytes:
    """Returns the shared object of a relocatable one. Raises BuildError where there is no linker."""
    linker = find_linker()
    if linker is None:
        raise BuildError(f"the image of {context.entry} is linked by lld, which was not found", cure=CURE)
    with tempfile.TemporaryDirectory(prefix="kernelpack-") as folder:
        (Path(folder) / "kernel.o").write_bytes(data)
        command = [*linker.command, "-shared", "kernel.o", "-o", "kernel.hsaco"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise BuildError(f"lld failed: {done.stderr.strip()}", cure="this is a defect of kernelpack, or of that lld")
        return (Path(folder) / "kernel.hsaco").read_bytes()


@functools.cache
def find_linker() -> Linker | None:
    """Returns lld: that of the package ziglang, else ld.lld on PATH; None where there is neither."""
    for command in _candidates():
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False)
        if done.returncode == 0 and "LLD" in done.stdout:
            return Linker(command, done.stdout.split("\n")[0].strip())
    return None


def _candidates() -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    package = importlib.util.find_spec("ziglang")
    if package is not None and package.origin is not None:
        found.append((str(Path(package.origin).parent / "zig"), "ld.lld"))
    program = shutil.which("ld.lld")
    return [*found, (program,)] if program else found
