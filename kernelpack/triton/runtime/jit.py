"""@jit and what surrounds it, where code written for Triton imports them from."""

from kernelpack.kernel.callables import JITCallable as JITCallable
from kernelpack.kernel.jit import JITFunction as JITFunction
from kernelpack.kernel.jit import KernelParam as KernelParam
from kernelpack.kernel.jit import Launchable as KernelInterface
from kernelpack.kernel.jit import constexpr_function as constexpr_function
from kernelpack.kernel.jit import jit as jit
from kernelpack.kernel.signatures import parse_type as parse_type
from kernelpack.kernel.values import ConstexprFunction as ConstexprFunction
from kernelpack.runtime.stand_ins import MockTensor as MockTensor
from kernelpack.runtime.stand_ins import TensorWrapper as TensorWrapper
from kernelpack.runtime.stand_ins import reinterpret as reinterpret

__all__ = [
    "ConstexprFunction",
    "JITCallable",
    "JITFunction",
    "KernelInterface",
    "KernelParam",
    "MockTensor",
    "TensorWrapper",
    "constexpr_function",
    "jit",
    "parse_type",
    "reinterpret",
]
