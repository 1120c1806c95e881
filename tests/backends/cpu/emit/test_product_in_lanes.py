"""Products with the result in the lanes: accumulators in registers, vectors from panels, elements broadcast, c added last."""

from __future__ import annotations

import re

import pytest

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.backends.cpu.emit.product_in_lanes import rows_at_a_time
from kernelpack.backends.cpu.facts.features import Level
from tests.backends.cpu.emit.llir import program
from tests.backends.cpu.plan.plans import BF16, V3, V4, V4_VNNI
from tests.backends.cpu.plan.test_plan_product import product, rows_reduced
from tests.backends.fragments import count, in_order

SIZES = {"M": 4, "N": 16, "K": 16, "A": True, "B": True}
ZERO = "splat (float 0x0000000000000000)"


@pytest.mark.parametrize(
    ("rows", "level", "block"),
    [(4, V3, 4), (8, V3, 4), (6, V4, 6), (8, V4, 4), (16, V4, 6), (1, V4, 1), (32, V4, 6), (64, V4, 6)],
)
def test_blocks_have_as_many_rows_as_registers_or_fewer_that_come_out_equal(rows: int, level: Level, block: int) -> None:
    assert rows_at_a_time(rows, level) == block


def product_of(text: str) -> str:
    """The lines from where accumulators are cleared on."""
    return text[text.index(f"store <8 x float> {ZERO}") :]


def test_an_element_meets_all_vectors_of_a_panel() -> None:
    in_order(
        product_of(program(product, **SIZES)),
        f"""
        store <8 x float> {ZERO}, ptr %A, align 64
        store <8 x float> {ZERO}, ptr %B, align 64
        tile...:
        %K = load i64, ptr ..., align 8
        %C = load <8 x float>, ptr %A, align 64
        %D = load <8 x float>, ptr %B, align 64
        %O = mul nuw nsw i64 %K, 64
        %P = getelementptr i8, ptr ..., i64 %O
        %V = load <8 x float>, ptr %P, align 4
        %Q = getelementptr i8, ptr %P, i64 32
        %W = load <8 x float>, ptr %Q, align 4
        %E = load float, ptr ..., align 4
        %F = insertelement <8 x float> poison, float %E, i64 0
        %G = shufflevector <8 x float> %F, <8 x float> poison, <8 x i32> zeroinitializer
        %X = call <8 x float> @llvm.fma.v8f32(<8 x float> %G, <8 x float> %V, <8 x float> %C)
        %Y = call <8 x float> @llvm.fma.v8f32(<8 x float> %G, <8 x float> %W, <8 x float> %D)
        store <8 x float> ..., ptr %A, align 64
        %N = add nuw nsw i64 %K, 4
        %Z = icmp uge i64 %N, 16
        """,
    )


def test_a_block_s_accumulators_stay_in_registers_for_four_steps_of_k() -> None:
    text = product_of(program(product, **SIZES))
    assert count(text, f"store <8 x float> {ZERO}, ptr %A, align 64") == 8
    assert count(text, "%A = call <8 x float> @llvm.fma.v8f32(...)") == 8 * 4
    loop = text[text.index("tile") :]
    assert count(loop, "store <8 x float> %V, ptr %A, align 64") == 8


@kp.jit
def added(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :], tl.arange(0, K)
    x, y = tl.load(a + m * K + k[None, :]), tl.load(b + k[:, None] * N + n)
    before = tl.load(c + m * N + n)
    tl.store(c + m * N + n, tl.dot(x, y, before, input_precision="ieee"))


def test_c_is_added_when_k_has_ended_and_not_at_all_where_it_is_zero() -> None:
    in_order(
        program(added, M=1, N=8, K=16),
        """
        %E = icmp uge i64 %N, 16
        %C = load <8 x float>, ptr %P, align 4
        %D = load <8 x float>, ptr %A, align 64
        %S = fadd contract <8 x float> %C, %D
        store <8 x float> %S, ptr ..., align 4
        """,
    )
    assert not count(program(product, **SIZES), "%A = fadd ...")


def test_rows_in_the_lanes_broadcast_elements_of_b() -> None:
    text = program(rows_reduced, M=8, N=16, K=16)
    # rows of b are contiguous: neighbours along the other axis are a few bytes apart
    in_order(text, "%P = getelementptr float, ptr %b, i32 ...")
    assert re.search(r"getelementptr i8, ptr %v\d+, i64 4\n", text)


def test_pairs_of_bfloat16_are_multiplied_by_their_instruction() -> None:
    in_order(
        program(product, BF16, a="*bf16", b="*bf16", **SIZES),
        """
        %V = load <16 x i32>, ptr ..., align 4
        %E = load i32, ptr ..., align 4
        %F = insertelement <16 x i32> poison, i32 %E, i64 0
        %G = shufflevector <16 x i32> %F, <16 x i32> poison, <16 x i32> zeroinitializer
        %H = bitcast <16 x i32> %G to <32 x bfloat>
        %W = bitcast <16 x i32> %V to <32 x bfloat>
        ... = call <16 x float> @llvm.x86.avx512bf16.dpbf16ps.512(<16 x float> %C, <32 x bfloat> %H, <32 x bfloat> %W)
        """,
    )


