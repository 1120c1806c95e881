"""What loads, stores and atomics mean: which masks and values fit which pointers, as in Triton."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernelpack.errors import CompilationError
from kernelpack.frontend import semantic
from kernelpack.ir.core import Builder
from kernelpack.language.types import describe, int1, int8, pointer_type
from kernelpack.language.values import tensor

LOAD_CACHE_MODIFIERS = {"": "none", ".ca": "ca", ".cg": "cg", ".cv": "cv"}
STORE_CACHE_MODIFIERS = {"": "none", ".wb": "wb", ".cg": "cg", ".cs": "cs", ".wt": "wt"}
EVICTION_POLICIES = {"": "normal", "evict_first": "evict_first", "evict_last": "evict_last"}
ATOMIC_SEMANTICS = {None: "acq_rel", "relaxed": "relaxed", "acquire": "acquire", "release": "release", "acq_rel": "acq_rel"}
ATOMIC_SCOPES = {None: "gpu", "gpu": "gpu", "cta": "cta", "sys": "sys"}


def choose(table: Mapping[Any, str], name: str, value: object) -> str:
    """Returns the IR's word for an option. Raises CompilationError that lists the words the language has."""
    found = table.get(value)
    if found is None:
        raise CompilationError(
            f"{name} cannot be {describe(value)}", cure=f"use one of {', '.join(repr(word) for word in table)}"
        )
    return found


def load(
    b: Builder,
    pointer: object,
    mask: semantic.Operand | None,
    other: semantic.Operand | None,
    cache_modifier: str,
    eviction_policy: str,
    volatile: bool,
) -> tensor:
    """Returns what a pointer or a tile of pointers points to; where `mask` is false, `other`, or anything without it."""
    attributes = {
        "cache": choose(LOAD_CACHE_MODIFIERS, "cache_modifier", cache_modifier),
        "evict": choose(EVICTION_POLICIES, "eviction_policy", eviction_policy),
        "is_volatile": bool(volatile),
    }
    ptr = _pointer("tl.load", pointer)
    if mask is None and other is not None:
        raise CompilationError("tl.load with other= needs a mask", cure="give mask=..., or leave other out")
    ptr, boolean = _bytes_of_booleans(b, ptr)
    assert isinstance(ptr.dtype, pointer_type)
    element = ptr.dtype.element_ty
    when = None if mask is None else _boolean_mask("tl.load", semantic.to_tensor(b, mask))
    instead = None if other is None else semantic.as_type(b, other, element, ptr.shape)
    _check_scalar_access("tl.load", ptr, mask=when, other=instead)
    ptr, *options = semantic.broadcast(b, ptr, *(value for value in (when, instead) if value is not None))
    handles = [value.handle for value in options]
    loaded = tensor(b.value("tt.load", [ptr.handle, *handles], attributes), semantic.like(ptr, element))
    return semantic.cast(b, loaded, int1) if boolean else loaded


def store(
    b: Builder,
    pointer: object,
    value: semantic.Operand,
    mask: semantic.Operand | None,
    cache_modifier: str,
    eviction_policy: str,
) -> None:
    """Writes a value, converted to the element type, where `mask` is true."""
    attributes = {
        "cache": choose(STORE_CACHE_MODIFIERS, "cache_modifier", cache_modifier),
        "evict": choose(EVICTION_POLICIES, "eviction_policy", eviction_policy),
    }
    ptr = _writable("tl.store", pointer)
    ptr, boolean = _bytes_of_booleans(b, ptr)
    assert isinstance(ptr.dtype, pointer_type)
    stored = semantic.as_type(b, value, int1, ptr.shape) if boolean else value
    stored = semantic.as_type(b, stored, ptr.dtype.element_ty, ptr.shape)
    when = None if mask is None else _boolean_mask("tl.store", semantic.to_tensor(b, mask))
    _check_scalar_access("tl.store", ptr, value=stored, mask=when)
    stored = _fit("tl.store", b, "value", stored, ptr)
    if when is not None:
        when = _fit("tl.store", b, "mask", when, ptr)
    b.create("tt.store", [ptr.handle, stored.handle, None if when is None else when.handle], attributes)


