"""Tiles in shared memory: every thread reads and writes where the buffer's layout has its elements; copies, indices, waits."""

from __future__ import annotations

import re

import pytest

from kernelpack.layout.families import Threads, mma_accumulator, mma_operand, spread, swizzled
from kernelpack.layout.linear import LinearLayout
from kernelpack.options import Options
from tests.backends.fragments import count, in_order
from tests.backends.gpu.lowering.integers import returned, run
from tests.backends.gpu.lowering.llir import SM80, SM90, lower

ROWS = spread((32, 32), 4, (1, 0), Threads(1, 32))
COLUMNS = spread((32, 32), 4, (0, 1), Threads(1, 32))
PLAIN = swizzled((32, 32), (1, 0))
SWIZZLED = swizzled((32, 32), (1, 0), 4, 1, 8)


def buffer(kind: str, shape: str = "32x32", layout: str = "$S") -> str:
    return f"!ttg.memdesc<{shape}x{kind}, {layout}, #ttg.shared_memory>"


def loaded(layout: LinearLayout, memory: LinearLayout, kind: str = "f32", target: str = SM80) -> str:
    shape = "x".join(map(str, layout.shape))
    return lower(
        f"%r = ttg.local_load %b : {buffer(kind, shape)} -> tensor<{shape}x{kind}, $L>\ntt.return %r : tensor<{shape}x{kind}, $L>",
        f"%b: {buffer(kind, shape)}",
        {"L": layout, "S": memory},
        target,
    )


_LOAD = re.compile(r"(%\w+) = load (?:<\d+ x )?(\w+)>?, ptr addrspace\(3\) (%\w+), align \d+")
_EXTRACT = re.compile(r"(%\w+) = extractelement <\d+ x (\w+)> (%\w+), i64 (\d+)")
_CAST = re.compile(r"(%\w+) = (?:bitcast|icmp ne) \S+ (%\w+)\b.*")
_BYTES = {"i8": 1, "i16": 2, "half": 2, "bfloat": 2, "i32": 4, "float": 4, "i64": 8, "double": 8}


def places(text: str, thread: int) -> list[int]:
    """The byte of the buffer where each returned register was read by a thread."""
    known = run(text, {"%tid": thread, "%b": 0})
    where: dict[str, int] = {}
    for line in text.splitlines():
        if load := _LOAD.fullmatch(line):
            where[load[1]] = known[load[3]]
        elif part := _EXTRACT.fullmatch(line):
            where[part[1]] = where[part[3]] + int(part[4]) * _BYTES[part[2]]
        elif (cast := _CAST.fullmatch(line)) and cast[2] in where:
            where[cast[1]] = where[cast[2]]
    return [where[name] for name in returned(text)]


@pytest.mark.parametrize("kind", ["f32", "f16", "i8"])
@pytest.mark.parametrize("memory", [PLAIN, SWIZZLED], ids=["plain", "swizzled"])
@pytest.mark.parametrize("layout", [ROWS, COLUMNS], ids=["rows", "columns"])
def test_a_thread_reads_its_elements_where_they_lie(layout: LinearLayout, memory: LinearLayout, kind: str) -> None:
    text, offsets = loaded(layout, memory, kind), memory.invert()
    for lane in (0, 1, 5, 17, 31):
        expected = []
        for register in range(layout.in_size("register")):
            row, column = layout(register=register, lane=lane)
            expected.append(offsets(dim0=row, dim1=column)[0] * {"f32": 4, "f16": 2, "i8": 1}[kind])
        assert places(text, lane) == expected


def test_neighbours_in_memory_are_read_at_once() -> None:
    assert count(loaded(ROWS, PLAIN), "%A = load <4 x i32>, ptr addrspace(3) ..., align 16") == 8
    assert (
        count(loaded(COLUMNS, PLAIN), "%A = load float, ptr ...") + count(loaded(COLUMNS, PLAIN), "%A = load i32, ptr ...")
        == 32
    )


def test_booleans_are_bytes() -> None:
    in_order(loaded(COLUMNS, PLAIN, "i1"), "%A = load i8, ptr addrspace(3) ..., align 1\n%B = icmp ne i8 %A, 0")


def stored(layout: LinearLayout, memory: LinearLayout, kind: str = "f32", target: str = SM80, warps: int = 1) -> str:
    shape = "x".join(map(str, layout.shape))
    return lower(
        f"ttg.local_store %x, %b : tensor<{shape}x{kind}, $L> -> {buffer(kind, shape)}",
        f"%x: tensor<{shape}x{kind}, $L>, %b: {buffer(kind, shape)}",
        {"L": layout, "S": memory},
        target,
        Options(num_warps=warps),
    )


def test_vectors_are_written_where_they_lie() -> None:
    text, offsets = stored(ROWS, SWIZZLED), SWIZZLED.invert()
    stores = re.findall(r"store <4 x i32> %\w+, ptr addrspace\(3\) (%\w+), align 16", text)
    assert len(stores) == 8
    for lane in (0, 3, 31):
        known = run(text, {"%tid": lane, "%b": 0})
        expected = {
            offsets(dim0=ROWS(register=first, lane=lane)[0], dim1=ROWS(register=first, lane=lane)[1])[0] * 4
            for first in range(0, 32, 4)
        }
        assert {known[name] for name in stores} == expected


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


def test_a_buffer_lies_where_allocation_put_it() -> None:
    in_order(
        lower(
            f"%b = ttg.local_alloc %x {{allocation.offset = 512 : i32}} : (tensor<32x32xf32, $L>) -> {buffer('f32')}",
            "%x: tensor<32x32xf32, $L>",
            {"L": ROWS, "S": PLAIN},
        ),
        "%A = getelementptr i8, ptr addrspace(3) @shared_memory, i64 512\n%B = getelementptr i8, ptr addrspace(3) %A, i32 %C\nstore <4 x i32> ..., ptr addrspace(3) %B, align 16",
    )


def test_a_slot_of_a_ring_is_as_many_bytes_further() -> None:
    text = lower(
        f"""
        %s = ttg.memdesc_index %b[%i] : {buffer("f32", "3x32x32", "$T")} -> {buffer("f32")}
        %r = ttg.local_load %s : {buffer("f32")} -> tensor<32x32xf32, $L>
        tt.return %r : tensor<32x32xf32, $L>
        """,
        f"%b: {buffer('f32', '3x32x32', '$T')}, %i: i32",
        {"L": ROWS, "S": PLAIN, "T": PLAIN},
    )
    in_order(
        text,
        "%O = mul i32 %i, 4096\n%S = getelementptr i8, ptr addrspace(3) %b, i32 %O\n%A = getelementptr i8, ptr addrspace(3) %S, i32 ...",
    )


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
