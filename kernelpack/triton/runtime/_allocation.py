"""triton.runtime._allocation: memory that programs give to Triton."""

from kernelpack.runtime.allocator import set_allocator as set_allocator
