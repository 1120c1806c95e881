"""Tiles at a place: what is the same for all lanes stays scalar, what is contiguous is one access, and code stands outside of loops."""

from __future__ import annotations

import pytest

import kernelpack as kp
import kernelpack.language as tl
from tests.backends.cpu.emit.llir import program
from tests.backends.cpu.plan.plans import V3, V4
from tests.backends.fragments import count, in_order


@kp.jit
def accesses(x, y, out, s, S: tl.constexpr):
    i = tl.arange(0, S)
    row = x + tl.program_id(0) * s
    even = tl.load(row + i * 2)
    first = tl.load(row)
    column = tl.load(y + i * s)
    tl.store(out + i, even + first + column)


def test_contiguous_elements_are_one_access_and_others_are_gathered() -> None:
    in_order(
        program(accesses, S=8, s="i32"),
        """
        %R = getelementptr float, ptr %x, i32 ...
        %F = load float, ptr %R, align 4
        %E = getelementptr i8, ptr ..., <8 x i64> <i64 0, i64 8, i64 16, i64 24, i64 32, i64 40, i64 48, i64 56>
        %V = call <8 x float> @llvm.masked.gather.v8f32.v8p0(<8 x ptr> %E, i32 4, <8 x i1> splat (i1 true), <8 x float> poison)
        %I = insertelement <8 x float> poison, float %F, i64 0
        %A = shufflevector <8 x float> %I, <8 x float> poison, <8 x i32> zeroinitializer
        %S = fadd contract <8 x float> %V, %A
        %W = sext i32 %s to i64
        %B = mul i64 %W, 4
        ... = mul <8 x i64> ..., <i64 0, i64 1, i64 2, i64 3, i64 4, i64 5, i64 6, i64 7>
        %C = call <8 x float> @llvm.masked.gather.v8f32.v8p0(...)
        %T = fadd contract <8 x float> %S, %C
        %O = getelementptr float, ptr %out, i32 0
        store <8 x float> %T, ptr %O, align 4
        """,
    )


@kp.jit
def masked(x, out, n, S: tl.constexpr):
    i = tl.arange(0, S)
    some = tl.load(x + i, mask=i < n, other=1.0)
    all_or_none = tl.load(x + 1 + i, mask=n > 2)
    one = tl.load(x, mask=n > 3, other=3.0)
    tl.store(out + i * 2, some + all_or_none, mask=i >= n)
    tl.store(out + i, some, mask=i < n)
    tl.store(out, one, mask=n > 4)


def test_masked_accesses_touch_no_memory_where_the_mask_is_off() -> None:
    text = program(masked, S=8, n="i32")
    in_order(
        text,
        """
        %M = icmp sgt i32 %n, 3
        %N = insertelement <1 x i1> poison, i1 %M, i64 0
        %P = insertelement <1 x float> poison, float 0x4008000000000000, i64 0
        %O = call <1 x float> @llvm.masked.load.v1f32.p0(ptr %x, i32 4, <1 x i1> %N, <1 x float> %P)
        """,
    )
    in_order(
        text,
        """
        %A = shufflevector <8 x i1> ..., <8 x i1> poison, <8 x i32> zeroinitializer
        ... = call <8 x float> @llvm.masked.load.v8f32.p0(ptr ..., i32 4, <8 x i1> %A, <8 x float> splat (float 0x0000000000000000))
        """,
    )
    in_order(
        text,
        """
        %M = icmp slt <8 x i32> ...
        %S = call <8 x float> @llvm.masked.load.v8f32.p0(ptr ..., i32 4, <8 x i1> %M, <8 x float> splat (float 0x3FF0000000000000))
        call void @llvm.masked.scatter.v8f32.v8p0(<8 x float> ..., <8 x ptr> ..., i32 4, <8 x i1> ...)
        call void @llvm.masked.store.v8f32.p0(<8 x float> ..., ptr ..., i32 4, <8 x i1> ...)
        call void @llvm.masked.store.v1f32.p0(<1 x float> ..., ptr %out, i32 4, <1 x i1> ...)
        """,
    )
    assert not count(text, "%A = load <8 x float>, ptr %x...")


@kp.jit
def wide(x, out, n, S: tl.constexpr):
    i = tl.arange(0, S)
    tl.store(out + i, tl.load(x + i, mask=i < n))


