"""From a kernel's source to an image for one target: runs the front end, the ttir passes and the backend's stages."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kernelpack import knobs
from kernelpack.backends.base import Backend, Failed, Stage
from kernelpack.backends.installed import backend_of
from kernelpack.compiled import CompiledKernel, Parameter
from kernelpack.compiler.target_backend import StagesHook, inspected
from kernelpack.context import Context, Hook
from kernelpack.errors import BuildError, OutOfResources, SourceLocation, UnsupportedError
from kernelpack.facts import Fact
from kernelpack.ir.core import Operation, entry_function, functions
from kernelpack.ir.locations import user_location
from kernelpack.ir.verify import verify
from kernelpack.knobs.hooks import CompileTimes, microseconds_since
from kernelpack.options import Options
from kernelpack.passes import TTIR
from kernelpack.passes.descriptors_to_pointers import descriptors_to_pointers
from kernelpack.passes.inline import inline
from kernelpack.passes.pipeline import Verifying
from kernelpack.process_wide import deep_recursion_in
from kernelpack.target import Target


def optimise_ttir(module: Operation, hooks: Sequence[Hook] = ()) -> Operation:
    """Runs the target-independent passes on a module in place and returns it."""
    with deep_recursion_in(_place(module)):
        return TTIR.run(module, hooks=(*hooks, *checks()))


def checks() -> tuple[Hook, ...]:
    """Returns what checks the IR after each pass, where KERNELPACK_VERIFY_PASSES asks for it."""
    return (Verifying(),) if knobs.VERIFY_PASSES.is_on() else ()


def _place(module: Operation) -> SourceLocation | None:
    """Returns where the kernel of a module is defined."""
    return next((function.location.source for function in functions(module)), None)


def legalise(module: Operation, backend: Backend, target: Target) -> None:
    """Replaces in place what a backend leaves to others: calls, descriptors. Raises UnsupportedError, with the user's line, for
    operations that it refuses."""
    verify(module)
    if inline(module, may_stay=lambda call: backend.supports(call, target) is None):  # noinline is a wish, not always granted
        optimise_ttir(module)
    while descriptors_to_pointers(module, lambda op, facts: backend.descriptor_form(op, facts, target)):
        optimise_ttir(module)  # which may change what is known of the others
    for op in module.walk():
        reason = backend.supports(op, target)
        if reason is not None:
            raise UnsupportedError(
                f"{op.name} cannot be compiled for {target}: {reason}", location=user_location(op.location).source
            )


def compile_ttir(
    module: Operation,
    target: Target,
    options: Options,
    facts: tuple[Fact, ...] = (),
    *,
    keep_stages: bool = True,
    until: str | None = None,
    times: CompileTimes | None = None,
    inspect: StagesHook | None = None,
) -> CompiledKernel:
    """Compiles an optimised ttir module for a target.

    The module's public function is the kernel; `facts` are those its `arg_attrs` state. With `keep_stages` False no stage is
    printed that nobody needs to go on, and `stages` is empty; with `until`, nothing is made after that stage. `times` gets what each
    stage took; `inspect` may change the stages. Raises UnsupportedError with the user's line where the backend refuses an operation.
    """
    with deep_recursion_in(_place(module)):
        return _compile_ttir(module, target, options, facts, keep_stages, until, times, inspect)


def _compile_ttir(
    module: Operation,
    target: Target,
    options: Options,
    facts: tuple[Fact, ...],
    keep_stages: bool,
    until: str | None,
    times: CompileTimes | None,
    inspect: StagesHook | None,
) -> CompiledKernel:
    backend = backend_of(target)
    target = backend.resolve_target(target)
    legalise(module, backend, target)
    function = entry_function(module)
    parameters = tuple(Parameter(argument.name, str(argument.type)) for argument in function.body.arguments)
    made = run_stages(module, target, options, until=until, keep_stages=keep_stages, times=times, inspect=inspect)
    context = made.context
    if until is None and not isinstance(made.value, bytes):
        raise BuildError(f"the last stage for {target}, {made.stage}, gave no image: it is a {type(made.value).__name__}")
    image = made.value if isinstance(made.value, bytes) else b""
    code = backend.code_of(made.text).replace(context.entry, "")
    return CompiledKernel(
        context.entry, target, options, (*parameters, *context.added),
        tuple(fact for fact in facts if fact not in context.unused), made.stage, image, context.figures, made.stages,
        hashlib.sha256("\n".join([code, *context.descriptors]).encode()).hexdigest(),
        context.descriptors,
    )  # fmt: skip


@dataclass
class Made:
    """What the stages of a backend have made: the last one's name and value, the last value that is text, and each stage if kept."""

    context: Context
    stage: str
    value: Any
    text: str
    stages: dict[str, Any]


def run_stages(
    module: Operation,
    target: Target,
    options: Options,
    *,
    until: str | None = None,
    keep_stages: bool = False,
    times: CompileTimes | None = None,
    hooks: Sequence[Hook] = (),
    inspect: StagesHook | None = None,
) -> Made:
    """Runs a backend's stages over a legal ttir module, up to the stage `until`: in the first of its attempts that compiles.

    `target` is resolved; `inspect` may change the stages. Raises the error of the first attempt where none does.
    """
    backend = backend_of(target)
    entry = entry_function(module).attributes["sym_name"]
    failed: list[Failed] = []
    for attempt in backend.attempts(target, options):
        if failed and not backend.may_help(attempt, failed[-1]):
            continue
        context = backend.context(target, options, entry, attempt, (*hooks, *checks()))
        made = Made(context, "ttir", module, "", {"ttir": str(module)} if keep_stages else {})
        try:
            stages = backend.stages(target, options)
            if inspect is not None:
                stages = inspected(stages, context, inspect)
            for name, stage in stages.items():
                if made.stage == until:
                    break
                made.stage = name
                _run_stage(made, stage, keep_stages, times)
            if keep_stages:
                made.stages |= context.notes
            return made
        except (BuildError, OutOfResources) as problem:
            failed.append(Failed(made.stage, problem, context))
    raise failed[0].problem


def _run_stage(made: Made, stage: Stage, keep_stages: bool, times: CompileTimes | None) -> None:
    started = time.perf_counter()
    made.value = stage(made.value, made.context)
    if times is not None:
        times.lowering_stages.append((made.stage, microseconds_since(started)))
    is_image = isinstance(made.value, bytes)
    if keep_stages:
        made.stages[made.stage] = made.value if is_image else str(made.value)
    if not is_image:
        made.text = made.stages[made.stage] if keep_stages else made.value
