"""triton.errors: the base of all errors."""

from kernelpack.errors import TritonError as TritonError
