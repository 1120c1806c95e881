"""What kernels for sm_90a may say themselves, where kernels import it from; its home is kernelpack.backends.cuda.hopper."""

from kernelpack.backends.cuda.hopper.language import *
from kernelpack.backends.cuda.hopper.language import __all__ as __all__
