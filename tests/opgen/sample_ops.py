"""Ops that the tests build: each exercises one part of what a host function can say."""

import enum
import math
from typing import NamedTuple

import torch

import kernelpack as kp
import kernelpack.language as tl


class Rounding(enum.IntEnum):
    NONE = 0
    UP = 1


@kp.jit
def scale_kernel(x, bias, out, n, factor, BLOCK: tl.constexpr, NEGATE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    value = tl.load(x + offsets, mask=mask).to(tl.float32) * factor
    if bias is not None:
        value += tl.load(bias + offsets, mask=mask).to(tl.float32)
    if NEGATE:
        value = -value
    tl.store(out + offsets, value, mask=mask)


def launch_scale(x, bias, out, factor, negate):
    """A launch in a function of its own, which leaves BLOCK to the config of the op."""
    n = x.numel()
    scale_kernel[lambda meta: (kp.cdiv(n, meta["BLOCK"]),)](x, bias, out, n, factor, NEGATE=negate)


@kp.op(
    "scale(Tensor x, Tensor? bias=None, *, float? factor=None, bool negate=False) -> Tensor",
    variants={"x": [tl.float32, tl.float16], "NEGATE": [False, True]},
    configs={"cpu": kp.Config({"BLOCK": 1024}), "cuda": kp.Config({"BLOCK": 512}, num_warps=2)},
)
def scale(x, bias, *, factor, negate):
    kp.check(x.is_contiguous(), f"x must be contiguous, its strides are {x.stride()}")
    if bias is not None:
        kp.check(bias.shape == x.shape, f"bias has shape {bias.shape}, x has {x.shape}")
        kp.check(bias.is_contiguous(), "bias must be contiguous")
    if factor is None:
        factor = 2.0
    out = kp.empty_like(x)
    launch_scale(x, bias, out, factor, negate)
    return out


@kp.jit
def row_sum_kernel(x, out, outer_stride: tl.int64, row_stride: tl.int64, rows, columns, BLOCK: tl.constexpr):
    base = x + tl.program_id(1) * outer_stride + tl.program_id(0) * row_stride
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, columns, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        total += tl.load(base + offsets, mask=offsets < columns, other=0.0).to(tl.float32)
    tl.store(out + tl.program_id(1) * rows + tl.program_id(0), tl.sum(total, axis=0))


@kp.jit
def small_row_sum_kernel(x, out, outer_stride, row_stride, rows, columns, WIDTH: tl.constexpr):
    base = x + tl.program_id(1).to(tl.int64) * outer_stride + tl.program_id(0).to(tl.int64) * row_stride
    offsets = tl.arange(0, WIDTH)
    value = tl.load(base + offsets, mask=offsets < columns, other=0.0).to(tl.float32)
    tl.store(out + tl.program_id(1) * rows + tl.program_id(0), tl.sum(value, axis=0))


@kp.op(
    "row_sum(Tensor x) -> Tensor",
    variants={"x": [tl.float32, tl.bfloat16], "WIDTH": [16, 64]},
    configs={"cpu": kp.Config({"BLOCK": 256}), "cuda": kp.Config({"BLOCK": 256})},
)
def row_sum(x):
    """Any rank; two kernels, of which the size chooses one, and a scratch tensor that only one branch has."""
    kp.check(x.dim() >= 1, "x must have at least one dimension")
    kp.check(x.stride(-1) == 1 or x.shape[-1] <= 1, f"the last dimension of x must be contiguous, its stride is {x.stride(-1)}")
    out = kp.empty(x.shape[:-1], torch.float32, x.device)
    (outer, rows), (outer_stride, row_stride) = kp.collapse_rows(x, ndims=2)
    columns = x.shape[-1]
    if columns <= 64:
        scratch = kp.empty((columns + 1,), torch.float32, x.device)
        kp.check(scratch.numel() == columns + 1, "scratch")
        small_row_sum_kernel[(rows, outer)](x, out, outer_stride, row_stride, rows, columns, WIDTH=16 if columns <= 16 else 64)
    else:
        row_sum_kernel[(rows, outer)](x, out, outer_stride, row_stride, rows, columns)
    return out


@kp.jit
def add_kernel(x, y, out, n, m, sx0, sx1, sy0, sy1, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n * m
    row, column = offsets // m, offsets % m
    value = tl.load(x + row * sx0 + column * sx1, mask=mask) + tl.load(y + row * sy0 + column * sy1, mask=mask)
    tl.store(out + offsets, value, mask=mask)


@kp.op(
    "broadcast_add(Tensor x, Tensor y) -> Tensor",
    variants={"x": [tl.float32, tl.int32]},
    configs={"": kp.Config({"BLOCK": 128})},
)
def broadcast_add(x, y):
    n, m = x.shape
    kp.check(m == 0 or n % m >= 0, "what Python does not evaluate, C++ and fakes do not either")
    out = kp.empty_like(x)
    sx0, sx1 = x.stride()
    sy0, sy1 = kp.broadcast_strides(y, (n, m))
    add_kernel[(kp.cdiv(n * m, 128),)](x, y if n * m > 0 else x, out, n, m, sx0, sx1, sy0, sy1)
    return out


class Steps(NamedTuple):
    """Strides of a matrix, and a tensor that counts for it."""

    row: tl.int64
    column: tl.int64
    factors: tl.tensor = None


class Extent(NamedTuple):
    rows: int
    columns: int


@kp.jit
def weighed_row(x, steps, row, extent, BLOCK: tl.constexpr):
    """A row of x times its factors, where there are any."""
    at = tl.arange(0, BLOCK)
    inside = at < extent.columns
    value = tl.load(x + row * steps.row + at * steps.column, mask=inside, other=0.0).to(tl.float32)
    if steps.factors is not None:
        value *= tl.load(steps.factors + at, mask=inside, other=0.0).to(tl.float32)
    return value


@kp.jit
def weighed_sum_kernel(tensors, out, steps, extent, BLOCK: tl.constexpr):
    """The sum of two rows, each of a matrix with factors of its own: tuples in tuples, of tensors and of numbers."""
    row = tl.program_id(0)
    left = weighed_row(tensors[0], steps[0], row, extent, BLOCK)
    right = weighed_row(tensors[1], steps[1], row, extent, BLOCK)
    at = tl.arange(0, BLOCK)
    tl.store(out + row.to(tl.int64) * extent.columns + at, (left + right).to(out.dtype.element_ty), mask=at < extent.columns)


def steps_of(x, factors):
    return Steps(x.stride(0), x.stride(1), factors)


@kp.op(
    "weighed_sum(Tensor x, Tensor y, Tensor? factors=None) -> Tensor",
    variants={"x": [tl.float32, tl.float16], "factors": [None, tl.float32]},
    configs={"": kp.fastest([kp.Config({"BLOCK": 64}), kp.Config({"BLOCK": 128})], key=["extent.rows"])},
    specialize=[kp.aligned(ones=["steps.0.column", "steps.1.column"])],
)
def weighed_sum(x, y, factors):
    """Arguments that travel together are one."""
    rows, columns = x.shape
    kp.check(y.shape == x.shape, f"y has shape {y.shape}, x has {x.shape}")
    extent = Extent(columns=columns, rows=rows)
    kp.check(extent.columns <= 64, f"x has {extent.columns} columns, at most 64")
    out = kp.empty((rows, columns), x.dtype, x.device)
    if x.is_cuda:
        steps = (Steps(x.stride(0), x.stride(1)), steps_of(y, factors))
    else:
        steps = (steps_of(x, None), steps_of(y, factors))
    weighed_sum_kernel[(extent.rows,)]((x, y), out, steps, extent)
    return out


@kp.jit
def minmax_kernel(x, low, high, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    value = tl.load(x + tl.program_id(0) * n + offsets, mask=offsets < n)
    tl.store(low + tl.program_id(0), tl.min(tl.where(offsets < n, value, float("inf")), axis=0))
    tl.store(high + tl.program_id(0), tl.max(tl.where(offsets < n, value, -float("inf")), axis=0))


@kp.op("minmax(Tensor x) -> (Tensor low, Tensor high)", variants={"x": [tl.float32], "BLOCK": [64, 1024]})
def minmax(x):
    m, n = x.shape
    kp.check(x.is_contiguous(), "x must be contiguous")
    low = kp.empty((m,), x.dtype, x.device)
    high = kp.empty((m,), x.dtype, x.device)
    minmax_kernel[(m,)](x, low, high, n, BLOCK=64 if n <= 64 else max(kp.next_power_of_2(n), 1024))
    return low, high


@kp.jit
def increment_kernel(x, n, amount, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + offsets, tl.load(x + offsets, mask=offsets < n) + amount, mask=offsets < n)


@kp.op("increment(Tensor(a!) x, int amount=1) -> ()", variants={"x": [tl.int32, tl.int64, tl.float32]})
def increment(x, amount):
    kp.check(x.is_contiguous(), "x must be contiguous")
    increment_kernel[(kp.cdiv(x.numel(), 64),)](x, x.numel(), amount, BLOCK=64)


@kp.jit(debug=True)
def count_down_kernel(x, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + offsets, mask=offsets < n, other=1)
    tl.device_assert(value > 0, "100% of x must be positive")
    tl.store(x + offsets, value - 1, mask=offsets < n)


@kp.op("count_down(Tensor(a!) x) -> ()", variants={"x": [tl.int32]})
def count_down(x):
    kp.check(x.is_contiguous(), "x must be contiguous")
    count_down_kernel[(kp.cdiv(x.numel(), 64),)](x, x.numel(), BLOCK=64)


@kp.jit
def fill_kernel(out, n, low: tl.uint8, high: tl.uint16, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, high - low, mask=offsets < n)


@kp.op(
    "fresh(Tensor like, SymInt[] shape, ScalarType? dtype=None, float[] values=[], Device? device=None) -> (Tensor, SymInt, float)",
    variants={"like": [tl.float32]},
)
def fresh(like, shape, dtype, values, device):
    """Arguments that are no tensors: lists, a device, a dtype that a branch decides, results that are numbers."""
    kind = like.dtype if dtype is None else dtype
    place = like.device if device is None else device
    kp.check(kind == torch.float32 or kind == torch.int64, f"no {kind} here")
    total = 0.5
    for i in range(len(values)):
        total += values[i]
    count = math.prod(shape) * 2
    if kind == torch.float32:
        out = kp.empty((*shape, 2), torch.float32, place)
        fill_kernel[(kp.cdiv(count, 64),)](out, count, 255, 262, BLOCK=64)
    else:
        out = kp.empty((*shape, 2), torch.int64, place)
        fill_kernel[(kp.cdiv(count, 64),)](out, count, 255, 262, BLOCK=64)
    return out, count, total


@kp.op(
    "every(Tensor like, int[2] pair, bool[] flags, SymInt n, SymInt? m, int? i, bool? b, ScalarType dtype, Device device)"
    " -> (Tensor, int)",
    variants={"like": [tl.float32]},
)
def every(like, pair, flags, n, m, i, b, dtype, device):
    """The types of arguments that `fresh` has not."""
    kp.check(dtype == torch.float32, f"dtype is {dtype}")
    total = pair[0] + 10 * pair[1]
    for place in range(len(flags)):
        if flags[place]:
            total += 100 << place
    if m is not None:
        total += 1000 * m
    if i is not None:
        total += 10000 * i
    if b is not None and b:
        total += 100000
    out = kp.empty((n,), torch.float32, device)
    fill_kernel[(kp.cdiv(n, 64),)](out, n, 255, 262, BLOCK=64)
    return out, total


@kp.op("increment_given(Tensor x, Tensor(a!)? y) -> ()", variants={"x": [tl.int32], "y": [tl.int32, None]})
def increment_given(x, y):
    """Writes to an argument that may be absent."""
    if y is not None:
        kp.check(y.is_contiguous(), "y must be contiguous")
        increment_kernel[(kp.cdiv(y.numel(), 64),)](y, y.numel(), x.numel(), BLOCK=64)


@kp.jit
def copy_and_count_kernel(x, out, count, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * n
    offsets = tl.arange(0, BLOCK)
    tl.store(out + row + offsets, tl.load(x + row + offsets, mask=offsets < n), mask=offsets < n)
    if count is not None:
        tl.atomic_add(count, 1)


@kp.op("copy_and_count(Tensor x, Tensor(a!)? count) -> Tensor", variants={"x": [tl.float32], "count": [tl.int32, None]})
def copy_and_count(x, count):
    """Writes to a result that may have no element, and to an argument that may be absent or have none either."""
    rows, n = x.shape
    out = kp.empty((rows, n), x.dtype, x.device)
    copy_and_count_kernel[(rows,)](x, out, count, n, BLOCK=16)
    return out


def twice(value):
    """A plain Python function that a host function calls."""
    other = value
    return value + other


@kp.op(
    "arithmetic(Tensor x, int a, int b, float f, int mode=0) -> (int, int, int, int, float, float, float, int, int, bool)",
    variants={"x": [tl.float32]},
)
def arithmetic(x, a, b, f, mode):
    """Every operator whose meaning differs between Python and C++."""
    increment_kernel[(1,)](kp.empty_like(x), 0, 0, BLOCK=16)
    kp.check(b != 0, f"b is {b}, f is {f}, mode is {mode}")
    largest = a
    if mode == Rounding.UP:
        largest = kp.cdiv(a, b)
    elif mode in (2, 3):
        largest = max(a, b, 7)
    steps = 0
    for i in range(10, 0, -3):
        steps = steps + i * (a % 3)
    quotient = a // b
    quotient -= 1
    if a > b:
        gap = a - b
        again = gap
    else:
        gap, again = 0, 1
    return (
        a // b,
        a % b,
        largest,
        kp.next_power_of_2(abs(a)) + (a & 6 | 1 << mode) ^ 3 >> mode,
        f // b + 7.0 // f,
        f % b,
        a / b - 2.0**f if 0.0 <= f < 8.0 else math.sqrt(abs(f)),
        twice(steps) + min(a, b) + int(f),
        quotient * -1 - (~a) - 2**3 + gap - 2 * again + kp.num_threads(),
        not (a < b < 10) and (a == 3 or f > 0.5),
    )
