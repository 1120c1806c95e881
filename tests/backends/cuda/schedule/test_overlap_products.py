"""Which products run on while others are issued, where each is waited for, and when warpgroups take turns."""

from __future__ import annotations

from typing import Any

import pytest

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.backends.cuda.schedule.overlap_products import has_lasting, summed_products
from kernelpack.backends.gpu.facts.products import loads_for_dots
from kernelpack.kernel.jit import JITFunction
from tests.backends.cuda.schedule.kernels import attention, product
from tests.backends.cuda.schedule.schedules import given_to, scheduled

ATTENTION = {"n": "i32", "B": 64, "D": 64}
PRODUCT = {"n": "i32", "BM": 128, "BN": 128, "BK": 64}


def test_a_product_is_waited_for_where_its_result_is_read() -> None:
    text = scheduled(attention, 8, 2, **ATTENTION).text.splitlines()
    assert text[0].startswith("loop at for: copies 1 iteration ahead into rings of 3 slots; cp.async groups, counted")
    assert text[1:] == [
        "  copy keys: 64x64xbf16",
        "  copy values: 64x64xbf16",
        "  copies are issued after ttng.warp_group_dot at scores",
        "  product total: ends in the next iteration",
        "  wait for product scores before math.exp2 at weights, 0 issued after it may be in flight",
        "  wait for product total before arith.mulf at total, 1 issued after it may be in flight",
    ]


def test_the_loop_that_follows_waits_there_and_after_its_last_iteration() -> None:
    made = scheduled(attention, 8, 2, **ATTENTION)
    (loop,) = made.loops()
    body = [name for name in made.names(loop, "math.exp2", "arith.mulf") if "copy" not in name and "commit" not in name]
    assert body == [
        "ttg.async_wait",
        "ttng.fence_async_shared",
        "gpu.barrier",
        "ttng.warp_group_dot",
        "ttng.warp_group_dot_wait",
        "math.exp2",
        "ttng.warp_group_dot_wait",
        "arith.mulf",
        "ttng.warp_group_dot",
    ]
    assert loop.parent is not None
    after = [op.name for op in loop.parent.operations[loop.parent.index(loop) :]]
    assert "ttng.warp_group_dot_wait" in after


def test_warpgroups_announce_a_step_and_go_on_instead_of_meeting() -> None:
    made = scheduled(attention, 8, 3, **ATTENTION)
    assert "warpgroups announce theirs, and go on when all have" in made.text
    (loop,) = made.loops()
    names = made.names(loop, "math.exp2")
    assert "gpu.barrier" not in names
    assert names.index("ttng.wait_turn") < names.index("ttng.arrive_turn") < names.index("math.exp2")


@pytest.mark.parametrize(("warps", "stages"), [(4, 3), (8, 2)])
def test_one_warpgroup_or_one_iteration_ahead_leaves_no_turns_to_take(warps: int, stages: int) -> None:
    made = scheduled(attention, warps, stages, **ATTENTION)
    assert "counted by each thread, then a barrier" in made.text
    assert "ttng.wait_turn" not in made.names(made.loops()[0])


def test_a_loop_that_only_sums_up_ends_its_product_before_the_next_copies() -> None:
    text = scheduled(product, 4, 3, **PRODUCT).text.splitlines()
    assert text[-1] == "  product total: ends in the next iteration"
    assert not any("wait for" in line for line in text)


@kp.jit
def read_twice(a, b, c, n, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows, columns, depth = tl.arange(0, BM)[:, None], tl.arange(0, BN)[None, :], tl.arange(0, BK)
    total = tl.zeros([BM, BN], tl.float32)
    largest = tl.zeros([BM, BN], tl.float32)
    for k in range(0, n, BK):
        x = tl.load(a + rows * n + (k + depth)[None, :])
        y = tl.load(b + (k + depth)[:, None] * n + columns)
        total = tl.dot(x, y, total)
        largest = tl.maximum(largest, total)
    tl.store(c + rows * n + columns, (total + largest).to(tl.bfloat16))


@kp.jit
def computed_tile(a, b, c, n, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows, columns, depth = tl.arange(0, BM)[:, None], tl.arange(0, BN)[None, :], tl.arange(0, BK)
    total = tl.zeros([BM, BN], tl.float32)
    for k in range(0, n, BK):
        x = tl.load(a + rows * n + (k + depth)[None, :])
        y = tl.load(b + (k + depth)[:, None] * n + columns)
        total = tl.dot(x, tl.exp(y.to(tl.float32)).to(tl.bfloat16), total)
    tl.store(c + rows * n + columns, total.to(tl.bfloat16))


@pytest.mark.parametrize(
    ("kernel", "types", "deferred", "lasting"),
    [
        (product, PRODUCT, 1, True),
        (read_twice, PRODUCT, 0, False),  # the sum is read in the loop
        (computed_tile, PRODUCT, 0, False),  # its tile is written anew in each iteration
        (attention, ATTENTION, 0, True),  # the sum is scaled before it is added to
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_who_may_end_an_iteration_later(kernel: JITFunction, types: dict[str, Any], deferred: int, lasting: bool) -> None:
    function = given_to("schedule", kernel, **types)
    loop = next(op for op in function.walk() if op.name == "scf.for")
    loads = loads_for_dots(loop)
    assert (len(summed_products(loop, loads).summed), has_lasting(loop, loads)) == (deferred, lasting)


@kp.jit
def scaled_sum(a, b, c, scales, n, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows, columns, depth = tl.arange(0, BM), tl.arange(0, BN)[None, :], tl.arange(0, BK)
    total = tl.zeros([BM, BN], tl.float32)
    for k in range(0, n, BK):
        x = tl.load(a + rows[:, None] * n + (k + depth)[None, :])
        y = tl.load(b + (k + depth)[:, None] * n + columns)
        part = tl.dot(x, y)
        total += part * tl.load(scales + k + rows)[:, None]
    tl.store(c + rows[:, None] * n + columns, total.to(tl.bfloat16))


def test_copies_are_issued_under_a_product_that_its_iteration_reads() -> None:
    """The scales are loaded with them, for the same iteration; one barrier, before the product, orders all."""
    made = scheduled(scaled_sum, 4, 3, **PRODUCT, scales="*fp32")
    assert made.text.splitlines()[1:] == [
        "  copy x: 128x64xbf16",
        "  copy y: 64x128xbf16",
        "  load total: in registers",
        "  copies are issued after ttng.warp_group_dot at part",
        "  wait for product part before arith.mulf at total, 0 issued after it may be in flight",
    ]
    (loop,) = made.loops()
    names = made.names(loop, "tt.load")
    first = ["ttg.async_wait", "ttng.fence_async_shared", "gpu.barrier"]
    assert [name for name in names if name in (*first, "ttng.warp_group_dot")][:4] == [*first, "ttng.warp_group_dot"]
    copies = [op for op in loop.body.operations if op.name == "ttg.async_copy_global_to_local"]
    assert names.index("ttng.warp_group_dot") < names.index(copies[0].name) < names.index("ttng.warp_group_dot_wait")
    assert all(op.attributes["free"] for op in copies)
