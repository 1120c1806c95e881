"""Products: mma.sync on fragments in registers, float32 in three products of tf32, multiply-adds of ordinary cores."""

from __future__ import annotations

import itertools
import re

import pytest

from kernelpack.layout.families import blocked, mma_accumulator, mma_operand, swizzled
from tests.backends.fragments import count, in_order
from tests.backends.gpu.lowering.integers import returned
from tests.backends.gpu.lowering.llir import SM80, lower


def product(
    kind: str = "f16",
    m: int = 16,
    n: int = 8,
    k: int = 16,
    result: str = "f32",
    more: str = "",
    paired: bool = False,
    target: str = SM80,
) -> str:
    bits = {"f16": 16, "bf16": 16, "f32": 32, "i8": 8, "f8E5M2": 8}[kind]
    layouts = {
        "A": mma_operand((m, k), 0, bits, (1, 1), paired),
        "B": mma_operand((k, n), 1, bits, (1, 1), paired),
        "C": mma_accumulator((m, n), (1, 1)),
    }
    a, b, c = f"tensor<{m}x{k}x{kind}, $A>", f"tensor<{k}x{n}x{kind}, $B>", f"tensor<{m}x{n}x{result}, $C>"
    return lower(
        f"%r = tt.dot %a, %b, %c{more} : {a} * {b} -> {c}\ntt.return %r : {c}", f"%a: {a}, %b: {b}, %c: {c}", layouts, target
    )


def words(text: str) -> list[tuple[str, ...]]:
    """The registers that go into each word of the only mma, in order."""
    packed: dict[str, list[str]] = {}
    for line in text.splitlines():
        if insert := re.match(r"(%\w+) = insertelement <\d+ x \w+> (poison|%\w+), \w+ (%\w+), i64 \d+", line):
            packed[insert[1]] = [*packed.get(insert[2], []), insert[3]]
    (arguments,) = re.findall(r"@llvm.nvvm.mma.\S+\((<2 x half> .*)\)", text)
    return [tuple(packed.get(name, [name])) for name in re.findall(r"%\w+", arguments)]


def test_one_instruction_takes_a_fragment_of_each_operand() -> None:
    text = product()
    a = [("%a0", "%a1"), ("%a2", "%a3"), ("%a4", "%a5"), ("%a6", "%a7")]
    b = [("%b0", "%b1"), ("%b2", "%b3")]
    assert words(text) == [*a, *b, ("%c0",), ("%c1",), ("%c2",), ("%c3",)]
    in_order(
        text,
        """
        %D = call {float, float, float, float} @llvm.nvvm.mma.m16n8k16.row.col.f32.f32(...)
        %X = extractvalue {float, float, float, float} %D, 0
        %Y = extractvalue {float, float, float, float} %D, 3
        return %X, ..., %Y
        """,
    )


def test_larger_tiles_are_a_grid_of_instructions_that_add_up_along_k() -> None:
    text = product(m=32, n=16, k=32)
    calls = re.findall(r"(%\w+) = call \{float, float, float, float\} @(\S+)\((.*)\)", text)
    assert len(calls) == 2 * 2 * 2
    first = [name for name, _, arguments in calls if "%c" in arguments]
    assert len(first) == 4  # c goes into the first step of k alone
    for fragment in first:
        used = list(re.findall(rf"(%\w+) = extractvalue \{{.*\}} {fragment},", text))
        (following,) = [arguments for _, _, arguments in calls if used[0] in re.findall(r"%\w+", arguments)]
        assert all(name in following for name in used)


@pytest.mark.parametrize(
    ("kind", "k", "result", "instruction"),
    [
        ("bf16", 16, "f32", "m16n8k16.row.col.bf16"),
        ("f16", 16, "f32", "m16n8k16.row.col.f32.f32"),
        ("f32", 8, "f32", "m16n8k8.row.col.tf32"),
        ("i8", 32, "i32", "m16n8k32.row.col.satfinite.s8"),
    ],
)
def test_each_element_type_has_its_instruction(kind: str, k: int, result: str, instruction: str) -> None:
    text = product(kind, k=k, result=result, more=", inputPrecision = tf32" if kind == "f32" else "")
    assert len(re.findall(rf"@llvm.nvvm.mma.{re.escape(instruction)}\b", text)) == 1


