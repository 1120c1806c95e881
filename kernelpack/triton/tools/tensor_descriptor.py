"""triton.tools.tensor_descriptor: tensor descriptors that are arguments of kernels."""

from kernelpack.tools.tensor_descriptor import TensorDescriptor as TensorDescriptor
