"""triton.experimental.gluon: what engines define kernels for some GPUs with, wherever there is a Triton. Launching them is refused."""

from kernelpack.refusals import names_refused_on_use
from kernelpack.triton._gluon import language as language

__getattr__ = names_refused_on_use("triton.experimental.gluon")
