"""triton.runtime: launches from Python, and what host code asks of devices."""

from kernelpack.config import Config as Config
from kernelpack.kernel.jit import JITFunction as JITFunction
from kernelpack.kernel.jit import Launchable as KernelInterface
from kernelpack.runtime.autotune import Autotuner as Autotuner
from kernelpack.runtime.autotune import Heuristics as Heuristics
from kernelpack.runtime.autotune import autotune as autotune
from kernelpack.runtime.autotune import heuristics as heuristics
from kernelpack.runtime.stand_ins import MockTensor as MockTensor
from kernelpack.runtime.stand_ins import TensorWrapper as TensorWrapper
from kernelpack.runtime.stand_ins import reinterpret as reinterpret
from kernelpack.triton.runtime import autotuner as autotuner
from kernelpack.triton.runtime import build as build
from kernelpack.triton.runtime import cache as cache
from kernelpack.triton.runtime import errors as errors
from kernelpack.triton.runtime import jit as jit
from kernelpack.triton.runtime.cache import RedisRemoteCacheBackend as RedisRemoteCacheBackend
from kernelpack.triton.runtime.driver import driver as driver  # the object, which has the name of its module in Triton too
from kernelpack.triton.runtime.errors import AutotunerError as AutotunerError
from kernelpack.triton.runtime.errors import InterpreterError as InterpreterError
from kernelpack.triton.runtime.errors import OutOfResources as OutOfResources

__all__ = [
    "Autotuner",
    "AutotunerError",
    "Config",
    "Heuristics",
    "InterpreterError",
    "JITFunction",
    "KernelInterface",
    "MockTensor",
    "OutOfResources",
    "RedisRemoteCacheBackend",
    "TensorWrapper",
    "autotune",
    "driver",
    "heuristics",
    "reinterpret",
]