def test_float32_is_rounded_to_tf32_and_not_cut_off() -> None:
    text = product("f32", k=8, more=", inputPrecision = tf32")
    assert count(text, '%A = call i32 asm "cvt.rna.tf32.f32 $0, $1;", "=r,f"(float %B)') == 4 + 2


def test_float32_in_three_products_leaves_out_the_two_small_parts() -> None:
    text = product("f32", k=8, more=", inputPrecision = tf32x3", paired=True)
    in_order(
        text,
        """
        %U = fmul float %a0, 0x3FF0016000000000
        %I = bitcast float %U to i32
        %L = and i32 %I, -8192
        %F = bitcast i32 %L to float
        %S = fsub float %a0, %F
        %J = bitcast float %S to i32
        """,
    )
    assert count(text, "%A = call {float, float, float, float} @llvm.nvvm.mma.m16n8k8.row.col.tf32(...)") == 3
    in_order(
        text,
        """
        %N = fcmp uno float %P, %P
        %R = select i1 %N, float 0x0000000000000000, float %P
        %W = fadd float ..., %R
        ... = fadd float %c0, %W
        """,
    )


FMA = {
    "L": blocked((16, 16), (2, 2), (8, 4), (1, 1), (1, 0)),
    "S": swizzled((16, 16), (1, 0)),
    "R": swizzled((16, 32), (1, 0)),
    "T": swizzled((32, 16), (1, 0)),
}


def fma_dot(kind: str = "f32", k: int = 32, result: str = "f32", how: str = "") -> str:
    a = f"!ttg.memdesc<16x{k}x{kind}, {'$R' if k == 32 else '$S'}, #ttg.shared_memory>"
    b = f"!ttg.memdesc<{k}x16x{kind}, {'$T' if k == 32 else '$S'}, #ttg.shared_memory>"
    c = f"tensor<16x16x{result}, $L>"
    return lower(f"%r = ttg.fma_dot %a, %b, %c {how} : {a} * {b} -> {c}\ntt.return %r : {c}", f"%a: {a}, %b: {b}, %c: {c}", FMA)


def test_ordinary_cores_go_over_k_in_rounds_of_eight() -> None:
    text = fma_dot()
    in_order(
        text,
        """
        br label %dot...
        dot...:
        %K = phi i32 [ 0, %entry ], [ %N, %step... ]
        %T = phi float [ %c0, %entry ], [ %U, %step... ]
        %C = icmp slt i32 %K, 32
        br i1 %C, label %step..., label %enddot...
        step...:
        %P = fmul float %A, %B
        %Q = call float @llvm.fma.f32(float ..., float ..., float %P)
        %U = fadd float %T, ...
        %N = add i32 %K, 8
        br label %dot...
        enddot...:
        return %T, ...
        """,
    )
    assert count(text, "%A = call float @llvm.fma.f32(...)") == 7 * len(returned(text))


def test_straight_products_are_added_to_the_sums_and_share_an_operand_with_the_one_before() -> None:
    text = fma_dot(how="{straight = true}")
    products = re.findall(r"call float @llvm.fma.f32\(float (\S+), float (\S+), float (\S+)\)", text)
    results = returned(text)
    assert len(products) == 32 * len(results)
    assert not count(text, "%A = fadd ...")
    assert [total for _, _, total in products[: len(results)]] != results  # they begin with c
    steps = [products[at : at + len(results)] for at in range(0, len(products), len(results))]
    for step in steps:
        assert all({one[0], one[1]} & {other[0], other[1]} for one, other in itertools.pairwise(step))


def test_integers_are_widened_and_added_to_the_total() -> None:
    text = fma_dot("i8", 32, "i32")
    in_order(text, "%A = sext i8 ... to i32\n%B = sext i8 ... to i32\n%P = mul i32 %X, %Y\n%S = add i32 %P, ...")
    assert not count(text, "%A = fmul ...")
