"""How elements of each type lie in registers and in memory.

bfloat16 is an integer of 16 bits everywhere: LLVM's own type for it becomes function calls on most CPUs. In memory i1 takes a byte
and float16 is moved as an integer, because masked moves of it are not native everywhere.
"""

from __future__ import annotations

import struct

from kernelpack.ir.formats import encode, round_to
from kernelpack.ir.types import BF16, F16, I1, FloatType, Type, bit_width
from kernelpack.llvm.text import Emitter, Val, literal, llvm_type, vector_type, vector_width


def register_type(kind: Type, width: int = 1) -> str:
    """Returns the LLVM type of an element, or of a vector of them."""
    return vector_type("i16" if kind == BF16 else llvm_type(kind), width)


def memory_type(kind: Type, width: int = 1) -> str:
    """Returns the LLVM type that elements are loaded and stored as."""
    return vector_type({I1: "i8", F16: "i16"}.get(kind) or register_type(kind), width)


def element_bytes(kind: Type) -> int:
    """Returns the bytes an element takes in memory."""
    return max(1, bit_width(kind) // 8)


def constant(value: bool | int | float, kind: Type, width: int = 1) -> Val:
    """Returns a constant in every lane."""
    if kind == BF16:
        bits = int.from_bytes(struct.pack("<f", value), "little") >> 16
        return literal(bits, register_type(kind, width))
    if isinstance(kind, FloatType) and kind.width == 8:
        return literal(int(encode(round_to(value, kind), kind)), register_type(kind, width))
    return literal(value, register_type(kind, width))


def from_memory(em: Emitter, value: Val, kind: Type) -> Val:
    """Turns what was loaded into what registers hold."""
    if kind == I1:
        return em.compare("icmp", "ne", value, literal(0, value.type))
    return em.cast("bitcast", value, register_type(kind, vector_width(value.type)))


def to_memory(em: Emitter, value: Val, kind: Type) -> Val:
    """Turns what registers hold into what is stored."""
    return em.cast("zext" if kind == I1 else "bitcast", value, memory_type(kind, vector_width(value.type)))
