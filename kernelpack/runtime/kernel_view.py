"""What host code asks of a compiled kernel: its code at every stage, its resources, its name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from kernelpack.backends.installed import backend_of
from kernelpack.target import GPUTarget

if TYPE_CHECKING:
    from kernelpack.compiled import CompiledKernel


class Assembly(dict[str, Any]):
    """The value of every stage of a kernel by name; machine code as text (`sass`, `asm`) is made when it is asked for."""

    def __init__(self, kernel: CompiledKernel) -> None:
        super().__init__(kernel.stages)
        self._kernel = kernel

    def __missing__(self, stage: str) -> str:
        backend = backend_of(self._kernel.target)
        if stage != backend.machine_code:
            raise KeyError(f"{stage}: there is {', '.join([*self, backend.machine_code])}")
        return backend.disassemble(self._kernel)


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
        return Assembly(self.kernel)

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

    def _init_handles(self) -> None:
        """What Triton's host code calls before it asks for registers: here they are known from compiling."""


class LaunchableKernel(KernelView):
    """A compiled kernel that runs in this process."""

    places: Sequence[int] = ()
    """Which of the function's arguments are run-time ones. JITFunction's launcher knows."""

    def __getitem__(self, grid: Sequence[int]) -> Callable[..., None]:
        """Returns a launcher that asks nothing of its arguments but their values: all of the function's, or the run-time ones."""
        extents = (*grid, 1, 1)

        def run(*args: Any) -> None:
            values = args if len(args) == len(self.kernel.parameters) else [args[place] for place in self.places]
            self.launch((extents[0], extents[1], extents[2]), values)

        return run

    def launch(self, grid: tuple[int, int, int], values: Sequence[Any]) -> None:
        """Runs every program of a grid; `values` are the run-time arguments in order, tensors or numbers."""
        raise NotImplementedError
