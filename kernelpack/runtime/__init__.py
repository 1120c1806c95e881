"""Launches from Python: argument specialization, compilation on first use, launch. Names are those of triton.runtime."""

from typing import TYPE_CHECKING

from kernelpack.lazy import lazy_names
from kernelpack.runtime.driver import driver as driver

if TYPE_CHECKING:
    from kernelpack.config import Config
    from kernelpack.kernel.jit import JITFunction
    from kernelpack.runtime.autotune import Autotuner, Heuristics, autotune, heuristics
    from kernelpack.runtime.errors import AutotunerError, InterpreterError, OutOfResources
    from kernelpack.runtime.jit import KernelInterface
    from kernelpack.runtime.stand_ins import MockTensor, TensorWrapper, reinterpret

__getattr__ = lazy_names(
    __name__,
    {
        "kernel.jit": ("JITFunction",),
        "config": ("Config",),
        "runtime.autotune": ("Autotuner", "Heuristics", "autotune", "heuristics"),
        "runtime.errors": ("AutotunerError", "InterpreterError", "OutOfResources"),
        "runtime.jit": ("KernelInterface",),
        "runtime.stand_ins": ("MockTensor", "TensorWrapper", "reinterpret"),
    },
    ("autotuner", "build", "cache", "errors", "interpreter", "jit"),
)

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
    "TensorWrapper",
    "autotune",
    "driver",
    "heuristics",
    "reinterpret",
]
