"""What the CPU executes, as text: a kernel's assembly, and the CPU's own name."""

from __future__ import annotations

import platform
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from kernelpack.backends.cpu.facts.features import host, level_of_llir
from kernelpack.errors import BuildError
from kernelpack.llvm import codegen

if TYPE_CHECKING:
    from kernelpack.compiled import CompiledKernel


def disassemble(kernel: CompiledKernel) -> str:
    """Returns a kernel's assembly: LLVM's, with its labels, where the LLVM IR is at hand, else what objdump reads."""
    if "llir" in kernel.stages:
        llir = kernel.stages["llir"]
        return codegen.emit_assembly(llir, level_of_llir(kernel.target, llir).machine)
    tool = shutil.which("objdump")
    if tool is None:
        raise BuildError("objdump was not found", cure="apt-get install binutils, or inspect the op files")
    with tempfile.TemporaryDirectory(prefix="kernelpack-") as folder:
        file = Path(folder) / f"{kernel.entry}.o"
        file.write_bytes(kernel.image)
        command = [tool, "--disassemble", "--reloc", "--no-show-raw-insn", file.name]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(
            f"objdump cannot read code for {kernel.target}: {done.stderr.strip()}",
            cure="inspect the op files, which needs no objdump, or install binutils-multiarch",
        )
    return done.stdout


def model_name() -> str:
    """Returns the name of this machine's CPU."""
    return host().get("model name") or platform.processor() or platform.machine()
