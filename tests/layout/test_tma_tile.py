"""Tiles as TMA writes them and wgmma reads them: the address of every element, by the rule of the PTX ISA."""

from __future__ import annotations

import pytest

from kernelpack.layout.convert import access_shared, wavefronts
from kernelpack.layout.encoding import tma_encoding
from kernelpack.layout.families import (
    Threads,
    dim,
    mma_accumulator,
    spread,
    swizzle_of,
    tma_tile,
    warpgroup_accumulator,
    warpgroup_operand,
)


def address(row: int, column: int, rows: int, bits: int, swizzle: int) -> int:
    """Where byte `column` of a row lies: panels of `swizzle` bytes; address bits 4.. are xored with bits 7.. ."""
    byte = column * bits // 8
    plain = byte // swizzle * rows * swizzle + row * swizzle + byte % swizzle
    return plain ^ (plain >> 7 & (swizzle // 16 - 1)) << 4


@pytest.mark.parametrize(
    ("shape", "bits", "swizzle"),
    [
        ((64, 64), 16, 128),
        ((128, 128), 16, 128),
        ((16, 32), 16, 64),
        ((32, 16), 16, 32),
        ((64, 64), 32, 128),
        ((64, 256), 8, 128),
    ],
)
def test_every_element_lies_where_the_swizzle_puts_it(shape: tuple[int, int], bits: int, swizzle: int) -> None:
    rows, columns = shape
    assert swizzle_of(columns * bits // 8) == swizzle
    layout = tma_tile(shape, bits)
    found = layout.invert()
    for row in range(rows):
        for column in range(columns):
            (offset,) = found(dim0=row, dim1=column)
            assert offset * bits // 8 == address(row, column, rows, bits, swizzle)


def test_a_narrower_swizzle_makes_narrower_panels() -> None:
    layout = tma_tile((16, 64), 16, swizzle=64).invert()
    assert all(layout(dim0=r, dim1=c)[0] * 2 == address(r, c, 16, 16, 64) for r in range(16) for c in range(64))
    with pytest.raises(ValueError, match="not made of swizzles of 128 bytes"):
        tma_tile((16, 32), 16, swizzle=128)


def test_the_other_order_is_the_transpose() -> None:
    straight, turned = tma_tile((128, 64), 16), tma_tile((64, 128), 16, (0, 1))
    assert straight.with_outs([dim(1), dim(0)]).rename_outs([dim(0), dim(1)]) == turned


def test_rows_too_short_for_a_swizzle_lie_after_each_other() -> None:
    assert swizzle_of(16) == 0
    assert tma_tile((8, 8), 16)(offset=13) == (1, 5)
    assert tma_tile((64,), 16)(offset=13) == (13,)


def test_buffers_start_where_the_pattern_of_the_swizzle_starts() -> None:
    assert [tma_encoding((64, columns), 16).alignment for columns in (64, 32, 16, 8)] == [1024, 512, 256, 128]
    assert tma_encoding((64, 64), 16, (0, 1)).layout == tma_tile((64, 64), 16, (0, 1))


def test_slices_of_a_batch_lie_after_each_other() -> None:
    one, two = tma_tile((16, 64), 16), tma_tile((4, 16, 64), 16)
    for offset in (1, 100, 1023):
        assert two(offset=2 * 1024 + offset) == (2, *one(offset=offset))


def test_sixteen_bytes_a_thread_are_written_without_conflicts() -> None:
    access = access_shared(spread((64, 64), 8, (1, 0), Threads(4, 32)), tma_tile((64, 64), 16), 16)
    assert access.width == 8
    assert wavefronts(tuple(basis[0] for basis in access.offsets.bases("lane")), 16, 2) == 4


@pytest.mark.parametrize(("columns", "n"), [(8, 8), (64, 64), (256, 256)])
def test_accumulators_of_a_warpgroup(columns: int, n: int) -> None:
    """Register i of a thread, PTX ISA, figure "WGMMA .m64nNk16 register fragment layout for accumulator matrix D"."""
    layout = warpgroup_accumulator((64, columns), (4, 1))
    assert layout.in_size("register") == n // 2
    for register in range(n // 2):
        for lane in (0, 5, 31):
            for warp in range(4):
                row = 16 * warp + lane // 4 + 8 * (register // 2 % 2)
                column = 8 * (register // 4) + 2 * (lane % 4) + register % 2
                assert layout(register=register, lane=lane, warp=warp) == (row, column)


def test_warpgroups_divide_rows_then_columns() -> None:
    rows = warpgroup_accumulator((128, 256), (8, 1))
    assert (rows(warp=4), rows.in_size("register")) == ((64, 0), 128)
    columns = warpgroup_accumulator((64, 256), (4, 2))
    assert (columns(warp=4), columns.in_size("register")) == ((0, 128), 64)
    taller = warpgroup_accumulator((256, 64), (8, 1))
    assert taller.is_surjective
    assert taller(register=32) == (128, 0)


def test_products_feed_products_without_moving() -> None:
    assert warpgroup_operand((64, 128), 16, (4, 1)) == warpgroup_accumulator((64, 128), (4, 1))
    # one warp's part is that of mma.sync
    assert warpgroup_accumulator((64, 8), (4, 1)) == mma_accumulator((64, 8), (4, 1))
    # warpgroups along N hold copies
    copies = warpgroup_operand((64, 64), 16, (4, 2))
    assert copies.free_bits("warp") == 0b100
