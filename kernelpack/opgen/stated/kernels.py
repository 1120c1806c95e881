"""What opgen asks of a kernel: its parameters, and the configs it chooses among."""

from __future__ import annotations

from typing import Any

from kernelpack.kernel.jit import JITFunction, KernelParam, jit_function
from kernelpack.opgen.stated.config import Fastest
from kernelpack.runtime.autotune import Autotuner


def is_kernel(value: Any) -> bool:
    """Whether a Python object is a kernel, or one inside of autotune or heuristics."""
    return jit_function(value) is not None


def autotuned_configs(value: Any) -> Fastest | None:
    """Returns the configs of an autotuned kernel, and which of its run-time parameters choose among them; None for others."""
    while value is not None and not isinstance(value, (JITFunction, Autotuner)):
        value = getattr(value, "fn", None)
    if not isinstance(value, Autotuner):
        return None
    numbers = {parameter.name for parameter in kernel_parameters(value) if not parameter.is_constexpr}
    return Fastest(tuple(value.configs), tuple(name for name in value.keys if name in numbers))


def kernel_parameters(kernel: Any) -> tuple[KernelParam, ...]:
    """Returns a kernel's parameters in order."""
    function = jit_function(kernel)
    assert function is not None
    return tuple(function.params)
