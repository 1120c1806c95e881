"""triton.experimental is Gluon's home, and refused as a whole."""

from kernelpack.refusals import refusal

raise refusal("triton.experimental")
