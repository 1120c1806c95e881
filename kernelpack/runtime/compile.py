"""Compiling a kernel for a target, or taking it from the cache's folder: for launches, and for compile(ASTSource(...))."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kernelpack import knobs
from kernelpack.compiler.target_backend import TargetBackend, TargetOptions, stages_hook, target_of
from kernelpack.errors import LaunchError
from kernelpack.ir.core import UNKNOWN
from kernelpack.kernel.dependencies import Binding, functions_in, watched_by
from kernelpack.knobs.hooks import CompileTimes, microseconds_since
from kernelpack.lazy import LazyModule
from kernelpack.options import OPTION_NAMES, Options
from kernelpack.process_wide import collections_put_off
from kernelpack.runtime import launch_hooks, packs, record
from kernelpack.runtime.ahead_of_time import ASTSource
from kernelpack.runtime.binder import OPTIONS_OF_OTHERS
from kernelpack.runtime.driver import driver
from kernelpack.runtime.kernel_cache import KernelCache
from kernelpack.runtime.kernel_view import KernelView
from kernelpack.runtime.specialization import Specialization
from kernelpack.target import GPUTarget, Target

if TYPE_CHECKING:
    from kernelpack.compiled import CompiledKernel
    from kernelpack.compiler import stages
    from kernelpack.kernel.jit import JITFunction
    from kernelpack.runtime import front_end
else:
    front_end, stages = LazyModule("kernelpack.runtime.front_end"), LazyModule("kernelpack.compiler.stages")


def compile(
    src: ASTSource, target: GPUTarget | Target | str | None = None, options: Mapping[str, Any] | None = None
) -> KernelView:
    """Returns a kernel compiled for a target: a GPUTarget, `"cuda:sm_90a"`; default: that of the active driver.

    `options` are those of a launch, such as num_warps, and `arch`, which takes the target's place; names that no compiler knows
    are refused. What this machine runs can be launched. Raises CompilationError, with the user's line, for what cannot be compiled.
    """
    if not isinstance(src, ASTSource):
        raise LaunchError(
            f"compile takes an ASTSource, got {src!r}", cure="ASTSource(kernel, signature, constexprs): IR is not read back"
        )
    wanted = driver.active.get_current_target() if target is None else target
    if isinstance(wanted, GPUTarget):
        wanted = wanted.as_target()
    chosen = Target.parse(wanted) if isinstance(wanted, str) else wanted
    given = {name: value for name, value in (options or {}).items() if name not in OPTIONS_OF_OTHERS}
    arch = given.pop("arch", None)
    if arch is not None:
        chosen = target_of(chosen.backend, arch)
    unknown = sorted(set(given) - set(OPTION_NAMES))
    if unknown:
        raise LaunchError(f"there is no option {', '.join(unknown)}", cure=f"options are {', '.join(sorted(OPTION_NAMES))}")
    backend = TargetBackend(chosen)
    parsed = backend.parse_options(given)
    if knobs.TRACE.get():
        record.compiled(src, backend.resolved.backend, parsed)
    kernel = packs.find(src, backend.resolved, parsed)
    if kernel is None:
        bindings = watched_by({src.fn, *functions_in(tuple(src.constants.values()))})
        kernel = compiled_or_kept(src, backend.resolved, parsed, bindings)
    return KernelView(kernel, src)


def compiled_or_kept(source: ASTSource, target: Target, options: TargetOptions, bindings: Sequence[Binding]) -> CompiledKernel:
    """Returns the kernel for a source, from the cache's folder if it is there. Kept is what was compiled while all names of
    `bindings` stood for the same: the key says what they stood for when it began."""
    started = time.perf_counter()
    cache = KernelCache(source, TargetBackend(target), options)
    unusual = knobs.compilation.unusual
    times = CompileTimes()
    known = None if unusual else cache.load()
    if known is not None:
        kernel = known
        times.ir_initialization = microseconds_since(started)
    else:
        kernel = compile_kernel(source.fn, source.specialization, target, options.plain, times)
        launch_hooks.dump(kernel)
        if not unusual and all(look_up(name) is value for look_up, name, value, _ in bindings):
            started = time.perf_counter()
            cache.save(kernel)
            times.store_results = microseconds_since(started)
    launch_hooks.tell_of_compiling(source, kernel, cache.path, times, cache_hit=known is not None)
    return kernel


@collections_put_off
def compile_kernel(
    fn: JITFunction, special: Specialization, target: Target, options: Options, times: CompileTimes | None = None
) -> CompiledKernel:
    """Compiles a kernel for a specialization. `times` gets what each part of it took."""
    started = time.perf_counter()
    module = front_end.specialized_ttir(fn, special, options)
    if knobs.compilation.disable_line_info:
        for op in module.walk():
            op.location = UNKNOWN
    if times is not None:
        times.ir_initialization = microseconds_since(started)
    return stages.compile_ttir(module, target, options, special.facts, times=times, inspect=stages_hook())
