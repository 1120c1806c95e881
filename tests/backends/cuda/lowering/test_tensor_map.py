"""Tensor maps that a kernel makes: a place taken and given back, fields written by one thread, published before use."""

from __future__ import annotations

import pytest

from kernelpack.options import Options
from tests.backends.fragments import count, in_order
from tests.backends.gpu.lowering.llir import SM90, module

ARGUMENTS = "%p: !tt.ptr<f16>, %m: i32, %n: i32, %s: i64, %one: i64, %i: i32"
MAKE = (
    "%{} = tt.make_tensor_descriptor %p, [%m, %n], [%s, %one] {{allocation.offset = {} : i32{}}} : <f16>, <tensor<64x64xf16>>"
)


def kernel(*lines: str, warps: int = 4, shared: int = 1024) -> str:
    return module("\n".join(lines), ARGUMENTS, target=SM90, options=Options(num_warps=warps), shared=shared)


ONE = kernel(MAKE.format("d", 0, ""))


def test_a_kernel_asks_for_a_place_when_it_begins() -> None:
    in_order(
        ONE,
        """
        %X = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
        %P = add i32 %X, ...
        %M = and i32 %P, 4095
        %W = zext i32 %M to i64
        %O = shl i64 %W, 2
        %A = getelementptr i8, ptr addrspace(1) @tensor_maps_taken, i64 %O
        %R = call i32 asm sideeffect "mov.b32 $0, 0;\\0A\\09@$1 atom.global.relaxed.gpu.exch.b32 $0, [$2], 1;", "=&r,b,l,~{memory}"(i1 ..., ptr addrspace(1) %A)
        store i64 %W, ptr %N, align 8
        store i32 %R, ptr %S, align 4
        """,
    )


@pytest.mark.parametrize(
    ("warps", "shared", "places"),
    [(4, 1024, 4096), (8, 1024, 2048), (4, 200 * 1024, 256), (1, 0, 8192)],
)
def test_there_are_places_for_all_programs_that_run_at_a_time(warps: int, shared: int, places: int) -> None:
    """144 multiprocessors with up to 32 blocks each, or as many as have room, as a power of two."""
    text = kernel(MAKE.format("d", 0, ""), warps=warps, shared=shared)
    assert f"@tensor_maps_taken = internal addrspace(1) global [{places} x i32] zeroinitializer, align 4" in text
    assert f"@tensor_maps = internal addrspace(1) global [{places * 128} x i8] zeroinitializer, align 128" in text


def test_two_maps_of_a_program_share_its_place() -> None:
    text = kernel(MAKE.format("d", 0, ""), MAKE.format("e", 128, ""))
    assert f"@tensor_maps = internal addrspace(1) global [{4096 * 256} x i8] zeroinitializer, align 128" in text
    assert count(text, "%A = mul i64 %B, 256") == 2
    assert count(text, "%A = getelementptr i8, ptr addrspace(1) %B, i64 128") == 1


