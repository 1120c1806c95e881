"""How elements lie in registers and in memory."""

from __future__ import annotations

import pytest

from kernelpack.backends.cpu.emit.elements import constant, element_bytes, from_memory, memory_type, register_type, to_memory
from kernelpack.ir.types import BF16, F8E5M2, F16, F32, F64, I1, I8, I64, PointerType, Type
from kernelpack.llvm.text import Emitter, Val


@pytest.mark.parametrize(
    ("kind", "register", "memory", "size"),
    [
        (F32, "float", "float", 4),
        (F64, "double", "double", 8),
        (F16, "half", "i16", 2),  # masked moves of half are not native everywhere
        (BF16, "i16", "i16", 2),  # LLVM's own type becomes function calls on most CPUs
        (F8E5M2, "i8", "i8", 1),
        (I1, "i1", "i8", 1),
        (I8, "i8", "i8", 1),
        (I64, "i64", "i64", 8),
        (PointerType(F32), "ptr", "ptr", 8),
    ],
    ids=str,
)
def test_types(kind: Type, register: str, memory: str, size: int) -> None:
    assert (register_type(kind), memory_type(kind), element_bytes(kind)) == (register, memory, size)
    assert (register_type(kind, 8), memory_type(kind, 8)) == (f"<8 x {register}>", f"<8 x {memory}>")


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (1.0, F32, "float 0x3FF0000000000000"),
        (1.5, BF16, "i16 16320"),  # 0x3FC0
        (-2.0, BF16, "i16 49152"),  # 0xC000
        (1.0, F16, "half 0xH3C00"),
        (1.0, F8E5M2, "i8 60"),  # 0x3C
        (True, I1, "i1 true"),
        (-7, I64, "i64 -7"),
    ],
)
def test_constants(value: float, kind: Type, text: str) -> None:
    element, name = text.split(" ")
    assert constant(value, kind) == Val(element, name)
    assert constant(value, kind, 4) == Val(f"<4 x {element}>", f"splat ({text})")


@pytest.mark.parametrize(
    ("kind", "loaded", "lines"),
    [
        (F32, "<4 x float>", []),
        (BF16, "<4 x i16>", []),
        (F16, "<4 x i16>", ["%v1 = bitcast <4 x i16> %x to <4 x half>"]),
        (I1, "<4 x i8>", ["%v1 = icmp ne <4 x i8> %x, splat (i8 0)"]),
        (I1, "i8", ["%v1 = icmp ne i8 %x, 0"]),
    ],
)
def test_what_was_loaded_becomes_what_registers_hold(kind: Type, loaded: str, lines: list[str]) -> None:
    em = Emitter()
    value = from_memory(em, Val(loaded, "%x"), kind)
    assert [line.strip() for line in em.lines] == lines
    assert value.type == register_type(kind, 4 if loaded.startswith("<") else 1)


@pytest.mark.parametrize(
    ("kind", "lines"),
    [
        (F32, []),
        (BF16, []),
        (F16, ["%v1 = bitcast <4 x half> %x to <4 x i16>"]),
        (I1, ["%v1 = zext <4 x i1> %x to <4 x i8>"]),
    ],
)
def test_what_registers_hold_becomes_what_is_stored(kind: Type, lines: list[str]) -> None:
    em = Emitter()
    value = to_memory(em, Val(register_type(kind, 4), "%x"), kind)
    assert [line.strip() for line in em.lines] == lines
    assert value.type == memory_type(kind, 4)
