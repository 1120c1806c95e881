"""Decides which loads through pointers run ahead: cp.async fills buffers for later iterations while the current one computes.

    for i:                              for s in 0 .. S-2:  copy tile s to buffer s; commit
        a = load pa            =>       for i:  wait until at most S-2 groups are in flight
        c = dot a, ...                          copy tile i+S-1 to its buffer; commit
        pa = pa + step                          c = dot (buffer i), ...

What the addresses of a load depend on runs ahead of the loop: it is computed S-1 iterations early, from copies of the loop's
carried values. Copies beyond the last iteration are masked off.

A product of warpgroups that the loop only sums up stays in flight while the next iteration starts, and so do some that
overlap_products finds. Their tiles are read for an iteration longer, so they have one buffer more; copies are then issued after the
first product, which they need not hold up. Where that buffer does not fit, they are issued after the wait and another barrier. Copies are
also issued after the first product where the iteration itself reads all products. Vectors, such as scales of the products, run ahead in
registers then: copies of four bytes take longer.

Where one buffer fewer lets more blocks onto a multiprocessor, copies fill the buffers of the iteration that issues them again, at its end:
other blocks compute meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kernelpack.analysis.axis_info import AxisInfoAnalysis
from kernelpack.backends.cuda.machine.async_copy import can_copy_async
from kernelpack.backends.cuda.machine.dialect import DOTS, PRODUCT
from kernelpack.backends.cuda.schedule.budget import Budget
from kernelpack.backends.cuda.schedule.loop_schedule import Arrival, Copy, LoopSchedule
from kernelpack.backends.cuda.schedule.overlap_products import (
    can_take_turns,
    has_lasting,
    overlapping_products,
    products_over_copies,
    summed_products,
)
from kernelpack.backends.cuda.schedule.run_ahead import addresses_of, innermost_loops, slice_of, unwritten
from kernelpack.backends.gpu.facts.conversion_cost import is_better_read
from kernelpack.backends.gpu.facts.memory_layouts import element_bits, memory_bits
from kernelpack.backends.gpu.facts.products import loads_for_dots
from kernelpack.ir.core import Operation, Value
from kernelpack.ir.dialect import attribute, operand, optional_operand
from kernelpack.ir.types import I1, MemDescType, TensorType
from kernelpack.ir.views import is_zero
from kernelpack.layout.convert import best_copied
from kernelpack.layout.encoding import SharedEncoding, layout_of
from kernelpack.layout.linear import LinearLayout


def schedule_pointer_loops(
    function: Operation, num_stages: int, bases: Mapping[Value, str], shared_bytes: int = 1 << 30
) -> list[LoopSchedule]:
    """Returns the schedules of the loops of a ttgir function that load tiles for products through pointers, inner loops first.

    Buffers that only keep products in flight are left out where they do not fit into `shared_bytes`. `bases` names the tensors of
    arguments that are descriptors.
    """
    facts, budget = AxisInfoAnalysis(function), Budget(function, shared_bytes)
    found: list[LoopSchedule] = []
    for loop, stages in innermost_loops(function, num_stages, found):
        copies = _candidates(loop, facts, bases)
        if copies:
            found.append(_schedule(loop, copies, stages, budget))
    return found


def _schedule(loop: Operation, copies: list[Copy], stages: int, budget: Budget) -> LoopSchedule:
    loads = [copy.load for copy in copies]
    products = summed_products(loop, loads)
    # Triton loads what addresses are made of a stage earlier than what lies there, which then has one slot less
    if stages > 2 and _wait_for_loads(loop, loads) and not budget.holds(loop, loads, stages):
        stages -= 1
    ahead, lag = budget.fit(loop, loads, stages - 1, has_lasting(loop, loads), bool(products))
    schedule = LoopSchedule(loop, copies, ahead, lag, products=products)
    if lag or products:
        first = next((op for op in loop.body.operations if op.name == PRODUCT), None)
        schedule.copies_after = first if lag and first is not None else loop.body.terminator
    schedule.products = overlapping_products(schedule)
    if can_take_turns(schedule):
        schedule.arrival = Arrival.TURNS
    if lag or schedule.products:
        return schedule
    if budget.gains_blocks(loop, loads, ahead):
        schedule.refills, schedule.copies_after = True, loop.body.terminator
    elif products := products_over_copies(schedule):
        feeding = loads_for_dots(loop)
        schedule.copies = [copy for copy in copies if copy.load in feeding]
        schedule.held = [load for load in loads if load not in feeding]
        schedule.products, schedule.copies_after = products, products.awaited[0]
    return schedule


def _wait_for_loads(loop: Operation, loads: Iterable[Operation]) -> bool:
    """Whether addresses of loads are made of what other loads give."""
    slices = (slice_of(loop, addresses_of(load)) for load in loads)
    return any(needed is not None and needed.loads for needed in slices)


def _candidates(loop: Operation, facts: AxisInfoAnalysis, bases: Mapping[Value, str]) -> list[Copy]:
    """Returns the loads of a loop that feed its dots and can run ahead; where there are any, also those of vectors, such as the
    scales of what the dots sum up."""
    steady, feeding = unwritten(loop, bases, DOTS), loads_for_dots(loop)
    found, addresses = [], set()
    for op in loop.body.operations:
        if op.name != "tt.load" or op not in steady or not op.result.uses or not isinstance(op.result.type, TensorType):
            continue
        if len(op.result.type.shape) > 1 and op not in feeding:
            continue
        copy, slice_ = _as_async(op, facts), slice_of(loop, addresses_of(op))
        if copy is not None and slice_ is not None and all(other in steady for other in slice_.loads):
            found.append(copy)
            addresses.update(slice_.loads)
    # a load that another one's address depends on runs ahead with that address, without a buffer
    found = [copy for copy in found if copy.load not in addresses]
    return found if any(copy.load in feeding for copy in found) else []


def _as_async(op: Operation, facts: AxisInfoAnalysis) -> Copy | None:
    """Returns how a load can be an asynchronous copy, which fills with zeros and moves at least four bytes; None if it cannot."""
    other = optional_operand(op, "other")
    if attribute(op, "is_volatile") or (other is not None and not is_zero(other)):
        return None
    kind = op.result.type
    assert isinstance(kind, TensorType)
    if kind.element == I1:
        return None
    buffers = [user for user in op.result.users() if user.name == "ttg.local_alloc"]
    encoding = buffers[0].result.type.encoding if buffers and isinstance(buffers[0].result.type, MemDescType) else None
    if isinstance(encoding, SharedEncoding):
        memory = encoding
    else:
        memory = SharedEncoding(_memory_of(op))
    pointer, mask = operand(op, "ptr"), optional_operand(op, "mask")
    if not can_copy_async(pointer, mask, memory.layout, element_bits(op), facts):
        return None
    return Copy(op, MemDescType(kind.shape, kind.element, memory, True))


def _memory_of(load: Operation) -> LinearLayout:
    """Returns the memory layout of a load's buffers: for the layout that it has or, where all users convert it to another, for that if reading
    it so costs no more than converting it."""
    own, bits = layout_of(load.result), memory_bits(load.result.type)
    memory = best_copied(own, bits)
    wishes = {layout_of(user.result) if user.name == "ttg.convert_layout" else own for user in load.result.users()}
    if len(wishes) != 1 or own in wishes:
        return memory
    (wanted,) = wishes
    other = best_copied(own, bits, wanted)
    return other if is_better_read(own, memory, wanted, other, bits) else memory
