"""Rows that are shorter than their tile: what is beyond their end changes no result, and is never read or written."""

from __future__ import annotations

import pytest
import torch

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.backends.installed import backend_of
from kernelpack.compiler.stages import compile_ttir, optimise_ttir
from kernelpack.options import Options
from kernelpack.target import Target
from tests.backends.cpu.agreement import check, ttir_of

V3 = Target.parse("cpu:x86-64-v3")

TILE = 256
COLUMNS = [1, 8, 9, 32, 33, 100, 200, 255, 256]


@kp.jit
def softmax(x, out, rows, COLUMNS: tl.constexpr, TILE: tl.constexpr, ROWS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, TILE)[None, :]
    inside = (column < COLUMNS) & (row < rows)
    value = tl.load(x + row * COLUMNS + column, inside, other=0.0)
    top = tl.max(tl.where(inside, value, float("-inf")), 1)[:, None]
    power = tl.exp(value - top)
    total = tl.sum(tl.where(inside, power, 0), 1)[:, None]
    tl.store(out + row * COLUMNS + column, power / total, inside)


@pytest.mark.parametrize("columns", COLUMNS)
def test_softmax_of_rows_of_any_length(columns: int) -> None:
    torch.manual_seed(0)
    x, out = torch.randn(7, columns), torch.full((9, columns), 5.0)
    check(softmax, (2,), x, out, 7, rtol=1e-5, atol=1e-6, COLUMNS=columns, TILE=TILE, ROWS=4)


@kp.jit
def larger(a, b):
    return tl.where((a > b) | (a != a), a, b)


@kp.jit
def reductions(x, out, COLUMNS: tl.constexpr, TILE: tl.constexpr):
    column = tl.arange(0, TILE)
    inside = column < COLUMNS
    value = tl.load(x + column, inside, other=0.0)
    tl.store(out, tl.sum(value))
    tl.store(out + 1, tl.max(tl.where(inside, value, float("-inf"))))
    tl.store(out + 2, tl.min(tl.where(inside, value, float("inf"))))
    tl.store(out + 3, tl.reduce(tl.where(inside, value, float("-inf")), 0, larger))
    tl.store(out + 4, tl.sum(tl.where(inside, value, 0.5)))
    tl.store(out + 5, tl.max(tl.where(inside, value, 1.0)))
    tl.store(out + 6, tl.sum((value > 0).to(tl.int32)))


