"""Compiles kernels for tests, and runs them by the interpreter."""

from __future__ import annotations

import itertools
import linecache
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.frontend.ast_to_ttir import ast_to_ttir
from kernelpack.ir.core import Operation, functions
from kernelpack.ir.interpret import launch
from kernelpack.ir.text import parse_module
from kernelpack.ir.verify import verify
from kernelpack.kernel.jit import JITFunction

_TYPES = {
    "bool": "i1",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
    "float16": "fp16",
    "bfloat16": "bf16",
    "float32": "fp32",
    "float64": "fp64",
}


def compile_kernel(fn: JITFunction, **arguments: Any) -> Operation:
    """Compiles with a type text for each run-time argument, and the value of every other. What prints must parse again."""
    signature = {name: value for name, value in arguments.items() if isinstance(value, str) and not _is_constexpr(fn, name)}
    constexprs = {name: value for name, value in arguments.items() if name not in signature}
    module = ast_to_ttir(fn, signature, constexprs)
    again = parse_module(str(module))
    verify(again)
    assert str(again) == str(module)
    return module


def run(fn: JITFunction, grid: int | Sequence[int], **arguments: Any) -> None:
    """Compiles for arrays, tensors and numbers, and runs every program of the grid by the interpreter."""
    types, values = {}, []
    for param in fn.params:
        value = arguments.get(param.name, param.default)
        kind = None if param.is_constexpr else _type_of(value)
        types[param.name] = value if kind is None else kind
        if kind is not None:
            values.append(value)
    launch(compile_kernel(fn, **types), grid, values)


def body_of(module: Operation, name: str | None = None) -> str:
    """Returns the text of a function's operations, not indented; by default of the kernel, which comes first."""
    for function in functions(module):
        if name is None or function.attributes["sym_name"] == name:
            lines = str(function).rstrip().split("\n")[1:-1]
            return textwrap.dedent("\n".join(lines)) + "\n"
    raise KeyError(name)


def _is_constexpr(fn: JITFunction, name: str) -> bool:
    return any(param.is_constexpr for param in fn.params if param.name == name)


def _type_of(value: Any) -> str | None:
    if isinstance(value, torch.Tensor):
        return "*" + _TYPES[str(value.dtype).removeprefix("torch.")]
    if isinstance(value, np.ndarray):
        return "*" + _TYPES[value.dtype.name]
    if isinstance(value, np.generic):
        return _TYPES[value.dtype.name]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return "fp32" if isinstance(value, float) else "i32" if -(1 << 31) <= value < 1 << 31 else "i64"


_numbers = itertools.count()


def define(text: str, **names: Any) -> dict[str, Any]:
    """Runs source text as if it stood in a file (`kp` and `tl` are known, and `names`); returns what it defines."""
    source = textwrap.dedent(text)
    file = f"<test {next(_numbers)}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    defined: dict[str, Any] = {"kp": kp, "tl": tl, "__name__": "a_test", **names}
    exec(compile(source, file, "exec"), defined)
    return defined


def kernel(text: str, parameters: str = "", **names: Any) -> JITFunction:
    """Returns a kernel with a body given as text."""
    body = textwrap.indent(textwrap.dedent(text).strip("\n"), "    ")
    fn = define(f"@kp.jit\ndef kernel({parameters}):\n{body}\n", **names)["kernel"]
    assert isinstance(fn, JITFunction)
    return fn
