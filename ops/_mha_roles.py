"""Attention on sm_90a: one role loads queries, keys and values by TMA, others attend, 64 queries each, by wgmma.

FlashAttention-3 (Shah et al., 2024): the scores of the next keys are begun before the products with the last values, so that
exponentials are computed while the tensor cores work; with TURNS, two roles also take turns to begin products, and one's
exponentials run under the other's products. Programs walk over many blocks of queries; the loading role runs ahead.
"""

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.language import hopper

from ._exponents import LOG2_E, line_of, power_below
from ._roles import halves, next_stage


@kp.jit
def steps_of(blocks, heads, CAUSAL: tl.constexpr):
    """Returns how many blocks of queries this program attends to. Causal blocks come in pairs whose work is the same for all."""
    if CAUSAL:
        steps = 2 * tl.cdiv(tl.cdiv(blocks, 2) * heads - tl.program_id(0), tl.num_programs(0))
    else:
        steps = tl.cdiv(blocks * heads - tl.program_id(0), tl.num_programs(0))
    return steps


@kp.jit
def place_of(step, blocks, CAUSAL: tl.constexpr):
    """Returns the block of queries, and the batch and head together, of a program's step."""
    if CAUSAL:
        pairs = tl.cdiv(blocks, 2)
        number = tl.program_id(0) + step // 2 * tl.num_programs(0)
        pair, head = number % pairs, number // pairs
        block = tl.where(step % 2 == 0, 2 * pairs - 1 - pair, pair)
    else:
        number = tl.program_id(0) + step * tl.num_programs(0)
        block, head = number % blocks, number // blocks
    return block, head


@kp.jit
def reach_of(first, queries, keys, CAUSAL: tl.constexpr, ROWS: tl.constexpr, BLOCK_N: tl.constexpr):
    """Returns how many blocks of keys count for some of the queries from `first` on: at least one."""
    if CAUSAL:  # the last pair may have no second block
        stop = tl.where(first < queries, tl.minimum(keys, first + ROWS), 1)
    else:
        stop = keys
    return tl.cdiv(stop, BLOCK_N)


