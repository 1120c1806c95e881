"""What is decided of a function as a whole: loops or a warp of its own, which loop is rewritten first, and what may not run on."""

from __future__ import annotations

from typing import Any

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.backends.cuda.schedule.decide import decide
from kernelpack.backends.cuda.schedule.loop_schedule import Arrival, Schedule, Wait
from kernelpack.backends.cuda.schedule.rewrite_loops import rewrite_loops
from kernelpack.backends.cuda.schedule.rewrite_roles import rewrite_roles
from kernelpack.backends.cuda.schedule.rotate_products import rotate_products
from kernelpack.ir.core import Operation
from kernelpack.ir.verify import verify
from kernelpack.kernel.jit import JITFunction
from tests.backends.cuda.schedule.kernels import attention, block_attention, block_product, product
from tests.backends.cuda.schedule.schedules import given_to

SIZES = {"n": "i32", "B": 64, "D": 64}
SHARED = 227 << 10
PRODUCT, WAIT = "ttng.warp_group_dot", "ttng.warp_group_dot_wait"


def decided(
    kernel: JITFunction, *, warps: int = 8, stages: int = 3, shared: int = SHARED, roles: bool = True, **types: Any
) -> tuple[Operation, Schedule]:
    """A function whose loops are rotated, and what is decided of it."""
    function = given_to("rotate_products", kernel, warps=warps, stages=stages, **types)
    rotated = rotate_products(function)
    return function, decide(function, warps, stages, {}, shared, rotated, may_have_roles=roles)


def named(function: Operation, name: str) -> list[Operation]:
    return [op for op in function.walk() if op.name == name]


def test_a_warp_of_its_own_or_loops_copy() -> None:
    _, with_roles = decided(block_attention, **SIZES)
    assert (with_roles.roles is not None, with_roles.loops) == (True, [])
    _, without = decided(block_attention, roles=False, **SIZES)
    assert (without.roles, [loop.arrival for loop in without.loops]) == (None, [Arrival.FULL])


@kp.jit
def pointers_then_blocks(a, b, c, n, BM: tl.constexpr, BK: tl.constexpr, ASK: tl.constexpr):
    rows, depth = tl.arange(0, BM)[:, None], tl.arange(0, BK)
    first = tl.zeros([BM, BM], tl.float32)
    for k in range(0, n, BK):
        first = tl.dot(tl.load(a + rows * n + (k + depth)[None, :]), tl.load(b + rows * n + (k + depth)[None, :]).T, first)
    left = tl.make_tensor_descriptor(a, [n, n], [n, 1], [BM, BK])
    right = tl.make_tensor_descriptor(b, [n, n], [n, 1], [BM, BK])
    second = tl.zeros([BM, BM], tl.float32)
    for k in tl.range(0, n, BK, warp_specialize=ASK):
        second = tl.dot(left.load([0, k]), right.load([0, k]).T, second)
    tl.store(c + rows * BM + tl.arange(0, BM)[None, :], (first + second).to(tl.bfloat16))


def test_a_warp_of_its_own_copies_only_where_no_loop_loads_tiles_through_pointers() -> None:
    function, schedule = decided(pointers_then_blocks, n="i32", BM=128, BK=64, ASK=True)
    assert schedule.roles is None
    assert [loop.arrival for loop in schedule.loops] == [Arrival.FULL, Arrival.GROUPS]  # the last loop first
    (copied,) = (loop for loop in schedule.loops if loop.arrival is Arrival.FULL)
    before = {loop.loop for loop in schedule.loops if loop is not copied}
    assert copied.start is not None
    assert function.body.index(copied.start) > max(map(function.body.index, before))  # whose buffers are free then
    rewrite_loops(schedule.loops)
    verify(next(function.ancestors()))


def test_products_of_a_rotated_loop_without_room_for_copies_still_run_on() -> None:
    function, schedule = decided(block_attention, roles=False, shared=1024, **SIZES)
    (loop,) = schedule.loops
    assert (len(loop.copies), len(loop.products.awaited)) == (0, 2)
    assert str(loop).splitlines()[0].endswith("products run on")
    rewrite_loops(schedule.loops)
    verify(next(function.ancestors()))
    body = [op.name for op in loop.loop.body.operations if op.name in (PRODUCT, WAIT, "math.exp2", "arith.mulf")]
    assert body == [PRODUCT, PRODUCT, WAIT, "math.exp2", WAIT, "arith.mulf"]
    assert [op.attributes["pendings"] for op in named(loop.loop, WAIT)] == [1, 0]


def test_products_that_wait_at_once_have_no_waits_and_no_turns() -> None:
    for kernel, types in ((attention, SIZES), (product, {"n": "i32", "BM": 128, "BN": 128, "BK": 64})):
        function, schedule = decided(kernel, **types)
        assert schedule.runs_on
        schedule.wait_at_once()
        assert not schedule.runs_on
        assert all(loop.arrival is Arrival.GROUPS for loop in schedule.loops)
        rewrite_loops(schedule.loops)
        verify(next(function.ancestors()))
        assert named(function, WAIT) == []
        assert not any(op.attributes["isAsync"] for op in named(function, PRODUCT) if "isAsync" in op.attributes)


def test_a_warp_of_its_own_is_told_of_slots_that_products_which_wait_at_once_have_read() -> None:
    for kernel, types in ((block_attention, SIZES), (block_product, {"n": "i32", "BM": 128, "BN": 128, "BK": 64, "ASK": True})):
        function, schedule = decided(kernel, **types)
        schedule.wait_at_once()
        assert schedule.roles is not None
        assert not any(isinstance(group.done, Wait) for group in schedule.roles.groups)
        releases = len(schedule.roles.groups) + sum(group.done is None for group in schedule.roles.groups)
        rewrite_roles(function, schedule.roles, 8)
        verify(next(function.ancestors()))
        assert named(function, WAIT) == []
        assert len(named(function, "ttng.arrive_barrier")) == releases  # the last slot of a loop is given back after it


def test_a_function_without_such_loops_has_an_empty_schedule() -> None:
    _, schedule = decided(product, warps=4, stages=1, n="i32", BM=64, BN=64, BK=32)
    assert (schedule.loops, schedule.roles, str(schedule), schedule.runs_on) == ([], None, "", False)
