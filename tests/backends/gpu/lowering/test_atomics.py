"""Atomic updates on every GPU: LLVM's where hardware has no instruction, once for each element, old values for all who hold copies."""

from __future__ import annotations

import pytest

from kernelpack.backends.gpu.lowering.atomics import by_llvm
from kernelpack.layout.families import Threads, spread
from kernelpack.llvm.text import Val
from kernelpack.options import Options
from tests.backends.fragments import count, in_order
from tests.backends.gpu.lowering.llir import GFX942, LANES, SM80, TARGETS, gfx942, lower, nvidia, text_of

POINTER, VALUE = Val("ptr addrspace(1)", "%p"), Val("bfloat", "%x")


@pytest.mark.parametrize(
    ("target", "scope", "order", "expected"),
    [
        (SM80, "gpu", "relaxed", ' syncscope("device") monotonic'),
        (SM80, "cta", "acq_rel", ' syncscope("block") acq_rel'),
        (GFX942, "gpu", "relaxed", ' syncscope("agent") monotonic'),
        (GFX942, "cta", "release", ' syncscope("workgroup") release'),
        (GFX942, "sys", "acquire", " acquire"),
    ],
)
def test_scopes_are_called_as_the_vendor_calls_them(target: str, scope: str, order: str, expected: str) -> None:
    state = nvidia() if target == SM80 else gfx942()
    by_llvm(state, "atomicrmw fadd", POINTER, [VALUE], scope, order, None)
    in_order(text_of(state), f"%A = atomicrmw fadd ptr addrspace(1) %p, bfloat %x{expected}")


def test_under_a_predicate_it_is_a_branch_whose_result_is_zero_elsewhere() -> None:
    state = gfx942()
    by_llvm(state, "atomicrmw fadd", POINTER, [VALUE], "gpu", "relaxed", Val("i1", "%m"))
    in_order(
        text_of(state),
        """
        br i1 %m, label %atomic..., label %endatomic...
        atomic...:
        %A = atomicrmw fadd ptr addrspace(1) %p, bfloat %x syncscope("agent") monotonic
        br label %endatomic...
        endatomic...:
        %R = phi bfloat [ %A, %atomic... ], [ 0xR0000, %entry ]
        """,
    )


def update(target: str, size: int, result: str = "\ntt.return %r : {0}") -> str:
    """The lines of an update of a tile of bfloat16 elements, for which neither vendor has an instruction."""
    tile, pointers = f"tensor<{size}xbf16, $L>", f"tensor<{size}x!tt.ptr<bf16>, $L>"
    return lower(
        f"%r = tt.atomic_rmw fadd, relaxed, gpu, %p, %x {{allocation.offset = 64 : i32}} : ({pointers}, {tile}) -> {tile}"
        + result.format(tile),
        f"%p: {pointers}, %x: {tile}",
        {"L": spread((size,), 1, (0,), Threads(1, LANES[target]))},
        target,
    )


@TARGETS
def test_of_threads_with_copies_one_updates_and_the_others_get_its_old_value(target: str) -> None:
    in_order(
        update(target, 16),
        f"""
        %B = and i32 %tid, {LANES[target] - 16}
        %O = icmp eq i32 %B, 0
        br i1 %O, label %atomic..., label %endatomic...
        %A = atomicrmw fadd ...
        %M = getelementptr i8, ptr addrspace(3) @shared_memory, i64 64
        %R = load i16, ptr addrspace(3) ..., align 2
        %S = bitcast i16 %R to bfloat
        return %S
        """,
    )


@TARGETS
def test_old_values_that_nobody_reads_or_all_have_are_not_exchanged(target: str) -> None:
    assert "shared_memory" not in update(target, 16, "")
    assert "shared_memory" not in update(target, LANES[target])


@TARGETS
@pytest.mark.parametrize(("order", "barriers"), [("relaxed", 1), ("acquire", 1), ("release", 2), ("acq_rel", 2)])
def test_a_scalar_s_update_releases_what_the_whole_program_wrote(target: str, order: str, barriers: int) -> None:
    """One barrier gives the old value to all threads; the other stands before the update."""
    text = lower(
        f"%r = tt.atomic_rmw fadd, {order}, gpu, %p, %x {{allocation.offset = 0 : i32}} : (!tt.ptr<bf16>, bf16) -> bf16\ntt.return %r : bf16",
        "%p: !tt.ptr<bf16>, %x: bf16",
        target=target,
        options=Options(num_warps=4),
    )
    assert count(text, "call void @llvm.nvvm.barrier...") + count(text, "call void @llvm.amdgcn.s.barrier()") == barriers
    assert count(text, "%A = atomicrmw fadd ...") == 1
