"""Matrix products on sm_90a: one role loads tiles by TMA, two multiply them by wgmma; each program walks over many blocks.

Of few rows the transpose is computed, b^T a^T: an instruction takes 64 rows, but as few columns as there are. Tiles of a with
rows that TMA only fills with zeros would take as long as those with numbers in them.
"""

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.language import hopper

from ._blocks import activate, place_of
from ._roles import begin_early, halves, next_stage


@kp.jit
def load_blocks(
    copy, a, b, a_tiles, b_tiles, full, empty, batch, b_batch, rows, columns, depth,
    B_TRANSPOSED: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Fills the rings of tiles of a and b."""
    copies: tl.constexpr = max(BLOCK_M // 64, 1)
    stage, phase = 0, 1
    blocks_m, blocks_n = tl.cdiv(rows, BLOCK_M), tl.cdiv(columns, BLOCK_N)
    for block in range(tl.program_id(0), blocks_m * blocks_n, tl.num_programs(0)):
        m, n = place_of(block, blocks_m, blocks_n, tl.where(blocks_m > 2 * GROUP, 2 * GROUP, GROUP))
        for k in range(0, tl.maximum(depth, 1), BLOCK_K):  # beyond a tensor, tiles are zero
            hopper.mbarrier_wait(empty[stage], phase)
            hopper.mbarrier_expect(full[stage], copies * a_tiles.nbytes + b_tiles.nbytes)
            for i in tl.static_range(copies):
                hopper.async_load(a, [batch, m * BLOCK_M + i * 64, k], a_tiles[stage * copies + i], full[stage])
            if B_TRANSPOSED:
                hopper.async_load(b, [b_batch, n * BLOCK_N, k], b_tiles[stage], full[stage])
            else:
                hopper.async_load(b, [b_batch, k, n * BLOCK_N], b_tiles[stage], full[stage])
            stage, phase = next_stage(stage, phase, STAGES)


@kp.jit
def scale_sums(x, scale_a, scale_b, stride_sa, stride_sb, row, column, rows, columns):
    """Returns sums times the scales of their rows and columns."""
    offs_m, offs_n = row + tl.arange(0, x.shape[0]), column + tl.arange(0, x.shape[1])
    x *= tl.load(scale_a + offs_m * stride_sa, mask=offs_m < rows, other=0.0)[:, None]
    return x * tl.load(scale_b + offs_n * stride_sb, mask=offs_n < columns, other=0.0)[None, :]


@kp.jit
def store_columns(
    x, out, bias, has_bias, scale_a, scale_b, stride_sa, stride_sb, out_tiles, copy, batch, row, column, rows, columns, activation,
    PENDING: tl.constexpr,
):  # fmt: skip
    """Finishes columns of sums and stores them through shared memory, at most 64 at a time, through two tiles in turn.

    PENDING stores may still be under way when the next begins: 1 where a block has several, otherwise 0, because then the next
    block's may go through the same tile.
    """
    if x.shape[1] > 64:
        left, right = halves(x)
        middle = column + x.shape[1] // 2
        store_columns(
            left, out, bias, has_bias, scale_a, scale_b, stride_sa, stride_sb, out_tiles, copy, batch, row, column, rows, columns,
            activation, PENDING,
        )  # fmt: skip
        store_columns(
            right, out, bias, has_bias, scale_a, scale_b, stride_sa, stride_sb, out_tiles, copy, batch, row, middle, rows, columns,
            activation, PENDING,
        )  # fmt: skip
    else:
        if scale_a is not None:
            x = scale_sums(x, scale_a, scale_b, stride_sa, stride_sb, row, column, rows, columns)
        if has_bias:
            offs_n = column + tl.arange(0, x.shape[1])
            x += tl.load(bias + offs_n, mask=offs_n < columns, other=0.0).to(tl.float32)[None, :]
        if activation != 0:
            x = activate(x, activation)
        tile = out_tiles[copy * 2 + column // 64 % 2]
        hopper.async_store_wait(PENDING)
        hopper.local_store(tile, x)
        hopper.async_store(out, [batch, row, column], tile)


@kp.jit
def multiply_stage(a_tiles, b_tiles, full, stage, phase, a_tile, acc, B_TRANSPOSED: tl.constexpr, FEW: tl.constexpr):
    """Begins the product of the tiles in a stage of the rings, once they are there; with FEW its transpose."""
    hopper.mbarrier_wait(full[stage], phase)
    if FEW:
        acc = hopper.async_dot(b_tiles[stage] if B_TRANSPOSED else b_tiles[stage].T, a_tiles[a_tile].T, acc)
    else:
        acc = hopper.async_dot(a_tiles[a_tile], b_tiles[stage].T if B_TRANSPOSED else b_tiles[stage], acc)
    return acc


@kp.jit
def multiply_blocks(
    copy, out, bias, has_bias, scale_a, scale_b, stride_sa, stride_sb, a_tiles, b_tiles, out_tiles, full, empty,
    batch, rows, columns, depth, activation,
    B_TRANSPOSED: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Multiplies 64 rows of each block, or all of fewer. One product is under way while the next one's tiles are waited for."""
    copies: tl.constexpr = max(BLOCK_M // 64, 1)
    FEW: tl.constexpr = BLOCK_M < 64
    stage, phase = 0, 0
    blocks_m, blocks_n = tl.cdiv(rows, BLOCK_M), tl.cdiv(columns, BLOCK_N)
    for block in range(tl.program_id(0), blocks_m * blocks_n, tl.num_programs(0)):
        m, n = place_of(block, blocks_m, blocks_n, tl.where(blocks_m > 2 * GROUP, 2 * GROUP, GROUP))
        # the first product overwrites the sums: there is at least one
        acc = tl.zeros([BLOCK_N, BLOCK_M] if FEW else [64, BLOCK_N], tl.float32)
        acc = multiply_stage(a_tiles, b_tiles, full, stage, phase, stage * copies + copy, acc, B_TRANSPOSED, FEW)
        previous = stage
        stage, phase = next_stage(stage, phase, STAGES)
        for _ in range(BLOCK_K, depth, BLOCK_K):
            acc = multiply_stage(a_tiles, b_tiles, full, stage, phase, stage * copies + copy, acc, B_TRANSPOSED, FEW)
            acc = hopper.wait_dots(1, acc)
            hopper.mbarrier_arrive(empty[previous])
            previous = stage
            stage, phase = next_stage(stage, phase, STAGES)
        acc = hopper.wait_dots(0, acc)
        hopper.mbarrier_arrive(empty[previous])
        row, column = m * BLOCK_M + copy * 64, n * BLOCK_N
        if FEW:
            acc = tl.trans(acc)
        store_columns(
            acc, out, bias, has_bias, scale_a, scale_b, stride_sa, stride_sb, out_tiles, copy, batch, row, column, rows, columns,
            activation, 1 if BLOCK_N > 64 else 0,
        )  # fmt: skip
    hopper.async_store_wait(0)


@kp.jit
def matmul_by_roles(
    a, b, bias, has_bias, out, stride_ab, stride_am, stride_bb, stride_b, batches, rows, columns, depth, activation,
    B_TRANSPOSED: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr, STAGES: tl.constexpr, scale_a=None, scale_b=None, stride_sa=0, stride_sb=0,
):  # fmt: skip
    """Every num_programs(0)-th block; 64 rows of a block, or all of fewer, are a role's: there are BLOCK_M / 64 of them, or one."""
    copies: tl.constexpr = max(BLOCK_M // 64, 1)
    height: tl.constexpr = min(BLOCK_M, 64)
    width: tl.constexpr = min(BLOCK_N, 64)
    batch = tl.program_id(1)
    # a b of two dimensions is one of a single batch: a distance of 0 between batches
    b_batches = 1 + (batches - 1) * tl.minimum(stride_bb, 1).to(tl.int32)
    b_batch = tl.minimum(batch, b_batches - 1)
    b_stride = tl.maximum(stride_bb, 16)
    a_desc = tl.make_tensor_descriptor(a, [batches, rows, depth], [stride_ab, stride_am, 1], [1, height, BLOCK_K])
    if B_TRANSPOSED:
        b_desc = tl.make_tensor_descriptor(b, [b_batches, columns, depth], [b_stride, stride_b, 1], [1, BLOCK_N, BLOCK_K])
        b_tiles = hopper.local_alloc([BLOCK_N, BLOCK_K], b.dtype.element_ty, STAGES)
    else:
        b_desc = tl.make_tensor_descriptor(b, [b_batches, depth, columns], [b_stride, stride_b, 1], [1, BLOCK_K, BLOCK_N])
        b_tiles = hopper.local_alloc([BLOCK_K, BLOCK_N], b.dtype.element_ty, STAGES)
    out_strides = [rows.to(tl.int64) * columns, columns, 1]
    out_desc = tl.make_tensor_descriptor(out, [batches, rows, columns], out_strides, [1, height, width])
    a_tiles = hopper.local_alloc([height, BLOCK_K], a.dtype.element_ty, STAGES * copies)
    out_tiles = hopper.local_alloc([height, width], out.dtype.element_ty, 2 * copies)
    full, empty = hopper.mbarrier_alloc(1, STAGES), hopper.mbarrier_alloc(copies, STAGES)
    shape = (batch, b_batch, rows, columns, depth)
    blocks: tl.constexpr = (B_TRANSPOSED, BLOCK_M, BLOCK_N, BLOCK_K, GROUP, STAGES)
    tiles = (a_tiles, b_tiles, out_tiles, full, empty, batch, rows, columns, depth, activation)
    # one role that multiplies has registers enough, and leaves some to another program; several need those of the one that loads
    few: tl.constexpr = copies == 1
    begin_early()
    hopper.warp_specialize(
        hopper.role(
            load_blocks,
            (a_desc, b_desc, a_tiles, b_tiles, full, empty, *shape, *blocks),
            num_warps=1,
            registers=None if few else 40,
        ),
        hopper.role(
            multiply_blocks,
            (out_desc, bias, has_bias, scale_a, scale_b, stride_sa, stride_sb, *tiles, *blocks),
            num_warps=4,
            registers=None if few else 232,
            copies=copies,
        ),
    )
