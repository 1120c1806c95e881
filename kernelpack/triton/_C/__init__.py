"""triton._C: Triton's compiled part."""

from kernelpack.triton._C import libtriton as libtriton
