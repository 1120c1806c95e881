"""Atomic read-modify-write on global memory: once for every element, however many threads hold a copy."""

from __future__ import annotations

from collections.abc import Callable

from kernelpack.backends.cuda.lowering.shared_memory import buffer_address, only_if, read_tile, write_tile
from kernelpack.backends.cuda.lowering.state import Lowering
from kernelpack.backends.cuda.scratch import atomic_exchange_layout
from kernelpack.ir.core import Operation
from kernelpack.ir.dialect import attribute, operand, optional_operand
from kernelpack.ir.types import TensorType
from kernelpack.layout.encoding import layout_of
from kernelpack.llvm.text import Val

_OPCODES = {"exch": "xchg"}
_SCOPES = {"gpu": ' syncscope("device")', "cta": ' syncscope("block")', "sys": ""}


def _atomic_rmw(state: Lowering, op: Operation) -> None:
    emit = state.emit
    pointers, values = state[operand(op, "ptr")], state[operand(op, "val")]
    mask = optional_operand(op, "mask")
    opcode: str = op.attributes["atomic_rmw_op"]
    scope: str = _SCOPES[attribute(op, "scope")]
    order = attribute(op, "sem")
    owner = state.owner_of(op.operands[0].type)
    if order in ("release", "acq_rel"):
        emit.line(f"fence{scope} release")
    results = []
    for index, (pointer, value) in enumerate(zip(pointers, values, strict=True)):
        predicate = state.both(owner, state[mask][index] if mask is not None else None)
        results.append(_one(state, _OPCODES.get(opcode, opcode), pointer, value, scope, predicate))
    if order in ("acquire", "acq_rel"):
        emit.line(f"fence{scope} acquire")
    if op.result.uses and owner is not None:
        results = _give_to_copies(state, op, results)
    state[op.result] = results


def _one(state: Lowering, opcode: str, pointer: Val, value: Val, scope: str, predicate: Val | None) -> Val:
    """Emits one atomic, under a predicate; where it does not hold, the result is zero."""
    emit = state.emit
    text = f"atomicrmw {opcode} {pointer}, {value}{scope} monotonic"
    if predicate is None:
        return emit.op(value.type, text)
    then, end = emit.new_label("atomic"), emit.new_label("endatomic")
    before = emit.block
    emit.branch(predicate, then, end)
    emit.label(then)
    old = emit.op(value.type, text)
    emit.jump(end)
    emit.label(end)
    zero = "0" if value.type.startswith("i") else "0.0"
    return emit.op(value.type, f"phi {value.type} [ {old.name}, %{then} ], [ {zero}, %{before} ]")


def _give_to_copies(state: Lowering, op: Operation, results: list[Val]) -> list[Val]:
    """Sends what the owners got to the threads that hold copies."""
    emit, address = state.emit, buffer_address(state, op)
    if not isinstance(op.result.type, TensorType):
        with only_if(state, state.owner_of(op.result.type)):
            emit.store(results[0], address, 4)
        state.barrier()
        return [emit.load(results[0].type, address, 4)]
    layout = layout_of(op.result)
    memory = atomic_exchange_layout(op.result.type.shape)
    write_tile(state, address, memory, layout, results)
    state.barrier()
    return read_tile(state, address, memory, layout, op.result.type)


ATOMICS: dict[str, Callable[[Lowering, Operation], None]] = {"tt.atomic_rmw": _atomic_rmw}
