"""What host code asks of a compiled kernel: its code at every stage, its resources, its name."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from kernelpack import knobs
from kernelpack.backends.installed import backend_of
from kernelpack.errors import LaunchError
from kernelpack.kernel.arguments import entries_of
from kernelpack.knobs.hooks import LazyDict
from kernelpack.target import GPUTarget
from kernelpack.tools.tensor_descriptor import TensorDescriptor

if TYPE_CHECKING:
    from kernelpack.compiled import CompiledKernel
    from kernelpack.runtime.ahead_of_time import ASTSource

Grid = tuple[int, int, int]


class Assembly(dict[str, Any]):
    """The value of every stage of a kernel by name. What it has besides is made when it is asked for: machine code as text (`sass`, `asm`),
    and on CPUs `so` and `launcher.so`, by which other programs launch it. `names` are those of all arguments of its function."""

    def __init__(self, kernel: CompiledKernel, names: Sequence[str]) -> None:
        super().__init__(kernel.stages)
        backend = backend_of(kernel.target)
        self._made = {backend.machine_code: lambda: backend.disassemble(kernel), **backend.libraries(kernel, names)}

    def __missing__(self, stage: str) -> Any:
        if stage not in self._made:
            raise KeyError(f"{stage}: there is {', '.join([*self, *self._made])}")
        return self._made[stage]()

    def get(self, stage: str, default: Any = None) -> Any:
        return self[stage] if stage in self or stage in self._made else default


class KernelView:
    """A compiled kernel; `src` is what it was compiled from, where that is known."""

    def __init__(self, kernel: CompiledKernel, src: Any = None) -> None:
        self._kernel = kernel
        self.src = src

    @property
    def kernel(self) -> CompiledKernel:
        return self._kernel

    @property
    def asm(self) -> dict[str, Any]:
        """The value of every stage by name: `ttir`, `ttgir`, `llir`, `ptx`, `cubin`, ... as far as the backend has them."""
        return Assembly(self.kernel, () if self.src is None else list(self.src.signature))

    @property
    def name(self) -> str:
        """The symbol of the entry."""
        return self.kernel.entry

    @property
    def hash(self) -> str:
        """SHA-256 of the code: kernels with equal code do the same."""
        return self.kernel.code_sha256

    @property
    def metadata(self) -> SimpleNamespace:
        """Options and resources by name: shared (bytes), num_warps, num_stages, num_ctas, target, name, hash, ..."""
        target, options = self.kernel.target, self.kernel.options
        least = 1 if target.backend == "cpu" else 0  # host code divides by it
        known = {**vars(options), "shared": least, "cluster_dims": (1, 1, 1), **self.kernel.metadata}
        known |= {"target": GPUTarget.of(target), "name": self.name, "hash": self.hash}
        return SimpleNamespace(**known)

    @property
    def n_regs(self) -> int:
        """Registers of a thread; a CPU has 32 that are as wide as its vectors."""
        return int(self.kernel.metadata.get("registers", 32 if self.kernel.target.backend == "cpu" else 0))

    @property
    def n_spills(self) -> int:
        """Bytes of registers that a thread keeps in memory."""
        return int(self.kernel.metadata.get("spills", 0))

    num_warps = property(lambda self: self.metadata.num_warps)
    num_ctas = property(lambda self: self.metadata.num_ctas)
    shared = property(lambda self: self.metadata.shared)
    cluster_dims = property(lambda self: self.metadata.cluster_dims)
    packed_metadata = property(lambda self: self.metadata)

    @property
    def loaded(self) -> LaunchableKernel:
        """The kernel where this process can launch it: loaded when it is first asked for. Raises TargetError where nothing here runs it."""
        loaded: LaunchableKernel | None = vars(self).get("module")
        if loaded is None:
            from kernelpack.runtime.launch_hooks import load  # late: what is loaded is a view itself

            loaded = vars(self)["module"] = load(self.kernel, backend_of(self.kernel.target), self.src)
        return loaded

    def _init_handles(self) -> None:
        """Loads the kernel, if it is not."""
        _ = self.loaded

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "module": None}  # other processes load it themselves

    @property
    def module(self) -> Any:
        """What the kernel's code is loaded in; None once it was unloaded."""
        return self.loaded.module

    @property
    def function(self) -> Any:
        """What stands for the loaded code: `run` takes it, as Triton's launchers do."""
        return self.module

    @property
    def run(self) -> Callable[..., None]:
        """Launches by the convention of Triton's launchers: `run(x, y, z, stream, function, packed_metadata, launch_metadata,
        launch_enter_hook, launch_exit_hook, *arguments)` with all arguments of the kernel's function, compile-time ones too."""
        return self.loaded.runner

    @property
    def source(self) -> ASTSource:
        """What the kernel was compiled from. Raises LaunchError where that is not known."""
        if self.src is None:
            raise LaunchError(
                f"what {self.name} was compiled from is not known",
                cure="launch what compile(ASTSource(...)) or a launch returned",
            )
        source: ASTSource = self.src
        return source

    def launch_metadata(self, grid: Sequence[int], stream: int, *arguments: Any) -> LazyDict | None:
        """Returns what the hooks of a launch are told: the kernel's name, and what the `launch_metadata` of its function says of the grid
        and all arguments. None where there is no hook."""
        if not knobs.runtime.launch_enter_hook:
            return None
        return self.described(grid, stream, arguments)

    def described(self, grid: Sequence[int], stream: int, arguments: Sequence[Any]) -> LazyDict:
        """Returns what hooks are told of a launch."""
        told = LazyDict({"name": self.name, "function": self.function, "stream": stream})
        fn = None if self.src is None else self.src.fn
        if fn is not None and fn.launch_metadata is not None:
            told.add(fn.launch_metadata, (grid, self.metadata, dict(zip(fn.arg_names, arguments, strict=True))))
        return told

    def __getitem__(self, grid: Sequence[int]) -> Callable[..., None]:
        """Returns a launcher that asks nothing of its arguments but their values: all of the function's, or the run-time ones. `stream` is
        that of the launch; None: torch's current one."""
        extents = (*grid, 1, 1)

        def run(*args: Any, stream: int | None = None) -> None:
            values = args if len(args) == len(self.kernel.parameters) else list(run_time_values(self.source, args))
            self.loaded.launch((extents[0], extents[1], extents[2]), values, stream)

        return run


