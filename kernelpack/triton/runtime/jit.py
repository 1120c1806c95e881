"""triton.runtime.jit: @jit and what surrounds it."""

from kernelpack import knobs as knobs
from kernelpack.kernel.callables import JITCallable as JITCallable
from kernelpack.kernel.jit import JITFunction as JITFunction
from kernelpack.kernel.jit import KernelParam as KernelParam
from kernelpack.kernel.jit import Launchable as KernelInterface
from kernelpack.kernel.jit import constexpr_function as constexpr_function
from kernelpack.kernel.jit import jit as jit
from kernelpack.kernel.signatures import parse_type as parse_type
from kernelpack.kernel.values import ConstexprFunction as ConstexprFunction
from kernelpack.runtime.argument_types import mangle_type as mangle_type
from kernelpack.runtime.argument_types import native_specialize_impl as native_specialize_impl
from kernelpack.runtime.driver import driver as driver
from kernelpack.runtime.keys import compute_cache_key as compute_cache_key
from kernelpack.runtime.keys import get_cache_key as get_cache_key
from kernelpack.runtime.launch_hooks import JitFunctionInfo as JitFunctionInfo
from kernelpack.runtime.specialization_data import serialize_specialization_data as serialize_specialization_data
from kernelpack.runtime.stand_ins import MockTensor as MockTensor
from kernelpack.runtime.stand_ins import TensorWrapper as TensorWrapper
from kernelpack.runtime.stand_ins import reinterpret as reinterpret

__all__ = [
    "ConstexprFunction",
    "JITCallable",
    "JITFunction",
    "JitFunctionInfo",
    "KernelInterface",
    "KernelParam",
    "MockTensor",
    "TensorWrapper",
    "compute_cache_key",
    "constexpr_function",
    "driver",
    "get_cache_key",
    "jit",
    "knobs",
    "mangle_type",
    "native_specialize_impl",
    "parse_type",
    "reinterpret",
    "serialize_specialization_data",
]
