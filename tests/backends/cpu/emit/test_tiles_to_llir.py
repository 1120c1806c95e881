"""The function of a kernel: parameters, numbers of programs, control flow of scalars, and the limit of its stack."""

from __future__ import annotations

import pytest

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.backends.cpu.emit.tiles_to_llir import SCRATCH_LIMIT
from kernelpack.errors import OutOfResources
from kernelpack.options import Options
from tests.backends.cpu.emit.llir import program, whole
from tests.backends.cpu.plan.plans import V3, V4
from tests.backends.fragments import count, in_order


@kp.jit
def copy(x, out, n, flag, S: tl.constexpr):
    i = tl.program_id(0) * S + tl.arange(0, S)
    tl.store(out + i, tl.load(x + i) * n, mask=flag)


def test_a_function_runs_a_range_of_programs() -> None:
    in_order(
        whole(copy, S=8, n="fp32", flag="i1"),
        """
        define void @copy(i64 %begin, i64 %end, ptr noalias %launch) #0 {
        entry:
        %T = load ptr, ptr %launch, align 8
        %X = load ptr, ptr %T, align 8
        %A = load ptr, ptr %X, align 8
        %B = getelementptr i8, ptr %T, i64 8
        %C = getelementptr i8, ptr %T, i64 16
        %D = load ptr, ptr %C, align 8
        %N = load float, ptr %D, align 4
        %E = getelementptr i8, ptr %T, i64 24
        %F = load ptr, ptr %E, align 8
        %G = load i8, ptr %F, align 1
        %H = icmp ne i8 %G, 0
        %I = getelementptr i8, ptr %launch, i64 8
        %J = load i32, ptr %I, align 4
        %K = getelementptr i8, ptr %launch, i64 12
        %L = getelementptr i8, ptr %launch, i64 16
        %W = zext i32 %J to i64
        store i64 %begin, ptr %P, align 8
        program...:
        %Q = load i64, ptr %P, align 8
        %R = icmp slt i64 %Q, %end
        br i1 %R, label %body..., label %exit...
        body...:
        %Y = udiv i64 %Q, %W
        %Z = urem i64 %Q, %W
        %S = trunc i64 %Z to i32
        ... = mul i32 %S, 8
        %U = add nsw i64 %Q, 1
        store i64 %U, ptr %P, align 8
        exit...:
        ret void
        }
        """,
    )


def test_the_width_of_registers_is_said_to_llvm() -> None:
    assert '"prefer-vector-width"="256"' in whole(copy, V3, S=8, n="fp32", flag="i1")
    assert '"prefer-vector-width"="512"' in whole(copy, V4, S=8, n="fp32", flag="i1")


@kp.jit
def polynomial(x, out, S: tl.constexpr):
    i = tl.arange(0, S)
    a = tl.load(x + i)
    tl.store(out + i, a * a + a)


@pytest.mark.parametrize("fuse", [True, False])
def test_products_and_sums_fuse_where_the_option_allows_it(fuse: bool) -> None:
    text = program(polynomial, options=Options(enable_fp_fusion=fuse), S=8)
    assert ("fmul contract" in text) is fuse
    assert ("fadd contract" in text) is fuse
    assert count(text, "%A = fmul ...") == 1


@kp.jit
def counted(x, out, n, step):
    total = 0.0
    last = n
    for i in range(2, n, step):
        total += tl.load(x + i)
        last = i
    tl.store(out, total + last)


def test_a_loop_compares_signed_and_carries_scalars() -> None:
    in_order(
        program(counted, n="i32", step="i32"),
        """
        store i32 2, ptr %C, align 8
        store float 0x0000000000000000, ptr %T, align 8
        store i32 %n, ptr %L, align 8
        for...:
        %I = load i32, ptr %C, align 8
        %B = icmp slt i32 %I, %n
        br i1 %B, label %body..., label %exit...
        body...:
        %S = load float, ptr %T, align 8
        %A = getelementptr float, ptr %x, i32 %I
        %V = load float, ptr %A, align 4
        %W = fadd contract float %S, %V
        store float %W, ptr %T, align 8
        store i32 %I, ptr %L, align 8
        %N = add nsw i32 %I, %step
        store i32 %N, ptr %C, align 8
        br label %for..., !llvm.loop !0
        exit...:
        %R = load float, ptr %T, align 8
        %M = load i32, ptr %L, align 8
        """,
    )


