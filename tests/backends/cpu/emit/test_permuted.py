"""Gathers from places with bits set, cleared or flipped: one vector is read, its lanes are shuffled."""

from __future__ import annotations

import pytest
import torch

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.backends.cpu.emit.permuted import Bits
from tests.backends.cpu.agreement import check
from tests.backends.cpu.emit.llir import program
from tests.backends.fragments import count


@kp.jit
def gathered(x, out, ROWS: tl.constexpr, S: tl.constexpr, KEPT: tl.constexpr, SET: tl.constexpr, FLIPPED: tl.constexpr):
    at = tl.arange(0, ROWS)[:, None] * S + tl.arange(0, S)[None, :]
    places = ((tl.arange(0, S) & KEPT) | SET) ^ FLIPPED
    tl.store(out + at, tl.gather(tl.load(x + at) * 2, tl.broadcast_to(places[None, :], [ROWS, S]), 1))


@kp.jit
def upwards(x, out, ROWS: tl.constexpr, S: tl.constexpr, FLIPPED: tl.constexpr):
    at = tl.arange(0, ROWS)[:, None] * S + tl.arange(0, S)[None, :]
    places = tl.arange(0, ROWS) ^ FLIPPED
    tl.store(out + at, tl.gather(tl.load(x + at) * 2, tl.broadcast_to(places[:, None], [ROWS, S]), 0))


CHANGES = [
    (-1, 0, 1),
    (~4, 0, 0),
    (~16, 0, 0),
    (-1, 64, 0),
    (-1, 2, 0),
    (~1, 4, 32),
    (-1, 0, 127),
    (0, 5, 0),
    (-1, 256, 0),
    (-1, 0, 0),
]


@pytest.mark.parametrize(("kept", "set_", "flipped"), CHANGES)
@pytest.mark.parametrize("columns", [2, 16, 128])
def test_elements_come_from_their_places_with_bits_changed(kept: int, set_: int, flipped: int, columns: int) -> None:
    x = torch.randn(4, columns)
    check(gathered, (1,), x, torch.empty_like(x), ROWS=4, S=columns, KEPT=kept, SET=set_, FLIPPED=flipped)


@pytest.mark.parametrize("flipped", [1, 3])
def test_rows_that_change_places(flipped: int) -> None:
    x = torch.randn(4, 32)
    check(upwards, (1,), x, torch.empty_like(x), ROWS=4, S=32, FLIPPED=flipped)


def test_a_vector_is_read_whole() -> None:
    near = program(gathered, ROWS=1, S=8, KEPT=-1, SET=0, FLIPPED=1)
    assert count(near, "%A = shufflevector <8 x float> ..., <8 x i32> <i32 1, i32 0, i32 3, i32 2, i32 5, i32 4, i32 7, i32 6>")
    assert "llvm.masked.gather" not in near
    far = program(gathered, ROWS=1, S=128, KEPT=-1, SET=0, FLIPPED=64)
    assert not count(far, "%A = shufflevector <8 x float> ...")
    assert "llvm.masked.gather" not in far


def test_bits() -> None:
    assert [Bits(~2, 4).of(place) for place in range(8)] == [4, 5, 4, 5, 0, 1, 0, 1]
