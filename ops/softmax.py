"""softmax over the last dimension, with the meaning of torch.softmax."""

import kernelpack as kp
import kernelpack.language as tl

from ._rows import (
    DTYPES,
    ROW_RANGES,
    WHOLE_ROWS,
    RowStrides,
    check_rows,
    grid_of,
    own_rows,
    row_config,
    row_offset,
    rows_of,
    whole_row,
)  # fmt: skip

RANGES = ROW_RANGES

LOG2E = tl.constexpr(1.4426950408889634)

SAFE = tl.constexpr(2.0**16)
"""Up to such a maximum, what rounding adds to its product with LOG2E is small beside 1."""

HEADS = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
"""How many elements at the beginning of a row may stay in a tile."""


@kp.jit
def power_of(value, peak, FAR: tl.constexpr):
    """Returns exp(value - peak), times what is the same for all values. FAR: for any maximum, whose product with LOG2E may overflow;
    rounding may add more to it than an exponent holds."""
    return tl.exp2((value - peak) * LOG2E if FAR else tl.fma(value, LOG2E, -peak * LOG2E))


@kp.jit
def is_far(peak):
    """Returns whether a maximum is too large, or no number, to be multiplied before it is subtracted."""
    return not tl.abs(peak) < SAFE


@kp.jit
def softmax_row(source, target, columns, WHOLE: tl.constexpr):
    """Softmax of a row in one tile of WHOLE elements."""
    offsets = tl.arange(0, WHOLE)
    inside = offsets < columns
    value = tl.load(source + offsets, mask=inside, other=-float("inf")).to(tl.float32)
    power = power_of(value, tl.max(value, axis=0), True)  # reading the row takes longer
    tl.store(target + offsets, power * (1.0 / tl.sum(power, axis=0)), mask=inside)


@kp.jit
def softmax_in_blocks(source, target, columns, HEAD: tl.constexpr, BLOCK: tl.constexpr, EXP_BOUND: tl.constexpr):
    """Softmax of a row that is read three times in blocks: for the maximum, for the sum of exponentials, for the result."""
    largest = tl.full([BLOCK], -float("inf"), tl.float32)
    for begin in range(HEAD, columns, BLOCK):
        offsets = begin + tl.arange(0, BLOCK)
        value = tl.load(source + offsets, mask=offsets < columns, other=-float("inf")).to(tl.float32)
        largest = tl.where(value > largest, value, largest)  # skips NaN, which the sum brings back
    peak = tl.max(largest, axis=0)
    if HEAD:
        head = tl.load(source + tl.arange(0, HEAD)).to(tl.float32)
        peak = tl.maximum(peak, tl.max(head, axis=0))
    if not EXP_BOUND or is_far(peak):
        weigh_blocks(source, target, columns, peak, HEAD, BLOCK, EXP_BOUND, True)
    else:
        weigh_blocks(source, target, columns, peak, HEAD, BLOCK, EXP_BOUND, False)


@kp.jit
def weigh_blocks(
    source, target, columns, peak, HEAD: tl.constexpr, BLOCK: tl.constexpr, EXP_BOUND: tl.constexpr, FAR: tl.constexpr
):
    """Writes the softmax of a row whose maximum is known. FAR: see power_of.

    EXP_BOUND: exponentials are the cost, not memory. Those of the row's first HEAD elements stay in a tile. Those of the others wait in
    the output, if it is float32, or else they are computed twice.
    """
    keep: tl.constexpr = EXP_BOUND and target.dtype.element_ty == tl.float32
    total = tl.zeros([BLOCK], tl.float32)
    for begin in range(HEAD, columns, BLOCK):
        offsets = begin + tl.arange(0, BLOCK)
        inside = offsets < columns
        value = tl.load(source + offsets, mask=inside, other=-float("inf")).to(tl.float32)
        power = power_of(value, peak, FAR)
        total += tl.where(inside, power, 0.0)  # nothing is left to do after the end of the row
        if keep:
            tl.store(target + offsets, power, mask=inside)
    whole = tl.sum(total, axis=0)
    if HEAD:
        head = power_of(tl.load(source + tl.arange(0, HEAD)).to(tl.float32), peak, FAR)
        whole += tl.sum(head, axis=0)
    scale = 1.0 / whole
    if HEAD:
        tl.store(target + tl.arange(0, HEAD), head * scale)
    for begin in range(HEAD, columns, BLOCK):
        offsets = begin + tl.arange(0, BLOCK)
        inside = offsets < columns
        if keep:
            power = tl.load(target + offsets, mask=inside)
        else:
            value = tl.load(source + offsets, mask=inside, other=0.0).to(tl.float32)
            power = power_of(value, peak, FAR)
        tl.store(target + offsets, power * scale, mask=inside)


@kp.jit
def softmax_kernel(
    x, out, strides, rows, WHOLE: tl.constexpr, HEAD: tl.constexpr, BLOCK: tl.constexpr, EXP_BOUND: tl.constexpr
):
    """Softmax of one row in a tile of WHOLE elements or, where WHOLE is 0, of a program's rows in blocks of BLOCK."""
    if WHOLE:
        row = tl.program_id(0).to(tl.int64)  # a program's only one: a loop would take registers
        softmax_row(x + row_offset(row, rows, strides), out + row * rows.columns, rows.columns, WHOLE)
    else:
        first, stop = own_rows(rows)
        for row in range(first, stop):
            source = x + row_offset(row, rows, strides)
            softmax_in_blocks(source, out + row * rows.columns, rows.columns, HEAD, BLOCK, EXP_BOUND)


def config(point):
    if point.target.backend == "cpu":
        head = point["HEAD"] == 0 or point["x"] != tl.float32
        return kp.Config({"BLOCK": 64, "EXP_BOUND": True}) if head and point["WHOLE"] == 0 else None
    return row_config(point, more={"EXP_BOUND": False}) if point["HEAD"] == 0 else None


def head_of(x):
    """Returns how many elements of each row stay in a tile: the largest of HEADS that a row fills, where that pays."""
    head = 0
    if not x.is_cuda and x.element_size() < 4 and x.shape[-1] >= HEADS[0]:
        head = min(kp.next_power_of_2(x.shape[-1] // 2 + 1), HEADS[-1])
    return head


@kp.op(
    "softmax(Tensor x, int dim=-1) -> Tensor",
    variants={"x": DTYPES, "WHOLE": (0, *WHOLE_ROWS), "HEAD": (0, *HEADS)},
    configs={"": config},
    specialize=[kp.aligned(inner=8)],
)
def softmax(x, dim):
    """Returns exp(x) / sum(exp(x)) along `dim`, which must be the last dimension, in x's shape and dtype."""
    check_rows(x, "x")
    kp.check(dim == -1 or dim == x.dim() - 1, f"dim is {dim}, expected the last dimension of x: -1")
    out = kp.empty_like(x)
    sizes, strides = kp.collapse_rows(x, ndims=3)
    rows = rows_of(x, sizes)
    softmax_kernel[grid_of(rows)](x, out, RowStrides(*strides), rows, WHOLE=whole_row(x), HEAD=head_of(x))
    return out


def reference(x, dim=-1):
    """The same with torch, in any float dtype."""
    import torch  # builds do without it

    return torch.softmax(x, dim)
