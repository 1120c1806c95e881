"""Triton's module tree: what `triton` is in code that was written for it. Every file here only hands on names, or refuses one."""

from kernelpack import knobs as knobs
from kernelpack.config import Config as Config
from kernelpack.errors import CompilationError as CompilationError
from kernelpack.errors import OutOfResources as OutOfResources
from kernelpack.errors import TritonError as TritonError
from kernelpack.kernel.aggregates import must_use_result as must_use_result
from kernelpack.kernel.jit import JITFunction as JITFunction
from kernelpack.kernel.jit import Launchable as KernelInterface
from kernelpack.kernel.jit import constexpr_function as constexpr_function
from kernelpack.kernel.jit import jit as jit
from kernelpack.language.integers import cdiv as cdiv
from kernelpack.language.integers import next_power_of_2 as next_power_of_2
from kernelpack.runtime._async_compile import AsyncCompileMode as AsyncCompileMode
from kernelpack.runtime.allocator import set_allocator as set_allocator
from kernelpack.runtime.autotune import autotune as autotune
from kernelpack.runtime.autotune import heuristics as heuristics
from kernelpack.runtime.compile import compile as compile
from kernelpack.runtime.stand_ins import MockTensor as MockTensor
from kernelpack.runtime.stand_ins import TensorWrapper as TensorWrapper
from kernelpack.runtime.stand_ins import reinterpret as reinterpret
from kernelpack.triton import _C as _C
from kernelpack.triton import _utils as _utils
from kernelpack.triton import backends as backends
from kernelpack.triton import compiler as compiler
from kernelpack.triton import errors as errors
from kernelpack.triton import language as language
from kernelpack.triton import runtime as runtime
from kernelpack.triton import testing as testing
from kernelpack.triton import tools as tools
from kernelpack.triton.runtime.errors import InterpreterError as InterpreterError
from kernelpack.version import LANGUAGE_VERSION as __version__

__all__ = [
    "AsyncCompileMode",
    "CompilationError",
    "Config",
    "InterpreterError",
    "JITFunction",
    "KernelInterface",
    "MockTensor",
    "OutOfResources",
    "TensorWrapper",
    "TritonError",
    "__version__",
    "autotune",
    "cdiv",
    "compile",
    "constexpr_function",
    "heuristics",
    "jit",
    "language",
    "must_use_result",
    "next_power_of_2",
    "reinterpret",
    "runtime",
    "set_allocator",
    "testing",
    "tools",
]