@kp.jit
def load_heads(
    copy, query, key, value, q_tiles, k_tiles, v_tiles, q_full, q_empty, k_full, k_empty, v_full, v_empty,
    heads, group, queries, keys, total,
    CAUSAL: tl.constexpr, BLOCK_N: tl.constexpr, STAGES: tl.constexpr, COPIES: tl.constexpr, Q_STAGES: tl.constexpr,
):  # fmt: skip
    """Loads the queries, then keys and values from the last block to the first."""
    stage, phase, q_stage, q_phase = 0, 1, 0, 1
    blocks = tl.cdiv(queries, 64 * COPIES)
    for step in range(steps_of(blocks, total, CAUSAL)):
        block, number = place_of(step, blocks, CAUSAL)
        first = block * (64 * COPIES)
        batch, head = number // heads, number % heads
        hopper.mbarrier_wait(q_empty[q_stage], q_phase)
        hopper.mbarrier_expect(q_full[q_stage], COPIES * q_tiles.nbytes)
        for i in tl.static_range(COPIES):
            hopper.async_load(query, [batch, head, first + i * 64, 0], q_tiles[q_stage * COPIES + i], q_full[q_stage])
        q_stage, q_phase = next_stage(q_stage, q_phase, Q_STAGES)
        reach = reach_of(first, queries, keys, CAUSAL, 64 * COPIES, BLOCK_N)
        for i in range(reach):
            n = (reach - 1 - i) * BLOCK_N
            hopper.mbarrier_wait(k_empty[stage], phase)
            hopper.mbarrier_expect(k_full[stage], k_tiles.nbytes)
            hopper.async_load(key, [batch, head // group, n, 0], k_tiles[stage], k_full[stage])
            hopper.mbarrier_wait(v_empty[stage], phase)
            hopper.mbarrier_expect(v_full[stage], v_tiles.nbytes)
            hopper.async_load(value, [batch, head // group, n, 0], v_tiles[stage], v_full[stage])
            stage, phase = next_stage(stage, phase, STAGES)


@kp.jit
def hide(scores, row, column, keys, CAUSAL: tl.constexpr):
    """Returns scores with minus infinity for the keys that do not count."""
    columns = tl.arange(0, scores.shape[1])[None, :]
    if CAUSAL:  # one comparison an element
        counts = columns + column <= tl.minimum(row + tl.arange(0, 64), keys - 1)[:, None]
    else:
        counts = columns < keys - column
    return tl.where(counts, scores, -float("inf"))


@kp.jit
def weigh(scores, row_max, scale):
    """Returns the weights of some keys, the shift of their exponents, and the new maxima. Where scores are -inf alone, weights are 0.

    2 to the power of the shift, less the shift before, is the factor for what was summed before. Beyond a limit shifts must go on
    growing: the power of two above `scale` sees to that.
    """
    new_max = tl.maximum(row_max, tl.max(scores, axis=1))
    factor, shift = line_of(new_max, scale, 2.0 * power_below(scale))
    shift = tl.minimum(shift, 3.0e38)  # that of -inf is infinite, and -inf + inf would be NaN
    return tl.exp2(tl.fma(scores, factor[:, None], shift[:, None])), shift, new_max


@kp.jit
def sum_parts(weights):
    """Returns sums of every fourth pair of columns, [64, 4]: each thread adds what it holds, the four parts come together last."""
    return tl.sum(tl.sum(tl.reshape(weights, [64, weights.shape[1] // 8, 4, 2]), 3), 1)


@kp.jit
def attend_keys(
    acc, row_sum, shift, row_max, weights, q_tile, k_tiles, v_tiles, k_full, k_empty, v_full, v_empty,
    stage, phase, copy, scale, blocks, BLOCK_N: tl.constexpr, STAGES: tl.constexpr, TURNS: tl.constexpr,
):  # fmt: skip
    """Walks blocks of keys that all count, one behind with their values."""
    for _ in range(blocks):
        previous, previous_phase = stage, phase
        stage, phase = next_stage(stage, phase, STAGES)
        hopper.mbarrier_wait(k_full[stage], phase)
        if TURNS:
            hopper.named_barrier_wait(copy, 256)
        scores = hopper.async_dot(q_tile, k_tiles[stage].T, tl.zeros([64, BLOCK_N], tl.float32))
        hopper.mbarrier_wait(v_full[previous], previous_phase)
        acc = hopper.async_dot(weights, v_tiles[previous], acc)
        if TURNS:
            hopper.named_barrier_arrive(1 - copy, 256)
        scores = hopper.wait_dots(1, scores)
        hopper.mbarrier_arrive(k_empty[stage])
        old_shift = shift
        new_weights, shift, row_max = weigh(scores, row_max, scale)
        rescale = tl.exp2(shift - old_shift)
        row_sum = row_sum * rescale[:, None] + sum_parts(new_weights)
        acc = hopper.wait_dots(0, acc)
        hopper.mbarrier_arrive(v_empty[previous])
        acc = acc * rescale[:, None]
        weights = new_weights.to(weights.dtype)
    return acc, row_sum, shift, row_max, weights, stage, phase


@kp.jit
def weigh_last(scores, row, column, keys, scale, CAUSAL: tl.constexpr):
    """Returns the weights of a block's last keys, which alone cross the diagonal or the end of the keys, their sums, shifts and maxima."""
    nothing = tl.full([64], -float("inf"), tl.float32)
    if CAUSAL:
        weights, shift, row_max = weigh(hide(scores, row, column, keys, True), nothing, scale)
    else:
        if column + scores.shape[1] > keys:
            weights, shift, row_max = weigh(hide(scores, row, column, keys, False), nothing, scale)
        else:
            weights, shift, row_max = weigh(scores, nothing, scale)
    return weights, sum_parts(weights), shift, row_max


@kp.jit
def reciprocal(row_sum):
    """Returns what a result is multiplied with, of the parts of its weights' sum; rows without keys are 0."""
    whole = tl.sum(row_sum, 1)
    return 1.0 / tl.where(whole == 0.0, 1.0, whole)


@kp.jit
def first_scores(q_tile, k_tiles, k_full, k_empty, stage, phase):
    """Returns the scores of a block's last keys. Nothing runs under it."""
    hopper.mbarrier_wait(k_full[stage], phase)
    scores = hopper.async_dot(q_tile, k_tiles[stage].T, tl.zeros([64, k_tiles.shape[0]], tl.float32))
    scores = hopper.wait_dots(0, scores)
    hopper.mbarrier_arrive(k_empty[stage])
    return scores


@kp.jit
def last_values(acc, row_sum, weights, v_tiles, v_full, stage, phase):
    """Returns the result of a block, whose last values are read then. Nothing runs under it."""
    hopper.mbarrier_wait(v_full[stage], phase)
    acc = hopper.async_dot(weights, v_tiles[stage], acc)
    factor = reciprocal(row_sum)
    return hopper.wait_dots(0, acc) * factor[:, None]


@kp.jit
def release_queries(q_empty, q_stage, step, LATE: tl.constexpr):
    """Gives back the queries of the step before, whose tile the result has left meanwhile."""
    if LATE:
        hopper.async_store_wait(0)
        if step > 0:
            hopper.mbarrier_arrive(q_empty[1 - q_stage])


@kp.jit
def attend_block(
    q_tile, q_empty, k_tiles, v_tiles, k_full, k_empty, v_full, v_empty,
    stage, phase, q_stage, step, copy, row, reach, keys, scale,
    HEAD_DIM: tl.constexpr, CAUSAL: tl.constexpr, BLOCK_N: tl.constexpr, STAGES: tl.constexpr,
    Q_STAGES: tl.constexpr, LATE: tl.constexpr, TURNS: tl.constexpr,
):  # fmt: skip
    """Returns the attention of 64 queries to `reach` blocks of keys, and the next place in the rings."""
    scores = first_scores(q_tile, k_tiles, k_full, k_empty, stage, phase)
    release_queries(q_empty, q_stage, step, LATE)
    weights, row_sum, shift, row_max = weigh_last(scores, row, (reach - 1) * BLOCK_N, keys, scale, CAUSAL)
    acc = tl.zeros([64, HEAD_DIM], tl.float32)
    acc, row_sum, shift, row_max, weights, stage, phase = attend_keys(
        acc, row_sum, shift, row_max, weights.to(q_tile.dtype), q_tile, k_tiles, v_tiles, k_full, k_empty, v_full, v_empty,
        stage, phase, copy, scale, reach - 1, BLOCK_N, STAGES, TURNS,
    )  # fmt: skip
    if Q_STAGES == 1:  # the result goes another way, and the next queries are needed soon
        hopper.mbarrier_arrive(q_empty[0])
    result = last_values(acc, row_sum, weights, v_tiles, v_full, stage, phase)
    hopper.mbarrier_arrive(v_empty[stage])
    stage, phase = next_stage(stage, phase, STAGES)
    return result, stage, phase


@kp.jit
def pass_block(k_full, k_empty, v_full, v_empty, stage, phase, reach, STAGES: tl.constexpr):
    """Returns the next place in the rings behind keys that the others attend to: the loading role must be able to go on.

    Whoever gives a place back must have waited for it, or it would be counted for what the others still use. That holds for all
    warps of the role, which no product makes meet here: one that is late would otherwise find the phase after the next.
    """
    for _ in range(reach):
        hopper.mbarrier_wait(k_full[stage], phase)
        hopper.mbarrier_wait(v_full[stage], phase)
        tl.debug_barrier()
        hopper.mbarrier_arrive(k_empty[stage])
        hopper.mbarrier_arrive(v_empty[stage])
        stage, phase = next_stage(stage, phase, STAGES)
    return stage, phase


@kp.jit
def store_columns(x, out, tiles, copy, batch, head, row, column):
    """Stores a result 64 columns at a time, through two tiles in turn."""
    if x.shape[1] > 64:
        left, right = halves(x)
        store_columns(left, out, tiles, copy, batch, head, row, column)
        store_columns(right, out, tiles, copy, batch, head, row, column + x.shape[1] // 2)
    else:
        tile = tiles[copy * 2 + column // 64 % 2]
        hopper.async_store_wait(1)  # the last but one has left this tile
        hopper.local_store(tile, x)
        hopper.async_store(out, [batch, head, row, column], tile)


@kp.jit
def attend_heads(
    copy, out, o_tiles, q_tiles, k_tiles, v_tiles, q_full, q_empty, k_full, k_empty, v_full, v_empty,
    heads, queries, keys, total, scale,
    HEAD_DIM: tl.constexpr, CAUSAL: tl.constexpr, BLOCK_N: tl.constexpr, STAGES: tl.constexpr, COPIES: tl.constexpr,
    Q_STAGES: tl.constexpr, TURNS: tl.constexpr,
):  # fmt: skip
    """64 queries of each block, one block after the other. Where queries have two tiles, the result leaves through theirs."""
    # waiting until it has left costs less under the next block's first product; blocks of head size 64 are too short for that
    LATE: tl.constexpr = Q_STAGES == 2 and HEAD_DIM != 64
    if TURNS and copy == 1:
        hopper.named_barrier_arrive(0, 256)  # the first turn is copy 0's
    stage, phase, q_stage, q_phase = 0, 0, 0, 0
    blocks = tl.cdiv(queries, 64 * COPIES)
    for step in range(steps_of(blocks, total, CAUSAL)):
        block, number = place_of(step, blocks, CAUSAL)
        first = block * (64 * COPIES)
        row = first + copy * 64
        reach = reach_of(first, queries, keys, CAUSAL, 64 * COPIES, BLOCK_N)
        q_tile = q_tiles[q_stage * COPIES + copy]
        hopper.mbarrier_wait(q_full[q_stage], q_phase)
        if TURNS or row < queries:
            own = reach
            if CAUSAL:  # the last keys may count for none of these queries
                own = reach_of(row, queries, keys, CAUSAL, 64, BLOCK_N)
                stage, phase = pass_block(k_full, k_empty, v_full, v_empty, stage, phase, reach - own, STAGES)
            acc, stage, phase = attend_block(
                q_tile, q_empty, k_tiles, v_tiles, k_full, k_empty, v_full, v_empty,
                stage, phase, q_stage, step, copy, row, own, keys, scale,
                HEAD_DIM, CAUSAL, BLOCK_N, STAGES, Q_STAGES, LATE, TURNS,
            )  # fmt: skip
            if Q_STAGES == 1:
                store_columns(acc, out, o_tiles, copy, number // heads, number % heads, row, 0)
            else:
                hopper.local_store(q_tile, acc)
                hopper.async_store(out, [number // heads, number % heads, row, 0], q_tile)
            if Q_STAGES == 2 and not LATE:
                hopper.async_store_wait(0)
        else:
            stage, phase = pass_block(k_full, k_empty, v_full, v_empty, stage, phase, reach, STAGES)
            if Q_STAGES == 1:  # behind the barrier of what was passed: all warps have waited for them
                hopper.mbarrier_arrive(q_empty[0])
        if Q_STAGES == 2 and not LATE:
            hopper.mbarrier_arrive(q_empty[q_stage])
        q_stage, q_phase = next_stage(q_stage, q_phase, Q_STAGES)
    if Q_STAGES == 1 or LATE:
        hopper.async_store_wait(0)


@kp.jit
def store_block(out, tile, acc, batch, head, row):
    """Stores a result through a tile that the one before may still be leaving."""
    hopper.async_store_wait(0)
    hopper.local_store(tile, acc)
    hopper.async_store(out, [batch, head, row, 0], tile)


@kp.jit
def attend_causal_heads(
    copy, out, o_tiles, q_tiles, k_tiles, v_tiles, q_full, q_empty, k_full, k_empty, v_full, v_empty,
    heads, queries, keys, total, scale,
    HEAD_DIM: tl.constexpr, CAUSAL: tl.constexpr, BLOCK_N: tl.constexpr, STAGES: tl.constexpr, COPIES: tl.constexpr,
    Q_STAGES: tl.constexpr, TURNS: tl.constexpr,
):  # fmt: skip
    """64 queries of each block, with turns; one block runs into the next, whose first scores are begun before the product with the
    last values, and whose result leaves through a tile of its own."""
    ROWS: tl.constexpr = 64 * COPIES
    if copy == 1:
        hopper.named_barrier_arrive(0, 256)  # the first turn is copy 0's
    blocks = tl.cdiv(queries, ROWS)
    steps = steps_of(blocks, total, True)
    if steps > 0:
        stage, phase, q_stage, q_phase = 0, 0, 0, 0
        block, number = place_of(0, blocks, True)
        row = block * ROWS + copy * 64
        reach = reach_of(block * ROWS, queries, keys, True, ROWS, BLOCK_N)
        hopper.mbarrier_wait(q_full[0], 0)
        scores = first_scores(q_tiles[copy], k_tiles, k_full, k_empty, 0, 0)
        new_weights, row_sum, shift, row_max = weigh_last(scores, row, (reach - 1) * BLOCK_N, keys, scale, True)
        weights = new_weights.to(q_tiles.dtype)
        acc = tl.zeros([64, HEAD_DIM], tl.float32)
        for step in range(1, steps):
            acc, row_sum, shift, row_max, weights, stage, phase = attend_keys(
                acc, row_sum, shift, row_max, weights, q_tiles[q_stage * COPIES + copy], k_tiles, v_tiles,
                k_full, k_empty, v_full, v_empty, stage, phase, copy, scale, reach - 1, BLOCK_N, STAGES, True,
            )  # fmt: skip
            hopper.mbarrier_arrive(q_empty[q_stage])
            done_row, done_number = row, number
            block, number = place_of(step, blocks, True)
            row = block * ROWS + copy * 64
            reach = reach_of(block * ROWS, queries, keys, True, ROWS, BLOCK_N)
            previous, previous_phase = stage, phase
            stage, phase = next_stage(stage, phase, STAGES)
            q_stage, q_phase = next_stage(q_stage, q_phase, Q_STAGES)
            hopper.mbarrier_wait(q_full[q_stage], q_phase)
            hopper.mbarrier_wait(k_full[stage], phase)
            hopper.named_barrier_wait(copy, 256)
            zero = tl.zeros([64, BLOCK_N], tl.float32)
            scores = hopper.async_dot(q_tiles[q_stage * COPIES + copy], k_tiles[stage].T, zero)
            hopper.mbarrier_wait(v_full[previous], previous_phase)
            acc = hopper.async_dot(weights, v_tiles[previous], acc)
            hopper.named_barrier_arrive(1 - copy, 256)
            scores = hopper.wait_dots(1, scores)
            hopper.mbarrier_arrive(k_empty[stage])
            factor = reciprocal(row_sum)
            new_weights, row_sum, shift, row_max = weigh_last(scores, row, (reach - 1) * BLOCK_N, keys, scale, True)
            acc = hopper.wait_dots(0, acc)
            hopper.mbarrier_arrive(v_empty[previous])
            store_block(out, o_tiles[copy], acc * factor[:, None], done_number // heads, done_number % heads, done_row)
            acc = tl.zeros([64, HEAD_DIM], tl.float32)
            weights = new_weights.to(weights.dtype)
        # one loop with a branch for the last block would be shorter, and 5% slower for head size 64
        acc, row_sum, shift, row_max, weights, stage, phase = attend_keys(
            acc, row_sum, shift, row_max, weights, q_tiles[q_stage * COPIES + copy], k_tiles, v_tiles,
            k_full, k_empty, v_full, v_empty, stage, phase, copy, scale, reach - 1, BLOCK_N, STAGES, True,
        )  # fmt: skip
        result = last_values(acc, row_sum, weights, v_tiles, v_full, stage, phase)
        store_block(out, o_tiles[copy], result, number // heads, number % heads, row)
        hopper.async_store_wait(0)


@kp.jit
def mha_by_roles(
    query, key, value, out,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn, stride_vb, stride_vh, stride_vn,
    stride_ob, stride_oh, stride_om, batches, heads, group, queries, keys, head_dim, value_dim, scale,
    HEAD_DIM: tl.constexpr, CAUSAL: tl.constexpr, BLOCK_N: tl.constexpr, COPIES: tl.constexpr,
):  # fmt: skip
    """All blocks of queries of all heads; `scale` is positive, and there are keys."""
    scale *= LOG2_E
    # two roles have 240 registers a thread, three have 160; roles with turns attend to as many blocks of keys as each other;
    # head size 256 has no room for two blocks of queries
    TURNS: tl.constexpr = COPIES == 2 and BLOCK_N == 128 and (CAUSAL or HEAD_DIM == 128)
    Q_STAGES: tl.constexpr = 1 if HEAD_DIM == 256 else 2
    STAGES: tl.constexpr = 4 if HEAD_DIM == 64 and TURNS else 2
    dtype: tl.constexpr = query.dtype.element_ty
    q_strides, k_strides = [stride_qb, stride_qh, stride_qm, 1], [stride_kb, stride_kh, stride_kn, 1]
    v_strides, kv_heads = [stride_vb, stride_vh, stride_vn, 1], heads // group
    q_desc = tl.make_tensor_descriptor(query, [batches, heads, queries, head_dim], q_strides, [1, 1, 64, HEAD_DIM])
    k_desc = tl.make_tensor_descriptor(key, [batches, kv_heads, keys, head_dim], k_strides, [1, 1, BLOCK_N, HEAD_DIM])
    v_desc = tl.make_tensor_descriptor(value, [batches, kv_heads, keys, value_dim], v_strides, [1, 1, BLOCK_N, HEAD_DIM])
    width: tl.constexpr = 64 if Q_STAGES == 1 else HEAD_DIM
    o_desc = tl.make_tensor_descriptor(
        out, [batches, heads, queries, value_dim], [stride_ob, stride_oh, stride_om, 1], [1, 1, 64, width]
    )
    q_tiles = hopper.local_alloc([64, HEAD_DIM], dtype, COPIES * Q_STAGES)
    k_tiles, v_tiles = (
        hopper.local_alloc([BLOCK_N, HEAD_DIM], dtype, STAGES),
        hopper.local_alloc([BLOCK_N, HEAD_DIM], dtype, STAGES),
    )
    # other results leave through their queries' tile, while the next queries come into another
    o_tiles = None
    if TURNS and CAUSAL:
        o_tiles = hopper.local_alloc([64, HEAD_DIM], dtype, COPIES)
    elif Q_STAGES == 1:
        o_tiles = hopper.local_alloc([64, 64], dtype, COPIES * 2)
    q_full, q_empty = hopper.mbarrier_alloc(1, Q_STAGES), hopper.mbarrier_alloc(COPIES, Q_STAGES)
    k_full, k_empty = hopper.mbarrier_alloc(1, STAGES), hopper.mbarrier_alloc(COPIES, STAGES)
    v_full, v_empty = hopper.mbarrier_alloc(1, STAGES), hopper.mbarrier_alloc(COPIES, STAGES)
    tiles = (q_tiles, k_tiles, v_tiles, q_full, q_empty, k_full, k_empty, v_full, v_empty)
    total = batches * heads
    constants: tl.constexpr = (HEAD_DIM, CAUSAL, BLOCK_N, STAGES, COPIES, Q_STAGES, TURNS)
    hopper.warp_specialize(
        hopper.role(
            load_heads,
            (q_desc, k_desc, v_desc, *tiles, heads, group, queries, keys, total, CAUSAL, BLOCK_N, STAGES, COPIES, Q_STAGES),
            num_warps=1,
            registers=24 if COPIES == 2 else 32,
        ),
        hopper.role(
            attend_causal_heads if TURNS and CAUSAL else attend_heads,
            (o_desc, o_tiles, *tiles, heads, queries, keys, total, scale, *constants),
            num_warps=4,
            registers=240 if COPIES == 2 else 160,
            copies=COPIES,
        ),
    )
