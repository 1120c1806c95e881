"""A warp that copies and warps that multiply: rings with full and empty barriers, and what each role does in an iteration."""

from __future__ import annotations

import pytest

from kernelpack.ir.core import Operation, entry_function
from tests.backends.cuda.schedule.kernels import block_attention, block_product
from tests.backends.cuda.schedule.schedules import scheduled

PRODUCT = {"n": "i32", "BM": 128, "BN": 128, "BK": 64, "ASK": True}
ATTENTION = {"n": "i32", "B": 64, "D": 64}


def roles(kernel: Operation) -> list[Operation]:
    return [op for op in entry_function(kernel).walk() if op.name == "ttg.role"]


def steps(block: Operation) -> list[str]:
    """What a loop does with barriers, copies and products."""
    short = {
        "ttng.wait_barrier": "wait",
        "ttng.barrier_expect": "expect",
        "ttng.async_tma_copy_global_to_local": "copy",
        "ttng.warp_group_dot": "product",
        "ttng.warp_group_dot_wait": "done",
        "ttng.arrive_barrier": "arrive",
    }
    return [short[op.name] for op in block.body.operations if op.name in short]


def loop_in(role: Operation) -> Operation:
    return next(op for op in role.walk() if op.name == "scf.for")


def test_the_loader_waits_for_an_empty_slot_and_the_others_for_a_full_one() -> None:
    made = scheduled(block_product, 8, **PRODUCT)
    loads, multiplies = roles(made.module)
    assert steps(loop_in(loads)) == ["wait", "expect", "copy", "copy"]
    assert steps(loop_in(multiplies)) == ["wait", "product", "done", "arrive"]
    (expect,) = (op for op in loop_in(loads).body.operations if op.name == "ttng.barrier_expect")
    assert expect.attributes["size"] == 2 * 128 * 64 * 2


def test_a_slot_is_free_when_every_warpgroup_has_read_it() -> None:
    """Full: one arrival, of the loader. Empty: one of each of two warpgroups; one barrier more for those who have read nothing yet."""
    made = scheduled(block_product, 8, 3, **PRODUCT)
    counts = [op.attributes["count"] for op in entry_function(made.module).walk() if op.name == "ttng.init_barrier"]
    assert counts[:7] == [1, 1, 1, 2, 2, 2, 2]
    arrivals = [op for op in roles(made.module)[1].walk() if op.name == "ttng.arrive_barrier"]
    assert all(op.attributes.get("every") == 4 for op in arrivals)


@pytest.mark.parametrize(("warps", "registers"), [(8, [40, 232]), (4, [0, 0])])
def test_the_loader_gives_registers_to_those_who_multiply(warps: int, registers: list[int]) -> None:
    found = roles(scheduled(block_product, warps, **PRODUCT).module)
    assert [(role.attributes["num_warps"], role.attributes["copies"]) for role in found] == [(1, 1), (warps, 1)]
    assert [role.attributes["registers"] for role in found] == registers


def test_keys_and_values_are_waited_for_and_given_back_each_on_its_own() -> None:
    loads, multiplies = roles(scheduled(block_attention, 8, **ATTENTION).module)
    assert steps(loop_in(loads)) == ["wait", "expect", "copy"] * 2
    assert steps(loop_in(multiplies)) == ["wait", "product", "wait", "product", "done", "arrive", "done", "arrive"]


def test_nothing_of_the_kernel_is_left_outside_of_the_roles_but_rings_and_barriers() -> None:
    made = scheduled(block_product, 8, **PRODUCT)
    outside = {op.name for op in entry_function(made.module).body.operations}
    assert "ttg.warp_specialize" in outside
    assert not {"scf.for", "ttng.warp_group_dot", "tt.store"} & outside
    assert {"ttg.local_alloc", "ttng.init_barrier"} <= outside


def test_both_roles_carry_the_place_in_the_ring_and_the_loader_no_tile() -> None:
    loads, multiplies = (loop_in(role) for role in roles(scheduled(block_product, 8, **PRODUCT).module))
    assert [str(value.type) for value in loads.body.arguments] == ["i32", "i32"]
    kinds = [str(value.type).partition("<")[0] for value in multiplies.body.arguments]
    assert kinds.count("tensor") == 1
    assert "i32" in kinds[1:]