@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("special", [False, True])
def test_reductions_of_rows_of_any_length(columns: int, special: bool) -> None:
    torch.manual_seed(0)
    x = torch.randint(-8, 8, (columns,)).float()
    if special:
        x[columns // 2] = float("nan")
    out = torch.zeros(7)
    check(reductions, (1,), x, out, COLUMNS=columns, TILE=TILE)


@kp.jit
def sum_of_columns(x, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr, HEIGHT: tl.constexpr, TILE: tl.constexpr):
    row, column = tl.arange(0, HEIGHT)[:, None], tl.arange(0, TILE)[None, :]
    inside = (row < ROWS) & (column < COLUMNS)
    value = tl.load(x + row * COLUMNS + column, inside, other=0.0)
    tl.store(out + tl.arange(0, TILE), tl.sum(value, 0), tl.arange(0, TILE) < COLUMNS)


@pytest.mark.parametrize("rows", [1, 3, 5, 8])
@pytest.mark.parametrize("columns", [5, 40, 100, 128])
def test_sums_of_columns_of_any_length(rows: int, columns: int) -> None:
    x = torch.randint(-8, 8, (rows, columns)).float()
    check(sum_of_columns, (1,), x, torch.full((columns + 4,), 9.0), ROWS=rows, COLUMNS=columns, HEIGHT=8, TILE=128)


@kp.jit
def look_up(x, places, out, COLUMNS: tl.constexpr, TILE: tl.constexpr):
    column = tl.arange(0, TILE)
    inside = column < COLUMNS
    place = tl.load(places + column, inside, other=0)
    value = tl.load(x + place)  # without a mask: beyond the end of the row it reads the first element
    shifted = value - tl.sum(tl.where(inside, value, 0))
    tl.store(out + column, shifted * place, inside)


@pytest.mark.parametrize("columns", [3, 33, 130])
def test_addresses_beyond_the_end_of_a_row_are_what_the_kernel_says(columns: int) -> None:
    x = torch.randint(-8, 8, (1000,)).float()
    places = torch.randint(0, 1000, (columns,), dtype=torch.int32)
    check(look_up, (1,), x, places, torch.zeros(columns), COLUMNS=columns, TILE=TILE)


@kp.jit
def bits_of_sum(x, out, COLUMNS: tl.constexpr, TILE: tl.constexpr):
    column = tl.arange(0, TILE)
    inside = column < COLUMNS
    total = tl.sum(tl.where(inside, tl.load(x + column, inside), 0.0))
    tl.store(out, total.to(tl.int32, bitcast=True))


@pytest.mark.parametrize("columns", [32, 100, TILE])
def test_a_sum_has_the_sign_of_zero_that_the_whole_tile_gives_it(columns: int) -> None:
    check(bits_of_sum, (1,), torch.full((columns,), -0.0), torch.ones(1, dtype=torch.int32), COLUMNS=columns, TILE=TILE)


def test_whole_vectors_of_a_row_have_no_masks() -> None:
    module = optimise_ttir(ttir_of(softmax, [torch.ones(1), torch.ones(1), 8], {"COLUMNS": 200, "TILE": TILE, "ROWS": 1}))
    text = backend_of(V3).disassemble(compile_ttir(module, V3, Options()))
    assert "vmaskmov" not in text


@kp.jit
def channels_last(x, out, rows, COLUMNS: tl.constexpr, CHANNELS: tl.constexpr):
    row = (tl.program_id(1) * 32 + tl.arange(0, 32))[:, None]
    column = (tl.program_id(0) * 16 + tl.arange(0, 16))[None, :]
    inside = (column < COLUMNS) & (row < rows)
    value = tl.load(x + row * COLUMNS + column, inside)
    tl.store(out + row % CHANNELS + column * CHANNELS + row // CHANNELS * (CHANNELS * COLUMNS), value, inside)


@pytest.mark.parametrize("columns", [1, 8, 9, 16, 25])
def test_squares_that_turn_stop_at_the_end_of_a_row(columns: int) -> None:
    x = torch.randn(90, columns)
    check(channels_last, ((columns + 15) // 16, 3), x, torch.zeros(96 * columns), 90, COLUMNS=columns, CHANNELS=32)


def test_where_a_row_is_stored_whole_or_not_no_store_has_a_mask() -> None:
    arguments = [torch.ones(1), torch.ones(1), 96]
    module = optimise_ttir(ttir_of(channels_last, arguments, {"COLUMNS": 9, "CHANNELS": 32}))
    llir = str(compile_ttir(module, V3, Options()).stages["llir"])
    whole, *_ = llir.partition("\nelse")
    assert "store <8 x float>" in whole
    assert "@llvm.masked.store" not in whole


@kp.jit
def in_blocks(x, out, n, TILE: tl.constexpr):
    """A row whose length is known only when the kernel runs, in blocks."""
    i = tl.arange(0, TILE)
    total, squares = tl.zeros([TILE], tl.float32), tl.zeros([TILE], tl.float32)
    signed = tl.full([TILE], -0.0, tl.float32)
    count = tl.zeros([TILE], tl.int32)
    largest, least = tl.full([TILE], -float("inf"), tl.float32), tl.full([TILE], float("inf"), tl.float32)
    for begin in range(0, n, TILE):
        inside = begin + i < n
        value = tl.load(x + begin + i, inside, other=0.0)
        total += value
        signed += value
        squares = tl.fma(value, value, squares)
        count += (value > 0).to(tl.int32)
        high = tl.where(inside, value, -float("inf"))
        largest = tl.where(high > largest, high, largest)
        least = tl.minimum(least, tl.where(inside, value, float("inf")))
        tl.store(out + begin + i, value * 2, inside)
    tl.store(out + n + i, total)
    tl.store(out + n + TILE + i, 1 / signed)  # tells zeros of two signs apart
    tl.store(out + n + 2 * TILE + i, squares)
    tl.store(out + n + 3 * TILE + i, count.to(tl.float32))
    tl.store(out + n + 4 * TILE + i, largest)
    tl.store(out + n + 5 * TILE + i, least)


@pytest.mark.parametrize("tile", [64, 128])
@pytest.mark.parametrize("n", [1, 64, 100, 300])
def test_blocks_of_a_row_whose_length_is_known_when_it_runs(n: int, tile: int) -> None:
    x = torch.randint(-8, 8, (n,)).float()
    x[::5] = -0.0
    check(in_blocks, (1,), x, torch.full((n + 6 * tile + 8,), 5.0), n, TILE=tile)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int8, torch.int64, torch.float64])
@pytest.mark.parametrize("n", [9, 64])
def test_blocks_of_other_dtypes(dtype: torch.dtype, n: int) -> None:
    check(copied, (2,), torch.randint(-8, 8, (200,)).to(dtype), torch.full((208,), 5).to(dtype), n, TILE=64)


@kp.jit
def copied(x, out, n, TILE: tl.constexpr):
    i = tl.program_id(0) * TILE + tl.arange(0, TILE)
    tl.store(out + i, tl.load(x + i, i < n), i < n)


@kp.jit
def reduced(x, out, n, TILE: tl.constexpr):
    i = tl.arange(0, TILE)
    inside = i < n
    value = tl.load(x + i, inside, other=0.0)
    tl.store(out, tl.sum(value).to(tl.int32, bitcast=True))
    tl.store(out + 1, tl.max(tl.load(x + i, inside, other=-float("inf"))).to(tl.int32, bitcast=True))
    tl.store(out + 2, tl.min(tl.load(x + i, inside, other=1.0)).to(tl.int32, bitcast=True))
    tl.store(out + 3, tl.sum(tl.load(x + i, inside, other=0.5)).to(tl.int32, bitcast=True))
    tl.store(out + 4, tl.sum(tl.load(x + i, inside, other=0.0).to(tl.int32)))
    tl.store(out + 5, tl.reduce(tl.load(x + i, inside, other=-float("inf")), 0, larger).to(tl.int32, bitcast=True))
    tl.store(out + 6, tl.xor_sum(tl.load(x + i, inside, other=0.0).to(tl.int32, bitcast=True)))


@pytest.mark.parametrize("value", [-0.0, float("nan")])
@pytest.mark.parametrize("n", [0, 1, 8, 100, 256])
def test_reductions_of_rows_whose_length_is_known_when_they_run(n: int, value: float) -> None:
    check(reduced, (1,), torch.full((TILE,), value), torch.zeros(8, dtype=torch.int32), n, TILE=TILE)


@kp.jit
def block_of_rows(x, out, rows, columns, HEIGHT: tl.constexpr, TILE: tl.constexpr):
    i, j = tl.arange(0, HEIGHT)[:, None], tl.arange(0, TILE)[None, :]
    inside = (i < rows) & (j < columns)
    value = tl.load(x + i * TILE + j, inside, other=0.0)
    tl.store(out + i * TILE + j, value + 1, inside)
    tl.store(out + HEIGHT * TILE + tl.arange(0, HEIGHT), tl.sum(value, 1))


@pytest.mark.parametrize("rows", [0, 5, 16])
@pytest.mark.parametrize("columns", [0, 40, 128])
def test_blocks_of_rows_and_columns(rows: int, columns: int) -> None:
    x = torch.randint(-8, 8, (16, 128)).float()
    check(block_of_rows, (1,), x, torch.full((17 * 128,), 5.0), rows, columns, HEIGHT=16, TILE=128)


def test_a_store_whose_mask_holds_for_a_whole_vector_needs_none() -> None:
    module = optimise_ttir(ttir_of(copied, [torch.ones(1), torch.ones(1), 8], {"TILE": 64}))
    llir = str(compile_ttir(module, V3, Options()).stages["llir"])
    assert llir.count("@llvm.masked.store") > 0
    assert llir.count("label %store") >= llir.count("call void @llvm.masked.store")


@kp.jit
def whole_row(x, out, n, TILE: tl.constexpr):
    """A row in one tile, as most kernels have it; and what is left in tiles after its end."""
    i = tl.arange(0, TILE)
    inside = i < n
    value = tl.load(x + i, inside, other=-float("inf"))
    power = tl.exp(value - tl.max(value, 0))
    total = tl.sum(power, 0)
    tl.store(out + i, power / total, inside)
    tl.store(out + TILE + i, power)
    zeros = tl.load(x + i, inside, other=0.0)
    ones = tl.exp(zeros * 0.0)  # 1 after the end, too
    tl.store(out + 2 * TILE + i, ones * total)
    out += 3 * TILE
    tl.store(out, tl.sum(ones, 0))
    tl.store(out + 1, tl.max(ones, 0))
    tl.store(out + 2, tl.sum(tl.where(inside, ones, 0.0), 0))
    tl.store(out + 3, tl.min(tl.where(inside, zeros, 7.0), 0))
    tl.store(out + 4, tl.sum(inside.to(tl.int32), 0))
    tl.store(out + 5, tl.sum((zeros > 0).to(tl.int32) + 1, 0))
    tl.store(out + 6, tl.reduce(ones * 2, 0, product_of_bits))
    tl.store(out + 7, tl.argmax(tl.where(inside, i % 7, -1).to(tl.float32), 0))


@kp.jit
def product_of_bits(a, b):
    return a * b


WHOLE = 512


@pytest.mark.parametrize("n", [0, 1, 100, 256, 511, 512, 600])
@pytest.mark.parametrize("filled", ["small", "infinite", "nan"])
def test_rows_in_one_tile_whose_length_is_known_when_they_run(n: int, filled: str) -> None:
    x = torch.randint(-3, 3, (WHOLE,)).float()
    if filled == "infinite":
        x[:] = -float("inf")
    elif filled == "nan":
        x[n // 2 % WHOLE] = float("nan")
    check(whole_row, (1,), x, torch.full((3 * WHOLE + 8,), 5.0), n, TILE=WHOLE, rtol=1e-5, atol=1e-6)


@kp.jit
def whole_rows(x, out, rows, n, TILE: tl.constexpr):
    i, j = tl.arange(0, 4)[:, None], tl.arange(0, TILE)[None, :]
    inside = (i < rows) & (j < n)
    value = tl.load(x + i * TILE + j, inside, other=0.0).to(tl.float32)
    mean = tl.sum(value, 1)[:, None] / n
    centred = tl.where(j < n, value - mean, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, 1)[:, None] / n + 1e-5)
    tl.store(out + i * TILE + j, (centred * scale).to(out.dtype.element_ty), inside)
    tl.store(out + (4 + i) * TILE + j, centred.to(out.dtype.element_ty))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("rows", "n"), [(4, 1), (1, 300), (3, 512), (4, 509)])
def test_several_rows_in_one_tile(dtype: torch.dtype, rows: int, n: int) -> None:
    x = torch.randn(4, WHOLE).to(dtype)
    check(whole_rows, (1,), x, torch.full((8, WHOLE), 5.0).to(dtype), rows, n, TILE=WHOLE, rtol=1e-2, atol=1e-2)


def test_vectors_before_the_end_of_a_row_have_no_mask() -> None:
    module = optimise_ttir(ttir_of(copied, [torch.ones(1), torch.ones(1), 8], {"TILE": 1024}))
    llir = str(compile_ttir(module, V3, Options()).stages["llir"])
    loops = llir.split("\nnest")
    assert ["masked.load" in loop for loop in loops[1:]].count(False) >= 2  # that of whole tiles, and that of whole vectors