@kp.jit
def crossed(x, out, n):
    a, b = 1, 2
    for _ in range(n):
        a, b = b, a
    tl.store(out, a * 10 + b)


def test_carried_scalars_change_places_at_once() -> None:
    in_order(
        program(crossed, n="i32", out="*i32"),
        """
        store i32 1, ptr %A, align 8
        store i32 2, ptr %B, align 8
        body...:
        %C = load i32, ptr %A, align 8
        %D = load i32, ptr %B, align 8
        store i32 %D, ptr %A, align 8
        store i32 %C, ptr %B, align 8
        """,
    )


@kp.jit
def branch(x, out, n):
    if n > 2:
        v = tl.load(x)
    else:
        v = 3.0
    if n > 5:
        tl.store(out + 1, v)
    tl.store(out, v)


def test_branches_store_what_they_give() -> None:
    in_order(
        program(branch, n="i32"),
        """
        br i1 %C, label %then..., label %else...
        then...:
        %V = load float, ptr %x, align 4
        store float %V, ptr %S, align 8
        br label %after...
        else...:
        store float 0x4008000000000000, ptr %S, align 8
        br label %after...
        after...:
        %W = load float, ptr %S, align 8
        br i1 %D, label %then..., label %else...
        else...:
        br label %after...
        store float %W, ptr %out, align 4
        """,
    )


@kp.jit
def halved(out, n):
    k = n
    steps = 0
    while k > 1:
        k = k // 2
        steps += 1
    tl.store(out, steps)


def test_a_while_loop_asks_before_each_iteration() -> None:
    in_order(
        program(halved, n="i32", out="*i32"),
        """
        while...:
        %A = load i32, ptr %K, align 8
        %C = icmp sgt i32 %A, 1
        br i1 %C, label %body..., label %exit...
        body...:
        store i32 ..., ptr %K, align 8
        br label %while..., !llvm.loop !0
        exit...:
        """,
    )


@kp.jit
def scalars(x, out, n):
    old = tl.atomic_add(x, n)
    tl.store(out, old)
    tl.device_print("old", old)
    tl.debug_barrier()
    tl.store(out + 1, tl.num_programs(1))


def test_scalar_operations() -> None:
    text = program(scalars, n="fp32")
    in_order(
        text,
        """
        %A = atomicrmw fadd ptr %x, float %n acq_rel, align 4
        store float %A, ptr %S, align 8
        %O = load float, ptr %S, align 8
        store float %O, ptr %out, align 4
        ... = call i32 (i32, ptr, ...) @dprintf(...)
        %P = sitofp i32 %G to float
        """,
    )
    assert "fence" not in text  # a program runs on one thread


@kp.jit
def first_of_tile(x, out, S: tl.constexpr):
    tile = tl.load(x + tl.arange(0, S))
    tl.store(out, tl.sum(tl.reshape(tl.sum(tl.reshape(tile, (S, 1)), 0), (1,)), 0))


@kp.jit
def carried_tiles(x, out, n, S: tl.constexpr):
    i = tl.arange(0, S)
    a, b = tl.load(x + i), tl.load(x + S + i)
    for _ in range(n):
        a, b = a + b, a - b
    tl.store(out + i, a)
    tl.store(out + S + i, b)


def test_tiles_that_do_not_fit_on_a_stack_are_refused_with_the_biggest() -> None:
    assert "@carried_tiles" in whole(carried_tiles, S=1 << 18, n="i32")
    with pytest.raises(OutOfResources) as raised:
        whole(carried_tiles, S=1 << 20, n="i32")
    text = str(raised.value)
    assert f"{SCRATCH_LIMIT >> 10} KB are available; the biggest are a: 1048576xf32, lanes 0 (4096 KB)" in text
    assert "lower the block sizes" in text
