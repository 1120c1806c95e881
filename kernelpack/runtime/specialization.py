"""What a call of a kernel is compiled for: types of its run-time arguments, values of the others, facts that hold for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernelpack.backends.base import Backend, Fact
from kernelpack.errors import LaunchError
from kernelpack.frontend.jit import JITFunction, KernelParam
from kernelpack.language.types import parse_type
from kernelpack.opgen.dtypes import DTYPES
from kernelpack.opgen.kernels import number_type


@dataclass(frozen=True)
class Specialization:
    """The part of a call that code depends on. Equal specializations share a compilation; hashable."""

    signature: tuple[tuple[str, str], ...]
    constexprs: tuple[tuple[str, Any], ...]
    facts: tuple[Fact, ...]


def specialize(fn: JITFunction, arguments: Mapping[str, Any], backend: Backend) -> tuple[Specialization, list[Any]]:
    """Returns a call's specialization and the values of its run-time arguments in order.

    As in Triton: an integer is i32 where it fits, else i64; one equal to 1 becomes a compile-time constant, unless
    `do_not_specialize` names it or its annotation gives its type; pointers and integers carry the facts that the backend knows.
    """
    signature: list[tuple[str, str]] = []
    constexprs: list[tuple[str, Any]] = []
    facts: list[Fact] = []
    values: list[Any] = []
    for param in fn.params:
        value = arguments[param.name]
        if param.is_constexpr or value is None:
            constexprs.append((param.name, value))
            continue
        annotated = number_type(param, "") or None
        if _is_integer(value) and value == 1 and annotated is None and not param.do_not_specialize:
            constexprs.append((param.name, 1))
            continue
        kind = annotated or _type_of(fn, param, value)
        signature.append((param.name, kind))
        values.append(value)
        if annotated is None and not param.do_not_specialize and not param.do_not_specialize_on_alignment:
            facts += _facts(param, kind, value, backend)
    return Specialization(tuple(signature), tuple(constexprs), tuple(facts)), values


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _type_of(fn: JITFunction, param: KernelParam, value: Any) -> str:
    if isinstance(value, bool):
        return "i1"
    if isinstance(value, int):
        if -(2**31) <= value < 2**31:
            return "i32"
        if -(2**63) <= value < 2**63:
            return "i64"
        if value < 2**64:
            return "u64"
        raise LaunchError(
            f"argument {param.name} of {fn.__name__} is {value}, which no integer type holds", location=fn.location
        )
    if isinstance(value, float):
        return "fp32"
    if hasattr(value, "data_ptr") and hasattr(value, "dtype"):
        name = str(value.dtype).removeprefix("torch.")
        if name in DTYPES:
            return f"*{DTYPES[name].language}"
        raise LaunchError(f"argument {param.name} of {fn.__name__} has dtype {name}", cure=f"use one of {', '.join(DTYPES)}")
    raise LaunchError(
        f"argument {param.name} of {fn.__name__} is a {type(value).__name__}",
        location=fn.location,
        cure="pass a tensor, an int, a float, a bool or None, or annotate the parameter tl.constexpr",
    )


def _facts(param: KernelParam, kind: str, value: Any, backend: Backend) -> list[Fact]:
    ir_type = str(parse_type(kind).to_ir())
    number = value.data_ptr() if hasattr(value, "data_ptr") else value
    if not isinstance(number, int) or isinstance(number, bool):
        return []
    return [
        Fact(param.name, prop.name, prop.value) for prop in backend.properties() if prop.applies(ir_type) and prop.holds(number)
    ]
