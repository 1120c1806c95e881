"""triton.language.extra: what only some machines have."""

from kernelpack.refusals import refused_names
from kernelpack.triton.language.extra import cuda as cuda
from kernelpack.triton.language.extra import libdevice as libdevice

__getattr__ = refused_names(__name__)
