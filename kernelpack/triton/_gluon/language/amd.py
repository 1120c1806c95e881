"""triton.experimental.gluon.language.amd is refused as a whole."""

from kernelpack.refusals import refusal

raise refusal("triton.experimental.gluon.language.amd")
