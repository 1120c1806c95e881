"""triton.language.target_info: which target kernels are compiled for."""

from kernelpack.language.target_info import *
