"""Matrix products on sm_90a: one role loads tiles by TMA, two multiply them; each program walks over many blocks.

Tensor cores multiply 16-bit and 8-bit numbers (wgmma). Of few rows the transpose is computed, b^T a^T: an instruction takes 64 rows,
but as few columns as there are. Tiles of a with rows that TMA only fills with zeros would take as long as those with numbers in them.
The ordinary cores multiply float32.
"""

from typing import NamedTuple

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.language import hopper

from ._blocks import activate, place_of
from ._roles import Place, begin_early, halves, next_place

RUN = tl.constexpr(512)
"""How many steps along k the ordinary cores add to one sum. Errors grow with this number, and with that of the sums."""

PIECE = tl.constexpr(16)
"""How many rows of a matrix that ends within a tile are copied at a time."""


class Rings(NamedTuple):
    """Tiles of a and b in shared memory, and the barriers that say when a slot is full, and when it is empty again."""

    a: tuple
    b: tuple
    full: tuple
    empty: tuple


@kp.jit
def order_of(shape, blocks):
    """Returns how many blocks there are along rows and columns, and how many rows of them are walked at a time."""
    blocks_m, blocks_n = tl.cdiv(shape.rows, blocks.M), tl.cdiv(shape.columns, blocks.N)
    return blocks_m, blocks_n, tl.where(blocks_m > 2 * blocks.GROUP, 2 * blocks.GROUP, blocks.GROUP)