def atomic_add(
    b: Builder, pointer: object, value: semantic.Operand, mask: semantic.Operand | None, sem: str | None, scope: str | None
) -> tensor:
    """Adds to memory where `mask` is true and returns what was there before."""
    ptr = _writable("tl.atomic_add", pointer)
    assert isinstance(ptr.dtype, pointer_type)
    element = ptr.dtype.element_ty
    if element.is_ptr() or element.primitive_bitwidth < 16 or (element.is_int() and element.primitive_bitwidth < 32):
        raise CompilationError(
            f"tl.atomic_add does not work on {element} in memory",
            cure="use a buffer of int32, int64, uint32, uint64, float16, bfloat16, float32 or float64",
        )
    added = semantic.as_type(b, value, element, ptr.shape)
    when = None if mask is None else _boolean_mask("tl.atomic_add", semantic.to_tensor(b, mask))
    _check_scalar_access("tl.atomic_add", ptr, value=added, mask=when)
    added = _fit("tl.atomic_add", b, "value", added, ptr)
    if when is not None:
        when = _fit("tl.atomic_add", b, "mask", when, ptr)
    attributes = {
        "atomic_rmw_op": "fadd" if element.is_floating() else "add",
        "sem": choose(ATOMIC_SEMANTICS, "sem", sem),
        "scope": choose(ATOMIC_SCOPES, "scope", scope),
    }
    handles = [ptr.handle, added.handle, None if when is None else when.handle]
    return tensor(b.value("tt.atomic_rmw", handles, attributes), added.type)


def _pointer(name: str, value: object) -> tensor:
    if isinstance(value, tensor) and value.dtype.is_ptr():
        return value
    cure = "add the offset to a pointer parameter first: ptr + offset"
    if value is None:
        cure = "the argument was passed as None: guard the access with `if ptr is not None:`"
    raise CompilationError(f"{name} needs a pointer or a tile of pointers, got {describe(value)}", cure=cure)


def _writable(name: str, value: object) -> tensor:
    ptr = _pointer(name, value)
    if ptr.dtype.is_const():
        raise CompilationError(f"{name} cannot write through {ptr.dtype}")
    return ptr


def _check_scalar_access(name: str, ptr: tensor, **others: tensor | None) -> None:
    if ptr.shape:
        return
    for role, value in others.items():
        if value is not None and value.shape:
            raise CompilationError(
                f"{name} through a scalar pointer takes a scalar {role}, not a tile of shape {list(value.shape)}",
                cure="add offsets to the pointer: ptr + tl.arange(0, BLOCK)",
            )


def _boolean_mask(name: str, mask: tensor) -> tensor:
    if not mask.dtype.is_bool():
        raise CompilationError(f"the mask of {name} must be int1, is {mask.dtype}", cure="compare it: mask != 0")
    return mask


def _fit(name: str, b: Builder, role: str, value: tensor, ptr: tensor) -> tensor:
    """Returns the value in the pointers' shape. The pointers themselves are not broadcast: each place is written once."""
    widened, fitted = semantic.broadcast(b, ptr, value)
    if widened.shape != ptr.shape:
        raise CompilationError(
            f"the {role} of {name} has shape {list(value.shape)}, which does not fit pointers of shape {list(ptr.shape)}",
            cure="give the pointers every axis of the value: base + rows[:, None] * stride + columns[None, :]",
        )
    return fitted


def _bytes_of_booleans(b: Builder, ptr: tensor) -> tuple[tensor, bool]:
    """int1 lies in memory as a byte: returns the pointer to bytes, and whether it was one to int1."""
    assert isinstance(ptr.dtype, pointer_type)
    if ptr.dtype.element_ty != int1:
        return ptr, False
    return semantic.cast(b, ptr, pointer_type(int8, ptr.dtype.address_space, ptr.dtype.const)), True
