"""Emits LLVM IR as text: typed values, fresh names, declarations. Text is 60x faster than building llvmlite objects."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from kernelpack.ir.core import Location, Operation
from kernelpack.ir.types import FloatType, IntegerType, PointerType, Type


class Val(NamedTuple):
    """A typed LLVM value: `float %x3`, `i32 7`, `<16 x float> zeroinitializer`."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type} {self.name}"


_FLOATS = {"f16": "half", "bf16": "bfloat", "f32": "float", "f64": "double"}


def llvm_type(kind: Type, pointer: str = "ptr") -> str:
    """Returns the LLVM type of a scalar IR type; pointers are `pointer`."""
    if isinstance(kind, IntegerType):
        return f"i{kind.width}"
    if isinstance(kind, FloatType):
        return "i8" if kind.width == 8 else _FLOATS[kind.name]
    if isinstance(kind, PointerType):
        return pointer
    raise TypeError(f"{kind} is not a scalar type")


def vector_type(element: str, width: int) -> str:
    """Returns `<width x element>`, or the element itself for width 1."""
    return element if width == 1 else f"<{width} x {element}>"


def element_type(kind: str) -> str:
    """Returns the element of a vector type, and any other type itself."""
    return kind[kind.index(" x ") + 3 : -1] if kind.startswith("<") else kind


def vector_width(kind: str) -> int:
    """Returns the number of lanes; 1 for a scalar type."""
    return int(kind[1 : kind.index(" ")]) if kind.startswith("<") else 1


def suffix(kind: str) -> str:
    """Returns the type suffix of an overloaded intrinsic: f32, v16f32, i64, p0."""
    short = {"float": "f32", "double": "f64", "half": "f16", "bfloat": "bf16", "ptr": "p0"}
    name = short.get(element_type(kind), element_type(kind))
    return f"v{vector_width(kind)}{name}" if kind.startswith("<") else name


def float_literal(value: float, element: str) -> str:
    """Returns a float constant in the hexadecimal form that LLVM reads exactly."""
    if element == "half":
        return f"0xH{struct.unpack('<H', struct.pack('<e', value))[0]:04X}"
    if element == "bfloat":
        return f"0xR{struct.unpack('<I', struct.pack('<f', value))[0] >> 16:04X}"
    if element == "float":
        value = struct.unpack("<f", struct.pack("<f", value))[0]
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def string_constant(text: str) -> str:
    """Returns a text that ends in a zero byte, with its type: `[3 x i8] c"hi\\00"`."""
    data = text.encode() + b"\0"
    spelled = "".join(chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:02X}" for byte in data)
    return f'[{len(data)} x i8] c"{spelled}"'


def literal(value: bool | int | float, kind: str) -> Val:
    """Returns a constant of a scalar type, or a vector of it in every lane."""
    element = element_type(kind)
    if element in ("float", "double", "half", "bfloat"):
        text = float_literal(float(value), element)
    elif element == "i1":
        text = "true" if value else "false"
    else:
        text = str(int(value))
    return Val(kind, f"splat ({element} {text})" if kind.startswith("<") else text)


