"""tl.extra: what only some machines have, and the functions of libdevice, which CPUs have too."""

from kernelpack.language.extra import cuda as cuda
from kernelpack.language.extra import libdevice as libdevice
