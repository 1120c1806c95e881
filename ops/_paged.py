"""Attention over keys and values that lie in pages: what prefill blocks, decoding rows and their parts have in common.

The walk over keys is FlashAttention-2's (Dao, 2023), with the online softmax of Milakov and Gimelshein (2018); pages are those of
PagedAttention (Kwon et al., 2023).
"""

from typing import NamedTuple

import kernelpack as kp
import kernelpack.language as tl

from ._attend import Sums, both
from ._exponents import LOG2_E

LN_2 = tl.constexpr(0.6931471805599453)


PACKED_BITS = 30
"""log2 of the size of a block that holds all keys: those of a sequence then lie one after the other, from the row on that its one entry of the table
names. The cache's stride along blocks is that of rows."""
IN_ONE_BLOCK = tl.constexpr(PACKED_BITS)


class RowStrides(NamedTuple):
    """Strides in elements of query or out: [tokens, heads, head size]."""

    token: tl.int64
    head: tl.int64


class CacheStrides(NamedTuple):
    """Those of a cache: [blocks, block size, kv heads, head size]."""

    block: tl.int64
    row: tl.int64
    head: tl.int64


class PagedStrides(NamedTuple):
    """The strides of all tensors; `table` is that of block_table's rows, a scale's is 0 where all key heads share one."""

    query: RowStrides
    key: CacheStrides
    value: CacheStrides
    out: RowStrides
    table: tl.int64
    key_scale: tl.int64
    value_scale: tl.int64


class PagedSizes(NamedTuple):
    """`group` query heads share a key head. A block of the cache has 2^block_bits keys; as memory, it is `pages` of `page_rows` rows. `few`:
    sequences with so many rows at most, of a key head, are left to programs that share their keys."""

    sequences: int
    kv_heads: int
    group: int
    tokens: int
    head_dim: int
    value_dim: int
    blocks: int
    block_bits: int
    pages: int
    page_rows: int
    few: int


class Parts(NamedTuple):
    """Where programs that share the keys of some rows leave their sums: `chunk` keys are a part, a multiple of BLOCK_N, and there are at most
    `count`; one part gives the result itself. Of several, values [sequences * kv_heads, count, groups, rows, width] gets sums that are not
    yet divided: groups of 8 columns on GPUs (GROUPED), one of all on CPUs. weights [sequences * kv_heads, count, rows, 2] gets the maximum
    of the scores in units of log2(e) and the sum of exponentials relative to it."""

    values: tl.tensor
    weights: tl.tensor
    count: int
    chunk: int
    groups: int
    rows: int


class Limits(NamedTuple):
    """How many tokens there are, how many queries and keys a sequence has at most, and how many keys its row of block_table holds."""

    tokens: int
    queries: int
    keys: int
    table: int


class Rules(NamedTuple):
    """What counts, and how much: as the op's arguments. `window` is 0 for none, `softcap` too."""

    causal: int
    window: int
    softcap: float
    scale: float


class Optional(NamedTuple):
    """float32 tensors that are read where their flags say so: sinks [heads], scales [kv heads]."""

    sinks: tl.tensor
    key_scale: tl.tensor
    value_scale: tl.tensor
    has_sinks: int
    has_key_scale: int
    has_value_scale: int


class Sequence(NamedTuple):
    """One sequence: its first token, and how many queries and keys it has."""

    token: tl.tensor
    queries: tl.tensor
    keys: tl.tensor


class Rows(NamedTuple):
    """Rows of a tile: a row is a query head of a token, the heads of a key head first. The first and the last key that counts for each."""

    tokens: tl.tensor
    heads: tl.tensor
    inside: tl.tensor
    first: tl.tensor
    last: tl.tensor


class Pages(NamedTuple):
    """The keys and values of one head of one sequence: where row 0 of block 0 lies, and the sequence's row of block_table."""

    key: tl.tensor
    value: tl.tensor
    table: tl.tensor
    key_block: tl.int64
    key_row: tl.int64
    value_block: tl.int64
    value_row: tl.int64
    blocks: int
    block_bits: int


class PagedForm(NamedTuple):
    """What is known at compile time. BLOCK_N keys are walked at a time; of them PIECE lie in one block of the cache. CHECKED: lengths and
    blocks that point outside are an error, which they are not otherwise."""

    BLOCK_N: tl.constexpr
    PIECE: tl.constexpr
    SPLIT: tl.constexpr
    CHECKED: tl.constexpr


