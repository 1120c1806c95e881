"""triton.language.random: random numbers."""

from kernelpack.language.random import *
