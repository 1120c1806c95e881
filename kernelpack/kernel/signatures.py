"""How signatures name types: `*fp32`, `i32`, `tensordesc<fp16[64, 32]>`."""

from __future__ import annotations

import functools
import re

from kernelpack.kernel.structured_types import tensor_descriptor_type
from kernelpack.kernel.types import dtype, int1, pointer_type

_SIGNATURE_NAMES = {
    **{name: dtype(name) for name in (*dtype.FP_TYPES,)},
    **{f"i{width}": dtype(f"int{width}") for width in (1, 8, 16, 32, 64)},
    **{f"u{width}": dtype(f"uint{width}") for width in (8, 16, 32, 64)},
    "u1": int1,
    "B": int1,
}


def signature_name(kind: dtype) -> str:
    """Returns the text that names a scalar type in signatures: `fp32`, `i32`, `u8`."""
    return next(name for name, known in _SIGNATURE_NAMES.items() if known == kind)


def parse_type(text: str) -> dtype:
    """Returns the type that a signature's text names: `*fp32`, `*ki8` (const), `i32`, `u8`, `bf16`, `tensordesc<fp16[64, 32]>`,
    `tensordesc<fp16[64, 32], nan>` ... Raises ValueError."""
    descriptor = re.fullmatch(r"tensordesc<(\w+)\[([\d, ]+)\](?:, (nan|zero))?>", text)
    if descriptor is not None:
        extents = [int(extent) for extent in descriptor[2].split(",")]
        return tensor_descriptor_type(parse_type(descriptor[1]), extents, descriptor[3] or "zero")
    if text.startswith("*"):
        const = text.startswith("*k")
        return pointer_type(parse_type(text[2:] if const else text[1:]), const=const)
    if text not in _SIGNATURE_NAMES:
        raise ValueError(
            f"{text!r} is not a type of a kernel argument; known are {', '.join(_SIGNATURE_NAMES)}, and * before one"
        )
    return _SIGNATURE_NAMES[text]


@functools.cache
def ttir_type(text: str) -> str:
    """Returns a signature's type as ttir has it: `!tt.ptr<f32>` for `*fp32`. Raises ValueError."""
    return str(parse_type(text).to_ir())
