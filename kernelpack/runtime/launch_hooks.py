"""What host code sees of launches: hooks around compiling, loading and launching, and the kernels that were compiled."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelpack import knobs
from kernelpack.backends.base import Backend
from kernelpack.errors import KernelpackError
from kernelpack.kernel.jit import JITFunction
from kernelpack.knobs.hooks import CompileTimes, LazyDict
from kernelpack.options import Options
from kernelpack.runtime.ahead_of_time import ASTSource
from kernelpack.runtime.cache import get_dump_manager
from kernelpack.runtime.kernel_view import KernelView
from kernelpack.runtime.key_text import as_json, from_json
from kernelpack.runtime.loaded import LoadedKernel
from kernelpack.target import Target

if TYPE_CHECKING:
    from kernelpack.compiled import CompiledKernel
    from kernelpack.runtime.launcher import Launcher
    from kernelpack.runtime.specialization import Specialization
    from kernelpack.target import GPUTarget


@dataclass(frozen=True)
class JitFunctionInfo:
    """The kernel that a hook is told of."""

    module: str
    name: str
    jit_function: JITFunction


def launch(fn: JITFunction, loaded: Any, grid: tuple[int, int, int], arguments: Sequence[Any], values: Sequence[Any]) -> None:
    """Launches a kernel between the enter and the exit hook. Both get a LazyDict with the kernel's name and what its
    `launch_metadata` returns."""
    described = LazyDict({"name": loaded.name, "function": loaded, "stream": loaded.place(values)[1]})
    if fn.launch_metadata is not None:
        described.add(fn.launch_metadata, (grid, loaded.metadata, dict(zip(fn.arg_names, arguments, strict=True))))
    knobs.runtime.launch_enter_hook(described)
    loaded.launch(grid, values)
    knobs.runtime.launch_exit_hook(described)


def told(
    hook: Callable[..., Any] | None,
    fn: JITFunction,
    key: Any,
    special: Specialization,
    target: Target,
    options: Options,
    *,
    warmup: bool,
) -> bool:
    """Tells a compile hook, if there is one, of a kernel and everything that it is compiled for. Returns whether the hook answers that
    the kernel need not be compiled."""
    if hook is None:
        return False
    described = {
        "signature": dict(special.signature),
        "constants": dict(special.constexprs),
        "facts": special.facts,
        "device": target,
        "key": key,
        "is_warmup": warmup,
        "specialization_data": _specialization_text(fn, key),
        **asdict(options),
    }
    types = ", ".join(f"{name}: {kind}" for name, kind in special.signature)
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


def _specialization_text(fn: JITFunction, key: Any) -> str | None:
    """Returns what another process needs to compile the same; None where the arguments cannot be written down."""
    traits, target, options = key
    try:
        written = as_json(traits), as_json(options)
    except TypeError:  # e.g. a class that stands inside a function
        return None
    place = {"backend": target.backend, "arch": target.arch}
    return json.dumps({"name": fn.__name__, "target": place, "for": str(target), "traits": written[0], "options": written[1]})


def read_specialization(fn: JITFunction, data: str, active: GPUTarget) -> Any:
    """Returns the key in a text that _specialization_text made. Raises RuntimeError for one of another kernel or target."""
    try:
        read = json.loads(data)
        if read["name"] != fn.__name__:
            raise RuntimeError(f"Specialization data is for {read['name']} but trying to preload for {fn.__name__}")
        if read["target"]["backend"] != active.backend:
            raise RuntimeError(f"Specialization data is for {read['target']} but the active target is {active}")
        return from_json(read["traits"]), Target.parse(read["for"]), from_json(read["options"])
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError, KernelpackError) as problem:
        raise RuntimeError(f"Specialization data cannot be read: {problem}") from None


def tell_of_compiling(
    fn: JITFunction,
    special: Specialization,
    kernel: CompiledKernel,
    path: str | None,
    times: CompileTimes,
    *,
    cache_hit: bool,
) -> None:
    """Tells knobs.compilation.listener, if there is one, of a kernel and where the cache keeps it."""
    if knobs.compilation.listener is None:
        return
    constexprs = {_place(fn, name): value for name, value in special.constexprs}
    attrs: dict[Any, list[list[Any]]] = {}
    for fact in special.facts:
        if fact.parameter in fn.arg_names:
            attrs.setdefault(_place(fn, fact.parameter), []).append([fact.property, fact.value])
    source = ASTSource(fn, dict(special.signature), constexprs, attrs)
    files = {} if path is None else {Path(path).name: path}
    knobs.compilation.listener(source, vars(KernelView(kernel).metadata), files, times, cache_hit)


def _place(fn: JITFunction, name: str) -> tuple[int, ...]:
    """Returns where an argument, or entry of one (`pair.1`), stands."""
    argument, *entries = name.split(".")
    return fn.arg_names.index(argument), *map(int, entries)


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


class Compiled(Mapping[Any, Any]):
    """The kernels that a launcher has compiled, by what they were compiled for; futures of those that threads compile."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher

    def __getitem__(self, key: Any) -> Any:
        return self._known[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    @property
    def _known(self) -> dict[Any, Any]:
        return {**self._launcher.pending, **self._launcher.loaded}

    def clear(self) -> None:
        """Drops them: the next launch takes them from disk, or compiles."""
        self._launcher.forget()


class DeviceCaches:
    """`caches[device]` is a tuple whose first entry is what was compiled; all devices of a machine share it."""

    def __init__(self, launcher: Launcher) -> None:
        self._compiled = Compiled(launcher)

    def __getitem__(self, device: Any) -> tuple[Compiled]:
        return (self._compiled,)

    def clear(self) -> None:
        self._compiled.clear()
