"""kernelpack: kernels in the Triton language, compiled offline, served as torch.ops."""

from kernelpack import language
from kernelpack.frontend.jit import JITFunction, constexpr_function, jit
from kernelpack.language.integers import cdiv, next_power_of_2
from kernelpack.language.values import constexpr

__all__ = ["JITFunction", "cdiv", "constexpr", "constexpr_function", "jit", "language", "next_power_of_2"]

__version__ = "0.1.0"
