"""Every stage of a kernel as text whose lines know where they come from, and its loops: compiled, then lowered once more for its lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kernelpack.backends.base import Backend
from kernelpack.backends.cpu.plan.tile_program import TileProgram
from kernelpack.backends.cuda.assemble.toolchain import disassemble
from kernelpack.backends.installed import backend_of
from kernelpack.compiled import CompiledKernel
from kernelpack.compiler.stages import legalise, optimise_ttir
from kernelpack.context import Context
from kernelpack.errors import BuildError
from kernelpack.ir.core import Operation, entry_function
from kernelpack.ir.locations import source_files
from kernelpack.ir.printer import print_op
from kernelpack.opgen.variants.plan import KernelVariant
from kernelpack.opgen.workers.compile import ttir_of
from kernelpack.pack.format import KernelPack
from kernelpack.process_wide import deep_recursion_in
from kernelpack.report.cpu_lines import cpu_lines
from kernelpack.report.loops import Loop, loops_of
from kernelpack.report.places import INNERMOST, READERS, Text, ir_lines, sass_lines, with_callers, without_lines


@dataclass(frozen=True)
class Stage:
    """A stage of a kernel. `note` says what of it is missing, and why; "" for nothing."""

    name: str
    text: Text
    note: str = ""


@dataclass(frozen=True)
class Staged:
    """A kernel with its stages in order. `files` are the sources that these name, by the names that they have there; `loops` are those
    of its last IR that has operations, each with what one turn does."""

    stages: tuple[Stage, ...]
    files: Mapping[str, str]
    loops: tuple[Loop, ...]


NO_LINES = "This stage does not say which line of source its lines come from."


def stages_of_pack(pack: KernelPack) -> Staged:
    """Returns the machine code of a pack: all that a library has of a kernel's stages."""
    kernel = CompiledKernel(pack.symbol, pack.target, pack.options, pack.parameters, pack.facts, pack.image_kind, pack.image)
    return Staged((_machine_code(backend_of(pack.target), kernel, {}),), {}, ())


def stages_of(variant: KernelVariant, kernel: CompiledKernel) -> Staged:
    """Returns the stages of a kernel that was compiled with its stages.

    What is compiled carries no locations as text. So the front end and the passes run once more here, and where the text is the same,
    its operations say the lines.
    """
    backend = backend_of(kernel.target)
    with deep_recursion_in(None):
        module = _ttir(variant, backend)
        files = source_files(module)
        known, last = _located(module, backend, kernel)
    stages = [_stage(name, value, known) for name, value in kernel.stages.items() if isinstance(value, str)]
    notes = [stage for stage in stages if stage.name in backend.notes]
    stages = [stage for stage in stages if stage.name not in backend.notes]
    loops = loops_of(last, kernel.stages.get("schedule", "")) if last is not None else ()
    whole = {chain for stage in stages if stage.name not in INNERMOST for chain in stage.text.chains if chain}
    found = (*stages, _machine_code(backend, kernel, known), *notes)
    return Staged(tuple(replace(stage, text=with_callers(stage.text, whole)) for stage in found), files, loops)


def _stage(name: str, text: str, known: Mapping[str, Text]) -> Stage:
    found = known.get(name)
    if found is None:
        found = READERS[name](text) if name in READERS else without_lines(text)
    return Stage(name, found, "" if any(found.chains) else NO_LINES)


def _ttir(variant: KernelVariant, backend: Backend) -> Operation:
    """Returns what compiling a variant begins with: ttir that the backend takes."""
    module = optimise_ttir(ttir_of(variant))
    entry_function(module).attributes["sym_name"] = variant.entry
    legalise(module, backend, backend.resolve_target(variant.target))
    return module


def _located(module: Operation, backend: Backend, kernel: CompiledKernel) -> tuple[dict[str, Text], Operation | None]:
    """Returns stages with their lines, and the last one that has operations, of the attempt that the kernel came from."""
    for attempt in backend.attempts(kernel.target, kernel.options):
        context = backend.context(kernel.target, kernel.options, kernel.entry, attempt, ())
        known: dict[str, Text] = {}
        last, value = module, module.clone()
        for name, stage in {"ttir": _as_it_is, **backend.stages(kernel.target, kernel.options)}.items():
            value = stage(value, context)
            if not isinstance(value, Operation):
                break
            last = value
            known[name] = ir_lines(print_op(value), print_op(value, locations=True))
        if all("\n".join(text.lines) == kernel.stages[name].rstrip("\n") for name, text in known.items()):
            if isinstance(value, TileProgram):
                texts = kernel.stages["llir"], backend.disassemble(kernel)
                known |= cpu_lines(value, kernel.target, kernel.options, *texts)
            return known, last
    return {}, None


def _as_it_is(value: Operation, context: Context) -> Operation:
    return value


# -- machine code -----------------------------------------------------------------------------------------------------------


def _machine_code(backend: Backend, kernel: CompiledKernel, known: Mapping[str, Text]) -> Stage:
    name = backend.machine_code
    try:
        if name == "sass":
            return _stage(name, "", {name: sass_lines(disassemble(kernel.image, "--print-line-info-inline"))})
        return _stage(name, backend.disassemble(kernel), known)
    except BuildError as problem:
        return Stage(name, without_lines(""), f"It cannot be shown: {problem.message}. To fix: {problem.cure}.")
