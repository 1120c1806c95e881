"""How the CPU backend compiles: its stages after ttir, and what it refuses."""

from __future__ import annotations

from kernelpack.backends.base import Stage
from kernelpack.backends.cpu.emit.elementwise import is_elementwise
from kernelpack.backends.cpu.emit.tiles_to_llir import tiles_to_llir
from kernelpack.backends.cpu.facts.features import level_of, level_of_llir
from kernelpack.backends.cpu.facts.tiles import level_of_kernel, target_of_kernel
from kernelpack.backends.cpu.facts.waiting import waits_for_programs
from kernelpack.backends.cpu.math.inline_asm import instead_of
from kernelpack.backends.cpu.math.library_functions import refusal
from kernelpack.backends.cpu.plan.estimate import program_nanoseconds
from kernelpack.backends.cpu.plan.tile_program import Dot, TileProgram, walk
from kernelpack.backends.cpu.plan.ttir_to_tiles import ttir_to_tiles
from kernelpack.backends.cpu.ttir.check_accesses import check_accesses
from kernelpack.backends.cpu.ttir.dot_bytes import dot_bytes
from kernelpack.backends.cpu.ttir.expand_ops import expand_ops
from kernelpack.backends.cpu.ttir.gather_pairs import gather_pairs
from kernelpack.backends.cpu.ttir.prefetch_next import prefetch_next
from kernelpack.backends.cpu.ttir.prefetch_streams import prefetch_streams
from kernelpack.backends.cpu.ttir.version_masks import version_masks
from kernelpack.context import Context
from kernelpack.ir.core import Operation
from kernelpack.llvm import codegen
from kernelpack.passes import TTIR
from kernelpack.passes.carry_scalars import carry_scalars
from kernelpack.passes.pipeline import Pass, Pipeline
from kernelpack.target import Target

_STRUCTURE = {
    "builtin.module", "tt.func", "tt.return", "tt.get_program_id", "tt.get_num_programs", "tt.make_range", "tt.splat",
    "tt.unsplat", "tt.expand_dims", "tt.broadcast", "tt.reshape", "tt.trans", "tt.join", "tt.split", "tt.addptr", "tt.load",
    "tt.store", "tt.atomic_rmw", "tt.atomic_cas", "tt.gather", "tt.histogram", "tt.map_elementwise",
    "tt.map_elementwise.return", "tt.print", "tt.assert", "cpu.check_access", "cpu.prefetch", "tt.cat", "tt.dot", "tt.reduce", "tt.reduce.return", "tt.scan",
    "tt.scan.return", "scf.for", "scf.if", "scf.while", "scf.condition", "scf.yield", "arith.constant", "gpu.barrier", "gpu.gdc_wait", "gpu.gdc_launch_dependents",
}  # fmt: skip


def supports(op: Operation) -> str | None:
    """Returns why an operation cannot be lowered, or None."""
    if op.name.startswith(("ttg.", "ttng.")):
        return "kernelpack.language.hopper needs cuda:sm_90a"
    if op.name == "tt.elementwise_inline_asm":
        return instead_of(op.attributes.get("asm_string", ""))
    if op.name not in _STRUCTURE and not is_elementwise(op.name):
        return "the CPU backend has no lowering for it"
    if op.name == "tt.extern_elementwise":
        return refusal(op.attributes["symbol"])
    return None


def code_target(target: Target, module: Operation) -> Target:
    """Returns the target whose code a kernel has: that of the level which it gains from, once what its operations become is known."""
    expanded = module.clone()
    expand_ops(expanded)
    dot_bytes(expanded)
    return target_of_kernel(target, expanded)


CPU_TTIR = Pipeline(
    "cpu_ttir",
    (
        Pass("expand_ops", lambda module, context: expand_ops(module)),
        Pass(
            "dot_bytes",
            lambda module, context: dot_bytes(module, together=level_of(context.target).int8_pack != 4),
        ),
        Pass("gather_pairs", lambda module, context: gather_pairs(module)),
        Pass("check_accesses", check_accesses, after=("expand_ops",), when=lambda _, context: context.options.checked),
        Pass("carry_scalars", lambda module, context: carry_scalars(module), after=("expand_ops",)),
        Pass("prefetch_next", lambda module, context: prefetch_next(module), after=("carry_scalars",)),
        Pass("prefetch_streams", lambda module, context: prefetch_streams(module), after=("carry_scalars", "prefetch_next")),
        Pass(
            "version_masks",
            lambda module, context: version_masks(module, level_of_kernel(context.target, module)),
            after=("carry_scalars", "prefetch_next", "prefetch_streams"),
        ),
        *TTIR.parts,
    ),
)
"""Prepares ttir for tile loops: carried address tiles become scalars, masks that index bounds decide are split off."""


def ttir_to_tiles_stage(module: Operation, context: Context) -> TileProgram:
    level = level_of_kernel(context.target, module)
    program = ttir_to_tiles(module, level)
    context.figures["products"] = any(isinstance(statement, Dot) for statement in walk(program.statements))
    context.figures["program_ns"] = program_nanoseconds(program, level)
    if waits_for_programs(module):
        context.figures["launch_cooperative_grid"] = True
    return program


def tiles_to_llir_stage(program: TileProgram, context: Context) -> str:
    level = level_of_kernel(context.target, program.entry)
    llir, context.figures["scratch"] = tiles_to_llir(program, level, context.options)
    return llir


def llir_to_object(llir: str, context: Context) -> bytes:
    return codegen.emit_object(llir, level_of_llir(context.target, llir).machine)


STAGES: dict[str, Stage] = {
    "cpu_ttir": CPU_TTIR,
    "tiles": ttir_to_tiles_stage,
    "llir": tiles_to_llir_stage,
    "object": llir_to_object,
}
