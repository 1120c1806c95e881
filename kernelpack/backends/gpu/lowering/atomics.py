"""Atomic operations on global memory: once for every element, however many threads hold a copy."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernelpack.backends.gpu.facts.scratch import exchange_layout
from kernelpack.backends.gpu.lowering.global_memory import from_memory, to_memory
from kernelpack.backends.gpu.lowering.shared_memory import buffer_address, only_if, read_tile, write_tile
from kernelpack.backends.gpu.lowering.state import Lowering, memory_type
from kernelpack.ir.core import Operation
from kernelpack.ir.dialect import attribute, operand, optional_operand
from kernelpack.ir.types import I1, TensorType, element_of
from kernelpack.layout.encoding import layout_of
from kernelpack.llvm.text import Val, literal


def atomic(
    state: Lowering,
    op: Operation,
    update: Callable[[Sequence[int], Val | None], list[Val]],
    together: Sequence[Sequence[int]] | None = None,
) -> None:
    """Emits an atomic for every register that the thread owns, or for those that are updated `together`.

    `update` emits that of some registers, neighbours in memory, under a predicate. A scalar's atomic releases what the whole
    program wrote before: its threads meet first.
    """
    mask = optional_operand(op, "mask") if op.name == "tt.atomic_rmw" else None
    pointers = operand(op, "ptr").type
    owner = state.owner_of(pointers)
    if not isinstance(pointers, TensorType) and attribute(op, "sem") in ("release", "acq_rel"):
        state.barrier()
    results = list(state[operand(op, "val")])
    for registers in together or [[index] for index in range(len(results))]:
        predicate = state.both(owner, state[mask][registers[0]] if mask is not None else None)
        for register, old in zip(registers, update(registers, predicate), strict=True):
            results[register] = old
    if op.result.uses and owner is not None:
        results = _give_to_copies(state, op, results)
    state[op.result] = results


def by_llvm(
    state: Lowering, what: str, pointer: Val, operands: Sequence[Val], scope: str, order: str, predicate: Val | None
) -> Val:
    """Emits an update by LLVM's `atomicrmw`, which makes a loop of compare-and-swap of what the hardware does not have. Where the
    predicate does not hold, the result is zero."""
    emit, (value, *_) = state.emit, operands
    words = ", ".join(map(str, operands))
    text = f"{what} {pointer}, {words}{state.scopes[scope]} {'monotonic' if order == 'relaxed' else order}"
    if predicate is None:
        return emit.op(value.type, text)
    then, end = emit.new_label("atomic"), emit.new_label("endatomic")
    before = emit.block
    emit.branch(predicate, then, end)
    emit.label(then)
    old = emit.op(value.type, text)
    emit.jump(end)
    emit.label(end)
    return emit.op(value.type, f"phi {value.type} [ {old.name}, %{then} ], [ {literal(0, value.type).name}, %{before} ]")


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
