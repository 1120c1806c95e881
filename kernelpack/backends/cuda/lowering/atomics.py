"""Atomic operations on global memory: once for every element, however many threads hold a copy."""

from __future__ import annotations

from collections.abc import Callable

from kernelpack.backends.cuda.lowering.global_memory import from_memory, to_memory
from kernelpack.backends.cuda.lowering.shared_memory import buffer_address, only_if, read_tile, write_tile
from kernelpack.backends.cuda.lowering.state import Lowering, memory_type
from kernelpack.backends.cuda.scratch import exchange_layout
from kernelpack.ir.core import Operation
from kernelpack.ir.dialect import attribute, operand, optional_operand
from kernelpack.ir.types import I1, TensorType, element_of
from kernelpack.layout.encoding import layout_of
from kernelpack.llvm.text import Val, literal

_OPCODES = {"exch": "xchg"}
_SCOPES = {"gpu": ' syncscope("device")', "cta": ' syncscope("block")', "sys": ""}

One = Callable[[int, str], Val]
"""Emits the atomic on one register in a scope, returns what was there before."""


def _atomic_rmw(state: Lowering, op: Operation) -> None:
    pointers, values = state[operand(op, "ptr")], state[operand(op, "val")]
    opcode: str = op.attributes["atomic_rmw_op"]

    def one(register: int, scope: str) -> Val:
        value = values[register]
        text = f"atomicrmw {_OPCODES.get(opcode, opcode)} {pointers[register]}, {value}{scope} monotonic"
        return state.emit.op(value.type, text)

    _atomic(state, op, one)


def _atomic_cas(state: Lowering, op: Operation) -> None:
    """Compares bits: numbers that are equal but differ in bits (zeros of both signs) count as different."""
    pointers, compared, values = (state[operand(op, name)] for name in ("ptr", "cmp", "val"))

    def one(register: int, scope: str) -> Val:
        emit = state.emit
        expected, value = (state.as_integer(registers[register]) for registers in (compared, values))
        pair = emit.op(f"{{{value.type}, i1}}", f"cmpxchg {pointers[register]}, {expected}, {value}{scope} monotonic monotonic")
        return state.from_integer(emit.op(value.type, f"extractvalue {pair}, 0"), values[register].type)

    _atomic(state, op, one)


def _atomic(state: Lowering, op: Operation, one: One) -> None:
    """Emits an atomic for every register that the thread owns, between the fences that its order asks for.

    A scalar's atomic releases what the whole program wrote before: its threads meet first, and one of them fences.
    """
    mask = optional_operand(op, "mask") if op.name == "tt.atomic_rmw" else None
    scope: str = _SCOPES[attribute(op, "scope")]
    releases, acquires = (attribute(op, "sem") in (order, "acq_rel") for order in ("release", "acquire"))
    owner = state.owner_of(op.operands[0].type)
    is_tile = isinstance(op.operands[0].type, TensorType)
    if releases and not is_tile:
        state.barrier()

    def fenced(register: int, scope: str) -> Val:
        _fence(state, scope, "release" if releases else None)
        old = one(register, scope)
        _fence(state, scope, "acquire" if acquires else None)
        return old

    if is_tile:
        _fence(state, scope, "release" if releases else None)
    results = []
    for index in range(len(state[op.operands[0]])):
        predicate = state.both(owner, state[mask][index] if mask is not None else None)
        results.append(_guarded(state, one if is_tile else fenced, index, scope, predicate))
    if is_tile:
        _fence(state, scope, "acquire" if acquires else None)
    if op.result.uses and owner is not None:
        results = _give_to_copies(state, op, results)
    state[op.result] = results


def _fence(state: Lowering, scope: str, order: str | None) -> None:
    if order is not None:
        state.emit.line(f"fence{scope} {order}")


def _guarded(state: Lowering, one: One, register: int, scope: str, predicate: Val | None) -> Val:
    """Emits one atomic, under a predicate; where it does not hold, the result is zero."""
    emit = state.emit
    if predicate is None:
        return one(register, scope)
    then, end = emit.new_label("atomic"), emit.new_label("endatomic")
    before = emit.block
    emit.branch(predicate, then, end)
    emit.label(then)
    old = one(register, scope)
    emit.jump(end)
    inside = emit.block
    emit.label(end)
    zero = "null" if old.type.startswith("ptr") else literal(0, old.type).name
    return emit.op(old.type, f"phi {old.type} [ {old.name}, %{inside} ], [ {zero}, %{before} ]")


def _give_to_copies(state: Lowering, op: Operation, results: list[Val]) -> list[Val]:
    """Sends what the owners got to the threads that hold copies."""
    emit, address = state.emit, buffer_address(state, op)
    if not isinstance(op.result.type, TensorType):
        kind = op.result.type
        stored = to_memory(state, results[0])
        with only_if(state, state.owner_of(kind)):
            emit.store(stored, address, 4)
        state.barrier()
        return [from_memory(state, emit.load(memory_type(kind), address, 4), element_of(kind) == I1)]
    layout = layout_of(op.result)
    memory = exchange_layout(op.result.type.shape)
    write_tile(state, address, memory, layout, results)
    state.barrier()
    return read_tile(state, address, memory, layout, op.result.type)


ATOMICS: dict[str, Callable[[Lowering, Operation], None]] = {"tt.atomic_rmw": _atomic_rmw, "tt.atomic_cas": _atomic_cas}
