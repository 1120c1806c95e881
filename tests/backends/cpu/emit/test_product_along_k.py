"""Products of few rows: k in the lanes, sums of lanes by a tree, the next block of columns asked for."""

from __future__ import annotations

import re

import pytest

from kernelpack.backends.cpu.facts.features import Level
from kernelpack.backends.cpu.plan.plan_product import block_along_k
from tests.backends.cpu.emit.llir import program
from tests.backends.cpu.emit.shuffles import run
from tests.backends.cpu.plan.plans import BF16, V3, V4
from tests.backends.cpu.plan.test_plan_product import product
from tests.backends.fragments import count, in_order

FEW = {"M": 1, "N": 32, "K": 64, "A": True, "B": False}


def test_a_vector_of_a_meets_a_vector_of_each_column() -> None:
    in_order(
        program(product, **FEW),
        """
        tile...:
        %A = load <8 x float>, ptr ..., align 4
        %B = load <8 x float>, ptr ..., align 4
        %C = load <8 x float>, ptr ..., align 4
        ... = call <8 x float> @llvm.fma.v8f32(<8 x float> %V, <8 x float> ..., <8 x float> %S)
        ... = call <8 x float> @llvm.fma.v8f32(<8 x float> %V, <8 x float> ..., <8 x float> %T)
        """,
    )


@pytest.mark.parametrize(("level", "vectors"), [(V3, 2), (V4, 4)])
def test_the_next_columns_are_asked_for_while_these_are_multiplied(level: Level, vectors: int) -> None:
    text = program(product, level, **FEW)
    in_order(
        text,
        """
        %A = ptrtoint ptr %F to i64
        %B = ptrtoint ptr %G to i64
        %D = sub i64 %B, %A
        %E = mul i64 %D, 4
        %N = getelementptr i8, ptr %F, i64 %E
        call void @llvm.prefetch.p0(...)
        """,
    )
    assert count(text, "call void @llvm.prefetch.p0(...)") == 4 * vectors  # of four columns, the vectors of k of an iteration


def test_packed_columns_are_near_and_not_asked_for() -> None:
    assert "prefetch" not in program(product, a="*fp32", b="*fp32", M=16, N=32, K=16, A=True, B=False)


def merges(text: str, width: int) -> list[list[object]]:
    """What the trees of shuffles and additions make of the accumulators' lanes: the sets of lanes in each lane of each result."""
    found = []
    lines = [line.strip() for line in text.splitlines()]
    for end in (number for number, line in enumerate(lines) if re.match(r"store <\d+ x \w+> %v\d+, ptr %sums", line)):
        begin = end - 1
        while not (lines[begin].startswith("done") or "store" in lines[begin]):
            begin -= 1
        block = lines[begin + 1 : end]
        loads = [line for line in block if " = load " in line]
        given = {
            line.split(" = ")[0]: [frozenset({(number, lane)}) for lane in range(width)] for number, line in enumerate(loads)
        }
        known = run([line for line in block if line not in loads], given, lambda a, b: a | b)
        stored = re.match(r"store <\d+ x \w+> (%v\d+)", lines[end])
        assert stored is not None
        found.append(known[stored[1]])
    return found


@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize(("level", "kind"), [(V3, "*fp32"), (V4, "*fp32"), (V3, "*fp64"), (BF16, "*bf16")])
def test_each_lane_of_the_result_is_the_sum_of_its_accumulators(level: Level, kind: str, rows: int) -> None:
    width = level.lanes(64 if kind == "*fp64" else 32)
    result = {"c": "*fp64"} if kind == "*fp64" else {}
    height, columns, parts = block_along_k(rows, level)
    results = merges(program(product, level, a=kind, b=kind, **result, **{**FEW, "M": rows, "K": 128}), width)
    assert results
    for lanes in results:
        assert len(lanes) == min(height * columns, width)
        for number, sums in enumerate(lanes):  # accumulators of one result are read one after the other
            assert sums == {(number * parts + part, lane) for part in range(parts) for lane in range(width)}


def test_halves_of_b_are_widened_as_they_are_read() -> None:
    in_order(
        program(product, a="*bf16", b="*bf16", **FEW),
        """
        %B = load <8 x i16>, ptr ..., align 2
        %W = zext <8 x i16> %B to <8 x i32>
        %S = shl <8 x i32> %W, splat (i32 16)
        %F = bitcast <8 x i32> %S to <8 x float>
        ... = call <8 x float> @llvm.fma.v8f32(...)
        """,
    )


def test_pairs_are_read_as_they_lie() -> None:
    text = program(product, BF16, a="*bf16", b="*bf16", **FEW)
    in_order(text, "%B = load <16 x i32>, ptr ..., align 4\n%C = bitcast <16 x i32> ... to <32 x bfloat>")
    assert "dpbf16ps.512" in text


def test_several_rows_share_the_vectors_of_b() -> None:
    text = program(product, V4, **{**FEW, "M": 4, "K": 128})
    loop = text[text.index("fma.v16f32") :]
    assert count(text, "store <16 x float> splat (float 0x0000000000000000), ptr %A, align 64") == 4 * 4
    assert count(loop, "%A = call <16 x float> @llvm.fma.v16f32(...)") == 2 * 4 * 4 - 1


def test_results_are_written_in_neighbours() -> None:
    text = program(product, V4, **{**FEW, "M": 4, "K": 128})  # four columns of four rows are one register of sums
    assert count(text, "store <4 x float> %A, ptr %B, align 4") == 4
