"""One pass of attention over keys: what blocks of queries, and programs that share a head's keys, have in common."""

from typing import NamedTuple

import kernelpack as kp
import kernelpack.language as tl

from ._exponents import LOG2_E, line_of, power_below


class Strides(NamedTuple):
    """Strides of a tensor in elements, along batches, heads and rows: queries, keys or values."""

    batch: tl.int64
    head: tl.int64
    row: tl.int64


class MaskStrides(NamedTuple):
    """Those of a mask, whose rows are queries and whose columns are keys."""

    batch: tl.int64
    head: tl.int64
    row: tl.int64
    column: tl.int64


class Sizes(NamedTuple):
    """`group` query heads share a key head; `heads` are those of queries."""

    batches: int
    heads: int
    group: int
    queries: int
    keys: int
    head_dim: int
    value_dim: int


class Source(NamedTuple):
    """The keys and values of one head, and the mask of its queries: the numbers of a block's keys, where keys begin, and how far apart
    their rows lie."""

    numbers: tl.tensor
    key: tl.tensor
    value: tl.tensor
    mask: tl.tensor
    key_step: tl.int64
    value_step: tl.int64
    mask_row: tl.int64
    mask_column: tl.int64


class Form(NamedTuple):
    """What is known at compile time. TRIANGLE: query i sees keys up to i + diagonal. BY_STRIDE: masks have code for each way in which they
    may lie. ANY_SCALE: without a mask, too, the scale may be no positive number."""

    TRIANGLE: tl.constexpr
    BLOCK_N: tl.constexpr
    BY_STRIDE: tl.constexpr
    ANY_SCALE: tl.constexpr


class Sums(NamedTuple):
    """What is summed up of a block of queries: weights, and values times weights, both relative to the largest score so far."""

    weights: tl.tensor
    largest: tl.tensor
    values: tl.tensor


def strides_of(x):
    """Returns the Strides of a tensor, in a host function; without batches theirs is 0."""
    return Strides(x.stride(0) if x.dim() == 4 else 0, x.stride(-3), x.stride(-2))


@kp.jit
def no_sums(ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Returns the sums of no keys."""
    values = tl.zeros([ROWS, COLUMNS], tl.float32)
    weights = tl.zeros([ROWS], tl.float32)
    largest = tl.full([ROWS], -float("inf"), tl.float32)
    return Sums(weights, largest, values)


@kp.jit
def load_bias(pointers, counts):
    """Loads what a mask adds to scores: a bool mask's False is -inf."""
    loaded = tl.load(pointers, mask=counts)
    if pointers.dtype.element_ty == tl.int1:
        bias = tl.where(loaded, 0.0, -float("inf"))
    else:
        bias = loaded.to(tl.float32)
    return bias


@kp.jit
def mask_bias(source, rows, columns, in_rows, in_columns, BY_STRIDE: tl.constexpr):
    """Loads a block of the mask. BY_STRIDE has code of its own for masks that are the same for all queries, and for those that
    are contiguous along the keys: CPUs otherwise gather, element by element."""
    inside = in_rows[:, None] & in_columns[None, :]
    mask, row_step, column_step = source.mask, source.mask_row, source.mask_column
    if BY_STRIDE:
        if row_step == 0:
            bias = load_bias(mask + columns * column_step, in_columns)[None, :] + tl.zeros_like(rows).to(tl.float32)[:, None]
        elif column_step == 1:
            bias = load_bias(mask + rows[:, None] * row_step + columns[None, :], inside)
        else:
            bias = load_bias(mask + rows[:, None] * row_step + columns[None, :] * column_step, inside)
    else:
        bias = load_bias(mask + rows[:, None] * row_step + columns[None, :] * column_step, inside)
    return bias


@kp.jit
def weigh(scores, sums, unit, BOUNDED: tl.constexpr):
    """One step of the online softmax (Milakov and Gimelshein, 2018): the weights of new scores, what sums so far are multiplied by, and the
    sums of weights and the maxima with them. Weights are powers of 2 to a score times `unit`. BOUNDED: none is above 1, as the largest
    value of float32 asks; otherwise rounding the shift may add to them."""
    largest = tl.maximum(sums.largest, tl.max(scores, axis=1))
    # the maximum of keys that do not count, or whose products are -inf, is -inf; their exponentials must be 0, not NaN
    finite = tl.where(largest == -float("inf"), 0.0, largest)
    factor, shift = line_of(finite, unit, power_below(unit))
    if BOUNDED:
        shift = tl.fma(tl.abs(shift), -(2.0**-23), shift)
    weights = tl.exp2(tl.fma(scores, factor[:, None], shift[:, None]))
    rescale = tl.exp2((sums.largest - finite) * unit)  # 1 where the maximum stays
    return weights, rescale, sums.weights * rescale + tl.sum(weights, axis=1), largest


@kp.jit
def both(counts, inside, EDGE: tl.constexpr):
    """Returns the mask of a tile: where it is inside and, with EDGE, counts."""
    return counts & inside if EDGE else inside


@kp.jit
def attend(sums, q, source, rows, start, stop, sizes, scale, diagonal, EDGE: tl.constexpr, form):
    """Adds the keys from `start` to `stop` to the sums of a block of queries: `q`, of the numbers `rows`. EDGE: some keys do not count for
    some queries; with TRIANGLE also those more than `diagonal` after a query's own number."""
    # float32 on tensor cores computes more in the same time, and takes longer for one block: few queries are bound by latency
    PRECISION: tl.constexpr = "tf32x3" if q.shape[0] >= 64 else "ieee"
    offs_n, offs_d = source.numbers, tl.arange(0, q.shape[1])
    k_tile = source.key + offs_n[None, :] * source.key_step + offs_d[:, None]
    v_tile = source.value + offs_n[:, None] * source.value_step + offs_d[None, :]
    for n in range(start, stop, form.BLOCK_N):
        columns = n + offs_n
        inside = columns < sizes.keys
        k_offset = n.to(tl.int64) * source.key_step
        k = tl.load(k_tile + k_offset, mask=both(inside[None, :], offs_d[:, None] < sizes.head_dim, EDGE), other=0.0)
        scores = tl.dot(q, k, input_precision=PRECISION)
        if source.mask is not None:
            scores = scores * scale + mask_bias(source, rows, columns, rows < sizes.queries, inside, form.BY_STRIDE)
        elif form.ANY_SCALE:
            scores *= scale
        if EDGE:
            counts = inside[None, :]
            if form.TRIANGLE:
                counts = counts & (rows[:, None] >= columns[None, :] - diagonal)
            scores = tl.where(counts, scores, -float("inf"))
        unit = LOG2_E if source.mask is not None or form.ANY_SCALE else scale * LOG2_E
        p, rescale, weights, largest = weigh(scores, sums, unit, q.dtype == tl.float32)
        v_offset = n.to(tl.int64) * source.value_step
        v = tl.load(v_tile + v_offset, mask=both(inside[:, None], offs_d[None, :] < sizes.value_dim, EDGE), other=0.0)
        values = tl.dot(p.to(v.dtype), v, sums.values * rescale[:, None], input_precision=PRECISION)
        sums = Sums(weights, largest, values)
    return sums


@kp.jit
def mean_of(sums):
    """Returns the mean of values by their weights; 0 where no key counts."""
    return sums.values / tl.where(sums.weights == 0.0, 1.0, sums.weights)[:, None]
