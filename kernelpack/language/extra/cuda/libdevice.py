"""The functions of libdevice, where code written for Triton on CUDA imports them from."""

from kernelpack.language.extra.libdevice import *
