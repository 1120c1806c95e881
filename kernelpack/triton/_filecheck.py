"""triton._filecheck: the ttir of a kernel, for tests of what compiles and what does not."""

from kernelpack.runtime.run_parser import run_parser as run_parser
