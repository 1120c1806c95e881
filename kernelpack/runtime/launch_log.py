"""KERNELPACK_LOG=launch: each launch from Python is told on stderr, as op libraries tell theirs (csrc/ops/trace.cpp)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from kernelpack import knobs
from kernelpack.errors import OptionError
from kernelpack.knobs.hooks import WATCHERS


def start() -> bool:
    """Returns whether launches are told; they all go through Python then. Raises OptionError for another value of the variable."""
    asked = knobs.LOG.get()
    if asked not in ("", "launch"):
        raise OptionError(f"KERNELPACK_LOG is {asked!r}", cure="set it to launch, or unset it")
    if asked:
        WATCHERS.append(knobs.LOG)
    return bool(asked)


def tell(loaded: Any, names: Sequence[str], arguments: Sequence[Any], grid: tuple[int, int, int]) -> None:
    """Writes a line: the kernel and what it was compiled for, tensors with dtypes and shapes, numbers, the grid."""
    kernel = loaded.kernel
    given = ", ".join(f"{name} {_text(value)}" for name, value in zip(names, arguments, strict=True))
    figures = kernel.metadata
    warps = (
        [f"{figures['num_warps']} warps", f"{figures.get('shared', 0)} bytes of shared memory"]
        if "num_warps" in figures
        else []
    )
    line = f"kernelpack: {kernel.entry}({given}) for {', '.join([str(kernel.target), *warps])}, grid {grid}"
    print(line, file=sys.stderr, flush=True)


def _text(value: Any) -> str:
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    return repr(value)[:80]
