"""Functions that stay functions: every thread passes its registers of a tile, and where the function's shared memory begins."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernelpack.backends.gpu.dialect import OFFSET, OWN_OBJECT, SHARED
from kernelpack.backends.gpu.lowering.state import SHARED as SHARED_POINTER
from kernelpack.backends.gpu.lowering.state import Lowering, register_type
from kernelpack.ir.core import Operation, Value, find_function
from kernelpack.ir.types import FloatType, IntegerType, PointerType, TensorType, Type, element_of
from kernelpack.layout.encoding import layout_of
from kernelpack.llvm.text import Val

_KERNELS_ALONE = {
    "ttg.warp_specialize": "has roles of warps",
    "tt.make_tensor_descriptor": "makes a tensor descriptor",
}
"""What only kernels do: the launcher, or the whole block, takes part."""


def why_inlined(call: Operation) -> str | None:
    """Returns why a function marked noinline cannot stay a function where it is called; None if it can."""
    for value in (*call.operands, *call.results):
        if not isinstance(element_of(value.type), (IntegerType, FloatType, PointerType)):
            return f"{value.type} does not pass between functions"
    module = next((outer for outer in call.ancestors() if outer.name == "builtin.module"), None)
    if module is None:
        return None
    for op in module.walk():
        if op.name in _KERNELS_ALONE:
            return f"the kernel {_KERNELS_ALONE[op.name]}"
    callee = find_function(module, call.attributes["callee"])
    if any(op.name == "ttng.warp_group_dot" for op in callee.walk()):
        return "asynchronous products do not cross functions"
    return None


def _registers(kind: Type) -> int:
    """Returns how many registers of a thread hold a value that passes between functions."""
    return layout_of(kind).in_size("register") if isinstance(kind, TensorType) else 1


def _result_types(values: Sequence[Value]) -> list[str]:
    return [register_type(value.type) for value in values for _ in range(_registers(value.type))]


def _returned(kinds: list[str]) -> str:
    """Returns the LLVM type that a function returns."""
    if len(kinds) < 2:
        return kinds[0] if kinds else "void"
    return "{" + ", ".join(kinds) + "}"


def begin_function(state: Lowering, function: Operation) -> str:
    """Defines a function's parameters and returns how its definition begins."""
    parameters: list[Val] = []
    for argument in function.body.arguments:
        count = _registers(argument.type)
        name = argument.name or f"arg{argument.index}"
        registers = [Val(register_type(argument.type), f"%{name}.{register}") for register in range(count)]
        state[argument] = registers
        parameters += registers
    if function.attributes.get(SHARED):
        state.memory = Val(SHARED_POINTER, "%shared.memory")
        parameters.append(state.memory)
    kind = _returned(_result_types(function.body.terminator.operands))
    # convergent: it may wait at barriers, which all threads must reach together
    linkage = "" if function.attributes.get(OWN_OBJECT) else "internal "
    return f"define {linkage}{kind} @{function.attributes['sym_name']}({', '.join(map(str, parameters))}) noinline convergent"


def end_function(state: Lowering, function: Operation) -> None:
    """Emits the return of a function or kernel."""
    emit = state.emit
    registers = [register for value in function.body.terminator.operands for register in state[value]]
    if len(registers) < 2:
        emit.line(f"ret {registers[0]}" if registers else "ret void")
        return
    kind = _returned([register.type for register in registers])
    aggregate = Val(kind, "poison")
    for index, register in enumerate(registers):
        aggregate = emit.op(kind, f"insertvalue {aggregate}, {register}, {index}")
    emit.line(f"ret {aggregate}")


def _call(state: Lowering, op: Operation) -> None:
    module = next(outer for outer in op.ancestors() if outer.name == "builtin.module")
    callee = find_function(module, op.attributes["callee"])
    arguments = [register for operand in op.operands for register in state[operand]]
    if callee.attributes.get(SHARED):
        arguments.append(state.emit.offset(state.memory, op.attributes[OFFSET]))
    kinds = _result_types(op.results)
    text = f"call {_returned(kinds)} @{op.attributes['callee']}({', '.join(map(str, arguments))}) convergent"
    if not kinds:
        state.emit.line(text)
        return
    returned = state.emit.op(_returned(kinds), text)
    registers = iter(state.fields(returned, kinds) if len(kinds) > 1 else [returned])
    for result in op.results:
        state[result] = [next(registers) for _ in range(_registers(result.type))]


CALLS: dict[str, Callable[[Lowering, Operation], None]] = {"tt.call": _call}
