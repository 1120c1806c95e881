"""triton.language.extra.libdevice: elementwise functions by their names in NVIDIA's libdevice."""

from kernelpack.language.extra.libdevice import *
