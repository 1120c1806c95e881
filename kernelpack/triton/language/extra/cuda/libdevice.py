"""triton.language.extra.cuda.libdevice: the functions of libdevice."""

from kernelpack.language.extra.libdevice import *
