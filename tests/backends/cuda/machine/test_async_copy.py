"""Which copies to shared memory the hardware does on its own: neighbours in both memories, at least four bytes."""

from __future__ import annotations

import pytest

from kernelpack.analysis.axis_info import AxisInfoAnalysis
from kernelpack.backends.cuda.machine.async_copy import async_copy_bits, can_copy_async
from kernelpack.ir.core import Operation
from kernelpack.layout.families import Threads, spread, swizzled
from kernelpack.layout.linear import LinearLayout
from tests.backends.gpu.lowering.llir import parse

LINE = spread((128,), 4, (0,), Threads(1, 32))


def load(
    mask: str = "", kind: str = "f32", aligned: int = 16, layout: LinearLayout = LINE
) -> tuple[Operation, AxisInfoAnalysis]:
    """A load of consecutive elements under a mask %m that `mask` computes."""
    module = parse(
        f"""
        %i = tt.make_range {{end = 128 : i32, start = 0 : i32}} : tensor<128xi32, $L>
        %q = tt.splat %p : !tt.ptr<{kind}> -> tensor<128x!tt.ptr<{kind}>, $L>
        %a = tt.addptr %q, %i : tensor<128x!tt.ptr<{kind}>, $L>, tensor<128xi32, $L>
        {mask}
        %x = tt.load %a{", %m" if mask else ""} : tensor<128x!tt.ptr<{kind}>, $L>
        """,
        f"%p: !tt.ptr<{kind}> {{tt.divisibility = {aligned} : i32}}, %n: i32, %o: tensor<128xi32, $L>, %some: tensor<128xi1, $L>",
        {"L": layout},
    )
    function = module.body.operations[0]
    return next(op for op in function.walk() if op.name == "tt.load"), AxisInfoAnalysis(function)


BITS = {"f32": 32, "f16": 16, "i8": 8}
BOUND = "%e = tt.splat %n : i32 -> tensor<128xi32, $L>\n%m = arith.cmpi {}, %i, %e : tensor<128xi32, $L>"


def together(mask: str = "", memory: LinearLayout | None = None, **more: object) -> int:
    """How many elements one copy moves."""
    op, facts = load(mask, **more)
    pointer, *rest = op.operands
    memory = memory if memory is not None else swizzled((128,), (0,))
    return 1 << len(async_copy_bits(pointer, rest[0] if rest else None, memory, BITS[str(more.get("kind", "f32"))], facts))


def test_neighbours_in_both_memories_are_copied_together() -> None:
    assert together() == 4
    assert together(aligned=8) == 2


def test_where_the_buffer_swaps_neighbours_they_are_copied_one_by_one() -> None:
    swapped = LinearLayout.make({"offset": [(2,), (1,), *((1 << bit,) for bit in range(2, 7))]}, {"dim0": 128})
    assert together(memory=swapped) == 1


@pytest.mark.parametrize("predicate", ["slt", "sle"])
def test_a_mask_that_is_true_up_to_some_place_keeps_copies_whole(predicate: str) -> None:
    assert together(BOUND.format(predicate)) == 4


@pytest.mark.parametrize(
    "mask",
    [
        BOUND.format("ult"),  # unsigned, places below zero would be the largest
        BOUND.format("sgt"),  # true from some place on
        "%m = arith.cmpi slt, %i, %o : tensor<128xi32, $L>",  # each element has a bound of its own
        "%t = arith.andi %some, %some : tensor<128xi1, $L>\n%m = arith.andi %t, %some : tensor<128xi1, $L>",
    ],
)
def test_other_masks_split_copies(mask: str) -> None:
    assert together(mask) == 1


@pytest.mark.parametrize(
    ("kind", "aligned", "can"), [("f32", 4, True), ("f16", 4, True), ("f16", 2, False), ("i8", 16, True), ("i8", 2, False)]
)
def test_the_smallest_copy_has_four_bytes(kind: str, aligned: int, can: bool) -> None:
    op, facts = load(kind=kind, aligned=aligned)
    assert can_copy_async(op.operands[0], None, swizzled((128,), (0,)), BITS[kind], facts) is can
