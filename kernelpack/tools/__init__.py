"""What host code makes kernels' arguments with, and what it looks at layouts with."""

from typing import TYPE_CHECKING

from kernelpack.lazy import lazy_names

if TYPE_CHECKING:
    from kernelpack.tools.linear_layout import LinearLayout

__getattr__ = lazy_names(__name__, {"tools.linear_layout": ("LinearLayout",)})

__all__ = ["LinearLayout"]