class Emitter:
    """Collects the lines of one function and what the module must declare for it.

    Lines go to the current sink. `into` redirects them, so that code can be placed before a loop whose body is being written.
    `features` names the instruction sets that lowering may use by intrinsic. `attachment` ends every line: where it comes from.
    """

    def __init__(self, features: frozenset[str] = frozenset()) -> None:
        self.features = features
        self.allocas: list[str] = []
        self.lines: list[str] = []
        self.declarations: set[str] = set()
        self.block = "entry"
        self.attachment = ""
        self.located: Callable[[Location], str] | None = None
        """Gives the attachment of an operation's lines by its location; None for lines that do not say where they come from."""
        self._sink = self.lines
        self._counter = 0

    # ---- lines ----

    def fresh(self, stem: str = "v") -> str:
        self._counter += 1
        return f"%{stem}{self._counter}"

    def line(self, text: str) -> None:
        self._sink.append(f"  {text}{self.attachment}")

    @contextmanager
    def work_on(self, op: Operation | None) -> Iterator[None]:
        """Says which operation the lines within the context are of, where that is known."""
        if self.located is None or op is None:
            yield
            return
        outer, self.attachment = self.attachment, self.located(op.location)
        try:
            yield
        finally:
            self.attachment = outer

    @property
    def sink(self) -> list[str]:
        """Where lines go at the moment."""
        return self._sink

    def op(self, kind: str, text: str, stem: str = "v") -> Val:
        """Writes `%v = text` and returns %v as a value of type `kind`."""
        name = self.fresh(stem)
        self.line(f"{name} = {text}")
        return Val(kind, name)

    @contextmanager
    def into(self, sink: list[str]) -> Iterator[None]:
        """Sends lines to another list within the context."""
        before, self._sink = self._sink, sink
        try:
            yield
        finally:
            self._sink = before

    def label(self, name: str) -> None:
        self._sink.append(f"{name}:")
        self.block = name

    def new_label(self, stem: str) -> str:
        self._counter += 1
        return f"{stem}{self._counter}"

    def jump(self, target: str) -> None:
        self.line(f"br label %{target}")

    def branch(self, condition: Val, yes: str, no: str) -> None:
        self.line(f"br {condition}, label %{yes}, label %{no}")

    def alloca(self, kind: str, stem: str = "slot", align: int = 64) -> Val:
        """Reserves stack memory in the entry block, whatever the current sink."""
        name = self.fresh(stem)
        self.allocas.append(f"  {name} = alloca {kind}, align {align}")
        return Val("ptr", name)

    # ---- operations ----

    def call(self, kind: str, function: str, arguments: Sequence[Val], attributes: str = "") -> Val:
        """Calls an external function or intrinsic and declares it; kind `void` gives a value not to be used."""
        self.declarations.add(f"declare {kind} @{function}({', '.join(value.type for value in arguments)})")
        text = f"call {kind} @{function}({', '.join(map(str, arguments))}){attributes}"
        if kind == "void":
            self.line(text)
            return Val("void", "")
        return self.op(kind, text)

    def binary(self, opcode: str, a: Val, b: Val) -> Val:
        return self.op(a.type, f"{opcode} {a}, {b.name}")

    def cast(self, opcode: str, value: Val, kind: str) -> Val:
        return value if value.type == kind else self.op(kind, f"{opcode} {value} to {kind}")

    def compare(self, opcode: str, predicate: str, a: Val, b: Val) -> Val:
        return self.op(vector_type("i1", vector_width(a.type)), f"{opcode} {predicate} {a}, {b.name}")

    def select(self, condition: Val, yes: Val, no: Val) -> Val:
        return self.op(yes.type, f"select {condition}, {yes}, {no}")

    def splat(self, value: Val, width: int) -> Val:
        """Returns a scalar in every lane of a vector; constants stay constants."""
        if width == 1:
            return value
        kind = vector_type(value.type, width)
        if not value.name.startswith("%"):
            return Val(kind, f"splat ({value})")
        first = self.op(kind, f"insertelement {kind} poison, {value}, i64 0")
        zeros = f"<{width} x i32> zeroinitializer"
        return self.op(kind, f"shufflevector {first}, {kind} poison, {zeros}")

    def shuffle(self, a: Val, b: Val | None, lanes: Sequence[int]) -> Val:
        """Returns the chosen lanes of a (and b, numbered after a's)."""
        kind = vector_type(element_type(a.type), len(lanes))
        second = b if b is not None else Val(a.type, "poison")
        picks = ", ".join(f"i32 {lane}" for lane in lanes)
        return self.op(kind, f"shufflevector {a}, {second}, <{len(lanes)} x i32> <{picks}>")

    def extract(self, vector: Val, lane: int) -> Val:
        return self.op(element_type(vector.type), f"extractelement {vector}, i64 {lane}")

    def load(self, kind: str, pointer: Val, align: int) -> Val:
        return self.op(kind, f"load {kind}, {pointer}, align {align}")

    def store(self, value: Val, pointer: Val, align: int) -> None:
        self.line(f"store {value}, {pointer}, align {align}")

    def offset(self, pointer: Val, byte: Val | int) -> Val:
        """Returns a pointer moved by a number of bytes."""
        if isinstance(byte, int):
            return pointer if byte == 0 else self.op(pointer.type, f"getelementptr i8, {pointer}, i64 {byte}")
        return self.op(pointer.type, f"getelementptr i8, {pointer}, {byte}")


def iota(element: str, width: int, step: int = 1) -> Val:
    """Returns the constant vector 0, step, 2 step, ..."""
    return Val(vector_type(element, width), "<" + ", ".join(f"{element} {lane * step}" for lane in range(width)) + ">")