class LaunchableKernel(KernelView):
    """A compiled kernel that runs in this process."""

    @property
    def loaded(self) -> LaunchableKernel:
        return self

    @property
    def places(self) -> list[int]:
        """Which of the function's arguments are run-time ones."""
        return [self.source.fn.arg_names.index(name) for name, _ in self.source.specialization.signature]

    @property
    def module(self) -> Any:
        return self

    @property
    def runner(self) -> Callable[..., None]:
        """What `run` is."""
        from kernelpack.runtime.launch_hooks import run_by_convention  # late: what it launches is a view itself

        return functools.partial(run_by_convention, self)

    def place(self, values: Sequence[Any]) -> tuple[int, int]:
        """Returns the number of the device and the stream that a launch runs on."""
        return 0, 0

    def launch(self, grid: Grid, values: Sequence[Any], stream: int | None = None) -> None:
        """Runs every program of a grid; `values` are the run-time arguments in order, tensors or numbers; `stream` is that of the device,
        None: torch's current one."""
        raise NotImplementedError


def run_time_values(source: ASTSource, arguments: Sequence[Any]) -> Iterator[Any]:
    """Yields the values of a kernel's run-time parameters, given all arguments of its function: those of tuples one by one."""
    for name, kind in source.specialization.signature:
        yield from _values(kind, arguments[source.fn.arg_names.index(name)])


def _values(kind: Any, value: Any) -> Iterator[Any]:
    if isinstance(value, TensorDescriptor):
        yield from value.parts().values()
    elif isinstance(kind, tuple):
        for part, entry in zip(kind, entries_of(value) or (), strict=True):
            yield from _values(part, entry)
    elif kind != "constexpr":
        yield value
