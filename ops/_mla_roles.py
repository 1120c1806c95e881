"""Multi-head latent attention of 64 rows on sm_90a. One role loads latents by TMA. A second has the scores of a block of keys and the left half
of the values' columns, a third the right half: no role has registers for both. The weights go from one to the other through shared memory,
as in FlashMLA (DeepSeek, 2025), whose roles take turns with the scores. The next block's scores run under this block's values."""

from typing import NamedTuple

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.language import hopper

from ._exponents import LOG2_E
from ._mha_roles import Ring, Sums, sum_parts, weigh
from ._paged import LN_2, CacheStrides, Sequence, rows_of
from ._paged_roles import as_held, describe, load_block, nothing_yet
from ._roles import Place, next_place

KEYS = tl.constexpr(64)
"""How many keys are a block."""
SLOTS = tl.constexpr(2)
"""How many blocks of keys shared memory has room for."""

GIVEN = tl.constexpr(0)
"""The named barrier at which the second role says that weights are there, and the third waits for them."""
READ = tl.constexpr(1)
"""At which the third role says that it has read them."""
SCORED = tl.constexpr(2)
"""At which the second role says that the scores of a block are there, or that there are no more, where the third is late."""


class Columns(NamedTuple):
    """What a row of 576 elements is cut into: two halves of the latent, which are key and value, and what is key alone."""

    left: tl.tensor
    right: tl.tensor
    rope: tl.tensor


class Shared(NamedTuple):
    """The weights of a block of keys, and the factor of what was summed before, on their way to the third role; last, the factor of the
    result."""

    weights: tl.tensor
    factor: tl.tensor


class Walk(NamedTuple):
    """The keys of a program's rows: `blocks` blocks from `first` on, of which the first `whole` count for all rows; from `stop` on keys count
    for none. Blocks that do not count for all rows come first."""

    first: tl.tensor
    whole: tl.tensor
    blocks: tl.tensor
    stop: tl.tensor


class Task(NamedTuple):
    """64 rows of a sequence, from `row` on, and the part of its keys; `exists` says whether there are such rows and keys."""

    sequence: Sequence
    number: tl.tensor
    row: tl.tensor
    part: tl.tensor
    exists: tl.tensor


class Results(NamedTuple):
    """Where results go, or, of several parts, what is summed of each (see mla_part)."""

    out: tl.tensor
    lse: tl.tensor
    partial: tl.tensor
    weights: tl.tensor


