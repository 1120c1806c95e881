"""triton.language.math: elementwise mathematics."""

from kernelpack.language.math import *
