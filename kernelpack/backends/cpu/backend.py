"""The CPU backend as the rest of the project sees it: targets, stages, argument facts."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from kernelpack.backends.base import CSRC, Backend, Device, LauncherSource, Opened, Stage, Tool
from kernelpack.backends.cpu.device.driver import CPUDriver
from kernelpack.backends.cpu.device.machine_code import disassemble, model_name
from kernelpack.backends.cpu.device.nativert import kernel_library, launcher_library
from kernelpack.backends.cpu.device.open import open_object
from kernelpack.backends.cpu.emit.elementwise import is_elementwise
from kernelpack.backends.cpu.emit.tiles_to_llir import tiles_to_llir
from kernelpack.backends.cpu.facts.features import Level, level_for, level_of, native_target, resolve, runnable, targets
from kernelpack.backends.cpu.facts.waiting import waits_for_programs
from kernelpack.backends.cpu.math.library_functions import refusal
from kernelpack.backends.cpu.plan.estimate import program_nanoseconds
from kernelpack.backends.cpu.plan.tile_program import Dot, TileProgram, walk
from kernelpack.backends.cpu.plan.ttir_to_tiles import ttir_to_tiles
from kernelpack.backends.cpu.ttir.carry_scalars import carry_scalars
from kernelpack.backends.cpu.ttir.check_accesses import check_accesses
from kernelpack.backends.cpu.ttir.expand_ops import expand_ops
from kernelpack.backends.cpu.ttir.gather_pairs import gather_pairs
from kernelpack.backends.cpu.ttir.version_masks import version_masks
from kernelpack.context import Context
from kernelpack.facts import EQUAL_TO, ArgumentProperty, integers
from kernelpack.ir.core import Operation
from kernelpack.ir.types import BF16, element_of
from kernelpack.llvm import codegen
from kernelpack.options import FRONT_END_OPTIONS, OPTION_NAMES, Options
from kernelpack.passes import TTIR
from kernelpack.passes.pipeline import Pass, Pipeline
from kernelpack.target import Target

if TYPE_CHECKING:
    from kernelpack.compiled import CompiledKernel

_STRUCTURE = {
    "builtin.module", "tt.func", "tt.return", "tt.get_program_id", "tt.get_num_programs", "tt.make_range", "tt.splat",
    "tt.unsplat", "tt.expand_dims", "tt.broadcast", "tt.reshape", "tt.trans", "tt.join", "tt.split", "tt.addptr", "tt.load",
    "tt.store", "tt.atomic_rmw", "tt.atomic_cas", "tt.gather", "tt.histogram", "tt.map_elementwise",
    "tt.map_elementwise.return", "tt.print", "tt.assert", "cpu.check_access", "tt.cat", "tt.dot", "tt.reduce", "tt.reduce.return", "tt.scan",
    "tt.scan.return", "scf.for", "scf.if", "scf.while", "scf.condition", "scf.yield", "arith.constant", "gpu.barrier", "gpu.gdc_wait", "gpu.gdc_launch_dependents",
}  # fmt: skip


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

    def stages(self, target: Target, options: Options) -> dict[str, Stage]:
        return {"cpu_ttir": CPU_TTIR, "tiles": ttir_to_tiles_stage, "llir": tiles_to_llir_stage, "object": llir_to_object}

    def properties(self) -> Sequence[ArgumentProperty]:
        # A stride of 1 makes an access contiguous, which vector code reads and writes whole. It assumes no alignment: CPUs
        # since x86-64-v3 and ARMv8 read and write vectors at any address, and an aligned one is no faster for being known.
        return (ArgumentProperty("equal_to", 1, EQUAL_TO, integers),)

    def native_target(self) -> Target:
        return native_target()

    def targets(self) -> Sequence[Target]:
        return targets()

    def tools(self) -> Sequence[Tool]:
        return (Tool("LLVM", codegen.version(), True, "no kernel compiles", "pip install llvmlite"),)

    def devices(self) -> Sequence[Device]:
        return (Device(model_name(), runnable()),)

    def disassemble(self, kernel: CompiledKernel) -> str:
        return disassemble(kernel, level_of(kernel.target))

    def supports(self, op: Operation, target: Target) -> str | None:
        if op.name.startswith(("ttg.", "ttng.")):
            return "kernelpack.language.hopper needs cuda:sm_90a"
        if op.name == "tt.elementwise_inline_asm":
            return "it is PTX, which GPUs alone execute"
        if op.name not in _STRUCTURE and not is_elementwise(op.name):
            return "the CPU backend has no lowering for it"
        if op.name == "tt.extern_elementwise":
            return refusal(op.attributes["symbol"])
        return None

    def open(self, kernel: CompiledKernel) -> Opened:
        return open_object(kernel)

    def libraries(self, kernel: CompiledKernel, names: Sequence[str]) -> Mapping[str, Callable[[], bytes]]:
        launcher = functools.partial(launcher_library, kernel, names)
        return {"so": functools.partial(kernel_library, kernel), "launcher.so": launcher}

    def driver(self) -> type[CPUDriver]:
        return CPUDriver

    def linked_machine(self, target: Target) -> str:
        return level_of(target).machine.triple.partition("-")[0]

    def caveat(self, target: Target) -> str | None:
        return "its code was never run" if target.arch == "aarch64" else None

    def tool_versions(self) -> Mapping[str, str]:
        return {"llvm": codegen.version()}


CPU_TTIR = Pipeline(
    "cpu_ttir",
    (
        Pass("expand_ops", lambda module, context: expand_ops(module)),
        Pass("gather_pairs", lambda module, context: gather_pairs(module)),
        Pass("check_accesses", check_accesses, after=("expand_ops",), when=lambda _, context: context.options.checked),
        Pass("carry_scalars", lambda module, context: carry_scalars(module), after=("expand_ops",)),
        Pass("version_masks", lambda module, context: version_masks(module, _level(module, context)), after=("carry_scalars",)),
        *TTIR.parts,
    ),
)
"""Prepares ttir for tile loops: carried address tiles become scalars, masks that index bounds decide are split off."""


def _level(code: Operation, context: Context) -> Level:
    kinds = {value.type for op in code.walk() for value in op.results}
    return level_for(context.target, bf16=any(element_of(kind) == BF16 for kind in kinds))


def ttir_to_tiles_stage(module: Operation, context: Context) -> TileProgram:
    level = _level(module, context)
    program = ttir_to_tiles(module, level)
    context.figures["products"] = any(isinstance(statement, Dot) for statement in walk(program.statements))
    context.figures["program_ns"] = program_nanoseconds(program, level)
    if waits_for_programs(module):
        context.figures["launch_cooperative_grid"] = True
    return program


def tiles_to_llir_stage(program: TileProgram, context: Context) -> str:
    llir, context.figures["scratch"] = tiles_to_llir(program, _level(program.entry, context), context.options)
    return llir


def llir_to_object(llir: str, context: Context) -> bytes:
    return codegen.emit_object(llir, level_for(context.target, bf16="bfloat" in llir).machine)
