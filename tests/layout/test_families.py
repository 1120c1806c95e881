"""The named layouts are what their names say: the fragments of the PTX manual, coalesced tiles, swizzles without conflicts."""

from __future__ import annotations

import pytest

from kernelpack.layout.convert import (
    Move,
    access_cost,
    access_shared,
    best_copied,
    best_shared,
    match_ldmatrix,
    plan_conversion,
    read_cost,
)
from kernelpack.layout.families import Threads, mma_accumulator, mma_operand, scan, spread, swizzled
from kernelpack.layout.linear import LinearLayout


def test_accumulator_of_m16n8() -> None:
    layout = mma_accumulator((16, 8), (1, 1))
    for lane in range(32):
        for register in range(4):
            row, column = lane // 4 + 8 * (register // 2), 2 * (lane % 4) + register % 2
            assert layout(register=register, lane=lane) == (row, column)


@pytest.mark.parametrize(("bits", "k"), [(16, 16), (32, 8), (8, 32)])
def test_operands_of_m16n8(bits: int, k: int) -> None:
    per = 32 // bits
    a, b = mma_operand((16, k), 0, bits, (1, 1)), mma_operand((k, 8), 1, bits, (1, 1))
    for lane in range(32):
        for word in range(4):
            for element in range(per):
                row, column = lane // 4 + 8 * (word % 2), per * (lane % 4) + element + k // 2 * (word // 2)
                assert a(register=word * per + element, lane=lane) == (row, column)
                if word < 2:
                    depth = per * (lane % 4) + element + k // 2 * word
                    assert b(register=word * per + element, lane=lane) == (depth, lane // 4)


def test_the_scores_of_attention_become_an_operand_within_each_thread() -> None:
    scores = mma_accumulator((128, 64), (8, 1))
    for weights in (mma_operand((128, 64), 0, 16, (8, 1)), mma_operand((128, 64), 0, 32, (8, 1), paired=True)):
        assert plan_conversion(scores, weights).move in (Move.NONE, Move.REGISTERS)


def test_moves() -> None:
    rows = spread((32, 32), 1, (1, 0), Threads(1, 32))
    columns = spread((32, 32), 1, (0, 1), Threads(1, 32))
    assert plan_conversion(rows, rows).move is Move.NONE
    assert plan_conversion(rows, columns).move is Move.SHARED  # every lane would choose between 32 registers
    swapped = rows.with_bases("lane", rows.bases("lane")[::-1])
    assert plan_conversion(rows, swapped).move is Move.SHUFFLE
    reordered = rows.with_bases("register", rows.bases("register")[::-1])
    assert plan_conversion(rows, reordered).move is Move.REGISTERS
    four = spread((32, 32), 1, (1, 0), Threads(4, 32))
    assert plan_conversion(four, four.with_bases("warp", four.bases("warp")[::-1])).move is Move.SHARED


def test_a_copy_takes_its_own() -> None:
    held_twice = LinearLayout.make(
        {"register": [(1,)], "lane": [(2,), (4,), (8,), (16,), (0,)], "warp": [], "block": []}, {"dim0": 32}
    )
    assert plan_conversion(held_twice, held_twice).move is Move.NONE


@pytest.mark.parametrize(("shape", "order"), [((64, 64), (1, 0)), ((64, 64), (0, 1)), ((128, 32), (1, 0)), ((16, 128), (1, 0))])
def test_tiles_for_tensor_cores_are_written_and_read_without_conflicts(shape: tuple[int, int], order: tuple[int, int]) -> None:
    writer = spread(shape, 8, order, Threads(4, 32))
    for index in (0, 1):
        reader = mma_operand(shape, index, 16, (2, 2))
        memory = best_shared((writer,), (reader,), 16)
        access = access_shared(reader, memory, 16)
        matrix = match_ldmatrix(access, 16)
        assert matrix is not None
        assert matrix.count == 4
        # A is read along its rows, B along its columns: what lies the other way round in memory is transposed on the way
        assert matrix.transposed == ((order[0] == 0) == (index == 0))
        bytes_of_warp = reader.in_size("register") * 32 * 2
        assert read_cost(reader, memory, 16) == bytes_of_warp // 128
        written = access_shared(writer, memory, 16)
        assert written.width == 8
        assert access_cost(written, 16) == writer.in_size("register") * 32 * 2 // 128


def test_matrices_begin_at_rows_in_every_warp() -> None:
    # a warp of 16 has two rows, which a swizzle for columns moves by two elements: nowhere would a matrix begin at 16 bytes
    rows, columns = spread((32, 32), 2, (1, 0), Threads(16, 32)), scan((32, 32), 0, Threads(16, 32))
    memory = best_shared((rows,), (columns,), 16)
    assert any(basis[0] % 8 for basis in access_shared(rows, memory, 16).offsets.bases("warp"))
    assert match_ldmatrix(access_shared(rows, memory, 16), 16) is None


def test_plain_memory_has_conflicts_where_swizzled_has_none() -> None:
    shape = (32, 32)
    columns = spread(shape, 1, (0, 1), Threads(1, 32))
    plain = access_cost(access_shared(columns, swizzled(shape, (1, 0)), 32), 32)
    swizzle = access_cost(access_shared(columns, swizzled(shape, (1, 0), 1, 1, 32), 32), 32)
    # plain: eight accesses of 16 bytes, every lane in the same four banks
    assert (plain, swizzle) == (8 * 32, 32)


@pytest.mark.parametrize("num_warps", [1, 4, 8])
@pytest.mark.parametrize(("shape", "vector"), [((1024,), 8), ((64, 64), 4), ((4, 8), 8), ((2, 2, 2), 2), ((1,), 1)])
def test_spread_tiles_are_covered_and_contiguous(shape: tuple[int, ...], vector: int, num_warps: int) -> None:
    order = tuple(reversed(range(len(shape))))
    layout = spread(shape, vector, order, Threads(num_warps, 32))
    assert layout.is_surjective
    assert layout.shape == shape
    assert (layout.in_size("lane"), layout.in_size("warp")) == (32, num_warps)
    assert layout.contiguity("register", f"dim{order[0]}") >= min(vector, shape[order[0]])


def test_what_copies_fill_keeps_their_pieces_whole() -> None:
    """Four floats of a column that lie side by side in memory are one copy of 16 bytes, not four."""
    columns = spread((32, 64), 4, (0, 1), Threads(1, 32))
    assert len(access_shared(columns, best_copied(columns, 32), 32).vector) == 2


def test_what_copies_fill_is_laid_out_for_its_readers() -> None:
    """Rows of 64 bytes, which a thread reads in two pieces of 8: as wide pieces are copied, and less time is read."""
    writer = spread((8, 32), 8, (1, 0), Threads(1, 32))
    reader = writer.with_bases("register", ((0, 1), (0, 2), (0, 16))).with_bases(
        "lane", ((0, 4), (0, 8), (1, 0), (2, 0), (4, 0))
    )
    own, other = best_copied(writer, 16), best_copied(writer, 16, reader)
    assert len(access_shared(writer, other, 16).vector) == len(access_shared(writer, own, 16).vector)
    assert read_cost(reader, other, 16) < read_cost(reader, own, 16)
