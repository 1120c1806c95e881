"""triton.tools.mxfp: tensors in microscaling formats."""

from kernelpack.tools.mxfp import MXFP4Tensor as MXFP4Tensor
from kernelpack.tools.mxfp import MXScaleTensor as MXScaleTensor
