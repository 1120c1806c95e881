"""Multi-head latent attention of decoding rows, whose keys and values are one latent vector for all heads, in pages."""

import math
from typing import NamedTuple

import kernelpack as kp
import kernelpack.language as tl

from ._attend import Sums, no_sums
from ._exponents import LOG2_E
from ._mla_roles import Results, mla_by_roles, part_at
from ._paged import LN_2, Limits, PagedForm, Pages, RowStrides, Rules, places, rows_of, sequence_of, weighed
from ._paged_arguments import check_block_size, check_numbers, check_table
from ._roles import begin_early, early
from ._rows import check_contiguous
from .paged_attention import reference as paged_reference

RANGES = {"dtypes": ("float32", "float16", "bfloat16"), "latent": (512,), "rope": (64,)}

LATENT = 512
"""How many elements of a cached row are key and value at once."""
ROPE = 64
"""How many follow, which have positions and are key alone."""
CHUNK = 512
"""How many keys a program takes where results must not depend on what else is in a batch."""
PROGRAMS = 132
"""How many programs should share the keys on GPUs: one for each multiprocessor of an H100, whose shared memory it fills."""
FEW_ROWS = 256
"""Up to so many rows, of all sequences, the sum of a row's parts goes over several programs."""
FEWEST = 128
"""A program takes as many keys at least."""
MANY_HEADS = 64
"""From so many heads on, blocks of rows are larger on CPUs: keys are then packed for more of them at a time."""


class MlaStrides(NamedTuple):
    """Strides in elements; `block` and `row` are those of the cache, `table` that of block_table's rows."""

    query: RowStrides
    out: RowStrides
    block: tl.int64
    row: tl.int64
    table: tl.int64


class MlaSizes(NamedTuple):
    """A block of the cache has `block` keys, 2^block_bits. A sequence has at most `rows` rows, heads of a token first."""

    heads: int
    tokens: int
    blocks: int
    block: int
    block_bits: int
    rows: int


@kp.jit
def load_rows(query, sequence, rows, strides, first: tl.constexpr, COUNT: tl.constexpr):
    """Returns COUNT columns of a tile of queries, from `first` on."""
    at = (sequence.token + rows.tokens).to(tl.int64) * strides.query.token + rows.heads.to(tl.int64) * strides.query.head
    return tl.load(query + at[:, None] + first + tl.arange(0, COUNT)[None, :], mask=rows.inside[:, None], other=0.0)


@kp.jit
def load_keys(row, inside, first: tl.constexpr, COUNT: tl.constexpr, EDGE: tl.constexpr):
    """Returns COUNT columns of a tile of keys, from `first` on."""
    at = row[:, None] + first + tl.arange(0, COUNT)[None, :]
    return tl.load(at, mask=inside[:, None], other=0.0) if EDGE else tl.load(at)


@kp.jit
def store_rows(out, lse, sums, sequence, rows, first_column, strides, sizes):
    """Stores the means of a tile of rows, 0 where no key counts, from `first_column` on, and with the first column the logarithms of their
    weights' sums."""
    tokens, heads = (sequence.token + rows.tokens).to(tl.int64), rows.heads.to(tl.int64)
    at = tokens * strides.out.token + heads * strides.out.head
    means = sums.values / tl.where(sums.weights == 0.0, 1.0, sums.weights)[:, None]
    columns = first_column + tl.arange(0, means.shape[1])
    tl.store(out + at[:, None] + columns[None, :], means.to(out.dtype.element_ty), mask=rows.inside[:, None])
    logs = tl.where(sums.weights == 0.0, -float("inf"), (sums.largest + tl.log2(sums.weights)) * LN_2)
    tl.store(lse + heads * sizes.tokens + tokens, logs, mask=rows.inside & (first_column == 0))


@kp.jit
def load_queries(query, sequence, rows, strides, LATENT: tl.constexpr, PIECES: tl.constexpr):
    """Returns a tile of queries to latents, in pieces of columns: products of one are short sums."""
    COUNT: tl.constexpr = LATENT // PIECES
    if PIECES == 1:
        queries = (load_rows(query, sequence, rows, strides, 0, LATENT),)
    else:
        tl.static_assert(PIECES == 4)
        queries = (
            load_rows(query, sequence, rows, strides, 0, COUNT),
            load_rows(query, sequence, rows, strides, COUNT, COUNT),
            load_rows(query, sequence, rows, strides, 2 * COUNT, COUNT),
            load_rows(query, sequence, rows, strides, 3 * COUNT, COUNT),
        )
    return queries


