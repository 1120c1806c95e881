"""A compiled kernel in this process: kernelpack._C launches it as op libraries launch theirs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kernelpack import knobs
from kernelpack.backends.base import Opened
from kernelpack.backends.installed import backend_of
from kernelpack.descriptors import launcher_text
from kernelpack.errors import MemoryAccessError
from kernelpack.knobs.hooks import WATCHERS
from kernelpack.runtime.checked import described, with_bounds
from kernelpack.runtime.kernel_view import Grid, LaunchableKernel
from kernelpack.runtime.launchers import with_launcher

if TYPE_CHECKING:
    from kernelpack.compiled import CompiledKernel


class LoadedKernel(LaunchableKernel):
    """A kernel that can be launched.

    `opened` is its code, from its backend. Raises LaunchError if this installation has no kernelpack._C,
    and BuildError where the launcher of another package does not compile.
    """

    def __init__(self, kernel: CompiledKernel, opened: Opened, src: Any = None) -> None:
        super().__init__(kernel, src)
        self.opened = opened
        figures = kernel.metadata
        backend = backend_of(kernel.target)
        self.native: Any = with_launcher(backend).LoadedKernel(
            backend=backend.name,
            device_type=backend.device_type,
            name=kernel.entry,
            entry=kernel.entry,
            target=str(kernel.target),
            image=opened.code,
            types=[parameter.type for parameter in kernel.parameters],
            num_warps=int(figures.get("num_warps", kernel.options.num_warps)),
            num_ctas=int(figures.get("num_ctas", kernel.options.num_ctas)),
            shared_memory=int(figures.get("shared", 0)),
            program_ns=float(figures.get("program_ns", 0)),
            descriptors=launcher_text(kernel.descriptors, kernel.parameters),
            launch_pdl=kernel.options.launch_pdl,
            launch_cooperative_grid=bool(figures.get("launch_cooperative_grid", kernel.options.launch_cooperative_grid)),
        )

    @property
    def module(self) -> Any:
        """What the kernel's code is loaded in; None once it was unloaded."""
        return vars(self).get("native")

    @property
    def runner(self) -> Callable[..., None]:
        """What `run` is: in C++, as far as arguments are plain and nothing watches launches."""
        in_python = super().runner
        if self.kernel.options.checked:
            return in_python
        hooks = (knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook)
        runner: Callable[..., None] = with_launcher(backend_of(self.kernel.target)).runner(
            self.native, self.places, len(self.source.fn.arg_names), WATCHERS, *hooks, in_python
        )
        return runner

    def __del__(self) -> None:
        unloaded = self.module
        self.native = None
        if unloaded is not None and not sys.is_finalizing():
            knobs.runtime.kernel_unload_hook(unloaded, None, self.name, self.asm, self.hash)

    def launch(self, grid: Grid, values: Sequence[Any], stream: int | None = None) -> None:
        """Runs every program of a grid; `values` are the run-time arguments in order, tensors or numbers."""
        device, current = self.place(values)
        where = current if stream is None else stream
        if not self.kernel.options.checked:
            self.native.launch(device, where, grid, values)
            return
        try:
            self.native.launch(device, where, grid, with_bounds(self.kernel, values))
        except MemoryAccessError as outside:
            raise described(outside, self.kernel, values) from None

    def place(self, values: Sequence[Any]) -> tuple[int, int]:
        return self.opened.place(values)
