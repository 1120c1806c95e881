"""Backends: from ttir to an image that a device runs. Third parties join by the entry point "kernelpack.backends"."""

from typing import TYPE_CHECKING

from kernelpack.lazy import lazy_names

if TYPE_CHECKING:
    from kernelpack.backends.by_name import Backend, backends

__getattr__ = lazy_names(__name__, {"backends.by_name": ("Backend", "backends")}, ("compiler", "driver"))

__all__ = ["Backend", "backends"]
