"""What people probably meant: the nearest name, and the language's words for Python's, NumPy's and torch's."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from kernelpack.language.unsupported import UNSUPPORTED

_SIZES = "pass sizes and strides as arguments of the kernel"
_ATTRIBUTES = {
    "append": "lists are tuples in kernels: xs = xs + (x,)",
    "bool": "write x != 0",
    "double": "write x.to(tl.float64)",
    "float": "write x.to(tl.float32)",
    "half": "write x.to(tl.float16)",
    "int": "write x.to(tl.int32)",
    "long": "write x.to(tl.int64)",
    "size": _SIZES,
    "stride": _SIZES,
    "strides": _SIZES,
    "type_as": "write x.to(y.dtype)",
    "view_as": "write x.reshape(y.shape)",
}
_FUNCTIONS = {
    "amax": "use tl.max",
    "amin": "use tl.min",
    "arange": "use tl.arange(0, N)",
    "concatenate": "use tl.cat",
    "empty": "use tl.zeros",
    "enumerate": "use `for i in tl.static_range(n):`, and index with i",
    "matmul": "use tl.dot(x, y)",
    "mean": "divide a sum: tl.sum(x, axis) / n",
    "ones": "use tl.full(shape, 1, dtype)",
    "pow": "write x * x, or tl.exp2(y * tl.log2(x))",
    "prod": "use tl.reduce with a @jit function that returns a * b",
    "round": "use tl.floor(x + 0.5)",
    "sign": "use tl.where(x > 0, 1, tl.where(x < 0, -1, 0))",
    "sorted": "use tl.sort(x)",
    "zip": "use `for i in tl.static_range(n):`, and index with i",
}


def nearest(name: str, known: Iterable[str], prefix: str = "") -> str | None:
    """Returns a question for the known names nearest to a misspelt one, or None."""
    found = get_close_matches(name, sorted({entry for entry in known if not entry.startswith("_")}), n=3, cutoff=0.7)
    return f"did you mean {' or '.join(prefix + entry for entry in found)}?" if found else None


def for_name(name: str, known: Iterable[str]) -> str | None:
    """Returns the cure for a name that is not defined."""
    return (_for_function(name) if hasattr(builtins, name) else None) or nearest(name, known)


def for_other_path(name: ast.Name, function: ast.FunctionDef) -> str | None:
    """Returns the cure for a name that another line of the function assigns."""
    stores = (node for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    lines = [node.lineno for node in stores if node.id == name.id and node.lineno != name.lineno]
    if not lines:
        return None
    return f"assign it on every path: line {min(lines)} is left out by a compile-time condition, or comes later"


def for_member(name: str, known: Iterable[str], prefix: str) -> str | None:
    """Returns the cure for a name that a module of the language lacks."""
    return UNSUPPORTED.get(name) or _FUNCTIONS.get(name) or nearest(name, known, prefix)


def for_attribute(name: str, known: Iterable[str]) -> str | None:
    """Returns the cure for an attribute that values lack."""
    return UNSUPPORTED.get(name) or _ATTRIBUTES.get(name) or nearest(name, known)


def for_foreign(value: Any) -> str | None:
    """Returns the cure for an object of another library, where the language has one like it; None elsewhere."""
    import kernelpack.language as tl  # late: it imports what raises these errors

    name = getattr(value, "__name__", None) or str(value)
    name = name.rpartition(".")[2]
    if type(value).__name__ == "dtype" or isinstance(value, type):
        return f"use tl.{name}" if isinstance(getattr(tl, name, None), tl.dtype) else None
    home = (getattr(value, "__module__", None) or type(value).__module__ or "").partition(".")[0]
    return _for_function(name) if callable(value) and home in ("builtins", "math", "numpy", "torch") else None


def _for_function(name: str) -> str | None:
    import kernelpack.language as tl  # late: it imports what raises these errors

    return f"use tl.{name}" if callable(getattr(tl, name, None)) else _FUNCTIONS.get(name)
