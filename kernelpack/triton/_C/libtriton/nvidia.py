"""triton._C.libtriton.nvidia: cuBLAS, which programs compare their kernels with."""

from kernelpack.runtime import cublas as cublas
