"""Kernels that others wrote, compiled ahead of time: `kernelpack adopt` makes a folder of what a record of their launches needs, `load` serves it."""

from typing import TYPE_CHECKING

from kernelpack.lazy import lazy_names

if TYPE_CHECKING:
    from kernelpack.adopt.build import adopt
    from kernelpack.runtime.packs import load

__all__ = ["adopt", "load"]

__getattr__ = lazy_names(__name__, {"adopt.build": ("adopt",), "runtime.packs": ("load",)})