@kp.jit
def walk_latents(sums, queries, q_rope, pages, rows, start, stop, unit, EDGE: tl.constexpr, form):
    """Adds the keys from `start` to `stop` to the sums of a tile of rows. EDGE: some keys do not count for some rows."""
    PIECES: tl.constexpr = len(queries)
    COUNT: tl.constexpr = queries[0].shape[1]
    LATENT: tl.constexpr = PIECES * COUNT
    numbers = tl.arange(0, form.BLOCK_N)
    for n in range(start, stop, form.BLOCK_N):
        inside = n + numbers < stop
        at, _ = places(pages, n, numbers, stop, form)
        row = pages.key + at
        latent = load_keys(row, inside, 0, LATENT, EDGE)
        scores = tl.dot(q_rope, tl.trans(load_keys(row, inside, LATENT, q_rope.shape[1], EDGE)), input_precision="ieee")
        if PIECES == 1:
            scores = tl.dot(queries[0], tl.trans(latent), scores, input_precision="ieee")
        else:
            for piece in tl.static_range(PIECES):
                key = load_keys(row, inside, piece * COUNT, COUNT, EDGE)
                scores += tl.dot(queries[piece], tl.trans(key), input_precision="ieee")
        scores *= unit
        if EDGE:
            scores = tl.where((n + numbers)[None, :] <= rows.last[:, None], scores, -float("inf"))
        p, rescale, weights, largest = weighed(sums, scores)
        values = tl.dot(p.to(latent.dtype), latent, sums.values * rescale[:, None], input_precision="ieee")
        sums = Sums(weights, largest, values)
    return sums


@kp.jit
def mla_part(
    query, cache, block_table, query_starts, key_lengths, partial, weights, out, lse, strides, sizes, limits, rules, chunk,
    LATENT: tl.constexpr, ROPE: tl.constexpr, PIECES: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, PIECE: tl.constexpr,
    CHECKED: tl.constexpr, GROUPED: tl.constexpr, ROLES: tl.constexpr,
):  # fmt: skip
    """`chunk` keys, a multiple of BLOCK_N, for a block of rows of a sequence; the last part takes what is left.

    One part gives out and lse. Of several, partial [sequences, parts, rows, latent], with GROUPED [sequences, parts, latent / 8, rows, 8], gets
    sums that are not yet divided, weights [sequences, parts, rows, 2] the maximum of the scores in units of log2(e) and the sum of
    exponentials relative to it.
    """
    begin_early()
    number, part, parts = tl.program_id(1), tl.program_id(2), tl.num_programs(2)
    sequence = sequence_of(number, query_starts, key_lengths, limits, CHECKED)
    table = block_table + number.to(tl.int64) * strides.table
    if ROLES:
        results = Results(out, lse, partial, weights)
        mla_by_roles(query, cache, table, results, sequence, sizes, rules, chunk, LATENT, ROPE, PIECE)
    else:
        form: tl.constexpr = PagedForm(BLOCK_N, PIECE, False, CHECKED)
        numbers = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
        first = part * chunk
        if (tl.program_id(0) * BLOCK_M < sequence.queries * sizes.heads) & ((first < sequence.keys) | (parts == 1)):
            rows = rows_of(sequence, numbers, sizes.heads, rules)
            queries = load_queries(query, sequence, rows, strides, LATENT, PIECES)
            q_rope = load_rows(query, sequence, rows, strides, LATENT, ROPE)
            pages = Pages(
                cache, cache, table, strides.block, strides.row, strides.block, strides.row, sizes.blocks, sizes.block_bits
            )
            unit = rules.scale * LOG2_E
            stop = sequence.keys if part == parts - 1 else tl.minimum(sequence.keys, first + chunk)
            stop = tl.maximum(tl.minimum(stop, tl.max(rows.last, 0) + 1), first)
            all_see = tl.min(tl.where(rows.inside, rows.last + 1, stop), 0)
            whole = first + tl.maximum(tl.minimum(stop, all_see) - first, 0) // BLOCK_N * BLOCK_N
            sums = no_sums(BLOCK_M, LATENT)
            sums = walk_latents(sums, queries, q_rope, pages, rows, first, whole, unit, False, form)
            sums = walk_latents(sums, queries, q_rope, pages, rows, whole, stop, unit, True, form)
            if parts == 1:
                store_rows(out, lse, sums, sequence, rows, 0, strides, sizes)
            else:
                at = (number.to(tl.int64) * parts + part) * sizes.rows + numbers
                columns = tl.arange(0, LATENT)[None, :]
                places = part_at(partial, number, part, parts, numbers[:, None], columns, sizes, LATENT, GROUPED)
                tl.store(places, sums.values, mask=rows.inside[:, None])
                tl.store(weights + at * 2, sums.largest, mask=rows.inside)
                tl.store(weights + at * 2 + 1, sums.weights, mask=rows.inside)


