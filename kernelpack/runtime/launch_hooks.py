"""What host code sees of launches: hooks around compiling, loading and launching, and the kernels that were compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelpack import knobs
from kernelpack.backends.base import Backend
from kernelpack.backends.installed import backend_of
from kernelpack.compiler.target_backend import TargetOptions
from kernelpack.errors import LaunchError, UnreachableMemoryError
from kernelpack.kernel.jit import JITFunction
from kernelpack.knobs.hooks import CompileTimes
from kernelpack.runtime import launch_log
from kernelpack.runtime.ahead_of_time import ASTSource
from kernelpack.runtime.binder import tensors_in
from kernelpack.runtime.cache import get_dump_manager
from kernelpack.runtime.kernel_view import Grid, KernelView, LaunchableKernel, run_time_values
from kernelpack.runtime.loaded import LoadedKernel
from kernelpack.runtime.specialization_data import serialize_specialization_data
from kernelpack.runtime.stand_ins import TensorWrapper
from kernelpack.target import GPUTarget, Target
from kernelpack.tools.tensor_descriptor import TensorDescriptor

if TYPE_CHECKING:
    from kernelpack.compiled import CompiledKernel


@dataclass(frozen=True)
class JitFunctionInfo:
    """The kernel that a hook is told of."""

    module: str
    name: str
    jit_function: JITFunction


_TOLD = launch_log.start()


def launch(
    fn: JITFunction,
    loaded: LaunchableKernel,
    grid: Grid,
    arguments: Sequence[Any],
    values: Sequence[Any],
    stream: int | None = None,
) -> None:
    """Launches a kernel between the enter and the exit hook. Both get a LazyDict with the kernel's name and what its
    `launch_metadata` returns."""
    if _TOLD:
        launch_log.tell(loaded, fn.arg_names, arguments, grid)
    described = loaded.described(grid, loaded.place(values)[1] if stream is None else stream, arguments)
    knobs.runtime.launch_enter_hook(described)
    loaded.launch(grid, values, stream)
    knobs.runtime.launch_exit_hook(described)


def run_by_convention(
    loaded: LaunchableKernel,
    x: int,
    y: int,
    z: int,
    stream: int | None,
    function: Any,
    packed_metadata: Any,
    launch_metadata: Any,
    launch_enter_hook: Callable[[Any], Any] | None,
    launch_exit_hook: Callable[[Any], Any] | None,
    *arguments: Any,
) -> None:
    """Launches by the convention of Triton's launchers: KernelView.run. Raises LaunchError for arguments that do not fit."""
    source = loaded.source
    fn = source.fn
    if len(arguments) != len(fn.arg_names):
        raise LaunchError(
            f"{loaded.name}: run was given {len(arguments)} arguments", cure=f"it takes all of {', '.join(fn.arg_names)}"
        )
    if min(x, y, z) <= 0:
        return
    check_reachable(fn.__name__, zip(fn.arg_names, arguments, strict=True), backend_of(loaded.kernel.target).device_type)
    if _TOLD:
        launch_log.tell(loaded, fn.arg_names, arguments, (x, y, z))
    described = launch_metadata
    if described is None and (launch_enter_hook or launch_exit_hook):
        described = loaded.described((x, y, z), stream or 0, arguments)
    if launch_enter_hook is not None:
        launch_enter_hook(described)
    loaded.launch((x, y, z), list(run_time_values(source, arguments)), stream)
    if launch_exit_hook is not None:
        launch_exit_hook(described)


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


def load(kernel: CompiledKernel, backend: Backend, src: ASTSource | None = None) -> LoadedKernel:
    """Loads a kernel between the hooks, which get (module, function, name, metadata, hash). `src` is what it was compiled from."""
    view = KernelView(kernel)
    described = (None, None, kernel.entry, view.asm, view.hash)
    knobs.runtime.kernel_load_start_hook(*described)
    loaded = LoadedKernel(kernel, backend.open(kernel), src)
    knobs.runtime.kernel_load_end_hook(loaded, *described[1:])
    return loaded


def check_reachable(name: str, arguments: Iterable[tuple[str, Any]], kind: str) -> None:
    """Raises UnreachableMemoryError for a tensor that a kernel on this kind of device cannot read: it is elsewhere, or nowhere."""
    for argument, values in arguments:
        for value in tensors_in([values]):
            tensor = value.base if isinstance(value, (TensorDescriptor, TensorWrapper)) else value
            if tensor.device.type != kind and not (tensor.device.type == "cpu" and tensor.is_pinned()):
                raise UnreachableMemoryError(
                    f"{name}: {argument} is on {tensor.device}, the kernel runs on {kind}",
                    cure=f"move it there: {argument}.to({kind!r})",
                )
            if tensor.data_ptr() == 0 and tensor.numel() > 0:
                raise UnreachableMemoryError(
                    f"{name}: {argument} has {tensor.numel()} elements and no memory: it is a fake tensor, or its storage was freed",
                    cure="launch kernels on tensors with storage",
                )
