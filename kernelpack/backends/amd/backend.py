"""The AMD backend as the rest of the project sees it. It generates code that was never run on hardware; nothing here launches it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kernelpack.backends.amd.assemble import CURE, find_linker, without_lines
from kernelpack.backends.amd.machine import ARCHITECTURES, machine_of
from kernelpack.backends.base import Backend, Device, Stage, Tool, llvm_tool
from kernelpack.context import Hook
from kernelpack.errors import BuildError, TargetError
from kernelpack.facts import DIVISIBLE_BY, EQUAL_TO, RANGE, REACHES, ArgumentProperty, integers, numbers_and_pointers, pointers
from kernelpack.ir.core import Operation
from kernelpack.lazy import LazyModule
from kernelpack.llvm import codegen
from kernelpack.options import Options
from kernelpack.target import Target

if TYPE_CHECKING:
    from kernelpack.backends.amd import stages
    from kernelpack.backends.amd.context import AmdContext
    from kernelpack.compiled import CompiledKernel
else:
    stages = LazyModule("kernelpack.backends.amd.stages")


class AMDBackend(Backend):
    """Compiles for AMD's gfx942 (MI300), without a GPU or ROCm: elementwise kernels, reductions, scans, atomics."""

    name = "amdgpu"
    image_kind = "hsaco"
    dispatch_key = "CUDA"  # what torch for ROCm calls its devices
    machine_code = "asm"
    line_information = True
    unused_options = frozenset(
        {"checked", "num_stages", "maxnreg", "enable_reflect_ftz", "launch_pdl", "launch_cooperative_grid"}
    )

    def resolve_target(self, target: Target) -> Target:
        if target.arch == "native":
            raise TargetError(
                f"target {target}: kernelpack looks for no AMD GPU",
                cure=f"name an architecture: {', '.join(map(str, self.targets()))}",
            )
        machine_of(target)
        return target

    def stages(self, target: Target, options: Options) -> dict[str, Stage]:
        return stages.stages(target, options)

    def context(self, target: Target, options: Options, entry: str, attempt: Any, hooks: Sequence[Hook]) -> AmdContext:
        return stages.AmdContext(target, options, entry, attempt, hooks=hooks)

    def properties(self) -> Sequence[ArgumentProperty]:
        return (
            ArgumentProperty("equal_to", 1, EQUAL_TO, integers),
            ArgumentProperty("tt.divisibility", 16, DIVISIBLE_BY, numbers_and_pointers),
            ArgumentProperty(RANGE, 32, REACHES, pointers),
        )

    def targets(self) -> Sequence[Target]:
        return tuple(Target(self.name, name) for name in ARCHITECTURES)

    def tools(self) -> Sequence[Tool]:
        linker = find_linker()
        return (
            llvm_tool(),
            Tool("lld", f"{linker.version}, {linker.command[0]}" if linker else None, False, "no .hsaco is linked", CURE),
        )

    def devices(self) -> Sequence[Device]:
        return ()

    def disassemble(self, kernel: CompiledKernel) -> str:
        """Returns LLVM's assembly, where the kernel's stages are at hand."""
        if "amdgcn" in kernel.stages:
            return str(kernel.stages["amdgcn"])
        raise BuildError("nothing here reads machine code of AMD's GPUs", cure="inspect the op files with --stage amdgcn")

    def code_of(self, text: str) -> str:
        return without_lines(text)

    def supports(self, op: Operation, target: Target) -> str | None:
        return stages.supports(op)

    def caveat(self, target: Target) -> str | None:
        return "only code is generated; it was never run on hardware, and nothing here launches it"

    def tool_versions(self) -> Mapping[str, str]:
        linker = find_linker()
        return {"llvm": codegen.version(), "linker": linker.version if linker else "none"}
