"""One pass of attention over keys: what blocks of queries, and programs that share a head's keys, have in common."""

import kernelpack as kp
import kernelpack.language as tl

from ._exponents import LOG2_E, line_of, power_below


def strides_of(x):
    """Returns the strides of batches, heads and rows, in a host function; without batches theirs is 0."""
    return x.stride(0) if x.dim() == 4 else 0, x.stride(-3), x.stride(-2)


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
def mask_bias(mask, rows, columns, in_rows, in_columns, stride_mm, stride_mn, BY_STRIDE: tl.constexpr):
    """Loads a block of the mask. BY_STRIDE has code of its own for masks that are the same for all queries, and for those that
    are contiguous along the keys: CPUs otherwise gather, element by element."""
    inside = in_rows[:, None] & in_columns[None, :]
    if BY_STRIDE:
        if stride_mm == 0:
            bias = load_bias(mask + columns * stride_mn, in_columns)[None, :] + tl.zeros_like(rows).to(tl.float32)[:, None]
        elif stride_mn == 1:
            bias = load_bias(mask + rows[:, None] * stride_mm + columns[None, :], inside)
        else:
            bias = load_bias(mask + rows[:, None] * stride_mm + columns[None, :] * stride_mn, inside)
    else:
        bias = load_bias(mask + rows[:, None] * stride_mm + columns[None, :] * stride_mn, inside)
    return bias


@kp.jit
def weigh(scores, row_sum, row_max, unit, BOUNDED: tl.constexpr):
    """One step of the online softmax (Milakov and Gimelshein, 2018): weights, what sums so far are multiplied by, and the new sum and
    maximum of each row. Weights are powers of 2 to a score times `unit`. BOUNDED: none is above 1, as the largest value of float32
    asks; otherwise rounding the shift may add to them."""
    new_max = tl.maximum(row_max, tl.max(scores, axis=1))
    # the maximum of keys that do not count, or whose products are -inf, is -inf; their exponentials must be 0, not NaN
    finite_max = tl.where(new_max == -float("inf"), 0.0, new_max)
    factor, shift = line_of(finite_max, unit, power_below(unit))
    if BOUNDED:
        shift = tl.fma(tl.abs(shift), -(2.0**-23), shift)
    weights = tl.exp2(tl.fma(scores, factor[:, None], shift[:, None]))
    rescale = tl.exp2((row_max - finite_max) * unit)  # 1 where the maximum stays
    return weights, rescale, row_sum * rescale + tl.sum(weights, axis=1), new_max


@kp.jit
def attend(
    acc, row_sum, row_max, q, key, value, mask, offs_m, offs_n, offs_d,
    stride_kn, stride_vn, stride_mm, stride_mn,
    start, stop, queries, keys, head_dim, value_dim, scale, diagonal,
    TRIANGLE: tl.constexpr, EDGE: tl.constexpr, BLOCK_N: tl.constexpr, BY_STRIDE: tl.constexpr, ANY_SCALE: tl.constexpr,
):  # fmt: skip
    """Adds the keys from `start` to `stop` to a block of queries. EDGE: some of them do not count for some queries; with TRIANGLE also
    those more than `diagonal` behind a query's own number. Without a mask and ANY_SCALE, `scale` is positive."""
    # float32 on tensor cores computes more in the same time, and takes longer for one block: few queries are bound by latency
    PRECISION: tl.constexpr = "tf32x3" if q.shape[0] >= 64 else "ieee"
    k_tile = key + offs_n[None, :] * stride_kn + offs_d[:, None]
    v_tile = value + offs_n[:, None] * stride_vn + offs_d[None, :]
    for n in range(start, stop, BLOCK_N):
        columns = n + offs_n
        inside = columns < keys
        if EDGE:
            k = tl.load(k_tile + n.to(tl.int64) * stride_kn, mask=inside[None, :] & (offs_d[:, None] < head_dim), other=0.0)
        else:
            k = tl.load(k_tile + n.to(tl.int64) * stride_kn, mask=offs_d[:, None] < head_dim, other=0.0)
        scores = tl.dot(q, k, input_precision=PRECISION)
        if mask is not None:
            scores = scores * scale + mask_bias(
                mask, offs_m, columns, offs_m < queries, inside, stride_mm, stride_mn, BY_STRIDE
            )
        elif ANY_SCALE:
            scores *= scale
        if EDGE:
            counts = inside[None, :]
            if TRIANGLE:
                counts = counts & (offs_m[:, None] >= columns[None, :] - diagonal)
            scores = tl.where(counts, scores, -float("inf"))
        unit = LOG2_E if mask is not None or ANY_SCALE else scale * LOG2_E
        p, rescale, row_sum, row_max = weigh(scores, row_sum, row_max, unit, q.dtype == tl.float32)
        if EDGE:
            v = tl.load(v_tile + n.to(tl.int64) * stride_vn, mask=inside[:, None] & (offs_d[None, :] < value_dim), other=0.0)
        else:
            v = tl.load(v_tile + n.to(tl.int64) * stride_vn, mask=offs_d[None, :] < value_dim, other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc * rescale[:, None], input_precision=PRECISION)
    return acc, row_sum, row_max