@kp.jit
def mla_sum(
    query_starts, key_lengths, partial, weights, out, lse, strides, sizes, limits, rules, parts, chunk,
    LATENT: tl.constexpr, SPLIT: tl.constexpr, PARTS: tl.constexpr, CHECKED: tl.constexpr, GROUPED: tl.constexpr,
):  # fmt: skip
    """One of SPLIT pieces of the columns of a row of a sequence: the parts, each weighed by what its maximum is below the highest. Layouts
    are those of mla_part."""
    begin_early()
    COLUMNS: tl.constexpr = LATENT // SPLIT
    number, row, first_column = tl.program_id(1), tl.program_id(0) // SPLIT, tl.program_id(0) % SPLIT * COLUMNS
    sequence = sequence_of(number, query_starts, key_lengths, limits, CHECKED)
    if row < sequence.queries * sizes.heads:
        rows = rows_of(sequence, row + tl.arange(0, 1), sizes.heads, rules)
        columns, numbers = first_column + tl.arange(0, COLUMNS), tl.arange(0, PARTS)
        own = tl.minimum(parts, tl.cdiv(sequence.keys, chunk))
        at = (number.to(tl.int64) * parts + numbers) * sizes.rows + row
        highest = tl.full([PARTS], -float("inf"), tl.float32)
        for first in range(0, own, PARTS):
            tops = tl.load(weights + (at + first * sizes.rows) * 2, mask=first + numbers < own, other=-float("inf"))
            highest = tl.maximum(highest, tops)
        largest = tl.max(highest, 0)
        finite = tl.where(largest == -float("inf"), 0.0, largest)
        totals, values = tl.zeros([PARTS], tl.float32), tl.zeros([PARTS, COLUMNS], tl.float32)
        for first in range(0, own, PARTS):
            inside, place = first + numbers < own, at + first * sizes.rows
            tops = tl.load(weights + place * 2, mask=inside, other=-float("inf"))
            growth = tl.exp2(tops - finite)
            totals += tl.load(weights + place * 2 + 1, mask=inside, other=0.0) * growth
            places = part_at(partial, number, (first + numbers)[:, None], parts, row, columns[None, :], sizes, LATENT, GROUPED)
            tile = tl.load(places, mask=inside[:, None], other=0.0)
            values += tile * growth[:, None]
        one = tl.zeros([1], tl.float32)
        sums = Sums(tl.sum(totals, 0) + one, largest + one, tl.sum(values, 0)[None, :])
        store_rows(out, lse, sums, sequence, rows, first_column, strides, sizes)


def is_built(point):
    """Whether a variant is built: parts are not split, sums have no rows and no pieces to choose from."""
    if point.kernel == "mla_sum":
        return point["ROWS"] == 16 and point["PIECE"] == 16
    return point["SPLIT"] == 1


def cpu_config(point):
    """As paged_attention's: 16 keys are always of one block of the cache."""
    if not is_built(point) or point["SPLIT"] != 1 or point["PIECE"] != 16:
        return None
    if point.kernel == "mla_sum":
        return kp.Config({"PARTS": 16, "CHECKED": True, "GROUPED": False})
    return kp.Config({"PIECES": 4, "BLOCK_M": point["ROWS"], "BLOCK_N": 64, "CHECKED": True, "GROUPED": False, "ROLES": False})


