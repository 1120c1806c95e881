"""What host code sees of launches: hooks around compiling, loading and launching, and the kernels that were compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelpack import knobs
from kernelpack.backends.base import Backend
from kernelpack.compiler.target_backend import TargetOptions
from kernelpack.kernel.jit import JITFunction
from kernelpack.knobs.hooks import CompileTimes, LazyDict
from kernelpack.runtime import launch_log
from kernelpack.runtime.ahead_of_time import ASTSource
from kernelpack.runtime.cache import get_dump_manager
from kernelpack.runtime.kernel_view import KernelView
from kernelpack.runtime.loaded import LoadedKernel
from kernelpack.runtime.specialization_data import serialize_specialization_data
from kernelpack.target import GPUTarget, Target

if TYPE_CHECKING:
    from kernelpack.compiled import CompiledKernel


@dataclass(frozen=True)
class JitFunctionInfo:
    """The kernel that a hook is told of."""

    module: str
    name: str
    jit_function: JITFunction


_TOLD = launch_log.start()


def launch(fn: JITFunction, loaded: Any, grid: tuple[int, int, int], arguments: Sequence[Any], values: Sequence[Any]) -> None:
    """Launches a kernel between the enter and the exit hook. Both get a LazyDict with the kernel's name and what its
    `launch_metadata` returns."""
    if _TOLD:
        launch_log.tell(loaded, fn.arg_names, arguments, grid)
    described = LazyDict({"name": loaded.name, "function": loaded, "stream": loaded.place(values)[1]})
    if fn.launch_metadata is not None:
        described.add(fn.launch_metadata, (grid, loaded.metadata, dict(zip(fn.arg_names, arguments, strict=True))))
    knobs.runtime.launch_enter_hook(described)
    loaded.launch(grid, values)
    knobs.runtime.launch_exit_hook(described)


def told(
    source: ASTSource,
    key: str,
    device: int,
    target: Target,
    options: TargetOptions,
    hook: Callable[..., Any] | None,
    *,
    warmup: bool,
) -> bool:
    """Tells a compile hook, if there is one, of a kernel and everything that it is compiled for. Returns whether the hook answers that
    the kernel need not be compiled."""
    if hook is None:
        return False
    fn = source.fn
    described = {
        "signature": source.signature,
        "constants": source.constants,
        "configs": [source.attrs],
        "device": device,
        "key": key,
        "is_warmup": warmup,
        "specialization_data": _specialization_text(source, key, target, options),
        **asdict(options.plain),
    }
    types = ", ".join(f"{name}: {kind}" for name, kind in source.specialization.signature)
    info = JitFunctionInfo(fn.module, fn.fn.__qualname__, fn)
    answer = hook(
        key=key,
        repr=f"{fn.__name__}({types})[{target}, num_warps={options.num_warps}]",
        fn=info,
        compile=described,
        is_manual_warmup=warmup,
        already_compiled=False,
    )
    return bool(answer)


def _specialization_text(source: ASTSource, key: str, target: Target, options: TargetOptions) -> str | None:
    """Returns what another process needs to compile the same; None where the arguments cannot be written down."""
    try:
        return serialize_specialization_data(
            source.fn.full_name, source.signature, source.constants, source.attrs, options, key, GPUTarget.of(target)
        )
    except TypeError:  # e.g. a class that stands inside a function
        return None


def tell_of_compiling(
    source: ASTSource, kernel: CompiledKernel, path: str | None, times: CompileTimes, *, cache_hit: bool
) -> None:
    """Tells knobs.compilation.listener, if there is one, of a kernel and where the cache keeps it."""
    if knobs.compilation.listener is None:
        return
    files = {} if path is None else {Path(path).name: path}
    knobs.compilation.listener(source, vars(KernelView(kernel).metadata), files, times, cache_hit)


def dump(kernel: CompiledKernel) -> None:
    """Writes every stage of a kernel for people to read, where knobs.compilation.dump_ir asks for it."""
    if knobs.compilation.dump_ir:
        folder = get_dump_manager(kernel.code_sha256)
        for stage, text in kernel.stages.items():
            folder.put(text, f"{kernel.entry}.{stage}")


def load(kernel: CompiledKernel, backend: Backend) -> Any:
    """Loads a kernel between the hooks, which get (module, function, name, metadata, hash)."""
    view = KernelView(kernel)
    described = (None, None, kernel.entry, view.asm, view.hash)
    knobs.runtime.kernel_load_start_hook(*described)
    loaded = LoadedKernel(kernel, backend.open(kernel))
    knobs.runtime.kernel_load_end_hook(loaded, *described[1:])
    return loaded
