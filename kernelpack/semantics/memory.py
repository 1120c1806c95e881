"""What loads and stores mean: which masks and values fit which pointers, as in Triton."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernelpack.errors import CompilationError
from kernelpack.ir.core import Builder
from kernelpack.kernel.types import describe, int1, int8, pointer_type
from kernelpack.kernel.values import tensor
from kernelpack.semantics import operators

LOAD_CACHE_MODIFIERS = {"": "none", ".ca": "ca", ".cg": "cg", ".cv": "cv"}
STORE_CACHE_MODIFIERS = {"": "none", ".wb": "wb", ".cg": "cg", ".cs": "cs", ".wt": "wt"}
EVICTION_POLICIES = {"": "normal", "evict_first": "evict_first", "evict_last": "evict_last"}


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
    mask: operators.Operand | None,
    other: operators.Operand | None,
    cache_modifier: str | None,
    eviction_policy: str | None,
    volatile: bool,
) -> tensor:
    """Returns what a pointer or a tile of pointers points to; where `mask` is false, `other`, or anything without it."""
    attributes = {
        "cache": choose(LOAD_CACHE_MODIFIERS, "cache_modifier", cache_modifier or ""),
        "evict": choose(EVICTION_POLICIES, "eviction_policy", eviction_policy or ""),
        "is_volatile": bool(volatile),
    }
    ptr = pointer_of("tl.load", pointer)
    if mask is None and other is not None:
        raise CompilationError("tl.load with other= needs a mask", cure="give mask=..., or leave other out")
    ptr, boolean = _bytes_of_booleans(b, ptr)
    assert isinstance(ptr.dtype, pointer_type)
    element = ptr.dtype.element_ty
    when = None if mask is None else boolean_mask("tl.load", operators.to_tensor(b, mask))
    instead = None if other is None else operators.as_type(b, other, element, ptr.shape)
    check_scalar_access("tl.load", ptr, mask=when, other=instead)
    given = {role: value for role, value in (("pointer", ptr), ("mask", when), ("other", instead)) if value is not None}
    ptr, *options = operators.broadcast(b, *given.values(), roles=list(given))
    handles = [value.handle for value in options]
    loaded = tensor(b.value("tt.load", [ptr.handle, *handles], attributes), operators.like(ptr, element))
    return operators.cast(b, loaded, int1) if boolean else loaded


def store(
    b: Builder,
    pointer: object,
    value: operators.Operand,
    mask: operators.Operand | None,
    cache_modifier: str | None,
    eviction_policy: str | None,
) -> None:
    """Writes a value, converted to the element type, where `mask` is true."""
    attributes = {
        "cache": choose(STORE_CACHE_MODIFIERS, "cache_modifier", cache_modifier or ""),
        "evict": choose(EVICTION_POLICIES, "eviction_policy", eviction_policy or ""),
    }
    ptr = writable("tl.store", pointer)
    ptr, boolean = _bytes_of_booleans(b, ptr)
    assert isinstance(ptr.dtype, pointer_type)
    stored = operators.as_type(b, value, int1, ptr.shape) if boolean else value
    stored = operators.as_type(b, stored, ptr.dtype.element_ty, ptr.shape)
    when = None if mask is None else boolean_mask("tl.store", operators.to_tensor(b, mask))
    check_scalar_access("tl.store", ptr, value=stored, mask=when)
    stored = fit("tl.store", b, "value", stored, ptr)
    if when is not None:
        when = fit("tl.store", b, "mask", when, ptr)
    b.create("tt.store", [ptr.handle, stored.handle, None if when is None else when.handle], attributes)


def pointer_of(name: str, value: object) -> tensor:
    """Returns a value that is a pointer or a tile of pointers. Raises CompilationError for others."""
    if isinstance(value, tensor) and value.dtype.is_ptr():
        return value
    cure = "add the offset to a pointer parameter first: ptr + offset"
    if value is None:
        cure = "the argument was passed as None: guard the access with `if ptr is not None:`"
    raise CompilationError(f"{name} needs a pointer or a tile of pointers, got {describe(value)}", cure=cure)


def writable(name: str, value: object) -> tensor:
    """Returns a pointer or a tile of pointers that may be written through."""
    ptr = pointer_of(name, value)
    if ptr.dtype.is_const():
        raise CompilationError(f"Cannot store to a constant pointer: {name} got {ptr.dtype}")
    return ptr


def check_scalar_access(name: str, ptr: tensor, **others: tensor | None) -> None:
    """Refuses tiles of values and masks for a scalar pointer."""
    if ptr.shape:
        return
    for role, value in others.items():
        if value is not None and value.shape:
            raise CompilationError(
                f"{name} through a scalar pointer takes a scalar {role}, not a tile of shape {list(value.shape)}",
                cure="add offsets to the pointer: ptr + tl.arange(0, BLOCK)",
            )


def boolean_mask(name: str, mask: tensor) -> tensor:
    """Returns a mask, which must be int1."""
    if not mask.dtype.is_bool():
        raise CompilationError(f"the mask of {name} must be int1, is {mask.dtype}", cure="compare it: mask != 0")
    return mask


def fit(name: str, b: Builder, role: str, value: tensor, ptr: tensor) -> tensor:
    """Returns the value in the pointers' shape. The pointers themselves are not broadcast: each place is written once."""
    widened, fitted = operators.broadcast(b, ptr, value, roles=("pointer", role))
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
    return operators.cast(b, ptr, pointer_type(int8, ptr.dtype.address_space, ptr.dtype.const)), True
