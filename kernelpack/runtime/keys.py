"""The keys of kernels: of a call in this process, and of a kernel in the cache's folder."""

from __future__ import annotations

import enum
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kernelpack.compiler.target_backend import TargetBackend, TargetOptions
from kernelpack.frontend.expressions import is_constructor
from kernelpack.kernel.dependencies import decisive_lines
from kernelpack.kernel.jit import JITFunction
from kernelpack.kernel.types import dtype
from kernelpack.runtime.cache import triton_key
from kernelpack.runtime.specialization import Constant

if TYPE_CHECKING:
    from kernelpack.runtime.ahead_of_time import ASTSource


def compute_cache_key(
    kernel_key_cache: MutableMapping[Any, str], specialization: Sequence[Any], options: Mapping[str, Any]
) -> str:
    """Returns the key of a call's kernel among those of this process, given what a binder returned for the call.

    `kernel_key_cache` holds the keys that were made: calls have one key if they can share compiled code, and different ones otherwise.
    Raises TypeError for a compile-time value that cannot be told from others.
    """
    call = (tuple(specialization), tuple(sorted(options.items())))
    known = kernel_key_cache.get(call)
    if known is None:
        said = "".join(map(_said, call))
        key, others = said, set(dict(kernel_key_cache).values())
        while key in others:  # the text of some value, such as an object of the user's, does not say all of it
            key += "'"
        known = kernel_key_cache.setdefault(call, key)
    return known


def _said(part: Any) -> str:
    if isinstance(part, Constant):
        return _said(part.value)
    if isinstance(part, JITFunction):
        return part.cache_key
    if type(part) is tuple:
        return f"({', '.join(map(_said, part))})"
    return repr(part)


def get_cache_key(src: ASTSource, backend: TargetBackend, backend_options: TargetOptions, env_vars: Mapping[str, str]) -> str:
    """Returns everything that decides what a kernel is compiled to: the cache keeps it under the SHA-256 of this text.

    Raises TypeError for a kernel with a compile-time value of which no text says everything.
    """
    unused = {name: getattr(TargetOptions, name) for name in backend.backend.unused_options}
    lines = decisive_lines(src.fn, backend.backend.line_information, backend_options)
    decisive = replace(backend_options, **unused).hash()
    return f"{triton_key()}-{src.hash()}-{lines}-{backend.hash()}-{decisive}-{sorted(env_vars.items())}"


def text_of(value: Any) -> str:
    """Returns a compile-time value as text that says all of it. Raises TypeError for one that has no such text."""
    if isinstance(value, tuple):
        text = ", ".join(map(text_of, value))
    elif isinstance(value, JITFunction):
        text = value.cache_key
    elif isinstance(value, type) and is_constructor(value):
        text = f"{value.__module__}.{value.__qualname__} {getattr(value, '_fields', None) or list(vars(value)['fields'])}"
    elif value is None or isinstance(value, (bool, int, float, str, dtype, enum.Enum)):
        text = repr(value)
    else:
        raise TypeError(f"no text says all of {value!r}")
    return f"{type(value).__name__}({text})"
