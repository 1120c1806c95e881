"""triton.experimental.gluon.language.nvidia is refused as a whole."""

from kernelpack.refusals import refusal

raise refusal("triton.experimental.gluon.language.nvidia")
