"""run_parser: the ttir of a kernel as the front end makes it, for tests of what compiles and what does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernelpack.backends.installed import backend_of
from kernelpack.frontend.ast_to_ttir import ast_to_ttir
from kernelpack.ir.core import Operation
from kernelpack.kernel.jit import jit_function
from kernelpack.options import Options
from kernelpack.runtime.driver import driver
from kernelpack.runtime.specialization import specialize


def run_parser(fn: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, target: Any = None) -> Operation:
    """Returns the module that a launch with these arguments compiles, before any pass. `target` is a GPUTarget; default: that of
    the active driver. Raises CompilationError as the launch would."""
    function = jit_function(fn)
    assert function is not None
    bound = function.signature.bind(*args, **(kwargs or {}))
    bound.apply_defaults()
    backend = backend_of((target or driver.active.get_current_target()).as_target())
    special, _ = specialize(function, bound.arguments, backend)
    options = Options(debug=True, sanitize_overflow=False)
    return ast_to_ttir(function, dict(special.signature), dict(special.constexprs), special.facts, options, any_warps=True)
