"""The two products of attention move apart: one of an iteration is computed under what the other one's result needs."""

from __future__ import annotations

from typing import Any

import pytest

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.backends.cuda.schedule.rotate_products import rotate_products
from kernelpack.ir.core import Operation
from kernelpack.ir.verify import verify
from kernelpack.kernel.jit import JITFunction
from tests.backends.cuda.schedule.kernels import attention, block_attention, block_product
from tests.backends.cuda.schedule.schedules import given_to, scheduled

SIZES = {"n": "i32", "B": 64, "D": 64}
SHOWN = ("tt.descriptor_load", "ttng.", "math.exp2", "arith.mulf", "scf.for")


def shown(operations: list[Operation]) -> list[str]:
    return [op.name for op in operations if op.name.startswith(SHOWN)]


def test_the_second_product_is_that_of_the_iteration_before() -> None:
    function = given_to("rotate_products", block_attention, warps=8, **SIZES)
    (loop,) = (op for op in function.walk() if op.name == "scf.for")
    load, product = "tt.descriptor_load", "ttng.warp_group_dot"
    assert shown(loop.body.operations) == [load, product, "math.exp2", load, "arith.mulf", product]
    rotated = rotate_products(function)
    verify(next(function.ancestors()))
    (loop,) = (op for op in function.walk() if op.name == "scf.for")
    assert shown(loop.body.operations) == [load, product, load, product, "math.exp2", "arith.mulf"]
    first, second = (op for op in loop.body.operations if op.name == product)
    assert (list(rotated), list(rotated[loop].awaited), rotated[loop].late) == ([loop], [first, second], [second])


def test_both_products_are_in_flight_until_their_results_are_read() -> None:
    made = scheduled(block_attention, 8, **SIZES)
    (loop,) = (op for op in made.loops() if any(inner.name == "math.exp2" for inner in op.body.operations))
    wait, product = "ttng.warp_group_dot_wait", "ttng.warp_group_dot"
    shown_ = [name for name in made.names(loop, "math.exp2", "arith.mulf") if name.startswith((product, "math", "arith"))]
    assert shown_ == [product, product, wait, "math.exp2", wait, "arith.mulf"]
    assert [op.attributes["isAsync"] for op in loop.body.operations if op.name == product] == [True, True]
    assert [op.attributes["pendings"] for op in loop.body.operations if op.name == wait] == [1, 0]
    assert "  product total: of the iteration before" in made.text.splitlines()


def test_the_first_scores_come_before_the_loop_and_the_last_product_after_it() -> None:
    function = given_to("rotate_products", block_attention, warps=8, **SIZES)
    rotate_products(function)
    (branch,) = (op for op in function.walk() if op.name == "scf.if")
    then, otherwise = (region.block for region in branch.regions)
    assert shown(then.operations) == [
        "tt.descriptor_load",
        "ttng.warp_group_dot",
        "math.exp2",
        "arith.mulf",
        "scf.for",
        "tt.descriptor_load",
        "ttng.warp_group_dot",
    ]
    assert [op.name for op in otherwise.operations] == ["scf.yield"]  # no iteration: what the loop begins with


def test_the_loop_begins_one_iteration_later() -> None:
    function = given_to("rotate_products", block_attention, warps=8, **SIZES)
    (loop,) = (op for op in function.walk() if op.name == "scf.for")
    lower, upper, step = loop.operands[:3]
    rotate_products(function)
    (loop,) = (op for op in function.walk() if op.name == "scf.for")
    start = loop.operands[0].defining_op
    assert start is not None
    assert (start.name, start.operands, loop.operands[1:3]) == ("arith.addi", [lower, step], [upper, step])


@kp.jit
def scaled_by_scores(q, k, v, out, n, B: tl.constexpr, D: tl.constexpr):
    """What is multiplied depends on the sum so far."""
    keys_of = tl.make_tensor_descriptor(k, [n, D], [D, 1], [B, D])
    values_of = tl.make_tensor_descriptor(v, [n, D], [D, 1], [B, D])
    rows, d = tl.arange(0, 128)[:, None], tl.arange(0, D)
    queries = tl.load(q + rows * D + d[None, :])
    total = tl.zeros([128, D], tl.float32)
    for start in range(0, n, B):
        scores = tl.dot(queries, keys_of.load([start, 0]).T)
        weights = tl.exp2(scores + total)
        total = tl.dot(weights.to(tl.bfloat16), values_of.load([start, 0]), total)
    tl.store(out + rows * D + d[None, :], total.to(tl.bfloat16))


@kp.jit
def stores_scores(q, k, v, out, n, B: tl.constexpr, D: tl.constexpr):
    keys_of = tl.make_tensor_descriptor(k, [n, D], [D, 1], [B, D])
    values_of = tl.make_tensor_descriptor(v, [n, D], [D, 1], [B, D])
    rows, d = tl.arange(0, 128)[:, None], tl.arange(0, D)
    queries = tl.load(q + rows * D + d[None, :])
    total = tl.zeros([128, D], tl.float32)
    for start in range(0, n, B):
        scores = tl.dot(queries, keys_of.load([start, 0]).T)
        tl.store(q + 128 * D + rows * D + tl.arange(0, B)[None, :], scores.to(tl.bfloat16))
        total = tl.dot(tl.exp2(scores).to(tl.bfloat16), values_of.load([start, 0]), total)
    tl.store(out + rows * D + d[None, :], total.to(tl.bfloat16))


@pytest.mark.parametrize(
    ("kernel", "warps", "types"),
    [
        (block_attention, 4, SIZES),  # one warpgroup: several blocks overlap better
        (attention, 8, SIZES),  # copies through pointers would hold up what should overlap
        (block_product, 8, {"n": "i32", "BM": 128, "BN": 128, "BK": 64, "ASK": False}),
        (scaled_by_scores, 8, SIZES),
        (stores_scores, 8, SIZES),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_other_loops_stay(kernel: JITFunction, warps: int, types: dict[str, Any]) -> None:
    function = given_to("rotate_products", kernel, warps=warps, **types)
    before = str(next(function.ancestors()))
    rotate_products(function)
    assert str(next(function.ancestors())) == before
