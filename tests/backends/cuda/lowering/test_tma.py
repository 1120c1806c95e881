"""Copies of blocks by TMA: the first thread starts one for each box, with coordinates from the innermost axis on."""

from __future__ import annotations

from kernelpack.backends.cuda.machine.block_copies import buffer_type
from kernelpack.ir.types import F16, TensorType
from kernelpack.layout.families import swizzled
from tests.backends.fragments import count, in_order
from tests.backends.gpu.lowering.llir import SM90, lower, module

BARRIER = "!ttg.memdesc<1xi64, $B, #ttg.shared_memory>"
LAYOUTS = {"B": swizzled((1,), (0,))}


def tile(rows: int, columns: int) -> str:
    return str(buffer_type(TensorType((rows, columns), F16)))


def copy_in(rows: int = 64, columns: int = 64) -> str:
    desc = f"!tt.tensordesc<tensor<{rows}x{columns}xf16>>"
    return module(
        f"""
        %b = ttg.local_alloc {{allocation.offset = 0 : i32}} : () -> {BARRIER}
        %t = ttg.local_alloc {{allocation.offset = 1024 : i32}} : () -> {tile(rows, columns)}
        ttng.async_tma_copy_global_to_local %d[%i, %j] %t, %b, %on : {desc}, {BARRIER} -> {tile(rows, columns)}
        """,
        f"%d: {desc}, %i: i32, %j: i32, %on: i1",
        LAYOUTS,
        SM90,
    )


def test_a_block_of_one_box_is_one_copy() -> None:
    text = copy_in()
    in_order(
        text,
        """
        %S = and i1 ..., ...
        %B = ptrtoint ptr addrspace(3) @shared_memory to i32
        %T = ptrtoint ptr addrspace(3) ... to i32
        call void asm sideeffect "@$0 cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [$1], [$2, {$3, $4}], [$5];", "b,r,l,r,r,r,~{memory}"(i1 %S, i32 %T, ptr %d.0, i32 %j.0, i32 %i.0, i32 %B)
        """,
    )
    assert count(text, "call void asm sideeffect ...cp.async.bulk.tensor...") == 1


def test_a_wide_block_is_a_copy_for_each_panel() -> None:
    """128 bytes of each row make a panel: the second begins 64 columns and 64 * 128 bytes further."""
    text = copy_in(64, 128)
    assert count(text, "call void asm sideeffect ...cp.async.bulk.tensor...") == 2
    in_order(
        text,
        "%B = ptrtoint ptr addrspace(3) @shared_memory to i32\n%T = ptrtoint ptr addrspace(3) ... to i32\n%J = add i32 %j.0, 64\n%U = add i32 %T, 8192\ncall void asm ...(i1 ..., i32 %U, ptr %d.0, i32 %J, i32 %i.0, i32 ...)",
    )


def test_a_block_lands_at_its_rows_of_a_tile() -> None:
    """Each panel of the tile has 64 rows of 128 bytes, of which the block's 16 begin at row 48."""
    desc, kind = "!tt.tensordesc<tensor<16x128xf16>>", tile(64, 128)
    text = module(
        f"""
        %b = ttg.local_alloc {{allocation.offset = 0 : i32}} : () -> {BARRIER}
        %t = ttg.local_alloc {{allocation.offset = 1024 : i32}} : () -> {kind}
        ttng.async_tma_copy_global_to_local %d[%i, %j] %t, %b, %on {{row = 48 : i32}} : {desc}, {BARRIER} -> {kind}
        """,
        f"%d: {desc}, %i: i32, %j: i32, %on: i1",
        LAYOUTS,
        SM90,
    )
    in_order(
        text,
        """
        %B = ptrtoint ptr addrspace(3) @shared_memory to i32
        %T = ptrtoint ptr addrspace(3) ... to i32
        %A = add i32 %T, 6144
        call void asm ...(i1 ..., i32 %A, ptr %d.0, i32 %j.0, i32 %i.0, i32 ...)
        %C = add i32 %T, 14336
        call void asm ...(i1 ..., i32 %C, ptr %d.0, i32 ..., i32 %i.0, i32 ...)
        """,
    )


def test_tensor_maps_are_fetched_where_a_kernel_begins() -> None:
    in_order(
        copy_in(),
        '%F = icmp eq i32 ..., 0\ncall void asm sideeffect "@$0 prefetch.tensormap [$1];", "b,l,~{memory}"(i1 %F, ptr %d.0)',
    )


def test_a_block_is_stored_and_its_copies_are_a_group() -> None:
    desc = "!tt.tensordesc<tensor<64x128xf16>>"
    text = module(
        f"""
        %t = ttg.local_alloc {{allocation.offset = 1024 : i32}} : () -> {tile(64, 128)}
        ttng.async_tma_copy_local_to_global %d[%i, %j] %t : {desc}, {tile(64, 128)}
        ttng.async_tma_store_wait 0
        """,
        f"%d: {desc}, %i: i32, %j: i32",
        target=SM90,
    )
    in_order(
        text,
        """
        %F = icmp eq i32 ..., 0
        call void asm sideeffect "@$0 cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [$2, {$3, $4}], [$1];", "b,r,l,r,r,~{memory}"(i1 %G, i32 %T, ptr %d.0, i32 %j.0, i32 %i.0)
        %J = add i32 %j.0, 64
        %U = add i32 %T, 8192
        call void asm sideeffect "@$0 cp.async.bulk.tensor...(i1 %G, i32 %U, ptr %d.0, i32 %J, i32 %i.0)
        call void asm sideeffect "@$0 cp.async.bulk.commit_group;", "b,~{memory}"(i1 %G)
        call void asm sideeffect "cp.async.bulk.wait_group.read 0;", "~{memory}"()
        """,
    )


def test_copies_of_roles_are_lowered_as_everywhere() -> None:
    assert (
        lower("ttng.async_tma_store_wait 3", target=SM90)
        == 'call void asm sideeffect "cp.async.bulk.wait_group.read 3;", "~{memory}"()'
    )
