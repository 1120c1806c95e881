"""The AMD backend: its stages, targets and argument facts. It generates code that was never run on hardware; nothing here launches it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kernelpack.backends.amd.assemble import CURE, find_linker, link, llir_to_amdgcn, relocatable, without_lines
from kernelpack.backends.amd.context import AmdContext
from kernelpack.backends.amd.lowering import LOWERINGS, ttgir_to_llir
from kernelpack.backends.amd.lowering.math import SINGLE
from kernelpack.backends.amd.machine import ARCHITECTURES, MAX_THREADS, machine_of
from kernelpack.backends.amd.ttir_to_ttgir import TTGIR
from kernelpack.backends.base import Backend, Device, Stage, Tool
from kernelpack.backends.gpu.passes.narrow_offsets import RANGE
from kernelpack.context import Hook
from kernelpack.errors import BuildError, OutOfResources, TargetError, UnsupportedError
from kernelpack.facts import DIVISIBLE_BY, EQUAL_TO, REACHES, ArgumentProperty, integers, numbers_and_pointers, pointers
from kernelpack.ir.core import Operation
from kernelpack.ir.dialect import attribute
from kernelpack.ir.types import F64, FloatType, IntegerType, PointerType, Type, element_of
from kernelpack.llvm import codegen
from kernelpack.options import Options
from kernelpack.target import Target

if TYPE_CHECKING:
    from kernelpack.compiled import CompiledKernel

_INTEGERS = (1, 8, 16, 32, 64)
_STRUCTURE = frozenset(
    {
        "builtin.module",
        "tt.func",
        "tt.return",
        "scf.yield",
        "scf.condition",
        "tt.reduce.return",
        "tt.scan.return",
        "tt.map_elementwise.return",
    }
)
_WHY = {
    "tt.call": "functions are inlined",
    "tt.dot": "matrix products are not lowered yet",
    "tt.print": "kernels have nobody to print to",
    "tt.assert": "kernels have nobody to tell that an assertion failed",
    "tt.elementwise_inline_asm": "it is PTX, which NVIDIA's GPUs alone execute",
    "tt.extern_elementwise": "libdevice is NVIDIA's",
    "arith.remf": "LLVM's code for it is not exact",
    "math.sin": "LLVM's code for it is accurate for small arguments alone",
    "math.cos": "LLVM's code for it is accurate for small arguments alone",
}
"""Why operations are refused that users may expect."""


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
        _check(options, machine_of(target).lanes)
        return {"ttgir": TTGIR, "llir": ttgir_to_llir, "amdgcn": llir_to_amdgcn, "object": relocatable, "hsaco": link}

    def context(self, target: Target, options: Options, entry: str, attempt: Any, hooks: Sequence[Hook]) -> AmdContext:
        return AmdContext(target, options, entry, attempt, hooks=hooks)

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
            Tool("LLVM", codegen.version(), True, "no kernel compiles", "pip install llvmlite"),
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
        if op.name in _WHY:
            return _WHY[op.name]
        if op.name not in LOWERINGS and op.name not in _STRUCTURE:
            return "the AMD backend has no lowering for it"
        if op.name == "tt.fp_to_fp" and op.operands and attribute(op, "rounding") == "rtz":
            return "rounding to zero is not lowered"
        kinds = [element_of(value.type) for value in (*op.operands, *op.results)]
        if op.name in SINGLE and F64 in kinds:
            return "it is lowered for floats of 16 and 32 bits alone"
        return next((reason for reason in map(_unsupported_type, kinds) if reason is not None), None)

    def caveat(self, target: Target) -> str | None:
        return "only code is generated; it was never run on hardware, and nothing here launches it"

    def tool_versions(self) -> Mapping[str, str]:
        linker = find_linker()
        return {"llvm": codegen.version(), "linker": linker.version if linker else "none"}


def _check(options: Options, lanes: int) -> None:
    if options.num_ctas != 1:
        raise UnsupportedError(f"num_ctas={options.num_ctas}: AMD's GPUs have no clusters of blocks", cure="use num_ctas=1")
    most = MAX_THREADS // lanes
    if options.num_warps not in (1, 2, 4, 8, 16, 32):
        raise UnsupportedError(f"num_warps={options.num_warps} is not a power of two from 1 to 32", cure="use 4 or 8")
    if options.num_warps > most:
        raise OutOfResources(
            f"the kernel needs {options.num_warps * lanes} threads, a block has at most {MAX_THREADS}",
            cure=f"use num_warps={most} at most: a warp has {lanes} lanes",
        )
    if options.threads_per_warp not in (None, lanes):
        raise UnsupportedError(
            f"threads_per_warp={options.threads_per_warp}: a warp of this GPU has {lanes} lanes",
            cure="leave threads_per_warp out, and choose num_warps",
        )


def _unsupported_type(kind: Type) -> str | None:
    if isinstance(kind, PointerType):
        return _unsupported_type(kind.pointee)
    if isinstance(kind, FloatType) and kind.width == 8:
        return f"8-bit floats such as {kind} are not lowered yet"
    if isinstance(kind, IntegerType) and kind.width not in _INTEGERS:
        return f"integers have 1, 8, 16, 32 or 64 bits, not {kind.width}"
    return None