@kp.jit
def load_rows(a, few, batch, row, k, tile, full, rows):
    """Starts copying a tile of a; where a ends in it, in pieces. Those that have no row become the first rows of a, which count in no row
    of the result: TMA fills rows that are not there with zeros, slower than it copies."""
    if row + tile.shape[0] <= rows:
        hopper.async_load(a, [*batch, row, k], tile, full)
    else:
        for i in tl.static_range(tile.shape[0] // PIECE):
            piece = row + i * PIECE
            hopper.async_load(few, [*batch, tl.where(piece < rows, piece, 0), k], tile, full, i * PIECE)


@kp.jit
def load_blocks(copy, a, few, b, a_batch, b_batch, rings, shape, blocks):
    """Fills the rings of tiles of a and b. `a_batch` and `b_batch` are the places of their matrices in a and b; `few` is a in pieces."""
    copies: tl.constexpr = max(blocks.M // 64, 1)
    place = Place(0, 1)
    blocks_m, blocks_n, group = order_of(shape, blocks)
    for block in range(tl.program_id(0), blocks_m * blocks_n, tl.num_programs(0)):
        m, n = place_of(block, blocks_m, blocks_n, group)
        for k in range(0, tl.maximum(shape.depth, 1), blocks.K):  # beyond a tensor, tiles are zero
            slot = place.slot
            hopper.mbarrier_wait(rings.empty[slot], place.phase)
            hopper.mbarrier_expect(rings.full[slot], copies * rings.a.nbytes + rings.b.nbytes)
            for i in tl.static_range(copies):
                row, tile = m * blocks.M + i * 64, rings.a[slot * copies + i]
                if few is None:
                    hopper.async_load(a, [*a_batch, row, k], tile, rings.full[slot])
                else:
                    load_rows(a, few, a_batch, row, k, tile, rings.full[slot], shape.rows)
            if blocks.B_TRANSPOSED:
                hopper.async_load(b, [*b_batch, n * blocks.N, k], rings.b[slot], rings.full[slot])
            else:
                hopper.async_load(b, [*b_batch, k, n * blocks.N], rings.b[slot], rings.full[slot])
            place = next_place(place, blocks.SLOTS)


@kp.jit
def scale_sums(x, scales, row, column, shape):
    """Returns sums times the scales of their rows and columns."""
    offs_m, offs_n = row + tl.arange(0, x.shape[0]), column + tl.arange(0, x.shape[1])
    x *= tl.load(scales.a + offs_m * scales.a_step, mask=offs_m < shape.rows, other=0.0)[:, None]
    # read side by side: neighbours at a stride are gathered, even if it is 1
    each = tl.load(scales.b + offs_n, mask=(offs_n < shape.columns) & (scales.b_step != 0), other=0.0)
    return x * tl.where(scales.b_step == 0, tl.load(scales.b), each)[None, :]


@kp.jit
def store_columns(x, out, batch, row, column, shape, epilogue, out_tiles, copy, PENDING: tl.constexpr):
    """Finishes columns of sums and stores them through shared memory: as many at a time as a tile of `out_tiles` has, through two of
    these in turn.

    PENDING stores may still be under way when the next begins: 1 where a block has several, otherwise 0, because then the next
    block's may go through the same tile.
    """
    if x.shape[1] > out_tiles.shape[1]:
        left, right = halves(x)
        store_columns(left, out, batch, row, column, shape, epilogue, out_tiles, copy, PENDING)
        store_columns(right, out, batch, row, column + x.shape[1] // 2, shape, epilogue, out_tiles, copy, PENDING)
    else:
        if epilogue.scales is not None:
            x = scale_sums(x, epilogue.scales, row, column, shape)
        if epilogue.has_bias:
            offs_n = column + tl.arange(0, x.shape[1])
            x += tl.load(epilogue.bias + offs_n, mask=offs_n < shape.columns, other=0.0).to(tl.float32)[None, :]
        if epilogue.activation != 0:
            x = activate(x, epilogue.activation)
        tile = out_tiles[copy * 2 + column // out_tiles.shape[1] % 2]
        hopper.async_store_wait(PENDING)
        hopper.local_store(tile, x)
        hopper.async_store(out, [*batch, row, column], tile)


@kp.jit
def multiply_tiles(rings, place, copy, acc, blocks):
    """Begins the product of the tiles at a place of the rings, once they are there; of few rows its transpose."""
    a_tile, b_tile = rings.a[place.slot * max(blocks.M // 64, 1) + copy], rings.b[place.slot]
    hopper.mbarrier_wait(rings.full[place.slot], place.phase)
    if blocks.M < 64:
        acc = hopper.async_dot(b_tile if blocks.B_TRANSPOSED else b_tile.T, a_tile.T, acc)
    else:
        acc = hopper.async_dot(a_tile, b_tile.T if blocks.B_TRANSPOSED else b_tile, acc)
    return acc


@kp.jit
def multiply_blocks(copy, out, out_tiles, batch, rings, shape, epilogue, blocks):
    """Multiplies 64 rows of each block, or all of fewer. One product is under way while the next one's tiles are waited for."""
    FEW: tl.constexpr = blocks.M < 64
    place = Place(0, 0)
    blocks_m, blocks_n, group = order_of(shape, blocks)
    for block in range(tl.program_id(0), blocks_m * blocks_n, tl.num_programs(0)):
        m, n = place_of(block, blocks_m, blocks_n, group)
        # the first product overwrites the sums: there is at least one
        acc = tl.zeros([blocks.N, blocks.M] if FEW else [64, blocks.N], tl.float32)
        acc = multiply_tiles(rings, place, copy, acc, blocks)
        previous = place.slot
        place = next_place(place, blocks.SLOTS)
        for _ in range(blocks.K, shape.depth, blocks.K):
            acc = multiply_tiles(rings, place, copy, acc, blocks)
            acc = hopper.wait_dots(1, acc)
            hopper.mbarrier_arrive(rings.empty[previous])
            previous = place.slot
            place = next_place(place, blocks.SLOTS)
        acc = hopper.wait_dots(0, acc)
        hopper.mbarrier_arrive(rings.empty[previous])
        row, column = m * blocks.M + copy * 64, n * blocks.N
        if FEW:
            acc = tl.trans(acc)
        store_columns(acc, out, batch, row, column, shape, epilogue, out_tiles, copy, 1 if blocks.N > 64 else 0)
    hopper.async_store_wait(0)


@kp.jit
def add_blocks(copy, out, out_tiles, batch, rings, shape, epilogue, blocks):
    """The same on the ordinary cores, in exact float32. The sums of runs are added up apart."""
    place = Place(0, 0)
    blocks_m, blocks_n, group = order_of(shape, blocks)
    depth = tl.maximum(shape.depth, 1)
    for block in range(tl.program_id(0), blocks_m * blocks_n, tl.num_programs(0)):
        m, n = place_of(block, blocks_m, blocks_n, group)
        acc = tl.zeros([64, blocks.N], tl.float32)
        for run in range(0, depth, RUN):
            total = tl.zeros([64, blocks.N], tl.float32)
            for _ in range(run, tl.minimum(run + RUN, depth), blocks.K):
                a_tile, b_tile = rings.a[place.slot * max(blocks.M // 64, 1) + copy], rings.b[place.slot]
                hopper.mbarrier_wait(rings.full[place.slot], place.phase)
                x = hopper.local_load(a_tile)
                y = hopper.local_load(b_tile.T if blocks.B_TRANSPOSED else b_tile)
                total = tl.dot(x, y, total, input_precision="ieee")
                hopper.mbarrier_arrive(rings.empty[place.slot], each_warp=True)
                place = next_place(place, blocks.SLOTS)
            acc += total
        store_columns(acc, out, batch, m * blocks.M + copy * 64, n * blocks.N, shape, epilogue, out_tiles, copy, 1)
    hopper.async_store_wait(0)


@kp.jit
def batch_dimension(index, size, stride):
    """Returns extent, stride and place along a dimension of a tensor map. A tensor that repeats along it has one entry there: TMA knows no
    stride of 0. So has one without such a dimension."""
    if stride is None:
        return 1, 16, 0
    extent = 1 + (size - 1) * tl.minimum(stride, 1).to(tl.int32)
    return extent, tl.maximum(stride, 16), tl.minimum(index, extent - 1)


@kp.jit
def matmul_by_roles(a, b, out, strides, shape, epilogue, blocks):
    """Every num_programs(0)-th block; 64 rows of a block, or all of fewer, are a role's: there are blocks.M / 64 of them, or one."""
    copies: tl.constexpr = max(blocks.M // 64, 1)
    height: tl.constexpr = min(blocks.M, 64)
    ordinary: tl.constexpr = a.dtype.element_ty == tl.float32
    width: tl.constexpr = 32 if ordinary else min(blocks.N, 64)
    outer, batch = tl.program_id(2), tl.program_id(1)
    rows, columns, depth = shape.rows, shape.columns, shape.depth
    a_outers, a_outer_step, a_outer = batch_dimension(outer, shape.outer, strides.a_outer)
    a_batches, a_batch_step, a_batch = batch_dimension(batch, shape.batches, strides.a_batch)
    b_outers, b_outer_step, b_outer = batch_dimension(outer, shape.outer, strides.b_outer)
    b_batches, b_batch_step, b_batch = batch_dimension(batch, shape.batches, strides.b_batch)
    a_steps, b_steps = [a_outer_step, a_batch_step, strides.a_row, 1], [b_outer_step, b_batch_step, strides.b_step, 1]
    a_desc = tl.make_tensor_descriptor(a, [a_outers, a_batches, rows, depth], a_steps, [1, 1, height, blocks.K])
    pieces = None
    if blocks.M >= 64:
        pieces = tl.make_tensor_descriptor(a, [a_outers, a_batches, rows, depth], a_steps, [1, 1, PIECE, blocks.K])
    if blocks.B_TRANSPOSED:
        b_desc = tl.make_tensor_descriptor(b, [b_outers, b_batches, columns, depth], b_steps, [1, 1, blocks.N, blocks.K])
        b_tiles = hopper.local_alloc([blocks.N, blocks.K], b.dtype.element_ty, blocks.SLOTS)
    else:
        b_desc = tl.make_tensor_descriptor(b, [b_outers, b_batches, depth, columns], b_steps, [1, 1, blocks.K, blocks.N])
        b_tiles = hopper.local_alloc([blocks.K, blocks.N], b.dtype.element_ty, blocks.SLOTS)
    matrix = rows.to(tl.int64) * columns
    outers, batches = (1, 1) if shape.outer is None else (shape.outer, shape.batches)
    out_desc = tl.make_tensor_descriptor(
        out,
        [outers, batches, rows, columns],
        [matrix * batches, matrix, columns, 1],
        [1, 1, height, width],
    )
    a_tiles = hopper.local_alloc([height, blocks.K], a.dtype.element_ty, blocks.SLOTS * copies)
    out_tiles = hopper.local_alloc([height, width], out.dtype.element_ty, 2 * copies)
    full, empty = hopper.mbarrier_alloc(1, blocks.SLOTS), hopper.mbarrier_alloc(copies * (4 if ordinary else 1), blocks.SLOTS)
    rings = Rings(a_tiles, b_tiles, full, empty)
    # one role that multiplies has registers enough, and leaves some to another program; several need those of the one that loads
    few: tl.constexpr = copies == 1
    begin_early()
    hopper.warp_specialize(
        hopper.role(
            load_blocks,
            (a_desc, pieces, b_desc, (a_outer, a_batch), (b_outer, b_batch), rings, shape, blocks),
            num_warps=1,
            registers=None if few else 40,
        ),
        hopper.role(
            add_blocks if ordinary else multiply_blocks,
            (out_desc, out_tiles, (outer, batch), rings, shape, epilogue, blocks),
            num_warps=4,
            registers=None if few else 232 if copies == 2 else 152,
            copies=copies,
        ),
    )
