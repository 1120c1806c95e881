"""triton._C.libtriton.ir is refused as a whole."""

from kernelpack.refusals import refusal

raise refusal("triton._C.libtriton.ir")