@kp.jit(debug=True)
def must(condition, message: tl.constexpr):
    """Ends the program with an error where a condition does not hold. Assertions have a function of their own, which is compiled for
    debugging, because there integers that overflow are errors, too."""
    tl.device_assert(condition, message)


@kp.jit
def sequence_of(number, query_starts, key_lengths, limits, CHECKED: tl.constexpr):
    """Returns a sequence. Its lengths are at least 0, and it has no more keys than its row of block_table holds."""
    token = tl.load(query_starts + number)
    ends = tl.load(query_starts + number + 1)
    queries = tl.maximum(ends - token, 0)
    keys = tl.load(key_lengths + number)
    if CHECKED:
        must(
            (token >= 0) & (token <= ends) & (ends <= limits.tokens),
            "query_starts points outside of query's tokens, or descends",
        )
        must(queries <= limits.queries, "query_starts has a sequence of more than max_query_length tokens")
        must(keys >= 0, "key_lengths has a length below 0")
        must(keys <= limits.keys, "key_lengths has a length above max_key_length")
        must(keys <= limits.table, "key_lengths has a length for which block_table has too few columns")
    return Sequence(token, queries, tl.maximum(tl.minimum(keys, limits.table), 0))


@kp.jit
def rows_of(sequence, numbers, group, rules):
    """Returns the rows of the given numbers of a sequence."""
    return rows_at(sequence, numbers // group, numbers % group, rules)


@kp.jit
def rows_at(sequence, tokens, heads, rules):
    """Returns the rows of the given tokens and heads of a sequence."""
    inside = tokens < sequence.queries
    position = sequence.keys - sequence.queries + tokens
    last = tl.where(rules.causal != 0, position, sequence.keys - 1)
    first = tl.where(rules.window > 0, position - rules.window + 1, 0)
    return Rows(tokens, heads, inside, tl.maximum(first, 0), tl.where(inside, last, -1))


@kp.jit
def load_query(query, sequence, rows, head, strides, sizes, HEAD_DIM: tl.constexpr):
    """Returns the queries of a tile of rows."""
    columns = tl.arange(0, HEAD_DIM)
    tokens, heads = (sequence.token + rows.tokens).to(tl.int64), (head * sizes.group + rows.heads).to(tl.int64)
    at = tokens * strides.query.token + heads * strides.query.head
    inside = rows.inside[:, None] & (columns[None, :] < sizes.head_dim)
    return tl.load(query + at[:, None] + columns[None, :], mask=inside, other=0.0)


@kp.jit
def store_result(out, lse, means, logs, sequence, rows, head, strides, sizes, first=0):
    """Stores the results of a tile of rows, whose columns are those from `first` on."""
    columns = first + tl.arange(0, means.shape[1])
    tokens, heads = (sequence.token + rows.tokens).to(tl.int64), (head * sizes.group + rows.heads).to(tl.int64)
    at = tokens * strides.out.token + heads * strides.out.head
    inside = rows.inside[:, None] & (columns[None, :] < sizes.value_dim)
    tl.store(out + at[:, None] + columns[None, :], means.to(out.dtype.element_ty), mask=inside)
    tl.store(lse + heads * sizes.tokens + tokens, logs, mask=rows.inside & (first == 0))


@kp.jit
def pages_of(number, head, key_cache, value_cache, block_table, strides, sizes):
    """Returns the pages of a key head of the sequence of that number."""
    return Pages(
        key_cache + head * strides.key.head, value_cache + head * strides.value.head,
        block_table + number.to(tl.int64) * strides.table,
        strides.key.block, strides.key.row, strides.value.block, strides.value.row, sizes.blocks, sizes.block_bits,
    )  # fmt: skip


@kp.jit
def check_packed(pages, sequence):
    """Ends the program with an error where keys of a sequence without blocks would lie outside."""
    if (pages.block_bits == IN_ONE_BLOCK) & (sequence.keys > 0):
        start = tl.load(pages.table).to(tl.int64)
        must((start >= 0) & (start + sequence.keys <= pages.blocks), "key_starts and key_lengths point outside of the keys")


@kp.jit
def block_of(pages, n, stop, form):
    """Returns the block of the cache in which key n lies, 0 from `stop` on."""
    block = tl.load(pages.table + (n >> pages.block_bits), mask=n < stop, other=0)
    if form.CHECKED:
        must((block >= 0) & (block < pages.blocks), "block_table points outside of the cache")
    return block


@kp.jit
def places(pages, n, numbers, stop, form):
    """Returns how far the rows of keys n + numbers, and of their values, lie from the caches' start."""
    last = (1 << pages.block_bits) - 1
    block = block_of(pages, n, stop, form)
    row = numbers + (n & last)
    if form.PIECE < form.BLOCK_N:  # numbers, not a tile of them: a tile would move between threads before copies can begin
        block += tl.zeros_like(numbers)
        for piece in tl.static_range(form.PIECE, form.BLOCK_N, form.PIECE):
            block = tl.where(numbers >= piece, block_of(pages, n + piece, stop, form), block)
        row = (n + numbers) & last
    block = block.to(tl.int64)
    return block * pages.key_block + row * pages.key_row, block * pages.value_block + row * pages.value_row


@kp.jit
def unit_of(rules, options, head, step):
    """Returns what products of queries and keys are multiplied by: scores are then in units of log2(e), or, capped, of the cap."""
    scale = rules.scale
    if options.has_key_scale != 0:
        scale *= tl.load(options.key_scale + head * step)
    return scale * LOG2_E if rules.softcap == 0.0 else scale / rules.softcap


@kp.jit
def capped(scores, softcap):
    """Returns softcap * tanh(scores) in units of log2(e), for scores in units of the cap."""
    small = tl.exp2(-2.0 * LOG2_E * tl.abs(scores))
    height = (1.0 - small) / (1.0 + small)
    return (softcap * LOG2_E) * tl.where(scores < 0.0, -height, height)


@kp.jit
def weighed(sums, scores):
    """Returns the weights of scores in units of log2(e), by how much what was summed so far must shrink for them, and the weights' sum and
    the maximum that the sums then have."""
    largest = tl.maximum(sums.largest, tl.max(scores, axis=1))
    finite = tl.where(largest == -float("inf"), 0.0, largest)  # no key counts so far: no weight, not NaN
    p = tl.exp2(scores - finite[:, None])
    rescale = tl.exp2(sums.largest - finite)
    return p, rescale, sums.weights * rescale + tl.sum(p, axis=1), largest


@kp.jit
def walk(sums, q, pages, rows, start, stop, low, skipped, unit, rules, sizes, EDGE: tl.constexpr, form):
    """Adds the keys from `start` to `stop` to the sums of a tile of rows, with SPLIT but for the `skipped` ones from `low` on. All but `stop` are
    multiples of BLOCK_N. EDGE: some keys do not count for some rows."""
    FEW: tl.constexpr = q.shape[0] < 16
    POLICY: tl.constexpr = "evict_first" if FEW else ""  # CPUs then ask for the keys of the next step
    PRECISION: tl.constexpr = "tf32x3" if q.shape[0] >= 64 else "ieee"
    numbers, offs_d = tl.arange(0, form.BLOCK_N), tl.arange(0, q.shape[1])
    for step in range(start, stop - skipped, form.BLOCK_N):
        n = step
        if form.SPLIT:
            n += tl.where(step >= low, skipped, 0)
        columns = n + numbers
        inside = columns < stop
        key_at, value_at = places(pages, n, numbers, stop, form)
        if FEW:  # transposing keys for a product would take longer than the products of their elements
            k_inside = both(inside[:, None], offs_d[None, :] < sizes.head_dim, EDGE)
            k = tl.load(pages.key + key_at[:, None] + offs_d[None, :], mask=k_inside, other=0.0, eviction_policy=POLICY)
            k = k.to(tl.float32)
            scores = tl.sum(q[:, None, :] * k[None, :, :], axis=2)
        else:
            k_inside = both(inside[None, :], offs_d[:, None] < sizes.head_dim, EDGE)
            k = tl.load(pages.key + key_at[None, :] + offs_d[:, None], mask=k_inside, other=0.0).to(q.dtype)
            scores = tl.dot(q, k, input_precision=PRECISION)
        scores *= unit
        if rules.softcap != 0.0:
            scores = capped(scores, rules.softcap)
        if EDGE:
            counts = (columns[None, :] >= rows.first[:, None]) & (columns[None, :] <= rows.last[:, None])
            scores = tl.where(counts, scores, -float("inf"))
        p, rescale, weights, largest = weighed(sums, scores)
        v_inside = both(inside[:, None], offs_d[None, :] < sizes.value_dim, EDGE)
        v = tl.load(pages.value + value_at[:, None] + offs_d[None, :], mask=v_inside, other=0.0, eviction_policy=POLICY)
        v = v.to(q.dtype)
        values = tl.dot(p.to(v.dtype), v, sums.values * rescale[:, None], input_precision=PRECISION)
        sums = Sums(weights, largest, values)
    return sums


@kp.jit
def walk_all(sums, q, pages, rows, start, stop, unit, rules, sizes, form):
    """As `walk`, for the keys from `start` to `stop` that count for any row. SPLIT walks those that count for all of them in a loop of its
    own, without masks (the CPU backend splits loops by itself)."""
    start = tl.maximum(start, tl.min(rows.first, 0)) // form.BLOCK_N * form.BLOCK_N
    stop = tl.minimum(stop, tl.max(rows.last, 0) + 1)
    low, whole = start, 0
    if form.SPLIT:
        low = tl.max(tl.where(rows.inside, rows.first, 0), 0) + form.BLOCK_N - 1
        low = tl.minimum(tl.maximum(low // form.BLOCK_N * form.BLOCK_N, start), stop)
        high = tl.minimum(tl.min(tl.where(rows.inside, rows.last + 1, stop), 0), stop)
        whole = tl.maximum(high - low, 0) // form.BLOCK_N * form.BLOCK_N
        sums = walk(sums, q, pages, rows, low, low + whole, low, 0, unit, rules, sizes, False, form)
    return walk(sums, q, pages, rows, start, stop, low, whole, unit, rules, sizes, True, form)


@kp.jit
def finished(sums, rows, head, options, sizes, value_step):
    """Returns the mean of values by their weights, which is 0 where no key counts, and the logarithm of the weights' sum."""
    sink = tl.full(sums.largest.shape, -float("inf"), tl.float32)
    if options.has_sinks != 0:
        sink = tl.load(options.sinks + head * sizes.group + rows.heads) * LOG2_E
    value_scale = 1.0
    if options.has_value_scale != 0:
        value_scale = tl.load(options.value_scale + head * value_step)
    largest = tl.maximum(sums.largest, sink)
    finite = tl.where(largest == -float("inf"), 0.0, largest)
    shrink = tl.exp2(sums.largest - finite)
    weights = sums.weights * shrink + tl.exp2(sink - finite)
    means = sums.values * (shrink / tl.where(weights == 0.0, 1.0, weights) * value_scale)[:, None]
    return means, (finite + tl.log2(weights)) * LN_2


@kp.jit
def end_of(part, parts, keys):
    """Returns where the keys of a part end: the last part takes what is left."""
    return keys if part == parts.count - 1 else tl.minimum(keys, (part + 1) * parts.chunk)


@kp.jit
def values_at(parts, share, part, rows, groups, columns, WIDTH):
    """Returns where the sums of a part lie: `share` is the number of the sequence and key head together, columns are those of a group."""
    first = parts.values + (share * parts.count + part) * parts.groups * parts.rows * WIDTH
    return first + ((groups * parts.rows + rows) * WIDTH + columns)


@kp.jit
def store_weights(parts, sums, share, part, rows, inside):
    """Stores a part's maxima and sums of weights."""
    at = parts.weights + (share * parts.count + part) * parts.rows * 2 + rows * 2
    tl.store(at, sums.largest, mask=inside)
    tl.store(at + 1, sums.weights, mask=inside)


@kp.jit
def store_part(parts, sums, share, part, rows, inside, sizes, GROUPED: tl.constexpr):
    """Stores a part's sums of some rows."""
    columns, inside = tl.arange(0, sums.values.shape[1])[None, :], inside & (rows < parts.rows)
    if GROUPED:
        at = values_at(parts, share, part, rows[:, None], columns // 8, columns % 8, 8)
    else:
        at = values_at(parts, share, part, rows[:, None], 0, columns, sizes.value_dim)
    tl.store(at, sums.values, mask=inside[:, None] & (columns < sizes.value_dim))
    store_weights(parts, sums, share, part, rows, inside)


@kp.jit
def with_parts(sums, largest, weights, values):
    """Adds the sums of several parts, [rows, parts] and [rows, parts, columns], to those of rows."""
    above = tl.maximum(sums.largest, tl.max(largest, 1))
    finite = tl.where(above == -float("inf"), 0.0, above)
    grow = tl.exp2(largest - finite[:, None])
    shrink = tl.exp2(sums.largest - finite)
    total = sums.values * shrink[:, None] + tl.sum(values * grow[:, :, None], 1)
    return Sums(sums.weights * shrink + tl.sum(weights * grow, 1), above, total)
