"""Decides which loads through descriptors run ahead: TMA fills a ring of buffers for later iterations while the current one computes.

    for i:                                  for s in 0 .. S-2:  expect full[s]; copy block s to buffer s
        a = descriptor_load d[.., i]  =>    for i:  wait for full[slot], phase
        c = dot a, ...                              c = dot (buffer slot), ...
                                                    wait until one product is in flight: that of i-1 is done
                                                    expect full[slot-1]; copy block i+S-1 to buffer slot-1

One thread issues the copies after the products, which they would hold up otherwise; their bytes arrive at the buffer's mbarrier.
Without products that stay in flight, the buffer of the iteration itself is filled again. Coordinates run ahead as addresses do in
pointer_loops.
"""

from __future__ import annotations

from collections.abc import Mapping

from kernelpack.backends.cuda.machine.block_copies import block_accessed, buffer_type
from kernelpack.backends.cuda.machine.dialect import DOTS, WAIT
from kernelpack.backends.cuda.schedule.budget import Budget
from kernelpack.backends.cuda.schedule.loop_schedule import LoopSchedule, Ring, Sync
from kernelpack.backends.cuda.schedule.overlap_products import deferrable
from kernelpack.backends.cuda.schedule.run_ahead import Slice, initial_of, innermost_loops, slice_of, unwritten
from kernelpack.backends.gpu.facts.roles import role_of
from kernelpack.ir.core import Operation, Value
from kernelpack.ir.dialect import Effect, effects_of, operands_called
from kernelpack.ir.dialects.descriptors import LOAD
from kernelpack.ir.views import For

_PRODUCTS = (*DOTS, WAIT)


def schedule_descriptor_loops(
    function: Operation, num_stages: int, bases: Mapping[Value, str], shared_bytes: int = 1 << 30
) -> list[LoopSchedule]:
    """Returns the schedules of the loops of a ttgir function that load blocks through descriptors, inner loops first.

    Loops whose blocks do not fit into `shared_bytes` in so many stages have fewer. `bases` names the tensors of arguments that are
    descriptors.
    """
    budget = Budget(function, shared_bytes)
    found: list[LoopSchedule] = []
    for loop, stages in innermost_loops(function, num_stages, found):
        loads = _candidates(loop, bases) if role_of(loop) is None else []
        if loads:
            early = _earliest(loop, loads)
            start = early if budget.slots(loop, loads, early) >= stages else loop
            slots = min(stages, budget.slots(loop, loads, start))
            if slots > 1:
                found.append(_schedule(loop, loads, slots, start))
    return found


def _schedule(loop: Operation, loads: list[Operation], slots: int, start: Operation) -> LoopSchedule:
    rings = [Ring(load, buffer_type(block_accessed(load))) for load in loads]
    summed = deferrable(loop, loads)
    lag = 1 if summed else 0
    return LoopSchedule(loop, rings, slots - lag, lag, Sync.FULL, start, loop.body.terminator, summed)


def _candidates(loop: Operation, bases: Mapping[Value, str]) -> list[Operation]:
    """Returns the loads of a loop that can run ahead."""
    steady = unwritten(loop, bases, _PRODUCTS)
    found = []
    for op in loop.body.operations:
        if op.name == LOAD and op in steady:
            slice_ = slice_of(loop, operands_called(op, "indices"))
            if slice_ is not None and all(other in steady for other in slice_.loads):
                found.append(op)
    return found


def _slice(loop: Operation, loads: list[Operation]) -> Slice:
    found = slice_of(loop, [index for load in loads for index in operands_called(load, "indices")])
    assert found is not None
    return found


def _earliest(loop: Operation, loads: list[Operation]) -> Operation:
    """Returns the operation in front of which the first copies can start: behind all that their coordinates need, behind what
    may write what they read, and behind loads that are waited for before."""
    slice_ = _slice(loop, loads)
    needed = {*For.of(loop).bounds, *(initial_of(argument) for argument in slice_.carried)}
    needed |= {operand for op in (*slice_.operations, *loads) for operand in op.operands}
    block = loop.parent
    assert block is not None
    start = loop
    for op in reversed(block.operations[: block.index(loop)]):
        keeps = op.name in _PRODUCTS or not {Effect.WRITE_GLOBAL, Effect.SYNCHRONISE, Effect.OTHER} & effects_of(op)
        if not keeps or op.name == LOAD or any(result in needed for result in op.results):
            break
        start = op
    return start
