"""Config: what a kernel's author chooses of how it is compiled, for ops and autotuned kernels alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kernelpack.options import Options


@dataclass
class Config:
    """Values of a kernel's constexpr parameters, and compile options: `Config({"BLOCK_M": 128}, num_warps=8)`.

    An option that is None keeps its default. `pre_hook` is for autotuned kernels: it is called before each launch with a dict of
    the arguments by name. `specialize=False` is for ops: of the kernel only the variant is built that assumes nothing of its
    arguments, because aligned ones would not make it faster.
    As in Triton, host code may set attributes of its own: Inductor notes there what it knows of a config.
    `launch_pdl` is for kernels that call tl.extra.cuda.gdc_wait before they touch memory: they begin while the launch before
    them ends.
    """

    kwargs: Mapping[str, Any]
    num_warps: int | None = Options.num_warps
    num_stages: int | None = Options.num_stages
    num_ctas: int | None = Options.num_ctas
    maxnreg: int | None = Options.maxnreg
    pre_hook: Callable[..., Any] | None = None
    specialize: bool = True
    launch_pdl: bool | None = None

    def options(self) -> dict[str, int]:
        """Returns the compile options that are not None."""
        names = ("num_warps", "num_stages", "num_ctas", "maxnreg", "launch_pdl")
        given = {name: getattr(self, name) for name in names}
        return {name: value for name, value in given.items() if value is not None}

    def all_kwargs(self) -> dict[str, Any]:
        """Returns what a launch with this config passes by keyword."""
        return {**self.kwargs, **self.options()}

    def __hash__(self) -> int:  # that of the fields would fail: kwargs is a dict
        return hash((tuple(self.all_kwargs().items()), self.pre_hook))

    def __str__(self) -> str:
        return ", ".join(f"{name}: {value}" for name, value in self.all_kwargs().items())
