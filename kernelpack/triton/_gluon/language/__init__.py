"""triton.experimental.gluon.language: what kernels of Gluon are written in, which are refused when they are launched."""

from kernelpack.refusals import names_refused_on_use

__getattr__ = names_refused_on_use("triton.experimental.gluon.language")