def test_the_first_warp_clears_a_map_and_its_first_thread_writes_the_fields() -> None:
    in_order(
        ONE,
        """
        %F = icmp ult i32 ..., 32
        br i1 %F, label %if..., label %endif...
        %W = shl i32 ..., 2
        %A = getelementptr i8, ptr addrspace(3) @shared_memory, i32 %W
        store i32 0, ptr addrspace(3) %A, align 4
        call void @llvm.nvvm.bar.warp.sync(i32 -1)
        %M = ptrtoint ptr addrspace(3) @shared_memory to i32
        call void asm sideeffect "tensormap.replace.tile.global_address.shared::cta.b1024.b64 [$0], $1;", "r,l,~{memory}"(i32 %M, i64 ...)
        call void asm sideeffect "tensormap.replace.tile.rank.shared::cta.b1024.b32 [$0], $1;", "r,n,~{memory}"(i32 %M, i32 1)
        call void asm sideeffect "tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [$0], 0, $1;", "r,r,~{memory}"(i32 %M, i32 ...)
        call void asm sideeffect "tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [$0], 0, $1;", "r,n,~{memory}"(i32 %M, i32 64)
        call void asm sideeffect "tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [$0], 1, $1;", "r,r,~{memory}"(i32 %M, i32 ...)
        %B = mul i64 %s.0, 2
        %S = select i1 ..., i64 %B, i64 16
        call void asm sideeffect "tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [$0], 0, $1;", "r,l,~{memory}"(i32 %M, i64 %S)
        call void asm sideeffect "tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [$0], $1;", "r,n,~{memory}"(i32 %M, i32 6)
        call void asm sideeffect "tensormap.replace.tile.swizzle_mode.shared::cta.b1024.b32 [$0], $1;", "r,n,~{memory}"(i32 %M, i32 3)
        call void asm sideeffect "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [$0], [$1], 128;", "l,r,~{memory}"(ptr addrspace(1) %T, i32 ...) convergent
        call void asm sideeffect "fence.proxy.tensormap::generic.acquire.gpu [$0], 128;", "l,~{memory}"(ptr addrspace(1) %T)
        """,
    )


def test_an_empty_tensor_has_one_element_of_padding() -> None:
    in_order(
        ONE,
        """
        %A = icmp sgt i32 %m.0, 0
        %B = and i1 true, %A
        %C = icmp sgt i32 %n.0, 0
        %S = and i1 %B, %C
        ... = select i1 %S, ptr addrspace(1) %p.0, ptr addrspace(1) @padding_zero
        ... = select i1 %S, i32 %n.0, i32 1
        """,
    )
    assert "@padding_nan" not in ONE
    nan = kernel(MAKE.format("d", 0, ', padding = "nan"'))
    assert '@padding_nan = internal addrspace(1) constant [16 x i8] c"' + "\\FF" * 16 in nan
    in_order(
        nan,
        'call void asm sideeffect "tensormap.replace.tile.fill_mode.shared::cta.b1024.b32 [$0], $1;", "r,n,~{memory}"(i32 ..., i32 1)',
    )


def test_maps_made_one_after_the_other_are_acquired_together() -> None:
    text = kernel(MAKE.format("d", 0, ""), MAKE.format("e", 128, ""))
    lines = [line for line in text.splitlines() if "cp_fenceproxy" in line or "acquire.gpu" in line]
    assert ["release" in line for line in lines] == [True, True, False, False]
    used = kernel(MAKE.format("d", 0, ""), "ttng.async_tma_store_wait 0", MAKE.format("e", 128, ""))
    assert count(used, "call void asm sideeffect ...acquire.gpu...") == 2


def test_a_place_that_was_taken_is_left_for_another_one() -> None:
    in_order(
        ONE,
        """
        %A = load i32, ptr %S, align 4
        %R = icmp ne i32 %A, 0
        br i1 %R, label %if..., label %endif...
        %N = call i64 asm sideeffect "{...again:...atom.global.relaxed.gpu.exch.b32 was, [at], 1;...bra again;...}", "=&l,l,l,n,~{memory}"(i64 ..., ptr addrspace(1) @tensor_maps_taken, i64 4095)
        store i64 %N, ptr ..., align 8
        store i32 0, ptr %S, align 4
        """,
    )


def test_a_place_is_given_back_where_the_kernel_ends() -> None:
    in_order(
        ONE,
        """
        call void asm sideeffect "fence.proxy.tensormap::generic.acquire.gpu...
        %A = load i32, ptr ..., align 4
        %T = icmp eq i32 %A, 0
        %F = icmp eq i32 ..., 0
        %G = and i1 %F, %T
        call void asm sideeffect "{...@$0 atom.global.relaxed.gpu.exch.b32 was, [$1], 0;...}", "b,l,~{memory}"(i1 %G, ptr addrspace(1) ...)
        ret void
        """,
    )


def test_a_kernel_without_descriptors_of_its_own_has_no_places() -> None:
    text = kernel("")
    assert "tensor_maps" not in text
    assert "atom.global" not in text