def cuda_config(point):
    """Two groups of warps share the columns of 64 rows. The keys of a step take up to 72 kB of shared memory, and are the values, too."""
    wide = point["query"] == tl.float32
    if not is_built(point) or point["ROWS"] != 16 or (wide and point["PIECE"] != 16):
        return None
    checked, hopper = kp.knobs.runtime.debug, early(point)
    if point.kernel == "mla_sum":
        config = {"PARTS": 4 if point["SPLIT"] == 1 else 32, "CHECKED": checked, "GROUPED": True}
        return kp.Config(config, num_warps=4, specialize=False, launch_pdl=hopper)
    rows = 16 if wide else 64 if hopper else 32  # the results of 64 leave no shared memory elsewhere
    keys = 16 if wide else 64 if hopper else 32
    blocks = {"PIECES": 1, "BLOCK_M": rows, "BLOCK_N": keys, "CHECKED": checked, "GROUPED": True, "ROLES": False}
    return kp.Config(blocks, num_warps=4 if wide else 8, num_stages=2, launch_pdl=hopper)


def hopper_config(point):
    """Roles need latents in 16 bits, which TMA can address. They check nothing."""
    plain = cuda_config(point)
    roles = point.kernel == "mla_part" and point.specialized and point["query"] != tl.float32
    if plain is None or not roles or kp.knobs.runtime.debug:
        return plain
    blocks = {"PIECES": 1, "BLOCK_M": 64, "BLOCK_N": 64, "CHECKED": False, "GROUPED": True, "ROLES": True}
    return kp.Config(blocks, launch_pdl=True)