def test_pairs_of_16_bits_are_multiplied_and_added() -> None:
    in_order(
        program(product, a="*i8", b="*i8", c="*i32", **(SIZES | {"K": 32})),
        """
        %P = call <8 x i32> @llvm.x86.avx2.pmadd.wd(<16 x i16> %H, <16 x i16> %W)
        %S = add <8 x i32> %A, %P
        """,
    )


def test_sums_of_biased_quads_start_at_what_the_bias_adds() -> None:
    """A panel's sums along k, times -128: 0x80808080 is four biased zeros."""
    in_order(
        program(product, V4_VNNI, a="*i8", b="*i8", c="*i32", **(SIZES | {"K": 32})),
        """
        store <16 x i32> splat (i32 0), ptr %S, align 64
        %V = load <16 x i32>, ptr ..., align 4
        %O = load <16 x i32>, ptr %S, align 64
        %N = call <16 x i32> @llvm.x86.avx512.vpdpbusd.512(<16 x i32> %O, <16 x i32> splat (i32 -2139062144), <16 x i32> %V)
        store <16 x i32> %N, ptr %S, align 64
        %T = load <16 x i32>, ptr %S, align 64
        %M = sub <16 x i32> splat (i32 0), %T
        store <16 x i32> %M, ptr %R, align 4
        %B = load <16 x i32>, ptr %R, align 4
        store <16 x i32> %B, ptr %A, align 64
        %C = call <16 x i32> @llvm.x86.avx512.vpdpbusd.512(<16 x i32> ..., <16 x i32> %E, <16 x i32> %W)
        """,
    )


def test_all_groups_of_rows_start_at_the_same_sums() -> None:
    text = program(product, V4_VNNI, a="*i8", b="*i8", c="*i32", M=128, N=128, K=64, A=True, B=True)
    added = (
        "%N = call <16 x i32> @llvm.x86.avx512.vpdpbusd.512(<16 x i32> %O, <16 x i32> splat (i32 -2139062144), <16 x i32> %V)"
    )
    assert count(text, added) == 4  # once for each vector of a panel


def test_groups_of_rows_meet_a_panel_before_the_next_one() -> None:
    """16 blocks of 6 rows are two groups of eight; what is left over is computed by shorter code."""
    text = program(product, V4, M=128, N=128, K=16, A=True, B=True)
    in_order(
        text,
        """
        %L = sub i64 126, %F
        %M = call i64 @llvm.umin.i64(i64 %L, i64 48)
        %R = add nuw nsw i64 %F, %W
        %N = add nuw nsw i64 %W, 6
        %E = icmp uge i64 %N, %M
        """,
    )
    in_order(text, "%N = add nuw nsw i64 %K, 1\n%E = icmp uge i64 %N, 16")  # two rows are left: one step of k at a time


@kp.jit
def first_rows(a, b, c, rows, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :], tl.arange(0, K)
    x = tl.load(a + m * K + k[None, :], mask=m < rows, other=0.0)
    y = tl.load(b + k[:, None] * N + n)
    tl.store(c + m * N + n, tl.dot(x, y, input_precision="ieee"), mask=m < rows)


def test_rows_that_are_left_over_are_computed_where_they_are_looked_at() -> None:
    """16 rows are two blocks of 6, and four."""
    text = program(first_rows, V4, rows="i32", M=16, N=64, K=16)
    in_order(
        text,
        """
        %L = icmp ugt i64 %R, 12
        br i1 %L, label %T, label %A
        then...:
        %K = add nuw nsw i64 %I, 1
        %E = icmp uge i64 %K, 16
        br label %A
        """,
    )


@kp.jit
def batches(a, b, c, B: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    i, m, n, k = tl.arange(0, B)[:, None, None], tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x = tl.load(a + (i * M + m[None, :, None]) * K + k[None, None, :])
    y = tl.load(b + (i * K + k[None, :, None]) * N + n[None, None, :])
    tl.store(c + (i * M + m[None, :, None]) * N + n[None, None, :], tl.dot(x, y, input_precision="ieee"))


def test_a_batch_is_a_loop_around_its_products() -> None:
    text = program(batches, B=4, M=4, N=8, K=16)
    in_order(
        text,
        f"""
        tile...:
        %B = load i64, ptr %I, align 8
        store <8 x float> {ZERO}, ptr ..., align 64
        tile...:
        %F = add nuw nsw i64 %B, 1
        %E = icmp uge i64 %F, 4
        """,
    )
