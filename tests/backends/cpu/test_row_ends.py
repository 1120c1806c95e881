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
