"""Gathers within a tile and histograms: threads meet in shared memory."""

from __future__ import annotations

from kernelpack.layout.families import Threads, spread
from kernelpack.layout.linear import LinearLayout
from kernelpack.options import Options
from tests.backends.fragments import count, in_order
from tests.backends.gpu.lowering.integers import run
from tests.backends.gpu.lowering.llir import lower

L = {"L": spread((64,), 2, (0,), Threads(1, 32))}


def gathered(index: str = "i32") -> str:
    return lower(
        f"""
        %r = tt.gather %x[%i] {{allocation.offset = 128 : i32, axis = 0 : i32}} : (tensor<64xf32, $L>, tensor<64x{index}, $L>) -> tensor<64xf32, $L>
        tt.return %r : tensor<64xf32, $L>
        """,
        f"%x: tensor<64xf32, $L>, %i: tensor<64x{index}, $L>",
        L,
    )


def test_a_gather_writes_the_tile_and_reads_what_its_indices_name() -> None:
    in_order(
        gathered(),
        """
        %B = getelementptr i8, ptr addrspace(3) @shared_memory, i64 128
        store <2 x i32> ..., ptr addrspace(3) ..., align 8
        call void @llvm.nvvm.bar.warp.sync(i32 -1)
        %I = and i32 %i0, 63
        %O = mul i32 ..., 4
        %A = getelementptr i8, ptr addrspace(3) %B, i32 %O
        %V = load float, ptr addrspace(3) %A, align 4
        %J = and i32 %i1, 63
        return %V, ...
        """,
    )


def exchanged(distance: int) -> str:
    return lower(
        f"""
        %m = tt.make_range {{end = 64 : i32, start = 0 : i32}} : tensor<64xi32, $L>
        %c = arith.constant dense<{distance}> : tensor<64xi32, $L>
        %i = arith.xori %m, %c : tensor<64xi32, $L>
        %r = tt.gather %x[%i] {{axis = 0 : i32}} : (tensor<64xf32, $L>, tensor<64xi32, $L>) -> tensor<64xf32, $L>
        tt.return %r : tensor<64xf32, $L>
        """,
        "%x: tensor<64xf32, $L>",
        L,
    )


def test_partners_in_one_warp_meet_in_registers_and_by_shuffles() -> None:
    in_order(exchanged(1), "return %x1, %x0")
    text = exchanged(7)
    in_order(
        text,
        """
        %B = bitcast float %x1 to i32
        %S = call i32 @llvm.nvvm.shfl.sync.bfly.i32(i32 -1, i32 %B, i32 3, i32 31)
        %F = bitcast i32 %S to float
        %C = bitcast float %x0 to i32
        %T = call i32 @llvm.nvvm.shfl.sync.bfly.i32(i32 -1, i32 %C, i32 3, i32 31)
        %G = bitcast i32 %T to float
        return %F, %G
        """,
    )
    assert "shared_memory" not in text


def test_indices_of_other_widths_become_words() -> None:
    in_order(gathered("i64"), "%I = trunc i64 %i0 to i32\n... = and i32 %I, 63")
    in_order(gathered("i8"), "%I = sext i8 %i0 to i32\n... = and i32 %I, 63")


def test_other_axes_keep_the_place_of_the_thread() -> None:
    """Rows of four: 4 (index % 8) + column, in bytes, for every lane."""
    plane = LinearLayout.make(
        {"register": [], "lane": [(0, 1), (0, 2), (1, 0), (2, 0), (4, 0)], "warp": [], "block": []}, {"dim0": 8, "dim1": 4}
    )
    text = lower(
        "%r = tt.gather %x[%i] {allocation.offset = 0 : i32, axis = 0 : i32} : (tensor<8x4xf32, $P>, tensor<8x4xi32, $P>) -> tensor<8x4xf32, $P>\ntt.return %r : tensor<8x4xf32, $P>",
        "%x: tensor<8x4xf32, $P>, %i: tensor<8x4xi32, $P>",
        {"P": plane},
    )
    (load,) = (line for line in text.splitlines() if "= load float" in line)
    address = load.split("addrspace(3) ")[1].split(",")[0]
    for lane in range(32):
        known = run(text, {"%tid": lane, "%i0": 8 + lane // 3, "@shared_memory": 0})
        assert known[address] == 4 * (4 * ((lane // 3) % 8) + lane % 4)


def histogram(kind: str = "i32", mask: bool = False, bins: int = 16, warps: int = 1) -> str:
    more, out = ", %m" if mask else "", spread((bins,), 1, (0,), Threads(warps, 32))
    return lower(
        f"%r = tt.histogram %x{more} {{allocation.offset = 0 : i32}} : tensor<64x{kind}, $L> -> tensor<{bins}xi32, $B>\ntt.return %r : tensor<{bins}xi32, $B>",
        f"%x: tensor<64x{kind}, $L>, %m: tensor<64xi1, $L>",
        {"L": spread((64,), 2, (0,), Threads(warps, 32)), "B": out},
        options=Options(num_warps=warps),
    )


def test_a_histogram_clears_its_counters_counts_and_reads_them() -> None:
    text = histogram()
    in_order(
        text,
        """
        %M = add i32 %tid, 0
        %C = icmp ult i32 %M, 16
        br i1 %C, label %if..., label %endif...
        store i32 0, ptr addrspace(3) ..., align 4
        call void @llvm.nvvm.bar.warp.sync(i32 -1)
        %I = icmp ult i32 %x0, 16
        br i1 %I, label %if..., label %endif...
        %O = mul i32 %x0, 4
        %P = getelementptr i8, ptr addrspace(3) @shared_memory, i32 %O
        ... = atomicrmw add ptr addrspace(3) %P, i32 1 syncscope("block") monotonic
        call void @llvm.nvvm.bar.warp.sync(i32 -1)
        %R = load i32, ptr addrspace(3) ..., align 4
        """,
    )
    assert count(text, "%A = atomicrmw add ...") == 2


def test_more_bins_than_threads_are_cleared_in_turns() -> None:
    text = histogram(bins=128)
    assert count(text, "store i32 0, ptr addrspace(3) ..., align 4") == 4
    in_order(text, "%A = add i32 %tid, 0\n%B = add i32 %tid, 32\n%C = add i32 %tid, 64")
    assert not count(text.partition("bar.warp.sync")[0], "br i1 ...")  # every thread has a counter each time


def test_bytes_are_counted_where_there_are_as_many_bins_as_bytes() -> None:
    text = histogram("i8", bins=256)
    assert not count(text, "%A = icmp ult i8 ...")
    in_order(text, "%A = zext i8 %x0 to i32\n%B = mul i32 %A, 4\n... = atomicrmw add ...")


def test_a_mask_says_what_is_counted() -> None:
    in_order(histogram(mask=True), "%I = icmp ult i32 %x0, 16\n%A = and i1 %I, %m0\nbr i1 %A, label %if..., label %endif...")
