"""Tiles in shared memory by instructions of NVIDIA's: matrices of a warp, predicates, asynchronous copies, barriers."""

from __future__ import annotations

import re

import pytest

from kernelpack.layout.families import Threads, mma_accumulator, mma_operand, spread, swizzled
from kernelpack.layout.linear import LinearLayout
from kernelpack.options import Options
from tests.backends.fragments import count, in_order
from tests.backends.gpu.lowering.integers import run
from tests.backends.gpu.lowering.llir import SM80, SM90, lower
from tests.backends.gpu.lowering.tiles import buffer, loaded, stored

FEW = LinearLayout.make({"register": [(1,)], "lane": [(2,), (4,), (8,), (0,), (0,)], "warp": [], "block": []}, {"dim0": 16})
MANY = LinearLayout.make(
    {"register": [(2,), (4,), (8,), (16,)], "lane": [(1,), (0,), (0,), (0,), (0,)], "warp": [], "block": []}, {"dim0": 32}
)


def test_of_threads_with_copies_one_writes() -> None:
    """Few stores stand under a predicate, which leaves the code in one piece; many in a branch."""
    line = swizzled((16,), (0,))
    in_order(
        stored(FEW, line),
        '%B = and i32 %tid, 24\n%O = icmp eq i32 %B, 0\ncall void asm sideeffect "@$3 st.shared.v2.b32 [$0], {$1, $2};", "r,r,r,b"(ptr addrspace(3) ..., i32 ..., i32 ..., i1 %O)',
    )
    text = stored(MANY, swizzled((32,), (0,)))
    in_order(
        text,
        "br i1 ..., label %if..., label %endif...\nif...:\nstore i32 ..., ptr addrspace(3) ..., align 4\nbr label %endif...",
    )


OPERAND = mma_operand((32, 32), 0, 16, (1, 1))
BANKED = swizzled((32, 32), (1, 0), 8, 2, 4)


def test_fragments_of_halves_are_read_by_ldmatrix() -> None:
    text = loaded(OPERAND, BANKED, "f16")
    assert (
        count(text, "%A = call {i32, i32, i32, i32} @llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.b16.p3(ptr addrspace(3) %B)") == 4
    )
    assert not count(text, "%A = load ...")


def test_fragments_against_the_rows_are_transposed_by_ldmatrix() -> None:
    text = loaded(OPERAND, swizzled((32, 32), (0, 1), 8, 2, 4), "f16")
    assert count(text, "%A = call {i32, i32, i32, i32} @llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.trans.b16.p3(...)") == 4


def matrices(text: str) -> list[str]:
    return re.findall(r"ldmatrix\S*\(ptr addrspace\(3\) (%\w+)\)", text)


