"""triton.profiler.language is refused as a whole."""

from kernelpack.refusals import refusal

raise refusal("triton.profiler.language")
