"""Attention of blocks of rows to keys in pages, on sm_90a: one role loads keys and values by TMA, 16 of a page at a time, others attend, 64
rows each, by wgmma, as mha's do (_mha_roles.py). The loading role runs ahead; it takes the next block of rows that no program has. Where
there are few blocks of rows, programs share the keys of each."""

from typing import NamedTuple

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.language import hopper

from ._exponents import FLOAT32_MAX, line_of, power_below
from ._mha_roles import Form, Ring, Rings, Sums, attend_keys, first_scores, sum_parts, weigh
from ._paged import (
    IN_ONE_BLOCK,
    CacheStrides,
    Limits,
    PagedSizes,
    PagedStrides,
    Parts,
    Rules,
    Sequence,
    capped,
    end_of,
    finished,
    load_query,
    rows_at,
    sequence_of,
    store_result,
    store_weights,
    unit_of,
    values_at,
)
from ._paged import Sums as FewSums
from ._roles import Place, next_place

PIECE = tl.constexpr(16)
"""So many keys of paged_attention lie in one page, whatever its size."""


class Batch(NamedTuple):
    """What all blocks of rows are read from, beside queries, keys and values; and where parts of their keys leave their sums."""

    block_table: tl.tensor
    query_starts: tl.tensor
    key_lengths: tl.tensor
    strides: PagedStrides
    sizes: PagedSizes
    limits: Limits
    rules: Rules
    parts: Parts


class Task(NamedTuple):
    """A part of the keys for a block of rows of a sequence and key head: `first` is the number of its first row; `exists` says whether there
    is such a block, and such a part of its sequence's keys."""

    sequence: Sequence
    number: tl.tensor
    head: tl.tensor
    first: tl.tensor
    part: tl.tensor
    exists: tl.tensor


class Span(NamedTuple):
    """Which blocks of keys a block of rows attends to, in units of their size: from `start` to `stop`, of which those from `low` to `high` count
    for all rows. Keys from `end` on count for none."""

    start: tl.tensor
    low: tl.tensor
    high: tl.tensor
    stop: tl.tensor
    end: tl.tensor


@kp.jit
def first_block(batch, number, ROWS: tl.constexpr):
    """Returns the number of a sequence's first block of rows."""
    return tl.load(batch.query_starts + number) * batch.sizes.group // ROWS + number


