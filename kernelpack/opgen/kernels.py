"""What opgen asks of a kernel: its parameters, and the number types their annotations ask for."""

from __future__ import annotations

from typing import Any

from kernelpack.frontend.jit import JITFunction, KernelParam
from kernelpack.opgen.config import Fastest

_WIDTHS = {"int1": "i1", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "float32": "fp32", "float64": "fp64"}
_WIDTHS |= {"float16": "fp16", "bfloat16": "bf16"}
_WIDTHS |= {name: name for name in (*_WIDTHS.values(), "u32", "u64")} | {f"uint{bits}": f"u{bits}" for bits in (8, 16, 32, 64)}


def is_kernel(value: Any) -> bool:
    """Whether a Python object is a kernel, or one behind autotune or heuristics."""
    return jit_function(value) is not None


def jit_function(value: Any) -> JITFunction | None:
    """Returns the @jit function behind wrappers such as autotune and heuristics, or None."""
    seen = 0
    while value is not None and not isinstance(value, (JITFunction, type)) and seen < 8:
        value = getattr(value, "fn", None)
        seen += 1
    return value if isinstance(value, JITFunction) else None


def autotuned_configs(value: Any) -> Fastest | None:
    """Returns the configs of an autotuned kernel, and which of its run-time parameters choose among them; None for others."""
    from kernelpack.runtime.autotune import Autotuner

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


def number_type(parameter: KernelParam, default: str) -> str:
    """Returns a number parameter's type in a signature: what its annotation asks for (`n: tl.int64`), else `default`."""
    return _WIDTHS.get(parameter.type_name, default)
