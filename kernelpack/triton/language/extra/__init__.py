"""triton.language.extra: what only some machines have."""

from kernelpack.triton.language.extra import cuda as cuda
from kernelpack.triton.language.extra import libdevice as libdevice
