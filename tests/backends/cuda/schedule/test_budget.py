"""The account of shared memory and registers: how far loads run ahead, how many slots rings have, and what gives way."""

from __future__ import annotations

import pytest

from kernelpack.backends.cuda.machine.block_copies import block_accessed, buffer_type
from kernelpack.backends.cuda.machine.roles import REGISTERS
from kernelpack.backends.cuda.schedule.budget import BARRIER_BYTES, BLOCK_BYTES, Budget
from kernelpack.backends.cuda.schedule.loop_schedule import Copy
from kernelpack.backends.gpu.facts.products import loads_for_dots
from kernelpack.ir.core import Operation
from kernelpack.ir.dialects.descriptors import LOAD
from tests.backends.cuda.schedule.kernels import block_product, product
from tests.backends.cuda.schedule.schedules import given_to

TILE = 128 * 64 * 2
"""Bytes of one tile; an iteration loads two."""


def loop_of(function: Operation) -> Operation:
    return next(op for op in function.walk() if op.name == "scf.for")


POINTERS = given_to("schedule", product, n="i32", BM=128, BN=128, BK=64)
LOOP = loop_of(POINTERS)
LOADS = [op for op in LOOP.body.operations if op in loads_for_dots(LOOP)]
SMALL = given_to("schedule", product, n="i32", BM=64, BN=64, BK=64)
DESCRIPTORS = given_to("schedule", block_product, n="i32", BM=128, BN=128, BK=64, ASK=False)


def fit(tiles: int, ahead: int, lasting: bool = True, deferred: bool = True) -> tuple[int, int]:
    """What fits where shared memory holds a block with so many iterations' tiles."""
    assert len(LOADS) == 2
    return Budget(POINTERS, tiles * 2 * TILE + BLOCK_BYTES).fit(LOOP, LOADS, ahead, lasting, deferred)


def test_tiles_of_products_in_flight_last_for_an_iteration_where_there_is_room() -> None:
    assert fit(4, 2) == (2, 1)
    assert fit(3, 2) != (2, 1)


def test_products_that_nobody_defers_need_no_buffer_more() -> None:
    assert fit(1, 2, lasting=False) == (2, 0)


def test_without_room_two_iterations_ahead_are_worth_a_second_barrier() -> None:
    assert fit(3, 2) == (2, 0)


def test_without_room_tiles_are_loaded_one_iteration_less_ahead() -> None:
    assert fit(3, 2, deferred=False) == (1, 1)
    assert fit(4, 3) == (2, 1)


def test_one_iteration_ahead_stays() -> None:
    assert fit(2, 1) == (1, 0)


def test_a_buffer_more_may_not_cost_a_block_on_the_multiprocessor() -> None:
    """64 x 64 sums of four warps leave registers for five blocks; 16 KB an iteration are three or four blocks of shared memory."""
    loop = loop_of(SMALL)
    loads = [op for op in loop.body.operations if op in loads_for_dots(loop)]
    stage = 2 * 64 * 64 * 2
    as_many = Budget(SMALL, 2 * (4 * stage + BLOCK_BYTES))  # two blocks of four iterations' tiles
    assert as_many.fit(loop, loads, 2, True, True) == (2, 1)
    one_less = Budget(SMALL, 2 * (4 * stage + BLOCK_BYTES) - 1)
    assert one_less.fit(loop, loads, 2, True, True) == (2, 0)


def blocks_of(function: Operation) -> list[Operation]:
    return [op for op in function.walk() if op.name == LOAD]


@pytest.mark.parametrize("slots", [1, 2, 4])
def test_slots_of_a_ring_are_blocks_with_their_barriers(slots: int) -> None:
    loop, loads = loop_of(DESCRIPTORS), blocks_of(DESCRIPTORS)
    needed = slots * (2 * TILE + 2 * BARRIER_BYTES)
    assert Budget(DESCRIPTORS, needed).slots(loop, loads, loop) == slots
    assert Budget(DESCRIPTORS, needed - 1).slots(loop, loads, loop) == slots - 1


def test_slots_of_a_kernel_leave_room_for_what_it_stores() -> None:
    """The result is 128 x 128 halves, which lie in shared memory when the rings do."""
    loads = blocks_of(DESCRIPTORS)
    needed = 3 * 2 * TILE + 128 * 128 * 2 + BLOCK_BYTES
    ring = [Copy(load, buffer_type(block_accessed(load))) for load in loads]
    assert Budget(DESCRIPTORS, needed).slots_of_kernel(loads, [ring]) == 3
    assert Budget(DESCRIPTORS, needed - 1).slots_of_kernel(loads, [ring]) == 2


@pytest.mark.parametrize(
    ("few", "many", "registers"),
    [(1, 4, (0, 0)), (1, 8, (40, 232)), (4, 8, (40, 232)), (1, 12, (24, 160)), (5, 12, (24, 152))],
)
def test_what_copies_has_few_registers_and_what_computes_has_the_rest(few: int, many: int, registers: tuple[int, int]) -> None:
    assert Budget.registers_of_roles(few, many) == registers
    threads = -(-few // 4) * 128, many * 32
    assert sum(count * each for count, each in zip(threads, registers, strict=True)) <= REGISTERS
