"""Attention on sm_90a: one role loads queries, keys and values by TMA, others attend, 64 queries each, by wgmma.

FlashAttention-3 (Shah et al., 2024): the scores of the next keys are begun before the products with the last values, so that
exponentials are computed while the tensor cores work; with TURNS, two roles also take turns to begin products, and one's
exponentials run under the other's products. Programs walk over many blocks of queries; the loading role runs ahead.
"""

from typing import NamedTuple

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.language import hopper

from ._exponents import FLOAT32_MAX, LOG2_E, line_of, power_below
from ._roles import Place, halves, next_place


class Form(NamedTuple):
    """What is known at compile time: COPIES roles attend, 64 queries each; QUERY_SLOTS and SLOTS are those of the rings. TURNS: two roles
    take turns to begin products."""

    HEAD_DIM: tl.constexpr
    CAUSAL: tl.constexpr
    BLOCK_N: tl.constexpr
    SLOTS: tl.constexpr
    COPIES: tl.constexpr
    QUERY_SLOTS: tl.constexpr
    TURNS: tl.constexpr


class Ring(NamedTuple):
    """Tiles of queries, keys or values, and the barriers that say when a slot is full, and when it is empty again."""

    tiles: tuple
    full: tuple
    empty: tuple


class Rings(NamedTuple):
    query: Ring
    key: Ring
    value: Ring


class Sums(NamedTuple):
    """What is summed up of 64 queries: values times weights, and weights in four parts, both relative to 2 to the power of `shift`; and
    the largest score so far."""

    values: tl.tensor
    shift: tl.tensor
    largest: tl.tensor
    weights: tl.tensor


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
def reach_of(first, sizes, CAUSAL: tl.constexpr, ROWS: tl.constexpr, BLOCK_N: tl.constexpr):
    """Returns how many blocks of keys count for some of the queries from `first` on: at least one."""
    if CAUSAL:  # the last pair may have no second block
        stop = tl.where(first < sizes.queries, tl.minimum(sizes.keys, first + ROWS), 1)
    else:
        stop = sizes.keys
    return tl.cdiv(stop, BLOCK_N)


