"""triton.tools: what host code makes kernels' arguments with, and what it looks at layouts with."""

from kernelpack.tools.linear_layout import LinearLayout as LinearLayout
