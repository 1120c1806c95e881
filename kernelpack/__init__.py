"""kernelpack: kernels in the Triton language, compiled offline, served as torch.ops.

Importing it loads the op library that it ships (torch.ops.kernelpack.*). What op authors use is imported when first named, so
that serving needs torch alone.
"""

import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from kernelpack import language, testing
    from kernelpack.frontend.jit import JITFunction, constexpr_function, jit
    from kernelpack.language.integers import cdiv, next_power_of_2
    from kernelpack.language.values import constexpr
    from kernelpack.opgen.config import Config, aligned, fastest, same_as
    from kernelpack.opgen.host_runtime import broadcast_strides, check, collapse_rows, empty, empty_like, empty_strided
    from kernelpack.opgen.load import load
    from kernelpack.opgen.op import Op, op
    from kernelpack.runtime.allocator import set_allocator
    from kernelpack.runtime.autotune import autotune, heuristics

_HOMES = {
    "language": ("language",),
    "frontend.jit": ("JITFunction", "constexpr_function", "jit"),
    "language.integers": ("cdiv", "next_power_of_2"),
    "language.values": ("constexpr",),
    "opgen.config": ("Config", "aligned", "fastest", "same_as"),
    "opgen.host_runtime": ("broadcast_strides", "check", "collapse_rows", "empty", "empty_like", "empty_strided"),
    "opgen.load": ("load",),
    "opgen.op": ("Op", "op"),
    "runtime.allocator": ("set_allocator",),
    "runtime.autotune": ("autotune", "heuristics"),
    "testing": ("testing",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Config",
    "JITFunction",
    "Op",
    "aligned",
    "autotune",
    "broadcast_strides",
    "cdiv",
    "check",
    "collapse_rows",
    "constexpr",
    "constexpr_function",
    "empty",
    "empty_like",
    "empty_strided",
    "fastest",
    "heuristics",
    "jit",
    "language",
    "load",
    "next_power_of_2",
    "op",
    "same_as",
    "set_allocator",
    "testing",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'kernelpack' has no attribute {name!r}")
    module = import_module(f"kernelpack.{home}")
    value = module if home == name else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF})


def _is_command_line() -> bool:
    """Whether this process runs `kernelpack` or `python -m kernelpack`: it must start when the op library is broken, too."""
    script = Path(sys.argv[0]).name if sys.argv else ""
    return script == "kernelpack" or ("-m", "kernelpack") in zip(sys.orig_argv, sys.orig_argv[1:], strict=False)


def _load_own_library() -> None:
    from kernelpack.opgen.load import load_own_library

    if not _is_command_line():
        load_own_library()


_load_own_library()
