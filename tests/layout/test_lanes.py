"""Layouts serve warps of 32 and of 64 lanes: tiles are covered, conversions and shared memory bring each element where it belongs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from kernelpack.layout.convert import Move, access_cost, access_shared, best_shared, match_ldmatrix, plan_conversion, read_cost
from kernelpack.layout.families import HARDWARE, Threads, scan, spread
from kernelpack.layout.linear import LinearLayout

SHAPES = ((64,), (512,), (4, 64), (64, 4), (32, 32), (2, 8, 16))
Place = tuple[int, int, int]
"""Register, lane, warp."""


def layouts(shape: tuple[int, ...], threads: Threads) -> Iterator[LinearLayout]:
    """Yields what accesses, reductions and scans of a tile ask for."""
    for order, vector in itertools.product(itertools.permutations(range(len(shape))), (1, 4)):
        yield spread(shape, vector, order, threads)
    for axis in range(len(shape)):
        yield scan(shape, axis, threads)


def places(layout: LinearLayout) -> Iterator[Place]:
    yield from itertools.product(*(range(layout.in_size(name)) for name in HARDWARE[:3]))


def element(layout: LinearLayout, place: Place) -> tuple[int, ...]:
    register, lane, warp = place
    return layout(register=register, lane=lane, warp=warp)


@pytest.mark.parametrize("lanes", [32, 64])
@pytest.mark.parametrize("warps", [1, 4])
@pytest.mark.parametrize("shape", SHAPES)
def test_tiles_are_covered_by_all_lanes(shape: tuple[int, ...], warps: int, lanes: int) -> None:
    for layout in layouts(shape, Threads(warps, lanes)):
        assert layout.shape == shape
        assert (layout.in_size("lane"), layout.in_size("warp")) == (lanes, warps)
        assert {element(layout, place) for place in places(layout)} == set(itertools.product(*map(range, shape)))


@pytest.mark.parametrize("lanes", [32, 64])
@pytest.mark.parametrize("shape", SHAPES[:4])
def test_conversions_bring_each_element_where_it_belongs(shape: tuple[int, ...], lanes: int) -> None:
    moves = set()
    for before, after in itertools.permutations(layouts(shape, Threads(2, lanes)), 2):
        plan = plan_conversion(before, after)
        moves.add(plan.move)
        for place in places(after):
            register, lane, warp = place
            source = plan.source(register=register, lane=lane, warp=warp)[:3]
            assert element(before, source) == element(after, place)
            assert plan.move is Move.SHARED or source[2] == warp
            assert plan.move in (Move.SHARED, Move.SHUFFLE) or source[1] == lane
    assert Move.SHARED in moves


@pytest.mark.parametrize("lanes", [32, 64])
@pytest.mark.parametrize("bits", [16, 32])
@pytest.mark.parametrize("shape", SHAPES[:4])
def test_shared_memory_holds_what_one_layout_writes_for_another(shape: tuple[int, ...], bits: int, lanes: int) -> None:
    for before, after in itertools.permutations(itertools.islice(layouts(shape, Threads(2, lanes)), 4), 2):
        memory = best_shared((before,), (after,), bits)
        held: dict[int, tuple[int, ...]] = {}
        writing, reading = access_shared(before, memory, bits), access_shared(after, memory, bits)
        for register, lane, warp in places(before):
            (offset,) = writing.offsets(register=register, lane=lane, warp=warp)
            assert held.setdefault(offset, element(before, (register, lane, warp))) == element(before, (register, lane, warp))
        for register, lane, warp in places(after):
            (offset,) = reading.offsets(register=register, lane=lane, warp=warp)
            assert held[offset] == element(after, (register, lane, warp))


def test_matrices_of_warps_are_for_those_of_32_lanes() -> None:
    rows = spread((64, 64), 8, (1, 0), Threads(4, 64))
    columns = spread((64, 64), 8, (0, 1), Threads(4, 64))
    memory = best_shared((rows,), (columns,), 16)
    access = access_shared(rows, memory, 16)
    assert match_ldmatrix(access, 16) is None
    assert read_cost(rows, memory, 16) == access_cost(access, 16)


def test_a_warp_of_64_lanes_asks_the_banks_in_more_passes() -> None:
    words = {
        lanes: access_shared(layout := spread((256,), 1, (0,), Threads(1, lanes)), best_shared((layout,), (), 32), 32)
        for lanes in (32, 64)
    }
    assert {lanes: access_cost(access, 32) for lanes, access in words.items()} == {
        32: 8,
        64: 8,
    }  # half as many accesses, twice the passes