@kp.jit
def walk_of(task, parts, chunk, heads, causal):
    """Returns the keys of a program's rows."""
    sequence, first = task.sequence, task.part * chunk
    stop = sequence.keys if task.part == parts - 1 else tl.minimum(sequence.keys, first + chunk)
    whole = stop
    if causal != 0:
        ahead = sequence.keys - sequence.queries + 1
        whole = tl.minimum(stop, ahead + task.row // heads)
        stop = tl.minimum(stop, ahead + tl.minimum((task.row + 63) // heads, sequence.queries - 1))
    stop = tl.where(task.exists, tl.maximum(stop, first), first)
    return Walk(first, tl.maximum(tl.minimum(whole, stop) - first, 0) // KEYS, tl.cdiv(stop - first, KEYS), stop)


@kp.jit
def key_of(walk, step):
    """Returns the first key of the block of a step."""
    edges = walk.blocks - walk.whole
    return walk.first + tl.where(step < edges, walk.whole + step, step - edges) * KEYS


@kp.jit
def load_latents(copy, query, queries, loaded, latents, rings, task, table, walk, heads, block_bits, PIECE: tl.constexpr):
    """Loads the queries and all blocks of keys, a warp for each of the columns: beginning all copies takes one warp as long as attending.
    Of 64 rows of queries, those after the sequence's are others', or zeros."""
    if copy == 0:
        if walk.blocks > 0:
            row = task.sequence.token * heads + task.row
            hopper.mbarrier_expect(loaded, queries.left.nbytes + queries.right.nbytes + queries.rope.nbytes)
            hopper.async_load(query.left, [row, 0], queries.left, loaded)
            hopper.async_load(query.right, [row, 0], queries.right, loaded)
            hopper.async_load(query.rope, [row, 0], queries.rope, loaded)
        load_columns((latents.left,), (rings.left,), table, walk, block_bits, PIECE)
    elif copy == 1:
        load_columns((latents.right,), (rings.right,), table, walk, block_bits, PIECE)
    else:
        load_columns((latents.rope,), (rings.rope,), table, walk, block_bits, PIECE)


@kp.jit
def load_columns(latents, rings, table, walk, block_bits, PIECE: tl.constexpr):
    """Loads some columns of all blocks of keys."""
    place = Place(0, 1)
    for step in range(walk.blocks):
        load_block(latents, rings, place, table, key_of(walk, step), walk.stop, 0, block_bits, False, PIECE)
        place = next_place(place, SLOTS)


@kp.jit
def begin_scores(queries, rings, place):
    """Begins the scores of a block of keys with the left columns."""
    hopper.mbarrier_wait(rings.left.full[place.slot], place.phase)
    return hopper.async_dot(queries.left, rings.left.tiles[place.slot].T, tl.zeros([64, KEYS], tl.float32))


@kp.jit
def end_scores(scores, queries, rings, place, sign, late):
    """Adds the other columns, waits for all, and gives them a sign, or what is none."""
    hopper.mbarrier_wait(rings.rope.full[place.slot], place.phase)
    scores = hopper.async_dot(queries.rope, rings.rope.tiles[place.slot].T, scores)
    hopper.mbarrier_wait(rings.right.full[place.slot], place.phase)
    scores = hopper.async_dot(queries.right, rings.right.tiles[place.slot].T, scores)
    scores = hopper.wait_dots(0, scores)
    hopper.mbarrier_arrive(rings.rope.empty[place.slot])
    if late:
        hopper.named_barrier_arrive(SCORED, 256)
    if sign != 1.0:
        scores *= sign
    return scores


@kp.jit
def share(shared, weights, factor):
    """Gives weights and a factor to the third role."""
    hopper.named_barrier_wait(READ, 256)
    hopper.local_store(shared.factor, factor[:, None])
    if weights is not None:
        hopper.local_store(shared.weights, weights)
    hopper.named_barrier_arrive(GIVEN, 256)


@kp.jit
def weigh_scores(sums, scores, unit, dtype: tl.constexpr):
    """Returns the weights of scores, the sums ready for their values, and the factor by which these were made so."""
    weights, shift, largest = weigh(scores, sums.largest, unit)
    factor = tl.exp2(shift - sums.shift)
    total = sums.weights * factor[:, None] + sum_parts(weights)
    return weights.to(dtype), Sums(sums.values * factor[:, None], shift, largest, total), factor


@kp.jit
def add_left(sums, weights, factor, left, shared, place):
    """Adds the left values of a block. No scores are begun under it."""
    values = hopper.async_dot(weights, left.tiles[place.slot], sums.values)
    share(shared, weights, factor)
    values = hopper.wait_dots(0, values)
    hopper.mbarrier_arrive(left.empty[place.slot])
    return Sums(values, sums.shift, sums.largest, sums.weights)


@kp.jit
def attend_left(copy, queries, loaded, results, rings, shared, task, walk, parts, sizes, rules, late):
    """The scores of all blocks of keys, and the left half of the result."""
    dtype: tl.constexpr = rings.left.tiles.dtype
    rows = rows_of(task.sequence, task.row + tl.arange(0, 64), sizes.heads, rules)
    given = rules.scale * LOG2_E
    # of a scale that is zero, or no number, products get that factor
    unit, sign = tl.where(given == 0.0, 1.0, tl.abs(given)), tl.where(given > 0.0, 1.0, tl.where(given < 0.0, -1.0, given))
    LEFT: tl.constexpr = queries.left.shape[1]
    if walk.blocks > 0:
        hopper.mbarrier_wait(loaded, 0)
    sums = nothing_yet(unit, LEFT)
    place = Place(0, 0)
    for step in range(walk.blocks - walk.whole):
        scores = end_scores(begin_scores(queries, rings, place), queries, rings, place, sign, late)
        columns = key_of(walk, step) + tl.arange(0, KEYS)
        scores = tl.where(columns[None, :] <= rows.last[:, None], scores, -float("inf"))
        weights, sums, factor = weigh_scores(sums, scores, unit, dtype)
        sums = add_left(sums, weights, factor, rings.left, shared, place)
        place = next_place(place, SLOTS)
    if walk.whole > 0:
        scores = end_scores(begin_scores(queries, rings, place), queries, rings, place, sign, late)
        for _ in range(walk.whole - 1):
            weights, sums, factor = weigh_scores(sums, scores, unit, dtype)
            values = hopper.async_dot(weights, rings.left.tiles[place.slot], sums.values)
            share(shared, weights, factor)
            previous = place.slot
            place = next_place(place, SLOTS)
            scores = begin_scores(queries, rings, place)
            values = hopper.wait_dots(1, values)
            hopper.mbarrier_arrive(rings.left.empty[previous])
            scores = end_scores(scores, queries, rings, place, sign, late)
            sums = Sums(values, sums.shift, sums.largest, sums.weights)
        weights, sums, factor = weigh_scores(sums, scores, unit, dtype)
        sums = add_left(sums, weights, factor, rings.left, shared, place)
    if late & (walk.blocks > 0):
        hopper.named_barrier_arrive(SCORED, 256)
    total, largest = tl.sum(sums.weights, 1), sums.largest * unit
    if task.exists:
        if parts == 1:
            factor = 1.0 / tl.where(total == 0.0, 1.0, total)
            share(shared, None, factor)
            tokens, heads = (task.sequence.token + rows.tokens).to(tl.int64), rows.heads.to(tl.int64)
            logs = tl.where(total == 0.0, -float("inf"), (largest + tl.log2(total)) * LN_2)
            tl.store(results.lse + heads * sizes.tokens + tokens, logs, mask=rows.inside)
            store_half(sums.values * factor[:, None], results.out.left, queries.left, task, sizes)
        else:
            store_part(sums.values, results.partial, task, parts, sizes, 0, 2 * LEFT)
            numbers = task.row + tl.arange(0, 64)
            at = (task.number.to(tl.int64) * parts + task.part) * sizes.rows + numbers
            tl.store(results.weights + at * 2, largest, mask=rows.inside)
            tl.store(results.weights + at * 2 + 1, total, mask=rows.inside)


@kp.jit
def attend_right(copy, queries, results, rings, shared, task, walk, parts, sizes, late):
    """The right half of the result. late: a block's product begins when the next block's scores are there. It then runs under their
    exponentials, which leave the tensor cores idle otherwise."""
    LEFT: tl.constexpr = queries.right.shape[1]
    values = tl.zeros([64, LEFT], tl.float32)
    place = Place(0, 0)
    hopper.named_barrier_arrive(READ, 256)
    if late & (walk.blocks > 0):
        hopper.named_barrier_wait(SCORED, 256)
    for _ in range(walk.blocks):
        hopper.named_barrier_wait(GIVEN, 256)
        values *= hopper.local_load(shared.factor)
        hopper.mbarrier_wait(rings.right.full[place.slot], place.phase)
        if late:
            hopper.named_barrier_wait(SCORED, 256)
        values = hopper.async_dot(shared.weights, rings.right.tiles[place.slot], values)
        values = hopper.wait_dots(0, values)
        hopper.mbarrier_arrive(rings.right.empty[place.slot])
        hopper.named_barrier_arrive(READ, 256)
        place = next_place(place, SLOTS)
    if task.exists:
        if parts == 1:
            hopper.named_barrier_wait(GIVEN, 256)
            values *= hopper.local_load(shared.factor)
            store_half(values, results.out.right, queries.right, task, sizes)
        else:
            store_part(values, results.partial, task, parts, sizes, LEFT, 2 * LEFT)


@kp.jit
def store_half(values, out, tile, task, sizes):
    """Stores half of the columns of a result through a tile: those of the sequence's rows (see `describe` of _paged_roles.py)."""
    hopper.local_store(tile, values)
    count = tl.minimum(task.sequence.queries * sizes.heads - task.row, 64)
    hopper.async_store(out, [0, task.sequence.token * sizes.heads + task.row + count, 64 - count, 0, 0], tile)
    hopper.async_store_wait(0)


@kp.jit
def part_at(partial, number, part, parts, rows, columns, sizes, LATENT: tl.constexpr, GROUPED: tl.constexpr):
    """Returns where the sums of a part of a sequence lie, of given rows and columns: see mla_part."""
    first = partial + (number.to(tl.int64) * parts + part) * sizes.rows * LATENT
    return first + ((columns // 8 * sizes.rows + rows) * 8 + columns % 8 if GROUPED else rows * LATENT + columns)


@kp.jit
def store_part(values, partial, task, parts, sizes, first: tl.constexpr, LATENT: tl.constexpr):
    """Stores half of the columns of a part's sums, from `first` on, where wgmma leaves them."""
    held, rows, groups, columns = as_held(values)
    rows += task.row
    at = part_at(partial + first * sizes.rows, task.number, task.part, parts, rows, 0, sizes, LATENT, True)
    at += groups * 8 * sizes.rows + columns
    tl.store(at, held, mask=rows < task.sequence.queries * sizes.heads)


@kp.jit
def mla_by_roles(
    query, cache, table, results, sequence, sizes, rules, chunk, LATENT: tl.constexpr, ROPE: tl.constexpr,
    PIECE: tl.constexpr,
):  # fmt: skip
    """`chunk` keys, a multiple of KEYS, for 64 rows of a sequence; the last part takes what is left. All tensors are contiguous; strides may
    say anything of a dimension of one."""
    number, part, parts, row = tl.program_id(1), tl.program_id(2), tl.num_programs(2), tl.program_id(0) * 64
    exists = (row < sequence.queries * sizes.heads) & ((part * chunk < sequence.keys) | (parts == 1))
    task = Task(sequence, number, row, part, exists)
    walk = walk_of(task, parts, chunk, sizes.heads, rules.causal)
    HALF: tl.constexpr = LATENT // 2
    dtype: tl.constexpr = cache.dtype.element_ty
    WIDTH: tl.constexpr = LATENT + ROPE
    steps = CacheStrides(sizes.block * WIDTH, WIDTH, WIDTH)
    latents = Columns(
        describe(cache, steps, sizes.blocks, sizes.block, 1, HALF, HALF, PIECE),
        describe(cache + HALF, steps, sizes.blocks, sizes.block, 1, HALF, HALF, PIECE),
        describe(cache + LATENT, steps, sizes.blocks, sizes.block, 1, ROPE, ROPE, PIECE),
    )
    rows = sizes.tokens * sizes.heads
    query_rows = Columns(
        tl.make_tensor_descriptor(query, [rows, HALF], [WIDTH, 1], [64, HALF]),
        tl.make_tensor_descriptor(query + HALF, [rows, HALF], [WIDTH, 1], [64, HALF]),
        tl.make_tensor_descriptor(query + LATENT, [rows, ROPE], [WIDTH, 1], [64, ROPE]),
    )
    out_rows = CacheStrides(LATENT, LATENT, LATENT)
    halves = Columns(
        describe(results.out, out_rows, 1, rows, 1, HALF, HALF, 64),
        describe(results.out + HALF, out_rows, 1, rows, 1, HALF, HALF, 64),
        None,
    )
    results = Results(halves, results.lse, results.partial, results.weights)
    queries = Columns(
        hopper.local_alloc([64, HALF], dtype), hopper.local_alloc([64, HALF], dtype), hopper.local_alloc([64, ROPE], dtype)
    )
    loaded = hopper.mbarrier_alloc(1)
    rings = Columns(ring_of(HALF, dtype), ring_of(HALF, dtype), ring_of(ROPE, dtype))
    shared = Shared(hopper.local_alloc([64, KEYS], dtype), hopper.local_alloc([64, 1], tl.float32))
    late = sizes.rows > 64  # where memory is the limit, that would cost time
    hopper.warp_specialize(
        hopper.role(
            load_latents,
            (query_rows, queries, loaded, latents, rings, task, table, walk, sizes.heads, sizes.block_bits, PIECE),
            num_warps=1,
            registers=40,
            copies=3,
        ),
        hopper.role(
            attend_left,
            (queries, loaded, results, rings, shared, task, walk, parts, sizes, rules, late),
            num_warps=4,
            registers=240,
        ),
        hopper.role(
            attend_right,
            (queries, results, rings, shared, task, walk, parts, sizes, late),
            num_warps=4,
            registers=208,
        ),
    )


@kp.jit
def ring_of(WIDTH: tl.constexpr, dtype: tl.constexpr):
    """Returns a ring of some columns of blocks of keys."""
    tiles = hopper.local_alloc([KEYS, WIDTH], dtype, SLOTS)
    return Ring(tiles, hopper.mbarrier_alloc(1, SLOTS), hopper.mbarrier_alloc(1, SLOTS))
