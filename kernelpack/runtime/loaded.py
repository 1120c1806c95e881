"""A compiled kernel in this process: kernelpack._C launches it as op libraries launch theirs."""

from __future__ import annotations

import base64
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kernelpack import knobs
from kernelpack.errors import LaunchError
from kernelpack.pack.tensor_maps import launcher_text
from kernelpack.runtime.kernel_view import LaunchableKernel

if TYPE_CHECKING:
    from kernelpack.compiler import CompiledKernel


class LoadedKernel(LaunchableKernel):
    """A kernel that can be launched.

    `address` is where a CPU kernel's code is; a GPU's image is loaded from the CompiledKernel. Raises LaunchError if this
    installation has no kernelpack._C.
    """

    def __init__(self, kernel: CompiledKernel, address: int | None = None) -> None:
        try:
            from kernelpack import _C
        except ImportError as problem:
            raise LaunchError(
                f"kernels cannot be launched from Python: {problem}",
                cure="build kernelpack._C: pip install --no-build-isolation ., or python setup.py build_ext --inplace in a checkout",
            ) from None
        super().__init__(kernel)
        figures = kernel.metadata
        self.native: Any = _C.LoadedKernel(
            backend=kernel.target.backend,
            name=kernel.entry,
            entry=kernel.entry,
            target=str(kernel.target),
            image=base64.b64encode(kernel.image).decode() if address is None else address,
            image_size=len(kernel.image),
            types=[parameter.type for parameter in kernel.parameters],
            num_warps=int(figures.get("num_warps", kernel.options.num_warps)),
            num_ctas=int(figures.get("num_ctas", kernel.options.num_ctas)),
            shared_memory=int(figures.get("shared", 0)),
            program_ns=float(figures.get("program_ns", 0)),
            tensor_maps=launcher_text(figures.get("tensor_maps", ()), kernel.parameters),
            launch_pdl=kernel.options.launch_pdl,
            launch_cooperative_grid=kernel.options.launch_cooperative_grid,
        )

    @property
    def module(self) -> Any:
        """What the kernel's code is loaded in; None once it was unloaded."""
        return vars(self).get("native")

    def __del__(self) -> None:
        unloaded = self.module
        self.native = None
        if unloaded is not None and not sys.is_finalizing():
            knobs.runtime.kernel_unload_hook(unloaded, None, self.name, self.asm, self.hash)

    def launch(self, grid: tuple[int, int, int], values: Sequence[Any]) -> None:
        """Runs every program of a grid; `values` are the run-time arguments in order, tensors or numbers."""
        device, stream = self.place(values)
        self.native.launch(device, stream, grid, values)

    def place(self, values: Sequence[Any]) -> tuple[int, int]:
        """Returns the device's number and the stream to launch on; 0, 0 for the CPU."""
        return 0, 0