@kp.jit
def load_heads(copy, query, key, value, rings, sizes, total, form):
    """Loads the queries, then keys and values from the last block to the first."""
    place, q_place = Place(0, 1), Place(0, 1)
    blocks = tl.cdiv(sizes.queries, 64 * form.COPIES)
    for step in range(steps_of(blocks, total, form.CAUSAL)):
        block, number = place_of(step, blocks, form.CAUSAL)
        first = block * (64 * form.COPIES)
        batch, head = number // sizes.heads, number % sizes.heads
        hopper.mbarrier_wait(rings.query.empty[q_place.slot], q_place.phase)
        hopper.mbarrier_expect(rings.query.full[q_place.slot], form.COPIES * rings.query.tiles.nbytes)
        for i in tl.static_range(form.COPIES):
            corner = [batch, head, first + i * 64, 0]
            slot = q_place.slot
            hopper.async_load(query, corner, rings.query.tiles[slot * form.COPIES + i], rings.query.full[slot])
        q_place = next_place(q_place, form.QUERY_SLOTS)
        reach = reach_of(first, sizes, form.CAUSAL, 64 * form.COPIES, form.BLOCK_N)
        for i in range(reach):
            n = (reach - 1 - i) * form.BLOCK_N
            slot = place.slot
            hopper.mbarrier_wait(rings.key.empty[slot], place.phase)
            hopper.mbarrier_expect(rings.key.full[slot], rings.key.tiles.nbytes)
            hopper.async_load(key, [batch, head // sizes.group, n, 0], rings.key.tiles[slot], rings.key.full[slot])
            hopper.mbarrier_wait(rings.value.empty[slot], place.phase)
            hopper.mbarrier_expect(rings.value.full[slot], rings.value.tiles.nbytes)
            hopper.async_load(value, [batch, head // sizes.group, n, 0], rings.value.tiles[slot], rings.value.full[slot])
            place = next_place(place, form.SLOTS)


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
    """Returns the weights of some keys, the shift of their exponents, and the new maxima.

    2 to the power of the shift, less the shift before, is the factor for what was summed before. Beyond a limit shifts must go on
    growing: the power of two above `scale` sees to that.
    """
    new_max = tl.maximum(row_max, tl.max(scores, axis=1))
    factor, shift = line_of(new_max, scale, 2.0 * power_below(scale))
    return tl.exp2(tl.fma(scores, factor[:, None], shift[:, None])), shift, new_max


@kp.jit
def sum_parts(weights):
    """Returns sums of every fourth pair of columns, [64, 4]: each thread adds what it holds, the four parts come together last."""
    return tl.sum(tl.sum(tl.reshape(weights, [64, weights.shape[1] // 8, 4, 2]), 3), 1)


@kp.jit
def attend_keys(sums, weights, q_tile, rings, place, copy, scale, blocks, form, TURNS: tl.constexpr):
    """Walks `blocks` blocks of keys that all count, one block late with their values. Returns the sums, the last block's weights, and its
    place."""
    for _ in range(blocks):
        previous = place
        place = next_place(place, form.SLOTS)
        hopper.mbarrier_wait(rings.key.full[place.slot], place.phase)
        if TURNS:
            hopper.named_barrier_wait(copy, 256)
        scores = hopper.async_dot(q_tile, rings.key.tiles[place.slot].T, tl.zeros([64, form.BLOCK_N], tl.float32))
        hopper.mbarrier_wait(rings.value.full[previous.slot], previous.phase)
        values = hopper.async_dot(weights, rings.value.tiles[previous.slot], sums.values)
        if TURNS:
            hopper.named_barrier_arrive(1 - copy, 256)
        scores = hopper.wait_dots(1, scores)
        hopper.mbarrier_arrive(rings.key.empty[place.slot])
        new_weights, shift, largest = weigh(scores, sums.largest, scale)
        rescale = tl.exp2(shift - sums.shift)
        weight_sums = sums.weights * rescale[:, None] + sum_parts(new_weights)
        values = hopper.wait_dots(0, values)
        hopper.mbarrier_arrive(rings.value.empty[previous.slot])
        sums = Sums(values * rescale[:, None], shift, largest, weight_sums)
        weights = new_weights.to(weights.dtype)
    return sums, weights, place


@kp.jit
def weigh_last(scores, row, column, sizes, scale, form):
    """Returns the weights of a block's last keys, which alone cross the diagonal or the end of the keys, and the sums that they begin."""
    # the lowest maximum whose shift is finite: from -inf alone, exponents would be -inf + inf; from here they are -inf
    lowest = -FLOAT32_MAX / tl.maximum(2.0 * power_below(scale), 1.0)
    nothing = tl.zeros([64], tl.float32) + lowest
    if form.CAUSAL:
        weights, shift, largest = weigh(hide(scores, row, column, sizes.keys, True), nothing, scale)
    else:
        if column + scores.shape[1] > sizes.keys:
            weights, shift, largest = weigh(hide(scores, row, column, sizes.keys, False), nothing, scale)
        else:
            weights, shift, largest = weigh(scores, nothing, scale)
    weight_sums = sum_parts(weights)
    return weights, Sums(tl.zeros([64, form.HEAD_DIM], tl.float32), shift, largest, weight_sums)


@kp.jit
def reciprocal(weight_sums):
    """Returns what a result is multiplied with, of the parts of its weights' sum; rows without keys are 0."""
    whole = tl.sum(weight_sums, 1)
    return 1.0 / tl.where(whole == 0.0, 1.0, whole)


@kp.jit
def first_scores(q_tile, keys, place):
    """Returns the scores of a block's last keys. Nothing runs under it."""
    hopper.mbarrier_wait(keys.full[place.slot], place.phase)
    scores = hopper.async_dot(q_tile, keys.tiles[place.slot].T, tl.zeros([64, keys.tiles.shape[0]], tl.float32))
    scores = hopper.wait_dots(0, scores)
    hopper.mbarrier_arrive(keys.empty[place.slot])
    return scores


@kp.jit
def last_values(sums, weights, values, place):
    """Returns the result of a block, whose last values are read then. Nothing runs under it."""
    hopper.mbarrier_wait(values.full[place.slot], place.phase)
    result = hopper.async_dot(weights, values.tiles[place.slot], sums.values)
    factor = reciprocal(sums.weights)
    return hopper.wait_dots(0, result) * factor[:, None]


@kp.jit
def release_queries(queries, slot, step, LATE: tl.constexpr):
    """Gives back the queries of the step before, whose tile the result has left meanwhile."""
    if LATE:
        hopper.async_store_wait(0)
        if step > 0:
            hopper.mbarrier_arrive(queries.empty[1 - slot])


@kp.jit
def attend_block(q_tile, rings, place, q_slot, step, copy, row, reach, sizes, scale, form, LATE: tl.constexpr):
    """Returns the attention of 64 queries to `reach` blocks of keys, and the next place in the rings."""
    scores = first_scores(q_tile, rings.key, place)
    release_queries(rings.query, q_slot, step, LATE)
    weights, sums = weigh_last(scores, row, (reach - 1) * form.BLOCK_N, sizes, scale, form)
    weights = weights.to(q_tile.dtype)
    sums, weights, place = attend_keys(sums, weights, q_tile, rings, place, copy, scale, reach - 1, form, form.TURNS)
    if form.QUERY_SLOTS == 1:  # the result goes another way, and the next queries are needed soon
        hopper.mbarrier_arrive(rings.query.empty[0])
    result = last_values(sums, weights, rings.value, place)
    hopper.mbarrier_arrive(rings.value.empty[place.slot])
    return result, next_place(place, form.SLOTS)


@kp.jit
def pass_block(rings, place, reach, SLOTS: tl.constexpr):
    """Returns the next place in the rings after keys that the others attend to: the loading role must be able to go on.

    Whoever gives a place back must have waited for it, or it would be counted for what the others still use. That holds for all
    warps of the role, which no product makes meet here: one that is late would otherwise find the phase after the next.
    """
    for _ in range(reach):
        hopper.mbarrier_wait(rings.key.full[place.slot], place.phase)
        hopper.mbarrier_wait(rings.value.full[place.slot], place.phase)
        tl.debug_barrier()
        hopper.mbarrier_arrive(rings.key.empty[place.slot])
        hopper.mbarrier_arrive(rings.value.empty[place.slot])
        place = next_place(place, SLOTS)
    return place


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
def attend_heads(copy, out, out_tiles, rings, sizes, total, scale, form):
    """64 queries of each block, one block after the other. Where queries have two tiles, the result leaves through theirs."""
    # waiting until it has left costs less under the next block's first product; blocks of head size 64 are too short for that
    LATE: tl.constexpr = form.QUERY_SLOTS == 2 and form.HEAD_DIM != 64
    if form.TURNS and copy == 1:
        hopper.named_barrier_arrive(0, 256)  # the first turn is copy 0's
    place, q_place = Place(0, 0), Place(0, 0)
    blocks = tl.cdiv(sizes.queries, 64 * form.COPIES)
    for step in range(steps_of(blocks, total, form.CAUSAL)):
        block, number = place_of(step, blocks, form.CAUSAL)
        first = block * (64 * form.COPIES)
        row = first + copy * 64
        reach = reach_of(first, sizes, form.CAUSAL, 64 * form.COPIES, form.BLOCK_N)
        q_slot = q_place.slot
        q_tile = rings.query.tiles[q_slot * form.COPIES + copy]
        hopper.mbarrier_wait(rings.query.full[q_slot], q_place.phase)
        if form.TURNS or row < sizes.queries:
            own = reach
            if form.CAUSAL:  # the last keys may count for none of these queries
                own = reach_of(row, sizes, form.CAUSAL, 64, form.BLOCK_N)
                place = pass_block(rings, place, reach - own, form.SLOTS)
            result, place = attend_block(q_tile, rings, place, q_slot, step, copy, row, own, sizes, scale, form, LATE)
            if form.QUERY_SLOTS == 1:
                store_columns(result, out, out_tiles, copy, number // sizes.heads, number % sizes.heads, row, 0)
            else:
                hopper.local_store(q_tile, result)
                hopper.async_store(out, [number // sizes.heads, number % sizes.heads, row, 0], q_tile)
            if form.QUERY_SLOTS == 2 and not LATE:
                hopper.async_store_wait(0)
        else:
            place = pass_block(rings, place, reach, form.SLOTS)
            if form.QUERY_SLOTS == 1:  # after the barrier of what was passed: all warps have waited for them
                hopper.mbarrier_arrive(rings.query.empty[0])
        if form.QUERY_SLOTS == 2 and not LATE:
            hopper.mbarrier_arrive(rings.query.empty[q_slot])
        q_place = next_place(q_place, form.QUERY_SLOTS)
    if form.QUERY_SLOTS == 1 or LATE:
        hopper.async_store_wait(0)


@kp.jit
def store_block(out, tile, result, batch, head, row):
    """Stores a result through a tile that the one before may still be leaving."""
    hopper.async_store_wait(0)
    hopper.local_store(tile, result)
    hopper.async_store(out, [batch, head, row, 0], tile)


@kp.jit
def attend_causal_heads(copy, out, out_tiles, rings, sizes, total, scale, form):
    """64 queries of each block, with turns; one block runs into the next, whose first scores are begun before the product with the
    last values, and whose result leaves through a tile of its own."""
    ROWS: tl.constexpr = 64 * form.COPIES
    queries, keys, values = rings.query, rings.key, rings.value
    if copy == 1:
        hopper.named_barrier_arrive(0, 256)  # the first turn is copy 0's
    blocks = tl.cdiv(sizes.queries, ROWS)
    steps = steps_of(blocks, total, True)
    if steps > 0:
        place, q_place = Place(0, 0), Place(0, 0)
        block, number = place_of(0, blocks, True)
        row = block * ROWS + copy * 64
        reach = reach_of(block * ROWS, sizes, True, ROWS, form.BLOCK_N)
        hopper.mbarrier_wait(queries.full[0], 0)
        scores = first_scores(queries.tiles[copy], keys, Place(0, 0))
        new_weights, sums = weigh_last(scores, row, (reach - 1) * form.BLOCK_N, sizes, scale, form)
        weights = new_weights.to(queries.tiles.dtype)
        for step in range(1, steps):
            q_tile = queries.tiles[q_place.slot * form.COPIES + copy]
            sums, weights, place = attend_keys(sums, weights, q_tile, rings, place, copy, scale, reach - 1, form, True)
            hopper.mbarrier_arrive(queries.empty[q_place.slot])
            done_row, done_number = row, number
            block, number = place_of(step, blocks, True)
            row = block * ROWS + copy * 64
            reach = reach_of(block * ROWS, sizes, True, ROWS, form.BLOCK_N)
            previous = place
            place = next_place(place, form.SLOTS)
            q_place = next_place(q_place, form.QUERY_SLOTS)
            hopper.mbarrier_wait(queries.full[q_place.slot], q_place.phase)
            hopper.mbarrier_wait(keys.full[place.slot], place.phase)
            hopper.named_barrier_wait(copy, 256)
            zero = tl.zeros([64, form.BLOCK_N], tl.float32)
            scores = hopper.async_dot(queries.tiles[q_place.slot * form.COPIES + copy], keys.tiles[place.slot].T, zero)
            hopper.mbarrier_wait(values.full[previous.slot], previous.phase)
            result = hopper.async_dot(weights, values.tiles[previous.slot], sums.values)
            hopper.named_barrier_arrive(1 - copy, 256)
            scores = hopper.wait_dots(1, scores)
            hopper.mbarrier_arrive(keys.empty[place.slot])
            factor = reciprocal(sums.weights)
            new_weights, sums = weigh_last(scores, row, (reach - 1) * form.BLOCK_N, sizes, scale, form)
            result = hopper.wait_dots(0, result)
            hopper.mbarrier_arrive(values.empty[previous.slot])
            done = result * factor[:, None]
            store_block(out, out_tiles[copy], done, done_number // sizes.heads, done_number % sizes.heads, done_row)
            weights = new_weights.to(weights.dtype)
        # one loop with a branch for the last block would be shorter, and 5% slower for head size 64
        q_tile = queries.tiles[q_place.slot * form.COPIES + copy]
        sums, weights, place = attend_keys(sums, weights, q_tile, rings, place, copy, scale, reach - 1, form, True)
        result = last_values(sums, weights, values, place)
        store_block(out, out_tiles[copy], result, number // sizes.heads, number % sizes.heads, row)
        hopper.async_store_wait(0)


@kp.jit
def describe(x, sizes, strides, rows):
    """Returns the descriptor of a tensor [batch, head, row, column] whose rows are read or written in blocks of the shape `rows`."""
    return tl.make_tensor_descriptor(x, sizes, [strides.batch, strides.head, strides.row, 1], [1, 1, *rows])


@kp.jit
def mha_by_roles(
    query, key, value, out, strides, sizes, scale,
    HEAD_DIM: tl.constexpr, CAUSAL: tl.constexpr, BLOCK_N: tl.constexpr, COPIES: tl.constexpr,
):  # fmt: skip
    """All blocks of queries of all heads; `scale` is positive, and there are keys."""
    scale *= LOG2_E
    # two roles have 240 registers a thread, three have 160; roles with turns attend to as many blocks of keys as each other;
    # head size 256 has no room for two blocks of queries
    TURNS: tl.constexpr = COPIES == 2 and BLOCK_N == 128 and (CAUSAL or HEAD_DIM == 128)
    QUERY_SLOTS: tl.constexpr = 1 if HEAD_DIM == 256 else 2
    SLOTS: tl.constexpr = 4 if HEAD_DIM == 64 and TURNS else 2
    form: tl.constexpr = Form(HEAD_DIM, CAUSAL, BLOCK_N, SLOTS, COPIES, QUERY_SLOTS, TURNS)
    dtype: tl.constexpr = query.dtype.element_ty
    batches, heads, kv_heads = sizes.batches, sizes.heads, sizes.heads // sizes.group
    width: tl.constexpr = 64 if QUERY_SLOTS == 1 else HEAD_DIM
    queries = describe(query, [batches, heads, sizes.queries, sizes.head_dim], strides.query, [64, HEAD_DIM])
    keys = describe(key, [batches, kv_heads, sizes.keys, sizes.head_dim], strides.key, [BLOCK_N, HEAD_DIM])
    values = describe(value, [batches, kv_heads, sizes.keys, sizes.value_dim], strides.value, [BLOCK_N, HEAD_DIM])
    results = describe(out, [batches, heads, sizes.queries, sizes.value_dim], strides.out, [64, width])
    q_tiles = hopper.local_alloc([64, HEAD_DIM], dtype, COPIES * QUERY_SLOTS)
    k_tiles = hopper.local_alloc([BLOCK_N, HEAD_DIM], dtype, SLOTS)
    v_tiles = hopper.local_alloc([BLOCK_N, HEAD_DIM], dtype, SLOTS)
    # other results leave through their queries' tile, while the next queries come into another
    out_tiles = None
    if TURNS and CAUSAL:
        out_tiles = hopper.local_alloc([64, HEAD_DIM], dtype, COPIES)
    elif QUERY_SLOTS == 1:
        out_tiles = hopper.local_alloc([64, 64], dtype, COPIES * 2)
    rings = Rings(
        Ring(q_tiles, hopper.mbarrier_alloc(1, QUERY_SLOTS), hopper.mbarrier_alloc(COPIES, QUERY_SLOTS)),
        Ring(k_tiles, hopper.mbarrier_alloc(1, SLOTS), hopper.mbarrier_alloc(COPIES, SLOTS)),
        Ring(v_tiles, hopper.mbarrier_alloc(1, SLOTS), hopper.mbarrier_alloc(COPIES, SLOTS)),
    )
    total = batches * heads
    hopper.warp_specialize(
        hopper.role(
            load_heads,
            (queries, keys, values, rings, sizes, total, form),
            num_warps=1,
            registers=24 if COPIES == 2 else 32,
        ),
        hopper.role(
            attend_causal_heads if TURNS and CAUSAL else attend_heads,
            (results, out_tiles, rings, sizes, total, scale, form),
            num_warps=4,
            registers=240 if COPIES == 2 else 160,
            copies=COPIES,
        ),
    )
