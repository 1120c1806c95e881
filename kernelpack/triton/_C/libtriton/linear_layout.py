"""triton._C.libtriton.linear_layout: layouts by their bases."""

from kernelpack.tools.linear_layout import LinearLayout as LinearLayout
