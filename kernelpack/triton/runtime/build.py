"""triton.runtime.build: compiles C source to a Python module."""

from kernelpack.runtime.build import compile_module_from_src as compile_module_from_src
