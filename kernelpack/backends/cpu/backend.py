"""The CPU backend as the rest of the project sees it: targets, stages, argument facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kernelpack.backends.base import (
    CSRC,
    EQUAL_TO,
    OPTION_NAMES,
    ArgumentProperty,
    Backend,
    Device,
    Lowered,
    Options,
    Stage,
    Tool,
    integers,
)
from kernelpack.backends.cpu.carry_scalars import carry_scalars
from kernelpack.backends.cpu.elementwise import is_elementwise
from kernelpack.backends.cpu.estimate import program_nanoseconds
from kernelpack.backends.cpu.expand_ops import expand_ops
from kernelpack.backends.cpu.jit import LoadedObject
from kernelpack.backends.cpu.levels import level_of, resolve, runnable, targets
from kernelpack.backends.cpu.library_functions import refusal
from kernelpack.backends.cpu.machine_code import disassemble, model_name
from kernelpack.backends.cpu.tile_program import Dot, TileProgram, walk
from kernelpack.backends.cpu.tiles_to_llir import tiles_to_llir
from kernelpack.backends.cpu.ttir_to_tiles import ttir_to_tiles
from kernelpack.backends.cpu.version_masks import version_masks
from kernelpack.ir.core import Operation
from kernelpack.llvm import codegen
from kernelpack.passes import TTIR_PASSES
from kernelpack.target import Target

if TYPE_CHECKING:
    from kernelpack.compiler import CompiledKernel

_STRUCTURE = {
    "builtin.module", "tt.func", "tt.return", "tt.get_program_id", "tt.get_num_programs", "tt.make_range", "tt.splat",
    "tt.unsplat", "tt.expand_dims", "tt.broadcast", "tt.reshape", "tt.trans", "tt.join", "tt.split", "tt.addptr", "tt.load",
    "tt.store", "tt.atomic_rmw", "tt.atomic_cas", "tt.gather", "tt.histogram", "tt.map_elementwise",
    "tt.map_elementwise.return", "tt.print", "tt.assert", "tt.cat", "tt.dot", "tt.reduce", "tt.reduce.return", "tt.scan",
    "tt.scan.return", "scf.for", "scf.if", "scf.while", "scf.condition", "scf.yield", "arith.constant", "gpu.barrier", "gpu.gdc_wait", "gpu.gdc_launch_dependents",
}  # fmt: skip


class CPUBackend(Backend):
    """Compiles ttir to native objects, one for each instruction-set level."""

    name = "cpu"
    image_kind = "object"
    dispatch_key = "CPU"
    launcher = "kernelpack::cpu_launcher"
    launcher_header = CSRC / "kernels" / "cpu.h"
    launcher_sources: Sequence[Path] = (CSRC / "kernels" / "cpu.cpp",)
    machine_code = "asm"
    unused_options = frozenset(name for name in OPTION_NAMES if name not in ("enable_fp_fusion", "debug", "sanitize_overflow"))

    def resolve_target(self, target: Target) -> Target:
        return resolve(target)

    def stages(self, target: Target, options: Options) -> dict[str, Stage]:
        return {"cpu_ttir": lower_ttir, "tiles": ttir_to_tiles_stage, "llir": tiles_to_llir_stage, "object": llir_to_object}

    def properties(self) -> Sequence[ArgumentProperty]:
        # A stride of 1 makes an access contiguous, which vector code reads and writes whole. It assumes no alignment: CPUs
        # since x86-64-v3 and ARMv8 read and write vectors at any address, and an aligned one is no faster for being known.
        return (ArgumentProperty("equal_to", 1, EQUAL_TO, integers),)

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

    def load(self, kernel: CompiledKernel) -> LoadedObject:
        return LoadedObject(kernel)

    def linked_machine(self, target: Target) -> str:
        return level_of(target).machine.triple.partition("-")[0]

    def tool_versions(self) -> Mapping[str, str]:
        return {"llvm": codegen.version()}


def lower_ttir(module: Operation, lowered: Lowered) -> Operation:
    """Prepares ttir for tile loops: carried address tiles become scalars, masks that index bounds decide are split off."""
    copy = module.clone()
    version_masks(carry_scalars(expand_ops(copy)), level_of(lowered.target))
    for run in TTIR_PASSES:
        run(copy)
    return copy


def ttir_to_tiles_stage(module: Operation, lowered: Lowered) -> TileProgram:
    program = ttir_to_tiles(module, level_of(lowered.target))
    lowered.metadata["products"] = any(isinstance(statement, Dot) for statement in walk(program.statements))
    lowered.metadata["program_ns"] = program_nanoseconds(program, level_of(lowered.target))
    return program


def tiles_to_llir_stage(program: TileProgram, lowered: Lowered) -> str:
    llir, lowered.metadata["scratch"] = tiles_to_llir(program, level_of(lowered.target), lowered.options)
    return llir


def llir_to_object(llir: str, lowered: Lowered) -> bytes:
    return codegen.emit_object(llir, level_of(lowered.target).machine)
