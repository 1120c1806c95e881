"""triton.experimental.gluon.nvidia is refused as a whole."""

from kernelpack.refusals import refusal

raise refusal("triton.experimental.gluon.nvidia")
