"""Which loads a warp of its own does: those that only products read, that it can find by itself, and that nobody writes before."""

from __future__ import annotations

from typing import Any

import pytest

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.backends.cuda.schedule.schedule_roles import schedule_roles
from kernelpack.kernel.jit import JITFunction
from tests.backends.cuda.schedule.kernels import attention, block_attention, block_product
from tests.backends.cuda.schedule.schedules import given_to, scheduled

PRODUCT = {"n": "i32", "BM": 128, "BN": 128, "BK": 64, "ASK": True}
ATTENTION = {"n": "i32", "B": 64, "D": 64}


def test_loads_of_one_product_share_a_ring() -> None:
    text = scheduled(block_product, 8, **PRODUCT).text.splitlines()
    assert text[0].endswith("rings of 3 slots; TMA, full and empty mbarriers")
    assert text[1:] == [
        "  copy x: 128x64xbf16",
        "  copy y: 128x64xbf16",
        "  read until the next iteration's products were issued",
        "loop at for:",
        "  product total: ends in the next iteration",
    ]


def test_keys_and_values_have_a_ring_each_which_loads_outside_of_the_loop_use_too() -> None:
    text = scheduled(block_attention, 8, **ATTENTION).text.splitlines()
    assert text[0].startswith("a warp of its own copies into 2 rings of 3 slots")
    copies = [line.strip() for line in text[1:] if "copy" in line or "read" in line]
    assert copies == [
        "copy keys: 64x64xbf16",  # of the first iteration, before the loop
        "read until ttng.warp_group_dot at scores",
        "copy values: 64x64xbf16",  # of the last iteration, after the loop
        "read until ttng.warp_group_dot at total",
        "copy keys: 64x64xbf16",
        "read until product scores is done",
        "copy values: 64x64xbf16",
        "read until product total is done",
    ]


def decided(kernel: JITFunction, warps: int = 8, stages: int = 3, shared: int = 227 << 10, **types: Any) -> int:
    """The slots of the rings that a kernel's loads get; 0 where no warp of its own loads."""
    function = given_to("schedule", kernel, warps=warps, stages=stages, **types)
    schedule = schedule_roles(function, warps, stages, {}, shared)
    return 0 if schedule is None else schedule.slots


@pytest.mark.parametrize(("stages", "slots"), [(2, 2), (3, 3), (5, 5)])
def test_rings_have_as_many_slots_as_stages_are_asked_for(stages: int, slots: int) -> None:
    assert decided(block_product, stages=stages, **PRODUCT) == slots


@pytest.mark.parametrize(("iterations", "slots"), [(4, 4), (2, 2), (1, 0)])
def test_rings_have_as_many_slots_as_fit(iterations: int, slots: int) -> None:
    """A slot is two tiles of 16 KB; the result of 32 KB lies beside them."""
    room = iterations * 2 * 128 * 64 * 2 + 128 * 128 * 2 + 1024
    assert decided(block_product, stages=8, shared=room, **PRODUCT) == slots


@kp.jit
def tile_also_stored(a, b, c, n, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, ASK: tl.constexpr):
    left = tl.make_tensor_descriptor(a, [n, n], [n, 1], [BM, BK])
    right = tl.make_tensor_descriptor(b, [n, n], [n, 1], [BN, BK])
    total = tl.zeros([BM, BN], tl.float32)
    for k in tl.range(0, n, BK, warp_specialize=ASK):
        x, y = left.load([0, k]), right.load([0, k])
        total = tl.dot(x, y.T, total)
        tl.store(c + BM * BN + tl.arange(0, BM)[:, None] * BK + tl.arange(0, BK)[None, :], x)
        tl.store(c + BM * BN * 2 + tl.arange(0, BN)[:, None] * BK + tl.arange(0, BK)[None, :], y)
    tl.store(c + tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :], total.to(tl.bfloat16))


@kp.jit
def place_from_a_tile(a, b, c, n, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, ASK: tl.constexpr):
    left = tl.make_tensor_descriptor(a, [n, n], [n, 1], [BM, BK])
    right = tl.make_tensor_descriptor(b, [n, n], [n, 1], [BN, BK])
    total = tl.zeros([BM, BN], tl.float32)
    for k in tl.range(0, n, BK, warp_specialize=ASK):
        at = tl.max(tl.load(c + k + tl.arange(0, 64)).to(tl.int32), 0)
        total = tl.dot(left.load([at, k]), right.load([at, k]).T, total)
    tl.store(c + tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :], total.to(tl.bfloat16))


@kp.jit
def written_before(a, b, c, n, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, ASK: tl.constexpr):
    left = tl.make_tensor_descriptor(a, [n, n], [n, 1], [BM, BK])
    right = tl.make_tensor_descriptor(b, [n, n], [n, 1], [BN, BK])
    total = tl.zeros([BM, BN], tl.float32)
    tl.store(a + tl.arange(0, BK), 1.0)
    tl.debug_barrier()
    for k in tl.range(0, n, BK, warp_specialize=ASK):
        total = tl.dot(left.load([0, k]), right.load([0, k]).T, total)
    tl.store(c + tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :], total.to(tl.bfloat16))


@pytest.mark.parametrize(
    ("kernel", "warps", "types"),
    [
        (block_product, 8, PRODUCT | {"ASK": False}),  # nobody asked for it
        (block_attention, 4, ATTENTION),  # one warpgroup
        (attention, 8, ATTENTION),  # loads through pointers
        (tile_also_stored, 8, PRODUCT),
        (place_from_a_tile, 8, PRODUCT),
        (written_before, 8, PRODUCT),
        (block_product, 32, PRODUCT),  # no warp is left
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_loads_that_stay_where_they_are(kernel: JITFunction, warps: int, types: dict[str, Any]) -> None:
    assert decided(kernel, warps, **types) == 0
