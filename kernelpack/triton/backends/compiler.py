"""triton.backends.compiler: targets."""

from kernelpack.target import GPUTarget as GPUTarget
