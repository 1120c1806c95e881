"""kernelpack: kernels in the Triton language, compiled offline, served as torch.ops.

Importing it loads the op library that it ships (torch.ops.kernelpack.*). What op authors use is imported when first named, so
that serving needs torch alone.
"""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kernelpack.lazy import lazy_names
from kernelpack.version import LANGUAGE_VERSION

__version__ = LANGUAGE_VERSION
"""Of the language: what code written for Triton compares. kernelpack.version has the package's own."""

if TYPE_CHECKING:
    from kernelpack import as_triton, errors, knobs, language, testing, tools, triton
    from kernelpack.config import Config
    from kernelpack.errors import CompilationError, OutOfResources, TritonError
    from kernelpack.kernel.aggregates import aggregate, must_use_result
    from kernelpack.kernel.jit import JITFunction, constexpr_function, jit
    from kernelpack.kernel.jit import Launchable as KernelInterface
    from kernelpack.kernel.values import constexpr
    from kernelpack.language.integers import cdiv, next_power_of_2
    from kernelpack.opgen.aoti import aoti_package
    from kernelpack.opgen.host.runtime import (
        broadcast_shapes,
        broadcast_strides,
        check,
        collapse_batches,
        collapse_rows,
        empty,
        empty_like,
        empty_strided,
        num_threads,
        strides_like,
    )
    from kernelpack.opgen.load import load
    from kernelpack.opgen.op import Op, op
    from kernelpack.opgen.stated.config import VariantPoint, aligned, fastest
    from kernelpack.opgen.stated.space import optional, same_as
    from kernelpack.runtime._async_compile import AsyncCompileMode
    from kernelpack.runtime.ahead_of_time import ASTSource
    from kernelpack.runtime.allocator import set_allocator
    from kernelpack.runtime.autotune import autotune, heuristics
    from kernelpack.runtime.compile import compile
    from kernelpack.runtime.stand_ins import MockTensor, TensorWrapper, reinterpret

_MODULES = ("as_triton", "errors", "knobs", "language", "testing", "tools", "triton")
_HOMES = {
    "errors": ("CompilationError", "OutOfResources", "TritonError"),
    "kernel.aggregates": ("aggregate", "must_use_result"),
    "kernel.jit": ("JITFunction", "constexpr_function", "jit"),
    "language.integers": ("cdiv", "next_power_of_2"),
    "kernel.values": ("constexpr",),
    "opgen.stated.config": ("Config", "VariantPoint", "aligned", "fastest"),
    "opgen.host.runtime": (
        "broadcast_shapes",
        "broadcast_strides",
        "check",
        "collapse_batches",
        "collapse_rows",
        "empty",
        "empty_like",
        "empty_strided",
        "num_threads",
        "strides_like",
    ),
    "opgen.aoti": ("aoti_package",),
    "opgen.load": ("load",),
    "opgen.op": ("Op", "op"),
    "opgen.stated.space": ("optional", "same_as"),
    "runtime._async_compile": ("AsyncCompileMode",),
    "runtime.ahead_of_time": ("ASTSource",),
    "runtime.compile": ("compile",),
    "runtime.allocator": ("set_allocator",),
    "runtime.autotune": ("autotune", "heuristics"),
    "runtime.stand_ins": ("MockTensor", "TensorWrapper", "reinterpret"),
    "triton.runtime": ("KernelInterface",),
}

__all__ = [
    "ASTSource",
    "AsyncCompileMode",
    "CompilationError",
    "Config",
    "JITFunction",
    "KernelInterface",
    "MockTensor",
    "Op",
    "OutOfResources",
    "TensorWrapper",
    "TritonError",
    "VariantPoint",
    "aggregate",
    "aligned",
    "aoti_package",
    "as_triton",
    "autotune",
    "broadcast_shapes",
    "broadcast_strides",
    "cdiv",
    "check",
    "collapse_batches",
    "collapse_rows",
    "compile",
    "constexpr",
    "constexpr_function",
    "empty",
    "empty_like",
    "empty_strided",
    "errors",
    "fastest",
    "heuristics",
    "jit",
    "knobs",
    "language",
    "load",
    "must_use_result",
    "next_power_of_2",
    "num_threads",
    "op",
    "optional",
    "reinterpret",
    "same_as",
    "set_allocator",
    "strides_like",
    "testing",
    "tools",
    "triton",
]


__getattr__ = lazy_names(__name__, _HOMES, _MODULES)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _is_command_line() -> bool:
    """Whether this process runs `kernelpack` or `python -m kernelpack`: it must start when the op library is broken, too."""
    script = Path(sys.argv[0]).name if sys.argv else ""
    return script == "kernelpack" or ("-m", "kernelpack") in zip(sys.orig_argv, sys.orig_argv[1:], strict=False)


def _stand_in_for_triton() -> None:
    if os.environ.get("KERNELPACK_AS_TRITON"):
        from kernelpack import as_triton, knobs

        if knobs.AS_TRITON.is_on():
            as_triton.install()


def _load_own_library() -> None:
    from kernelpack.opgen.load import load_own_library

    if not _is_command_line():
        load_own_library()


_stand_in_for_triton()
_load_own_library()
