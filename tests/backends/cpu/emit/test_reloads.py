"""Scalars that a nest's loop loads again: those that registers do not hold, from memory that nothing has written meanwhile."""

from __future__ import annotations

import re

import pytest
import torch

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.backends.cpu.emit.reloads import is_plain_load
from kernelpack.backends.cpu.ttir.dot_bytes import dot_bytes
from kernelpack.passes import TTIR
from tests.backends.cpu.agreement import check
from tests.backends.cpu.emit.llir import whole
from tests.backends.cpu.plan.plans import V3, V4, V4_VNNI, ttir


@kp.jit
def weighed(x, weights, out, counts, COUNT: tl.constexpr, WRITES: tl.constexpr, N: tl.constexpr):
    """Sums of a row, each weighed otherwise."""
    lanes = tl.arange(0, N)
    for row in range(3):
        weight = [tl.load(weights + COUNT * row + i) for i in tl.static_range(COUNT)]
        if WRITES:
            tl.store(counts + row, COUNT)
        value = tl.load(x + row * N + lanes)
        total = tl.zeros([N], tl.int32)
        for i in tl.static_range(COUNT):
            total = total * 3 + value * weight[i]
        tl.store(out + row * N + lanes, total)


@kp.jit
def in_rows(x, weights, out, COUNT: tl.constexpr, N: tl.constexpr):
    """Running sums of rows, so that the loop's nest writes no memory but its own."""
    lanes = tl.arange(0, N)
    total = tl.zeros([N], tl.int32)
    for row in range(3):
        weight = [tl.load(weights + COUNT * row + i) for i in tl.static_range(COUNT)]
        value = tl.load(x + row * N + lanes)
        for i in tl.static_range(COUNT):
            total = total * 3 + value * weight[i]
    tl.store(out + lanes, total)


WORDS = dict.fromkeys(("x", "weights", "out"), "*i32")
HIDDEN = re.compile(r'call i64 asm "", "=r,0,r"\(i64 0, i64 (%\S+)\) memory\(none\)')


def reloaded(text: str) -> int:
    """Returns how many scalars are loaded again."""
    zeros = [line.split(" = ")[0].strip() for line in text.splitlines() if HIDDEN.search(line)]
    return sum(len(re.findall(rf"getelementptr i8, ptr %\w+, i64 {zero}\b", text)) for zero in zeros)


@pytest.mark.parametrize("count", [28, 29, 40])
def test_more_scalars_than_registers_hold_are_loaded_in_the_loop_over_lanes(count: int) -> None:
    assert reloaded(whole(in_rows, V4, **WORDS, COUNT=count, N=256)) == (count if count > 28 else 0)


def test_instructions_without_avx512_do_not_take_one_element_for_all_lanes() -> None:
    assert reloaded(whole(in_rows, V3, **WORDS, COUNT=40, N=256)) == 0


def test_straight_code_has_no_loop_to_load_in() -> None:
    assert reloaded(whole(in_rows, V4, **WORDS, COUNT=40, N=16)) == 0


@pytest.mark.parametrize("writes", [False, True])
def test_not_where_the_nest_or_what_comes_before_it_writes(writes: bool) -> None:
    text = whole(weighed, V4, **WORDS, counts="*i32", COUNT=40, WRITES=writes, N=256)
    assert reloaded(text) == 0


@pytest.mark.parametrize("count", [3, 40])
@pytest.mark.parametrize("n", [16, 256])
def test_results_are_those_of_the_interpreter(count: int, n: int) -> None:
    torch.manual_seed(1)
    x, weights, out = (torch.randint(-9, 9, shape, dtype=torch.int32) for shape in ((3, n), (3, count), (3, n)))
    check(in_rows, (1,), x, weights, out[0], COUNT=count, N=n)
    check(weighed, (1,), x, weights, out, torch.zeros(3, dtype=torch.int32), COUNT=count, WRITES=True, N=n)


@kp.jit
def volatile(x, out, n):
    tl.store(out, tl.load(x, volatile=True) + tl.load(x, mask=n > 0, other=0.0) + tl.load(x))


def test_loads_with_masks_and_of_what_others_write_are_left_alone() -> None:
    loads = [op for op in ttir(volatile, n="i32").walk() if op.name == "tt.load"]
    assert [is_plain_load(op) for op in loads] == [False, False, True]


@kp.jit
def sum_of_bytes(a, b):
    total = 0
    for byte in tl.static_range(4):
        total += ((a >> (8 * byte)) & 255) * (b >> (8 * byte)).to(tl.int8).to(tl.int32)
    return total


@kp.jit
def products(codes, x, out, BLOCKS, ROWS: tl.constexpr, N: tl.constexpr):
    """Products of bytes of several rows with the same words, as quantised weights have them."""
    lanes = tl.arange(0, N)
    acc = [tl.zeros([N], tl.float32) for row in tl.static_range(ROWS)]
    for block in range(BLOCKS):
        sums = [tl.zeros([N], tl.int32) for row in tl.static_range(ROWS)]
        for i in tl.static_range(4):
            word = tl.load(codes + (4 * block + i) * N + lanes)
            own = [tl.load(x + (ROWS * block + row) * 4 + i) for row in tl.static_range(ROWS)]
            sums = [sums[row] + sum_of_bytes(word, own[row]) for row in tl.static_range(ROWS)]
        acc = [acc[row] + sums[row].to(tl.float32) for row in tl.static_range(ROWS)]
    for row in tl.static_range(ROWS):
        tl.store(out + row * N + lanes, acc[row])


def test_chains_of_products_are_made_in_turns() -> None:
    module = TTIR.run(dot_bytes(ttir(products, codes="*i32", x="*i32", BLOCKS="i32", ROWS=8, N=64), together=False))
    text = whole(module, V4_VNNI)
    made = re.findall(r"(%\w+) = call <16 x i32> @llvm.x86.avx512.vpdpbusd.512\(<16 x i32> ([^,]*),", text)
    chains = 8 * 2  # of rows, for two vectors that share what is loaded again
    assert len(made) == chains * 4
    for number, (_, before) in enumerate(made):  # each adds to what its chain's last product gave
        assert before == ("splat (i32 0)" if number < chains else made[number - chains][0])


def test_products_in_turns_are_those_of_the_interpreter() -> None:
    torch.manual_seed(2)
    codes, x = (torch.randint(-(2**31), 2**31, (count,), dtype=torch.int32) for count in (3 * 4 * 64, 3 * 8 * 4))
    check(products, (1,), codes, x, torch.zeros(8, 64), 3, ROWS=8, N=64)
