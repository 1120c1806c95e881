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

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from kernelpack.backends.cuda.machine.block_copies import block_accessed, buffer_type
from kernelpack.backends.cuda.machine.dialect import DOTS, WAIT
from kernelpack.backends.cuda.schedule.budget import Budget
from kernelpack.backends.cuda.schedule.loop_schedule import Arrival, Copy, LoopSchedule, Products
from kernelpack.backends.cuda.schedule.overlap_products import summed_products
from kernelpack.backends.cuda.schedule.run_ahead import Slice, initial_of, innermost_loops, slice_of, unwritten
from kernelpack.backends.gpu.facts.roles import role_of
from kernelpack.ir.core import Operation, Value
from kernelpack.ir.dialect import Effect, effects_of, operands_called
from kernelpack.ir.dialects.descriptors import LOAD
from kernelpack.ir.views import For

_PRODUCTS = (*DOTS, WAIT)  # a kernel's author may wait by hand


def schedule_descriptor_loops(
    function: Operation,
    num_stages: int,
    bases: Mapping[Value, str],
    shared_bytes: int = 1 << 30,
    rotated: Mapping[Operation, Products] = MappingProxyType({}),
    others: Sequence[LoopSchedule] = (),
) -> list[LoopSchedule]:
    """Returns the schedules of the loops of a ttgir function that load blocks through descriptors, inner loops first.

    Loops whose blocks do not fit into `shared_bytes` in so many stages have fewer. `bases` names the tensors of arguments that are
    descriptors, `rotated` what products of rotated loops do, `others` the loops that have a schedule already.
    """
    budget = Budget(function, shared_bytes)
    scheduled = list(others)
    for loop, stages in innermost_loops(function, num_stages, scheduled):
        loads = _candidates(loop, bases) if role_of(loop) is None else []
        if loads:
            early = _earliest(loop, loads, others)
            start = early if budget.slots(loop, loads, early) >= stages else loop
            slots = min(stages, budget.slots(loop, loads, start))
            if slots > 1:
                scheduled.append(_schedule(loop, loads, slots, start, rotated.get(loop)))
    return scheduled[len(others) :]


def _schedule(loop: Operation, loads: list[Operation], slots: int, start: Operation, products: Products | None) -> LoopSchedule:
    products = summed_products(loop, loads) if products is None else products
    lag = 1 if products.summed else 0
    copies = [Copy(load, buffer_type(block_accessed(load))) for load in loads]
    return LoopSchedule(loop, copies, slots - lag, lag, Arrival.FULL, start, loop.body.terminator, products)


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


def _earliest(loop: Operation, loads: list[Operation], others: Sequence[LoopSchedule]) -> Operation:
    """Returns the operation in front of which the first copies can start: after all that their coordinates need, after what may
    write what they read, after loads that are waited for before, and after `others`, whose buffers are free then."""
    slice_ = _slice(loop, loads)
    needed = {*For.of(loop).bounds, *(initial_of(argument) for argument in slice_.carried)}
    needed |= {operand for op in (*slice_.operations, *loads) for operand in op.operands}
    block = loop.parent
    assert block is not None
    start = loop
    for op in reversed(block.operations[: block.index(loop)]):
        keeps = op.name in _PRODUCTS or not {Effect.WRITE_GLOBAL, Effect.SYNCHRONISE, Effect.OTHER} & effects_of(op)
        ends = op.name == LOAD or any(result in needed for result in op.results) or any(other.loop is op for other in others)
        if not keeps or ends:
            break
        start = op
    return start
