"""triton.language.extra.hip is refused as a whole."""

from kernelpack.refusals import refusal

raise refusal("triton.language.extra.hip")
