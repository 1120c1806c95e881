"""GPUTarget, where code written for Triton imports it from."""

from kernelpack.target import GPUTarget as GPUTarget