def test_masks_of_more_than_a_register_are_hidden_from_llvm_without_avx512() -> None:
    text = program(wide, S=8, n="i32", x="*fp64", out="*fp64")
    in_order(
        text,
        """
        %M = icmp slt <8 x i32> ...
        %W = sext <8 x i1> %M to <8 x i32>
        %H = call <8 x i32> asm "", "=x,0"(<8 x i32> %W)
        %N = icmp ne <8 x i32> %H, zeroinitializer
        ... = call <8 x double> @llvm.masked.load.v8f64.p0(ptr ..., i32 8, <8 x i1> %N, ...)
        """,
    )
    assert "asm" not in program(wide, V4, S=8, n="i32", x="*fp64", out="*fp64")
    assert "asm" not in program(wide, V3, S=8, n="i32")


@kp.jit
def positive(x, out, n, S: tl.constexpr):
    i = tl.arange(0, S)
    above = tl.load(x + i) > 0.0
    for _ in range(n):
        above = above & (tl.load(out + i) > 1.0)
    tl.store(out + i, 1.0, mask=above)


def test_halves_are_moved_as_integers_and_booleans_take_a_byte() -> None:
    in_order(
        program(wide, S=8, n="i32", x="*fp16", out="*fp16"),
        """
        %L = load <8 x i16>, ptr ..., align 2
        %H = select <8 x i1> ..., <8 x i16> %L, <8 x i16> ...
        %V = bitcast <8 x i16> %H to <8 x half>
        %W = bitcast <8 x half> %V to <8 x i16>
        store <8 x i16> %W, ptr ..., align 2
        """,
    )
    in_order(
        program(positive, S=8, n="i32"),
        """
        %T = fcmp ogt <8 x float> ...
        %B = zext <8 x i1> %T to <8 x i8>
        store <8 x i8> %B, ptr %K, align 1
        %C = load <8 x i8>, ptr %K, align 1
        %U = icmp ne <8 x i8> %C, splat (i8 0)
        """,
    )


@kp.jit
def rows(x, out, n, S: tl.constexpr, T: tl.constexpr):
    down, along = tl.arange(0, S)[:, None], tl.arange(0, T)[None, :]
    factor = tl.load(x + down) * n
    tl.store(out + down * T + along, tl.load(x + down * T + along) * factor)


def test_what_does_not_vary_in_a_loop_is_computed_before_it() -> None:
    in_order(
        program(rows, S=32, T=256, n="fp32"),
        """
        %D = load i64, ptr ..., align 8
        %E = trunc i64 %D to i32
        %A = getelementptr float, ptr %x, i32 %E
        %F = load float, ptr %A, align 4
        %G = fmul contract float %F, %n
        %I = insertelement <8 x float> poison, float %G, i64 0
        %S = shufflevector <8 x float> %I, <8 x float> poison, <8 x i32> zeroinitializer
        br label %nest...
        %V = load <8 x float>, ptr ..., align 4
        %P = fmul contract <8 x float> %V, %S
        """,
    )


@kp.jit
def carried(x, out, n, S: tl.constexpr):
    i = tl.arange(0, S)
    a = tl.load(x + i[:, None] * S + i[None, :])
    for _ in range(n):
        a = a * 2.0
    tl.store(out + i[:, None] * S + i[None, :], a)


def test_a_buffer_s_rows_are_addressed_outside_of_the_inner_loop() -> None:
    in_order(
        program(carried, S=64, n="i32"),
        """
        for...:
        nest...:
        %R = load i64, ptr ..., align 8
        %B = mul nsw i64 %R, 256
        %P = getelementptr i8, ptr %T, i64 %B
        %V = load <8 x float>, ptr %P, align 4
        %W = fmul contract <8 x float> %V, splat (float 0x4000000000000000)
        store <8 x float> %W, ptr %P, align 4
        """,
    )


@kp.jit
def long_sum(x, out, S: tl.constexpr, TERMS: tl.constexpr):
    i = tl.arange(0, S)
    a = tl.load(x + i)
    for k in tl.static_range(TERMS):
        a = a * 1.5 + k
    tl.store(out + i, a)


def test_formulas_are_longer_than_python_may_call() -> None:
    text = program(long_sum, S=8, TERMS=400)
    assert count(text, "%A = fmul contract <8 x float> ...") == 400


@pytest.mark.parametrize(("kind", "size"), [("*fp32", 4), ("*fp64", 8), ("*i8", 1), ("*bf16", 2)])
def test_accesses_need_no_more_alignment_than_an_element_has(kind: str, size: int) -> None:
    @kp.jit
    def copy(x, out, S: tl.constexpr):
        i = tl.arange(0, S)
        tl.store(out + i, tl.load(x + i))

    text = program(copy, S=8, x=kind, out=kind)
    assert count(text, f"%A = load <8 x ...>, ptr ..., align {size}") == 1
    assert count(text, f"store <8 x ...> ..., ptr ..., align {size}") == 1
