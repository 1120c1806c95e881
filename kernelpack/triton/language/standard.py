"""triton.language.standard: what of the language is written in the language."""

from kernelpack.language.sorting import *
from kernelpack.language.sorting import _log2 as _log2
from kernelpack.language.standard import *
from kernelpack.language.standard import zeros as zeros
from kernelpack.language.standard import zeros_like as zeros_like