@kp.jit
def count_tasks(batch, ROWS: tl.constexpr):
    """Returns how many tasks there may be of each part of the keys."""
    return (batch.sizes.tokens * batch.sizes.group // ROWS + batch.sizes.sequences) * batch.sizes.kv_heads


@kp.jit
def task_of(number, batch, ROWS: tl.constexpr):
    """Returns the task of a number. Blocks go from the last to the first: those of causal calls have most keys at the end."""
    tasks = count_tasks(batch, ROWS)
    part, from_end = 0, tasks - 1 - number
    while from_end < 0:  # mostly there is one part, and a division takes longer
        from_end += tasks
        part += 1
    head, block = from_end % batch.sizes.kv_heads, from_end // batch.sizes.kv_heads
    below, above = 0, batch.sizes.sequences
    while above - below > 1:
        middle = (below + above) // 2
        if first_block(batch, middle, ROWS) <= block:
            below = middle
        else:
            above = middle
    sequence = sequence_of(below, batch.query_starts, batch.key_lengths, batch.limits, False)
    first, rows = (block - first_block(batch, below, ROWS)) * ROWS, sequence.queries * batch.sizes.group
    has_keys = (part * batch.parts.chunk < sequence.keys) | (batch.parts.count == 1)
    return Task(sequence, below, head, first, part, (rows > batch.sizes.few) & (first < rows) & has_keys)


@kp.jit
def tell(tasks, place, number):
    """Has the other roles know the number of a task."""
    hopper.mbarrier_wait(tasks.empty[place.slot], place.phase)
    hopper.local_store(tasks.tiles[place.slot], tl.full([1, 1], number, tl.int32))
    tl.debug_barrier()  # the lane that arrives need not be the one that wrote
    hopper.mbarrier_arrive(tasks.full[place.slot])
    return next_place(place, 2)


@kp.jit
def learn(tasks, place):
    """Returns the number of a task, of which the loading role told."""
    hopper.mbarrier_wait(tasks.full[place.slot], place.phase)
    number = tl.max(tl.max(hopper.local_load(tasks.tiles[place.slot]), 1), 0)
    tl.debug_barrier()
    hopper.mbarrier_arrive(tasks.empty[place.slot])
    return number, next_place(place, 2)


@kp.jit
def next_task(tasks, place, batch, ROWS: tl.constexpr):
    """Returns the task of which the loading role told, and its number, which is at most that of all tasks."""
    number, place = learn(tasks, place)
    return task_of(number, batch, ROWS), number, place


@kp.jit
def first_task(tasks, batch, ROWS: tl.constexpr):
    """As `next_task`, for a role's first task: that of the program's number, of which nobody has to tell, where there is such a task."""
    number, place = tl.program_id(0), Place(0, 0)
    task = task_of(number, batch, ROWS)
    if not task.exists:
        task, number, place = next_task(tasks, place, batch, ROWS)
    return task, number, place


@kp.jit
def span_of(task, batch, ROWS: tl.constexpr, BLOCK_N: tl.constexpr):
    """Returns the keys of a task."""
    rules, sequence, group = batch.rules, task.sequence, batch.sizes.group
    ahead = sequence.keys - sequence.queries
    head = ahead + task.first // group
    tail = ahead + tl.minimum((task.first + ROWS - 1) // group, sequence.queries - 1)
    end, whole = sequence.keys, sequence.keys
    if rules.causal != 0:
        end, whole = tl.maximum(tail + 1, 0), tl.maximum(head + 1, 0)
    start, low = 0, 0
    if rules.window > 0:
        start, low = tl.maximum(head - rules.window + 1, 0), tl.maximum(tail - rules.window + 1, 0)
    start, low, high, stop = start // BLOCK_N, tl.cdiv(low, BLOCK_N), whole // BLOCK_N, tl.cdiv(end, BLOCK_N)
    # chunks are multiples of BLOCK_N
    first, last = task.part * batch.parts.chunk // BLOCK_N, tl.cdiv(end_of(task.part, batch.parts, sequence.keys), BLOCK_N)
    start, stop = tl.maximum(start, first), tl.minimum(stop, last)
    low, high = tl.maximum(low, start), tl.minimum(high, stop)
    if (low >= high) | (rules.softcap != 0.0):
        low, high = start, start
    return Span(start, low, high, tl.maximum(stop, start), end)


@kp.jit
def edges_of(span):
    """Returns how many blocks of keys do not count for all rows."""
    return span.stop - span.start - (span.high - span.low)


@kp.jit
def block_of_keys(span, step):
    """Returns which block of keys comes in a step: those above the ones that count for all rows, those below, those; each from the end."""
    above, edges = span.stop - span.high, edges_of(span)
    block = span.stop - 1 - step
    if step >= edges:
        block = span.high - 1 - (step - edges)
    elif step >= above:
        block -= span.high - span.low
    return block


@kp.jit
def corner_of(page, key, count, head, bits, PIECE: tl.constexpr):
    """Returns where `count` keys of a page, from a key on, lie in a descriptor: see `describe`."""
    row = key & ((1 << bits) - 1)
    if bits == IN_ONE_BLOCK:
        row += page
        page = 0
    return page, row + count, PIECE - count, head, 0


@kp.jit
def load_block(caches, rings, place, table, n, end, head, bits, WHOLE: tl.constexpr, PIECE: tl.constexpr):
    """Loads a block of keys, or of values, or both, from n on, PIECE of a page at a time. WHOLE: all its keys are before the end."""
    PIECES: tl.constexpr = rings[0].tiles.shape[0] // PIECE
    first = [n + piece * PIECE for piece in tl.static_range(PIECES)]
    if not WHOLE:  # pieces after the last repeat it
        first = [tl.minimum(key, (end - 1) // PIECE * PIECE) for key in first]
    # all numbers of pages are on their way before anything waits
    pages = [tl.load(table + (key >> bits)) for key in first]
    for which in tl.static_range(len(caches)):
        ring = rings[which]
        hopper.mbarrier_wait(ring.empty[place.slot], place.phase)
        hopper.mbarrier_expect(ring.full[place.slot], ring.tiles.nbytes)
        for piece in tl.static_range(PIECES):
            count = PIECE if WHOLE else tl.minimum(end - first[piece], PIECE)
            corner = corner_of(pages[piece], first[piece], count, head, bits, PIECE)
            hopper.async_load(caches[which], corner, ring.tiles[place.slot], ring.full[place.slot], row=piece * PIECE)


@kp.jit
def load_task(caches, rings, place, task, batch, form):
    """Loads the keys of a task, or the values, or both."""
    bits = batch.sizes.block_bits
    table = batch.block_table + task.number.to(tl.int64) * batch.strides.table
    span = span_of(task, batch, 64 * form.COPIES, form.BLOCK_N)
    for i in range(span.stop - span.start):
        n = block_of_keys(span, i) * form.BLOCK_N
        if n + form.BLOCK_N <= span.end:
            load_block(caches, rings, place, table, n, span.end, task.head, bits, True, PIECE)
        else:
            load_block(caches, rings, place, table, n, span.end, task.head, bits, False, PIECE)
        place = next_place(place, form.SLOTS)
    return place


@kp.jit
def load_first(caches, rings, counter, tasks, batch, form):
    """Takes tasks, has the other roles know their numbers, and loads."""
    ROWS: tl.constexpr = 64 * form.COPIES
    place, t_place = Place(0, 1), Place(0, 1)
    total = count_tasks(batch, ROWS) * batch.parts.count
    number = tl.program_id(0)
    while number < total:
        task = task_of(number, batch, ROWS)
        if task.exists:
            if number != tl.program_id(0):
                t_place = tell(tasks, t_place, number)
            place = load_task(caches, rings, place, task, batch, form)
        number = tl.num_programs(0) + tl.atomic_add(counter, 1, sem="relaxed")
    tell(tasks, t_place, total)


@kp.jit
def load_second(caches, rings, tasks, batch, form):
    """Loads for all tasks."""
    ROWS: tl.constexpr = 64 * form.COPIES
    place = Place(0, 1)
    total = count_tasks(batch, ROWS) * batch.parts.count
    task, number, t_place = first_task(tasks, batch, ROWS)
    while number < total:
        place = load_task(caches, rings, place, task, batch, form)
        task, number, t_place = next_task(tasks, t_place, batch, ROWS)


@kp.jit
def load_pages(copy, keys, values, counter, rings, tasks, batch, form, LOADERS: tl.constexpr):
    """Loads the keys and values of all tasks that this program takes; with two LOADERS, one warp loads keys and another values."""
    if LOADERS == 1:
        load_first((keys, values), (rings.key, rings.value), counter, tasks, batch, form)
    elif copy == 0:
        load_first((keys,), (rings.key,), counter, tasks, batch, form)
    else:
        load_second((values,), (rings.value,), tasks, batch, form)


@kp.jit
def rows_of_task(task, copy, batch):
    """Returns the 64 rows of a task that a copy attends to."""
    group = batch.sizes.group
    numbers = task.first % group + copy * 64 + tl.arange(0, 64)
    # small numbers: the quotient of floats is that of integers, for a tenth of the instructions
    above = ((numbers.to(tl.float32) + 0.5) * (1.0 / group)).to(tl.int32)
    return rows_at(task.sequence, task.first // group + above, numbers - above * group, batch.rules)


@kp.jit
def load_rows(query, task, rows, unit, batch, HEAD_DIM: tl.constexpr):
    """Returns the queries of some rows, with the sign of `unit`; of zero, and what is no number, with that factor."""
    q = load_query(query, task.sequence, rows, task.head, batch.strides, batch.sizes, HEAD_DIM)
    if not (unit > 0.0):
        q = (q * tl.where(unit < 0.0, -1.0, unit)).to(q.dtype)
    return q


@kp.jit
def attend_edge(sums, q_tile, rings, place, n, rows, unit, scale, softcap, dtype: tl.constexpr):
    """Adds a block of keys of which some do not count for some rows."""
    scores = first_scores(q_tile, rings.key, place)
    if softcap != 0.0:
        scores = capped(scores * unit, softcap)
    columns = n + tl.arange(0, scores.shape[1])
    counts = (columns[None, :] >= rows.first[:, None]) & (columns[None, :] <= rows.last[:, None])
    weights, shift, largest = weigh(tl.where(counts, scores, -float("inf")), sums.largest, scale)
    rescale = tl.exp2(shift - sums.shift)
    total = sums.weights * rescale[:, None] + sum_parts(weights)
    return add_values(Sums(sums.values * rescale[:, None], shift, largest, total), weights.to(dtype), rings.value, place)


@kp.jit
def add_values(sums, weights, values, place):
    """Adds the values of a block of keys. Nothing runs while the tensor cores work."""
    hopper.mbarrier_wait(values.full[place.slot], place.phase)
    result = hopper.async_dot(weights, values.tiles[place.slot], sums.values)
    result = hopper.wait_dots(0, result)
    hopper.mbarrier_arrive(values.empty[place.slot])
    return Sums(result, sums.shift, sums.largest, sums.weights)


@kp.jit
def attend_whole(sums, q_tile, rings, place, copy, unit, blocks, form, dtype: tl.constexpr):
    """Adds `blocks` blocks of keys, at least one, that count for all rows. Returns the sums and the place of the last."""
    scores = first_scores(q_tile, rings.key, place)
    weights, shift, largest = weigh(scores, sums.largest, unit)
    rescale = tl.exp2(shift - sums.shift)
    sums = Sums(sums.values * rescale[:, None], shift, largest, sums.weights * rescale[:, None] + sum_parts(weights))
    sums, weights, place = attend_keys(sums, weights.to(dtype), q_tile, rings, place, copy, unit, blocks - 1, form, form.TURNS)
    return add_values(sums, weights, rings.value, place), place


@kp.jit
def nothing_yet(unit, HEAD_DIM: tl.constexpr):
    """Returns the sums of no keys: the maximum is the lowest whose shift is finite."""
    power = 2.0 * power_below(unit)
    largest = tl.zeros([64], tl.float32) + -FLOAT32_MAX / tl.maximum(power, 1.0)
    _, shift = line_of(largest, unit, power)
    return Sums(tl.zeros([64, HEAD_DIM], tl.float32), shift, largest, tl.zeros([64, 4], tl.float32))


@kp.jit
def attend_rows(copy, query, q_tiles, out, lse, options, rings, tasks, batch, form):
    """64 rows of each task."""
    ROWS: tl.constexpr = 64 * form.COPIES
    dtype: tl.constexpr = rings.key.tiles.dtype
    rules, sizes, strides = batch.rules, batch.sizes, batch.strides
    if form.TURNS and copy == 1:
        hopper.named_barrier_arrive(0, 256)  # the first turn is copy 0's
    place = Place(0, 0)
    q_tile = q_tiles[copy]
    total = count_tasks(batch, ROWS) * batch.parts.count
    task, number, t_place = first_task(tasks, batch, ROWS)
    while number < total:
        rows = rows_of_task(task, copy, batch)
        given = unit_of(rules, options, task.head, strides.key_scale)
        unit = tl.where(given == 0.0, 1.0, tl.abs(given))
        scale = tl.where(rules.softcap != 0.0, 1.0, unit)  # capped scores are in units of log2(e) already
        span = span_of(task, batch, ROWS, form.BLOCK_N)
        hopper.local_store(q_tile, load_rows(query, task, rows, given, batch, form.HEAD_DIM))
        hopper.fence_async_shared()
        sums = nothing_yet(scale, form.HEAD_DIM)
        for i in range(edges_of(span)):
            n = block_of_keys(span, i) * form.BLOCK_N
            sums = attend_edge(sums, q_tile, rings, place, n, rows, unit, scale, rules.softcap, dtype)
            place = next_place(place, form.SLOTS)
        if span.high > span.low:
            sums, place = attend_whole(sums, q_tile, rings, place, copy, unit, span.high - span.low, form, dtype)
            place = next_place(place, form.SLOTS)
        few = FewSums(tl.sum(sums.weights, 1), sums.largest * scale, sums.values)
        if batch.parts.count == 1:
            means, logs = finished(few, rows, task.head, options, sizes, strides.value_scale)
            hopper.local_store(q_tile, means.to(dtype))  # so that neighbouring threads write what lies together
            store_result(out, lse, hopper.local_load(q_tile), logs, task.sequence, rows, task.head, strides, sizes)
        else:
            store_held_part(few, task_of(number, batch, ROWS), copy, batch)  # again: it would take registers of all others
        task, number, t_place = next_task(tasks, t_place, batch, ROWS)


@kp.jit
def as_held(x):
    """Returns a tile [64, C] as [4, 2, C / 8, 8, 4, 2], in which an element is where wgmma leaves it in [64, C]: the first axis says the warp,
    the fourth and fifth the lane. So no thread has to give values to another before they are stored, for which there would be too little shared
    memory. And the rows, the groups of 8 columns, and the columns in a group."""
    GROUPS: tl.constexpr = x.shape[1] // 8
    held = tl.permute(tl.reshape(x, [4, 2, 8, GROUPS, 4, 2]), [0, 1, 3, 2, 4, 5])
    warps, halves = tl.arange(0, 4)[:, None, None, None, None, None] * 16, tl.arange(0, 2)[:, None, None, None, None] * 8
    rows = warps + halves + tl.arange(0, 8)[:, None, None]
    groups, columns = tl.arange(0, GROUPS)[:, None, None, None], tl.arange(0, 4)[:, None] * 2 + tl.arange(0, 2)
    return held, rows, groups, columns


@kp.jit
def store_held_part(sums, task, copy, batch):
    """Stores a part's sums of 64 rows, as store_part, from where wgmma leaves them."""
    parts, sizes = batch.parts, batch.sizes
    share = (task.number * sizes.kv_heads + task.head).to(tl.int64)
    first, stop = task.first + copy * 64, tl.minimum(task.sequence.queries * sizes.group, parts.rows)
    values, rows, groups, columns = as_held(sums.values)
    rows += first
    inside = (rows < stop) & (groups * 8 + columns < sizes.value_dim)
    tl.store(values_at(parts, share, task.part, rows, groups, columns, 8), values, mask=inside)
    numbers = first + tl.arange(0, 64)
    store_weights(parts, sums, share, task.part, numbers, numbers < stop)


@kp.jit
def describe(cache, strides: CacheStrides, pages, page_rows, heads, columns, HEAD_DIM: tl.constexpr, ROWS: tl.constexpr):
    """Returns a descriptor of a cache whose blocks are ROWS keys of a page: at [page, row + count, ROWS - count, head, 0], the `count` keys from
    `row` on, and zeros. Two axes walk over rows: a block begins where both together say, and ends where the inner one does. A block
    without any key of the tensor must not be loaded: an H100 then reads at the address given, which is no key's."""
    shape = [pages, page_rows + 1, ROWS, heads, columns]
    steps = [strides.block, strides.row, strides.row, strides.head, 1]
    return tl.make_tensor_descriptor(cache - ROWS * strides.row, shape, steps, [1, 1, ROWS, 1, HEAD_DIM])


@kp.jit
def paged_by_roles(
    query, key_cache, value_cache, block_table, query_starts, key_lengths, options, counter, parts, out, lse, strides, sizes, limits,
    rules, HEAD_DIM: tl.constexpr, BLOCK_N: tl.constexpr, COPIES: tl.constexpr,
):  # fmt: skip
    """Parts of the keys for blocks of 64 * COPIES rows of all sequences and key heads, as many as no other program takes. `counter`, an
    int32, is 0 before: so many were taken beside the first of each program."""
    TURNS: tl.constexpr = COPIES == 2 and HEAD_DIM != 256
    SLOTS: tl.constexpr = 2
    # by one warp, the copies of a block take longer to begin than attending to it, but for this size
    LOADERS: tl.constexpr = 1 if HEAD_DIM == 128 else 2
    form: tl.constexpr = Form(HEAD_DIM, True, BLOCK_N, SLOTS, COPIES, 1, TURNS)
    dtype: tl.constexpr = key_cache.dtype.element_ty
    batch = Batch(block_table, query_starts, key_lengths, strides, sizes, limits, rules, parts)
    keys = describe(key_cache, strides.key, sizes.pages, sizes.page_rows, sizes.kv_heads, sizes.head_dim, HEAD_DIM, PIECE)
    values = describe(
        value_cache, strides.value, sizes.pages, sizes.page_rows, sizes.kv_heads, sizes.value_dim, HEAD_DIM, PIECE
    )
    q_tiles = hopper.local_alloc([64, HEAD_DIM], dtype, COPIES)
    k_tiles = hopper.local_alloc([BLOCK_N, HEAD_DIM], dtype, SLOTS)
    v_tiles = hopper.local_alloc([BLOCK_N, HEAD_DIM], dtype, SLOTS)
    rings = Rings(
        None,
        Ring(k_tiles, hopper.mbarrier_alloc(1, SLOTS), hopper.mbarrier_alloc(COPIES, SLOTS)),
        Ring(v_tiles, hopper.mbarrier_alloc(1, SLOTS), hopper.mbarrier_alloc(COPIES, SLOTS)),
    )
    numbers = hopper.local_alloc([1, 1], tl.int32, 2)
    tasks = Ring(numbers, hopper.mbarrier_alloc(1, 2), hopper.mbarrier_alloc(COPIES + LOADERS - 1, 2))
    # what the loading role has, rounded up to four warps, the others cannot have
    registers: tl.constexpr = 32 if COPIES == 3 else 24 if HEAD_DIM == 256 else 40
    rest: tl.constexpr = 160 if COPIES == 3 else 240 if HEAD_DIM == 256 else 232
    hopper.warp_specialize(
        hopper.role(
            load_pages,
            (keys, values, counter, rings, tasks, batch, form, LOADERS),
            num_warps=1,
            registers=registers,
            copies=LOADERS,
        ),
        hopper.role(
            attend_rows,
            (query, q_tiles, out, lse, options, rings, tasks, batch, form),
            num_warps=4,
            registers=rest,
            copies=COPIES,
        ),
    )