def test_each_lane_gives_the_address_of_a_row_of_eight() -> None:
    """Lane 8 j + i has that of row i of matrix j; the first four matrices are the upper left quarter."""
    text, offsets = loaded(OPERAND, BANKED, "f16"), BANKED.invert()
    first = matrices(text)[0]
    rows = set()
    for lane in range(32):
        address = run(text, {"%tid": lane, "%b": 0})[first]
        element = BANKED(offset=address // 2)
        assert element[1] % 8 == 0
        assert offsets(dim0=element[0], dim1=element[1])[0] * 2 == address
        rows.add(element)
    assert rows == {(row, column) for row in range(16) for column in (0, 8)}


ACCUMULATOR = mma_accumulator((32, 32), (1, 1))


@pytest.mark.parametrize(("target", "matrix"), [(SM80, False), (SM90, True)])
def test_fragments_are_written_by_stmatrix_where_there_is_one(target: str, matrix: bool) -> None:
    text = stored(ACCUMULATOR, BANKED, "f16", target)
    assert bool(count(text, "call void @llvm.nvvm.stmatrix.sync.aligned.m8n8.x4.b16.p3(...)")) is matrix
    assert bool(count(text, "store i32 ..., ptr addrspace(3) ..., align 4")) is not matrix


LINE = spread((128,), 4, (0,), Threads(1, 32))


def copied(mask: str = "", bound: str = "", layout: LinearLayout = LINE) -> str:
    """A copy of consecutive elements from %p, which is a multiple of 16, to a buffer; `bound` computes what %m compares with."""
    (size,) = layout.shape
    return lower(
        f"""
        %i = tt.make_range {{end = {size} : i32, start = 0 : i32}} : tensor<{size}xi32, $L>
        %q = tt.splat %p : !tt.ptr<f32> -> tensor<{size}x!tt.ptr<f32>, $L>
        %a = tt.addptr %q, %i : tensor<{size}x!tt.ptr<f32>, $L>, tensor<{size}xi32, $L>
        {bound}
        %t = ttg.async_copy_global_to_local %a, %b{mask} : tensor<{size}x!tt.ptr<f32>, $L> -> {buffer("f32", str(size))}
        """,
        f"%p: !tt.ptr<f32> {{tt.divisibility = 16 : i32}}, %n: i32, %on: i1, %b: {buffer('f32', str(size))}",
        {"L": layout, "S": swizzled((size,), (0,))},
    )


def test_copies_of_sixteen_bytes_pass_by_the_first_cache() -> None:
    in_order(
        copied(),
        """
        %P = getelementptr float, ptr addrspace(1) %p, i32 ...
        %B = getelementptr i8, ptr addrspace(3) %b, i32 ...
        call void @llvm.nvvm.cp.async.cg.shared.global.16(ptr addrspace(3) %B, ptr addrspace(1) %P)
        """,
    )
    assert (
        count(copied(layout=spread((64,), 2, (0,), Threads(1, 32))), "call void @llvm.nvvm.cp.async.ca.shared.global.8(...)")
        == 1
    )


BOUND = """
%e = tt.splat %n : i32 -> tensor<128xi32, $L>
%m = arith.cmpi slt, %i, %e : tensor<128xi32, $L>
"""


def test_a_copy_that_ends_early_counts_its_bytes() -> None:
    """A mask that may end within the four elements of a copy: each counts four bytes."""
    text = copied(" mask %m", BOUND)
    in_order(
        text,
        """
        %A = icmp slt i32 ..., %n
        %B = icmp slt i32 ..., %n
        %C = select i1 %A, i32 4, i32 0
        %D = select i1 %B, i32 4, i32 0
        %E = add i32 %C, %D
        call void @llvm.nvvm.cp.async.cg.shared.global.16.s(ptr addrspace(3) ..., ptr addrspace(1) ..., i32 %S)
        """,
    )
    assert count(text, "%A = select i1 %B, i32 4, i32 0") == 4


def test_a_mask_that_is_the_same_for_a_copy_is_all_or_nothing() -> None:
    text = copied(" mask %m", "%m = tt.splat %on : i1 -> tensor<128xi1, $L>")
    in_order(
        text,
        "%S = select i1 %on, i32 16, i32 0\ncall void @llvm.nvvm.cp.async.cg.shared.global.16.s(ptr addrspace(3) ..., ptr addrspace(1) ..., i32 %S)",
    )


def test_of_several_masks_only_those_that_differ_count_bytes() -> None:
    text = copied(
        " mask %k", BOUND + "%o = tt.splat %on : i1 -> tensor<128xi1, $L>\n%k = arith.andi %m, %o : tensor<128xi1, $L>"
    )
    in_order(
        text,
        "%E = add i32 ...\n%S = select i1 %on, i32 %F, i32 0\ncall void @llvm.nvvm.cp.async.cg.shared.global.16.s(..., i32 %S)",
    )


def test_groups_of_copies_are_committed_and_waited_for() -> None:
    text = lower("%a = ttg.async_commit_group\n%b = ttg.async_wait {num = 2 : i32}")
    in_order(text, "call void @llvm.nvvm.cp.async.commit.group()\ncall void @llvm.nvvm.cp.async.wait.group(i32 2)")


def test_a_barrier_is_of_all_warps_that_run_the_code() -> None:
    assert lower("gpu.barrier") == "call void @llvm.nvvm.bar.warp.sync(i32 -1)"
    assert lower("gpu.barrier", options=Options(num_warps=4)) == "call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)"
