"""What host code written for Triton asks of single values: their type in a signature, and what code may assume of them."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

from kernelpack.backends.installed import backend_of
from kernelpack.kernel.jit import KernelParam
from kernelpack.runtime.driver import driver
from kernelpack.runtime.specialization import CONSTEXPR, Constant, Specializer

ALIGNED = ("tt.divisibility", 16)
ALIGNED_TEXT = "D"
"""What Triton calls a value that is divisible by 16, an address or a number."""


def native_specialize_impl(
    backend: Any, arg: Any, is_const: bool = False, specialize_value: bool = True, align: bool = True
) -> tuple[Any, Any]:
    """Returns the type of a value in a signature, and what else code depends on: the value of a constant, "D" for a value that is divisible
    by 16, else None; of a tuple, two tuples. `backend` is not asked: the active driver's target decides. Raises LaunchError for a value
    that is no argument."""
    param = KernelParam(
        0, "value", "const" if is_const else "", False, inspect.Parameter.empty, not specialize_value, not align
    )
    one: Any = SimpleNamespace(__name__="a kernel", params=[param], location=None)
    specializer = Specializer(one, backend_of(driver.active.get_current_target().as_target()))
    (trait,), _ = specializer.traits([arg])
    return _as_triton_says(*trait)


def mangle_type(arg: Any, specialize: bool = False) -> Any:
    """Returns the type of a value in a signature: `*fp32` for a tensor, `i32`, `constexpr` for None."""
    return native_specialize_impl(None, arg, specialize_value=specialize)[0]


def _as_triton_says(kind: Any, more: Any) -> tuple[Any, Any]:
    if isinstance(more, Constant):
        return CONSTEXPR, more.value
    if isinstance(kind, tuple):
        parts = [_as_triton_says(*part) for part in zip(kind, more[1:], strict=True)]
        return tuple(part for part, _ in parts), tuple(said for _, said in parts)
    return kind, ALIGNED_TEXT if ALIGNED in more else None
