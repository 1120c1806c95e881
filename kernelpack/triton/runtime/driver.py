"""triton.runtime.driver: which device kernels are launched on, and what host code asks about it."""

from kernelpack.runtime.driver import driver as driver