@kp.op(
    "mla_decode(Tensor query, Tensor cache, Tensor block_table, Tensor query_starts, Tensor key_lengths, *, float scale, "
    "SymInt max_query_length, SymInt max_key_length, bool causal=True, bool batch_invariant=False) -> (Tensor out, Tensor lse)",
    variants={
        "query": [tl.float32, tl.float16, tl.bfloat16],
        "cache": [kp.same_as("query")],
        "block_table": [tl.int32],
        "query_starts": [tl.int32],
        "key_lengths": [tl.int32],
        "SPLIT": [1, 4],  # over how many programs the sum of a row's parts goes
        "ROWS": [16, 64],  # of a block on CPUs
        "PIECE": [16, 64],  # so many keys are of one block of the cache; 64 on GPUs, in 16 bits
    },
    configs={"cpu": cpu_config, "cuda": cuda_config, "cuda:sm_90a": hopper_config},
    specialize=[kp.aligned("query", "cache")],
)
def mla_decode(
    query, cache, block_table, query_starts, key_lengths, scale, max_query_length, max_key_length, causal, batch_invariant,
):  # fmt: skip
    """Attention of decoding rows to latent vectors that all heads share, in blocks of a cache: multi-head latent attention in its absorbed
    form (DeepSeek-V2, 2024), in parts (Flash-Decoding; Dao, Haziza, Massa and Sizov, 2023).

    query [T, H, 576] holds the tokens of S sequences one after the other: those from query_starts[i] to query_starts[i + 1]
    (query_starts [S + 1] int32, ascending) are the last ones of sequence i, which has key_lengths[i] keys (key_lengths [S] int32, those of
    the queries included). Its first 512 columns are queries multiplied by the keys' up-projection, the other 64 those with rotary
    embedding. cache [blocks, block size, 576] has the query's dtype; a row is the key of all heads, its first 512 columns their value; the
    block size is a power of two from 16 on. Key j of sequence i is row j % block size of block block_table[i, j // block size]
    (block_table [S, columns] int32).

    Scores are products times `scale`, which is that of the model's heads: (128 + 64) ** -0.5 in DeepSeek's, times what its rotary
    embedding adds. causal: a query sees keys up to its own, counted from the last.

    No sequence may have more than max_query_length queries or max_key_length keys. They decide, without a look at tensors, what is
    launched, so that a captured graph is right for all lengths up to them. batch_invariant: a sequence's result has the same bits
    whatever else is in the batch.

    Returns out [T, H, 512] in the query's dtype, and lse [H, T] float32, the natural logarithm of the sum of the exponentials of a query's
    scores. A query that sees no key gives 0, and -inf. Tokens of no sequence are left as they are. On CPUs lengths and blocks
    that point outside of what they index raise an error; on GPUs with KERNELPACK_DEBUG=1.
    """
    kp.check(query.dim() == 3, f"query must have 3 dimensions (tokens, heads, 576), its shape is {query.shape}")
    kp.check(cache.dim() == 3, f"cache must have 3 dimensions (blocks, block size, 576), its shape is {cache.shape}")
    check_contiguous(query, "query")
    check_contiguous(cache, "cache")
    width = LATENT + ROPE
    kp.check(
        query.shape[2] == width, f"query has rows of {query.shape[2]} elements, expected {width}: 512 of the latent, 64 of rope"
    )
    kp.check(
        cache.shape[2] == width, f"cache has rows of {cache.shape[2]} elements, expected {width}: 512 of the latent, 64 of rope"
    )
    tokens, heads, blocks, block_size = query.shape[0], query.shape[1], cache.shape[0], cache.shape[1]
    sequences = key_lengths.shape[0] if key_lengths.dim() > 0 else 0
    check_block_size(block_size, "cache")
    kp.check(blocks < 2**31, f"cache has {blocks} blocks, which int32 cannot count")
    check_numbers(key_lengths, "key_lengths", sequences, "one for each sequence")
    check_numbers(query_starts, "query_starts", sequences + 1, "one for each sequence of key_lengths, and the end")
    check_table(block_table, sequences)
    kp.check(max_query_length >= 0, f"max_query_length is {max_query_length}, expected 0 or more")
    kp.check(max_key_length >= 0 and max_key_length <= 2**25, f"max_key_length is {max_key_length}, expected 0 ... 2**25")
    kp.check(tokens * heads < 2**30, f"query has {tokens} tokens of {heads} heads, more than 2**30 rows")
    kp.check(sequences < 2**16, f"key_lengths has {sequences} sequences, at most 65535 are supported")
    out = kp.empty((tokens, heads, LATENT), query.dtype, query.device)
    lse = kp.empty((heads, tokens), tl.float32, query.device)
    rows = max_query_length * heads
    block = 64 if query.is_cuda or heads >= MANY_HEADS else 16
    chunk, split = CHUNK, 1
    if not batch_invariant:
        programs = kp.cdiv(rows, block) * sequences
        if query.is_cuda:  # a program more than multiprocessors would take as long as all others
            share = kp.cdiv(max_key_length, max(PROGRAMS // max(programs, 1), 1))
        else:
            share = kp.cdiv(max_key_length * programs, 4 * kp.num_threads())
        chunk = max(FEWEST, kp.cdiv(share, 64) * 64)
        if query.is_cuda and rows * sequences <= FEW_ROWS:
            split = 4
    parts = max(kp.cdiv(max_key_length, chunk), 1)
    shared = parts if parts > 1 else 0
    partial = kp.empty((sequences, shared, rows, LATENT), tl.float32, query.device)
    weights = kp.empty((sequences, shared, rows, 2), tl.float32, query.device)
    strides = MlaStrides(
        RowStrides(query.stride(0), query.stride(1)), RowStrides(out.stride(0), out.stride(1)),
        cache.stride(0), cache.stride(1), block_table.stride(0),
    )  # fmt: skip
    sizes = MlaSizes(heads, tokens, blocks, block_size, int(math.log2(block_size)), rows)
    limits = Limits(tokens, max_query_length, max_key_length, min(block_table.shape[1] * block_size, 2**30))
    rules = Rules(causal, 0, 0.0, scale)
    if rows > 0 and tokens > 0:
        mla_part[lambda meta: (kp.cdiv(rows, meta["BLOCK_M"]), sequences, parts)](
            query, cache, block_table, query_starts, key_lengths, partial, weights, out, lse, strides, sizes, limits, rules, chunk,
            LATENT=LATENT, ROPE=ROPE, SPLIT=1, ROWS=16 if query.is_cuda else block,
            PIECE=64 if query.is_cuda and query.element_size() == 2 and block_size >= 64 else 16,
        )  # fmt: skip
        if parts > 1:
            mla_sum[(rows * split, sequences)](
                query_starts, key_lengths, partial, weights, out, lse, strides, sizes, limits, rules, parts, chunk, LATENT=LATENT, SPLIT=split,
                ROWS=16, PIECE=16,
            )  # fmt: skip
    return out, lse


def reference(
    query, cache, block_table, query_starts, key_lengths, *, scale, max_query_length, max_key_length, causal=True, batch_invariant=False,
):  # fmt: skip
    """The same by paged_attention's reference: one key head, whose values are the first columns of its keys."""
    return paged_reference(
        query, cache[:, :, None], cache[:, :, None, :LATENT], block_table, query_starts, key_lengths, max_query_length=max_query_length,
        max_key_length=max_key_length, causal=causal, scale=scale,
    )  # fmt: skip
