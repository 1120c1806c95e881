"""The CPU backend as the rest of the project sees it: targets, argument facts, launches. What compiles is in stages.py."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from kernelpack.backends.base import CSRC, Backend, Device, LauncherSource, Opened, Stage, Tool, llvm_tool
from kernelpack.backends.cpu.device.driver import CPUDriver
from kernelpack.backends.cpu.device.machine_code import disassemble, model_name
from kernelpack.backends.cpu.device.nativert import kernel_library, launcher_library
from kernelpack.backends.cpu.device.open import open_linked, open_object
from kernelpack.backends.cpu.facts.features import level_of, native_target, resolve, runnable, targets
from kernelpack.compiled import LINKED
from kernelpack.facts import EQUAL_TO, ArgumentProperty, integers
from kernelpack.ir.core import Operation
from kernelpack.lazy import LazyModule
from kernelpack.llvm import codegen
from kernelpack.options import FRONT_END_OPTIONS, OPTION_NAMES, Options
from kernelpack.target import Target

if TYPE_CHECKING:
    from kernelpack.backends.cpu import stages
    from kernelpack.compiled import CompiledKernel
else:
    stages = LazyModule("kernelpack.backends.cpu.stages")


class CPUBackend(Backend):
    """Compiles ttir to native objects, one for each instruction-set level."""

    name = "cpu"
    image_kind = "object"
    dispatch_key = "CPU"
    launcher = LauncherSource("kernelpack::cpu_launcher", CSRC / "kernels" / "cpu.h", (CSRC / "kernels" / "cpu.cpp",))
    machine_code = "asm"
    unused_options = frozenset(OPTION_NAMES) - {"enable_fp_fusion", "checked", *FRONT_END_OPTIONS}

    def resolve_target(self, target: Target) -> Target:
        return resolve(target)

    def runs_code_of(self, target: Target) -> Sequence[Target]:
        levels = runnable()
        return levels[levels.index(target) :] if target in levels else (target,)

    def code_target(self, target: Target, module: Operation) -> Target:
        return stages.code_target(target, module)

    def stages(self, target: Target, options: Options) -> dict[str, Stage]:
        return stages.STAGES

    def properties(self) -> Sequence[ArgumentProperty]:
        # A stride of 1 makes an access contiguous, which vector code reads and writes whole. It assumes no alignment: CPUs
        # since x86-64-v3 and ARMv8 read and write vectors at any address, and an aligned one is no faster for being known.
        return (ArgumentProperty("equal_to", 1, EQUAL_TO, integers),)

    def native_target(self) -> Target:
        return native_target()

    def targets(self) -> Sequence[Target]:
        return targets()

    def tools(self) -> Sequence[Tool]:
        return (llvm_tool(),)

    def devices(self) -> Sequence[Device]:
        return (Device(model_name(), runnable()),)

    def disassemble(self, kernel: CompiledKernel) -> str:
        return disassemble(kernel)

    def supports(self, op: Operation, target: Target) -> str | None:
        return stages.supports(op)

    def open(self, kernel: CompiledKernel) -> Opened:
        return open_linked(kernel) if kernel.image_kind == LINKED else open_object(kernel)

    def libraries(self, kernel: CompiledKernel, names: Sequence[str]) -> Mapping[str, Callable[[], bytes]]:
        launcher = functools.partial(launcher_library, kernel, names)
        return {"so": functools.partial(kernel_library, kernel), "launcher.so": launcher}

    def driver(self) -> type[CPUDriver]:
        return CPUDriver

    def linked_machine(self, target: Target) -> str:
        return level_of(target).machine.triple.partition("-")[0]

    def caveat(self, target: Target) -> str | None:
        emulated = "its code was run by an emulator alone, and its speed was never measured"
        return emulated if target.arch == "aarch64" else None

    def tool_versions(self) -> Mapping[str, str]:
        return {"llvm": codegen.version()}
