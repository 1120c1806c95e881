"""Launches from Python: argument specialization, compilation on first use, launch. Names are those of triton.runtime."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kernelpack.runtime.driver import driver as driver

if TYPE_CHECKING:
    from kernelpack.frontend.jit import JITFunction
    from kernelpack.frontend.jit import Launchable as KernelInterface
    from kernelpack.opgen.config import Config
    from kernelpack.runtime.autotune import Autotuner, Heuristics, autotune, heuristics
    from kernelpack.runtime.errors import AutotunerError, InterpreterError, OutOfResources
    from kernelpack.runtime.stand_ins import MockTensor, TensorWrapper, reinterpret

_HOMES = {
    "frontend.jit": ("JITFunction",),
    "opgen.config": ("Config",),
    "runtime.autotune": ("Autotuner", "Heuristics", "autotune", "heuristics"),
    "runtime.errors": ("AutotunerError", "InterpreterError", "OutOfResources"),
    "runtime.jit": ("KernelInterface",),
    "runtime.stand_ins": ("MockTensor", "TensorWrapper", "reinterpret"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

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


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'kernelpack.runtime' has no attribute {name!r}")
    value = getattr(import_module(f"kernelpack.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value
