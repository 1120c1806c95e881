"""What atomics mean: which element types they take, how masks and values fit, and floats compared as integers, as in Triton."""

from __future__ import annotations

from kernelpack.errors import CompilationError
from kernelpack.ir.core import Builder
from kernelpack.kernel.types import dtype, int32, int64, pointer_type, uint32, uint64
from kernelpack.kernel.values import tensor
from kernelpack.semantics import operators
from kernelpack.semantics.memory import boolean_mask, check_scalar_access, choose, fit, writable

SEMANTICS = {None: "acq_rel", "relaxed": "relaxed", "acquire": "acquire", "release": "release", "acq_rel": "acq_rel"}
SCOPES = {None: "gpu", "gpu": "gpu", "cta": "cta", "sys": "sys"}

# function: the update of signed and of unsigned integers, and of floats; floats are compared through the bits of integers
_UPDATES: dict[str, tuple[str, str, str | None]] = {
    "add": ("add", "add", "fadd"),
    "max": ("max", "umax", "by bits"),
    "min": ("min", "umin", "by bits"),
    "and": ("and", "and", None),
    "or": ("or", "or", None),
    "xor": ("xor", "xor", None),
    "xchg": ("exch", "exch", "exch"),
}
_BITS = {32: (int32, uint32), 64: (int64, uint64)}


def update(
    b: Builder,
    what: str,
    pointer: object,
    value: operators.Operand,
    mask: operators.Operand | None,
    sem: str | None,
    scope: str | None,
) -> tensor:
    """Updates memory where `mask` is true by add, max, min, and, or, xor or xchg; returns what was there before."""
    name = f"tl.atomic_{what}"
    ptr = writable(name, pointer)
    element = _element(ptr)
    signed, unsigned, floating = _UPDATES[what]
    word = floating if element.is_floating() else signed if element.is_int_signed() else unsigned
    wide = 16 if what == "add" and element.is_floating() else 32
    if word is None or element.is_ptr() or element.primitive_bitwidth < wide:
        floats = {"add": ", float16, bfloat16, float32 or float64", "and": "", "or": "", "xor": ""}.get(
            what, ", float32 or float64"
        )
        raise CompilationError(
            f"{name} does not work on {element} in memory", cure=f"use a buffer of int32, int64, uint32, uint64{floats}"
        )
    new = operators.as_type(b, value, element, ptr.shape)
    when = None if mask is None else boolean_mask(name, operators.to_tensor(b, mask))
    check_scalar_access(name, ptr, value=new, mask=when)
    new = fit(name, b, "value", new, ptr)
    when = None if when is None else fit(name, b, "mask", when, ptr)
    order = {"sem": choose(SEMANTICS, "sem", sem), "scope": choose(SCOPES, "scope", scope)}
    if word == "by bits":
        return _extremum(b, what, ptr, new, when, order)
    return _rmw(b, word, ptr, new, when, order)


def compare_and_swap(
    b: Builder, pointer: object, compared: operators.Operand, value: operators.Operand, sem: str | None, scope: str | None
) -> tensor:
    """Writes `value` where memory holds `compared`, bit for bit; returns what was there before."""
    name = "tl.atomic_cas"
    ptr = writable(name, pointer)
    element = _element(ptr)
    if element.primitive_bitwidth not in (16, 32, 64):
        raise CompilationError(
            f"{name} does not work on {element} in memory", cure="use a buffer of elements of 16, 32 or 64 bits"
        )
    sides = {"compared value": compared, "value": value}
    made = {role: operators.as_type(b, side, element, ptr.shape) for role, side in sides.items()}
    check_scalar_access(name, ptr, **made)
    handles = [fit(name, b, role, side, ptr).handle for role, side in made.items()]
    attributes = {"sem": choose(SEMANTICS, "sem", sem), "scope": choose(SCOPES, "scope", scope)}
    return tensor(b.value("tt.atomic_cas", [ptr.handle, *handles], attributes), operators.like(ptr, element))


def _element(ptr: tensor) -> dtype:
    assert isinstance(ptr.dtype, pointer_type)
    return ptr.dtype.element_ty


def _rmw(b: Builder, word: str, ptr: tensor, value: tensor, mask: tensor | None, order: dict[str, str]) -> tensor:
    handles = [ptr.handle, value.handle, None if mask is None else mask.handle]
    return tensor(b.value("tt.atomic_rmw", handles, {"atomic_rmw_op": word, **order}), value.type)


def _extremum(b: Builder, what: str, ptr: tensor, value: tensor, mask: tensor | None, order: dict[str, str]) -> tensor:
    """Maximum and minimum of floats in memory.

    The bits of floats without a sign order like signed integers, above those of all others; with a sign, like unsigned integers
    the other way round. So each lane does one of two updates, as the sign bit of its own value says.
    """
    signed, unsigned = _BITS[value.dtype.primitive_bitwidth]
    bits = operators.bitcast(b, value, signed)
    positive = operators.compare(b, ">=", bits, 0)
    negative = operators.compare(b, "<", bits, 0)
    words = ("max", "umin") if what == "max" else ("min", "umax")
    found = []
    for word, kind, lanes in zip(words, (signed, unsigned), (positive, negative), strict=True):
        where = operators.cast(b, ptr, pointer_type(kind, _space(ptr)))
        when = lanes if mask is None else operators.arithmetic(b, "&", mask, lanes)
        found.append(operators.bitcast(b, _rmw(b, word, where, operators.bitcast(b, bits, kind), when, order), signed))
    return operators.bitcast(b, operators.where(b, positive, *found), value.dtype)


def _space(ptr: tensor) -> int:
    assert isinstance(ptr.dtype, pointer_type)
    return ptr.dtype.address_space
