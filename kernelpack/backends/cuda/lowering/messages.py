"""What a running kernel says: prints by the driver's vprintf, and assertions (CUDA C Programming Guide, "Formatted Output")."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernelpack.backends.cuda.lowering.fp8 import widen
from kernelpack.backends.cuda.lowering.state import CudaLowering
from kernelpack.backends.gpu.lowering.elementwise import convert_float
from kernelpack.backends.gpu.lowering.linear_code import i32
from kernelpack.backends.gpu.lowering.shared_memory import only_if
from kernelpack.ir.core import Operation, Value
from kernelpack.ir.dialect import attribute
from kernelpack.ir.types import FloatType, IntegerType, TensorType, element_of
from kernelpack.layout.encoding import layout_of
from kernelpack.llvm.text import Val


def _print(state: CudaLowering, op: Operation) -> None:
    """Prints a line for each element, with the program and the element's place; a scalar is printed by every thread."""
    emit = state.emit
    program = [emit.call("i32", f"llvm.nvvm.read.ptx.sreg.ctaid.{axis}", []) for axis in "xyz"]
    text = op.attributes["prefix"].rstrip(" ").removesuffix(":")
    text = f" {text}" if text and not text.startswith(" ") else text
    if not op.operands:
        _say(state, f"pid (%u, %u, %u){text}\n", program)
        return
    for number, (value, is_signed) in enumerate(zip(op.operands, attribute(op, "is_signed"), strict=True)):
        which = f"(operand {number}) " if len(op.operands) > 1 else ""
        places, widths = _places(state, value)
        index = ", ".join(f"%{width}u" for width in widths)
        form = f"pid (%u, %u, %u) idx ({index}){text}: {which}{_format(value, bool(is_signed), attribute(op, 'hex'))}\n"
        owner = state.owner(layout_of(value)) if isinstance(value.type, TensorType) else None
        with only_if(state, owner):
            for place, register in zip(places, _printable(state, value, bool(is_signed)), strict=True):
                _say(state, form, [*program, *place, register])


def _places(state: CudaLowering, value: Value) -> tuple[list[list[Val]], list[int]]:
    """Returns the indices of each register of a tile, and how many digits the indices along each dimension have."""
    if not isinstance(value.type, TensorType):
        return [[]], []
    layout = layout_of(value)
    firsts = [state.coordinate(layout, axis) for axis in range(value.type.rank)]
    places = [
        [state.emit.binary("xor", first, i32(x)) for first, x in zip(firsts, place, strict=True)]
        for place in layout.images("register")
    ]
    return places, [len(str(size - 1)) for size in value.type.shape]


def _format(value: Value, is_signed: bool, hexadecimal: bool) -> str:
    kind = element_of(value.type)
    if isinstance(kind, FloatType):
        return "%a" if hexadecimal else "%f"
    if not isinstance(kind, IntegerType):
        return "%p"
    long = "ll" if kind.width == 64 else ""
    if hexadecimal:
        return f"0x%0{max(1, kind.width // 4)}{long}x"
    return f"%{long}{'i' if is_signed else 'u'}"


def _printable(state: CudaLowering, value: Value, is_signed: bool) -> list[Val]:
    """Returns the registers as vprintf takes them: integers of at least 32 bits, double, addresses."""
    kind, registers = element_of(value.type), state[value]
    if isinstance(kind, FloatType):
        floats = widen(state, registers, kind) if kind.width == 8 else registers
        return [convert_float(state, register, "double") for register in floats]
    if isinstance(kind, IntegerType) and kind.width < 32:
        return [state.emit.cast("sext" if is_signed and kind.width > 1 else "zext", register, "i32") for register in registers]
    return list(registers)


def _say(state: CudaLowering, text: str, values: Sequence[Val]) -> None:
    """Calls vprintf with the values packed in a structure on the stack."""
    emit = state.emit
    packed = "{" + ", ".join(value.type for value in values) + "}"
    room = emit.alloca(packed, "stack", 8)
    for index, value in enumerate(values):
        emit.line(f"store {value}, {emit.op('ptr', f'getelementptr {packed}, {room}, i32 0, i32 {index}', 'stack')}")
    emit.call("i32", "vprintf", [state.message(text), room])


def _assert(state: CudaLowering, op: Operation) -> None:
    """Stops the grid where the condition does not hold for a register of the thread."""
    emit = state.emit
    holds: Val | None = None
    for register in state[op.operand]:
        holds = state.both(holds, register)
    assert holds is not None
    fails = state.both(state.assertions_count, emit.binary("xor", holds, Val("i1", "true")))
    place = op.location.source
    file, line = (place.file, place.line) if place is not None else ("unknown", 0)
    function = next((outer.attributes["sym_name"] for outer in op.ancestors() if outer.name == "tt.func"), "unknown")
    words = [state.message(text) for text in (op.attributes["message"], file)]
    with only_if(state, fails):
        emit.call("void", "__assertfail", [*words, i32(line), state.message(function), Val("i64", "1")])


MESSAGES: dict[str, Callable[[CudaLowering, Operation], None]] = {"tt.print": _print, "tt.assert": _assert}
