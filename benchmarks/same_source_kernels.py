"""Kernels in the Triton language as their users write them: benchmarks.same_source compiles this file by Triton and by kernelpack."""

import triton
import triton.language as tl


def _warps(*counts):
    return [triton.Config({}, num_warps=count) for count in counts]


def _blocks(*blocks):
    """Returns a config for each size of BLOCK and number of warps."""
    return [triton.Config({"BLOCK": block}, num_warps=warps) for block, warps in blocks]


# ---- elementwise ----


@triton.autotune(configs=_blocks((1024, 4), (2048, 4), (4096, 8)), key=["n"])
@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out + offsets, tl.load(x + offsets, mask=mask) + tl.load(y + offsets, mask=mask), mask=mask)


@triton.autotune(configs=_blocks((1024, 4), (2048, 4), (4096, 8)), key=["n"])
@triton.jit
def swiglu(gate, up, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    g = tl.load(gate + offsets, mask=mask).to(tl.float32)
    u = tl.load(up + offsets, mask=mask).to(tl.float32)
    tl.store(out + offsets, g * tl.sigmoid(g) * u, mask=mask)


@triton.autotune(configs=_blocks((512, 4), (1024, 4), (2048, 8)), key=["n"])
@triton.jit
def dropout(x, out, n, p, seed, BLOCK: tl.constexpr):
    """Zeroes each element with probability p, by a random number of its own index."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    value = tl.load(x + offsets, mask=mask).to(tl.float32)
    keep = tl.rand(seed, offsets) > p
    tl.store(out + offsets, tl.where(keep, value / (1 - p), 0.0), mask=mask)


@triton.autotune(configs=_warps(1, 2, 4), key=["HALF"])
@triton.jit
def rope(x, cos, sin, out, heads, positions, HEADS: tl.constexpr, HALF: tl.constexpr):
    """Turns all heads [batch * positions, heads, 2 * HALF] of one position; cos and sin are [positions, HALF]."""
    row = tl.program_id(0)
    position = row % positions
    column = tl.arange(0, HALF)
    c = tl.load(cos + position * HALF + column).to(tl.float32)[None, :]
    s = tl.load(sin + position * HALF + column).to(tl.float32)[None, :]
    head = tl.arange(0, HEADS)[:, None]
    mask = head < heads
    left = row * heads * (2 * HALF) + head * (2 * HALF) + column[None, :]
    a = tl.load(x + left, mask=mask).to(tl.float32)
    b = tl.load(x + left + HALF, mask=mask).to(tl.float32)
    tl.store(out + left, a * c - b * s, mask=mask)
    tl.store(out + left + HALF, b * c + a * s, mask=mask)


# ---- rows ----


@triton.autotune(configs=_warps(4, 8, 16), key=["columns"])
@triton.jit
def softmax(x, out, x_stride, out_stride, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    mask = column < columns
    value = tl.load(x + row * x_stride + column, mask=mask, other=-float("inf")).to(tl.float32)
    power = tl.exp(value - tl.max(value, axis=0))
    tl.store(out + row * out_stride + column, power / tl.sum(power, axis=0), mask=mask)


@triton.autotune(configs=_warps(4, 8, 16), key=["columns"])
@triton.jit
def rms_norm(x, weight, out, stride, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    mask = column < columns
    value = tl.load(x + row * stride + column, mask=mask, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(value * value, axis=0) / columns + eps)
    w = tl.load(weight + column, mask=mask).to(tl.float32)
    tl.store(out + row * stride + column, value * scale * w, mask=mask)


@triton.autotune(configs=_warps(4, 8, 16), key=["columns"])
@triton.jit
def layer_norm(x, weight, bias, out, mean_out, scale_out, stride, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    mask = column < columns
    value = tl.load(x + row * stride + column, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(value, axis=0) / columns
    centred = tl.where(mask, value - mean, 0.0)
    scale = 1 / tl.sqrt(tl.sum(centred * centred, axis=0) / columns + eps)
    tl.store(mean_out + row, mean)
    tl.store(scale_out + row, scale)
    w = tl.load(weight + column, mask=mask).to(tl.float32)
    b = tl.load(bias + column, mask=mask).to(tl.float32)
    tl.store(out + row * stride + column, centred * scale * w + b, mask=mask)


@triton.autotune(configs=_warps(4, 8, 16), key=["columns"])
@triton.jit
def layer_norm_backward(
    grad, x, weight, mean_in, scale_in, grad_x, partial_weight, partial_bias, stride, rows, columns, BLOCK: tl.constexpr
):
    """Writes grad_x of every row that this program walks, and its sums of the gradients of weight and bias."""
    column = tl.arange(0, BLOCK)
    mask = column < columns
    w = tl.load(weight + column, mask=mask, other=0.0).to(tl.float32)
    weight_sum = tl.zeros([BLOCK], tl.float32)
    bias_sum = tl.zeros([BLOCK], tl.float32)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        begin = row.to(tl.int64) * stride
        g = tl.load(grad + begin + column, mask=mask, other=0.0).to(tl.float32)
        value = tl.load(x + begin + column, mask=mask, other=0.0).to(tl.float32)
        scale = tl.load(scale_in + row)
        normal = tl.where(mask, (value - tl.load(mean_in + row)) * scale, 0.0)
        weighted = g * w
        along = tl.sum(normal * weighted, axis=0) / columns
        level = tl.sum(weighted, axis=0) / columns
        tl.store(grad_x + begin + column, (weighted - (normal * along + level)) * scale, mask=mask)
        weight_sum += g * normal
        bias_sum += g
    partial = tl.program_id(0) * columns + column
    tl.store(partial_weight + partial, weight_sum, mask=mask)
    tl.store(partial_bias + partial, bias_sum, mask=mask)


@triton.autotune(
    configs=[triton.Config({"ROWS": 32, "COLUMNS": 64}, num_warps=4), triton.Config({"ROWS": 64, "COLUMNS": 32}, num_warps=4)],
    key=["columns"],
)
@triton.jit
def sum_partials(
    partial_weight, partial_bias, grad_weight, grad_bias, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    weight_sum = tl.zeros([ROWS, COLUMNS], tl.float32)
    bias_sum = tl.zeros([ROWS, COLUMNS], tl.float32)
    for begin in range(0, rows, ROWS):
        row = begin + tl.arange(0, ROWS)
        mask = (row[:, None] < rows) & (column[None, :] < columns)
        offsets = row[:, None] * columns + column[None, :]
        weight_sum += tl.load(partial_weight + offsets, mask=mask, other=0.0)
        bias_sum += tl.load(partial_bias + offsets, mask=mask, other=0.0)
    tl.store(grad_weight + column, tl.sum(weight_sum, axis=0), mask=column < columns)
    tl.store(grad_bias + column, tl.sum(bias_sum, axis=0), mask=column < columns)


@triton.autotune(
    configs=[
        triton.Config({"BLOCK": 4096}, num_warps=8),
        triton.Config({"BLOCK": 8192}, num_warps=16),
        triton.Config({"BLOCK": 16384}, num_warps=32),
    ],
    key=["classes"],
)
@triton.jit
def cross_entropy(logits, target, loss, grad, stride, classes, scale, BLOCK: tl.constexpr):
    """Writes a row's loss and the gradient of its logits times `scale`: one pass for maximum and sum, one for the gradient."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    peak = -float("inf")
    total = 0.0
    for begin in range(0, classes, BLOCK):
        mask = begin + column < classes
        value = tl.load(logits + row * stride + begin + column, mask=mask, other=-float("inf")).to(tl.float32)
        new_peak = tl.maximum(peak, tl.max(value, axis=0))
        total = total * tl.exp(peak - new_peak) + tl.sum(tl.exp(value - new_peak), axis=0)
        peak = new_peak
    label = tl.load(target + row)
    chosen = tl.load(logits + row * stride + label).to(tl.float32)
    tl.store(loss + row, tl.log(total) + peak - chosen)
    for begin in range(0, classes, BLOCK):
        mask = begin + column < classes
        value = tl.load(logits + row * stride + begin + column, mask=mask, other=-float("inf")).to(tl.float32)
        probability = tl.exp(value - peak) / total
        hit = begin + column == label
        tl.store(grad + row * stride + begin + column, (probability - tl.where(hit, 1.0, 0.0)) * scale, mask=mask)


# ---- matrix products ----


def _product_configs(**more):
    return [
        triton.Config({"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, **more}, num_warps=8, num_stages=3),
        triton.Config({"BLOCK_M": 256, "BLOCK_N": 128, "BLOCK_K": 64, **more}, num_warps=8, num_stages=3),
        triton.Config({"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, **more}, num_warps=4, num_stages=4),
        triton.Config({"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, **more}, num_warps=8, num_stages=3),
        triton.Config({"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 64, **more}, num_warps=4, num_stages=4),
    ]


@triton.jit
def product_tile(
    a, b, row, column, M, N, K, a_row, a_k, b_k, b_column, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """Returns the [BLOCK_M, BLOCK_N] tile of a @ b that begins at (row, column), in float32."""
    rows = (row + tl.arange(0, BLOCK_M)) % M
    columns = (column + tl.arange(0, BLOCK_N)) % N
    depth = tl.arange(0, BLOCK_K)
    a_tile = a + rows[:, None] * a_row + depth[None, :] * a_k
    b_tile = b + depth[:, None] * b_k + columns[None, :] * b_column
    total = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for k in range(tl.cdiv(K, BLOCK_K)):
        left = K - k * BLOCK_K
        x = tl.load(a_tile, mask=depth[None, :] < left, other=0.0)
        y = tl.load(b_tile, mask=depth[:, None] < left, other=0.0)
        total = tl.dot(x, y, total)
        a_tile += BLOCK_K * a_k
        b_tile += BLOCK_K * b_k
    return total


@triton.jit
def store_tile(c, tile, row, column, M, N, c_row, c_column, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    rows = row + tl.arange(0, BLOCK_M)
    columns = column + tl.arange(0, BLOCK_N)
    mask = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c + rows[:, None] * c_row + columns[None, :] * c_column, tile.to(c.dtype.element_ty), mask=mask)


@triton.autotune(configs=_product_configs(), key=["M", "N", "K"])
@triton.jit
def matmul(
    a, b, c, M, N, K, a_row, a_k, b_k, b_column, c_row, c_column,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * BLOCK_M
    column = tl.program_id(1) * BLOCK_N
    tile = product_tile(a, b, row, column, M, N, K, a_row, a_k, b_k, b_column, BLOCK_M, BLOCK_N, BLOCK_K)
    store_tile(c, tile, row, column, M, N, c_row, c_column, BLOCK_M, BLOCK_N)


@triton.autotune(configs=_product_configs(GROUP_M=8), key=["M", "N", "K"])
@triton.jit
def matmul_grouped_order(
    a, b, c, M, N, K, a_row, a_k, b_k, b_column, c_row, c_column,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """Walks down the columns of GROUP_M rows of tiles, so that programs that run together share operands in the L2 cache."""
    program = tl.program_id(0)
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    group = program // (GROUP_M * tiles_n)
    first = group * GROUP_M
    height = min(tiles_m - first, GROUP_M)
    row = (first + program % (GROUP_M * tiles_n) % height) * BLOCK_M
    column = program % (GROUP_M * tiles_n) // height * BLOCK_N
    tile = product_tile(a, b, row, column, M, N, K, a_row, a_k, b_k, b_column, BLOCK_M, BLOCK_N, BLOCK_K)
    store_tile(c, tile, row, column, M, N, c_row, c_column, BLOCK_M, BLOCK_N)


@triton.autotune(
    configs=[
        triton.Config({"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "SPLIT": 8}, num_warps=4, num_stages=4),
        triton.Config({"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "SPLIT": 4}, num_warps=8, num_stages=3),
        triton.Config({"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 64, "SPLIT": 8}, num_warps=4, num_stages=4),
        triton.Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64, "SPLIT": 8}, num_warps=4, num_stages=4),
    ],
    key=["M", "N", "K"],
    reset_to_zero=["c"],
)
@triton.jit
def matmul_split_k(
    a, b, c, M, N, K, a_row, a_k, b_k, b_column, c_row, c_column,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    """Adds one of SPLIT parts of the product to c, which holds zeros before."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    row = tl.program_id(0) // tiles_n * BLOCK_M
    column = tl.program_id(0) % tiles_n * BLOCK_N
    rows = (row + tl.arange(0, BLOCK_M)) % M
    columns = (column + tl.arange(0, BLOCK_N)) % N
    depth = tl.program_id(1) * BLOCK_K + tl.arange(0, BLOCK_K)
    a_tile = a + rows[:, None] * a_row + depth[None, :] * a_k
    b_tile = b + depth[:, None] * b_k + columns[None, :] * b_column
    total = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for k in range(tl.cdiv(K, BLOCK_K * SPLIT)):
        left = K - k * (BLOCK_K * SPLIT)
        x = tl.load(a_tile, mask=depth[None, :] < left, other=0.0)
        y = tl.load(b_tile, mask=depth[:, None] < left, other=0.0)
        total = tl.dot(x, y, total)
        a_tile += BLOCK_K * SPLIT * a_k
        b_tile += BLOCK_K * SPLIT * b_k
    out_rows = row + tl.arange(0, BLOCK_M)
    out_columns = column + tl.arange(0, BLOCK_N)
    mask = (out_rows[:, None] < M) & (out_columns[None, :] < N)
    tl.atomic_add(c + out_rows[:, None] * c_row + out_columns[None, :] * c_column, total, mask=mask, sem="relaxed")


@triton.autotune(
    configs=[
        triton.Config({"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64}, num_warps=4, num_stages=4),
        triton.Config({"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64}, num_warps=8, num_stages=3),
        triton.Config({"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 64}, num_warps=4, num_stages=4),
    ],
    key=["count"],
)
@triton.jit
def matmul_grouped(
    a_addresses, b_addresses, c_addresses, sizes, count, like,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Computes `count` products of their own sizes (M, N, K), row-major, by programs that walk the tiles of all of them."""
    tile = tl.program_id(0)
    end = 0
    for problem in range(count):
        M = tl.load(sizes + 3 * problem)
        N = tl.multiple_of(tl.load(sizes + 3 * problem + 1), 16)
        K = tl.multiple_of(tl.load(sizes + 3 * problem + 2), 16)
        tiles_n = tl.cdiv(N, BLOCK_N)
        begin = end
        end += tl.cdiv(M, BLOCK_M) * tiles_n
        a = tl.multiple_of(tl.load(a_addresses + problem), 16).to(tl.pointer_type(like.dtype.element_ty))
        b = tl.multiple_of(tl.load(b_addresses + problem), 16).to(tl.pointer_type(like.dtype.element_ty))
        c = tl.multiple_of(tl.load(c_addresses + problem), 16).to(tl.pointer_type(like.dtype.element_ty))
        for number in range(tile - begin, end - begin, tl.num_programs(0)):
            row = number // tiles_n * BLOCK_M
            column = number % tiles_n * BLOCK_N
            rows = row + tl.arange(0, BLOCK_M)
            columns = column + tl.arange(0, BLOCK_N)
            depth = tl.arange(0, BLOCK_K)
            a_tile = a + rows[:, None] * K + depth[None, :]
            b_tile = b + depth[:, None] * N + columns[None, :]
            total = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
            for _ in range(tl.cdiv(K, BLOCK_K)):
                tl.multiple_of(a_tile, [16, 16])
                tl.multiple_of(b_tile, [16, 16])
                total = tl.dot(tl.load(a_tile), tl.load(b_tile), total)
                a_tile += BLOCK_K
                b_tile += BLOCK_K * N
            tl.store(c + rows[:, None] * N + columns[None, :], total.to(like.dtype.element_ty))
        tile += tl.cdiv(tl.maximum(end - tile, 0), tl.num_programs(0)) * tl.num_programs(0)


# ---- attention ----


@triton.jit
def attend(
    acc, peak, total, q, k_tile, v_tile, rows, begin, end, k_row, v_row, keys, scale,
    MASKED: tl.constexpr, CAUSAL: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Goes on with a row block's softmax over the keys from begin to end. `scale` is that of base-2 exponents."""
    columns = tl.arange(0, BLOCK_N)
    k_tile += begin * k_row
    v_tile += begin * v_row
    for start in range(begin, end, BLOCK_N):
        start = tl.multiple_of(start, BLOCK_N)
        if MASKED:
            inside = start + columns < keys
            k = tl.load(k_tile, mask=inside[None, :], other=0.0)
        else:
            k = tl.load(k_tile)
        score = tl.dot(q, k) * scale
        if MASKED:
            visible = inside[None, :]
            if CAUSAL:
                visible = visible & (rows[:, None] >= start + columns[None, :])
            score = tl.where(visible, score, -1.0e6)
        new_peak = tl.maximum(peak, tl.max(score, axis=1))
        power = tl.exp2(score - new_peak[:, None])
        shrink = tl.exp2(peak - new_peak)
        total = total * shrink + tl.sum(power, axis=1)
        acc = acc * shrink[:, None]
        if MASKED:
            v = tl.load(v_tile, mask=inside[:, None], other=0.0)
        else:
            v = tl.load(v_tile)
        acc = tl.dot(power.to(v.dtype), v, acc)
        peak = new_peak
        k_tile += BLOCK_N * k_row
        v_tile += BLOCK_N * v_row
    return acc, peak, total


@triton.autotune(
    configs=[
        triton.Config({"BLOCK_M": 128, "BLOCK_N": 128}, num_warps=8, num_stages=2),
        triton.Config({"BLOCK_M": 128, "BLOCK_N": 64}, num_warps=8, num_stages=3),
        triton.Config({"BLOCK_M": 128, "BLOCK_N": 64}, num_warps=4, num_stages=3),
        triton.Config({"BLOCK_M": 64, "BLOCK_N": 64}, num_warps=4, num_stages=3),
    ],
    key=["queries", "keys", "HEAD", "CAUSAL"],
)
@triton.jit
def attention(
    query, key, value, out, scale, heads, queries, keys,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row, o_batch, o_head, o_row,
    HEAD: tl.constexpr, CAUSAL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One block of queries of one head; a head's elements are contiguous."""
    first = tl.program_id(0) * BLOCK_M
    batch = (tl.program_id(1) // heads).to(tl.int64)
    head = (tl.program_id(1) % heads).to(tl.int64)
    rows = first + tl.arange(0, BLOCK_M)
    columns = tl.arange(0, BLOCK_N)
    features = tl.arange(0, HEAD)
    q_tile = query + batch * q_batch + head * q_head + rows[:, None] * q_row + features[None, :]
    k_tile = key + batch * k_batch + head * k_head + columns[None, :] * k_row + features[:, None]
    v_tile = value + batch * v_batch + head * v_head + columns[:, None] * v_row + features[None, :]
    q = tl.load(q_tile, mask=rows[:, None] < queries, other=0.0)
    acc = tl.zeros([BLOCK_M, HEAD], tl.float32)
    peak = tl.full([BLOCK_M], -float("inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    scale *= 1.4426950408889634
    if CAUSAL:
        whole = tl.minimum(first, keys) // BLOCK_N * BLOCK_N
        last = tl.minimum(first + BLOCK_M, keys)
    else:
        whole = keys // BLOCK_N * BLOCK_N
        last = keys
    acc, peak, total = attend(
        acc, peak, total, q, k_tile, v_tile, rows, 0, whole, k_row, v_row, keys, scale, False, CAUSAL, BLOCK_N
    )
    acc, peak, total = attend(
        acc, peak, total, q, k_tile, v_tile, rows, whole, last, k_row, v_row, keys, scale, True, CAUSAL, BLOCK_N
    )
    acc = acc / total[:, None]
    o_tile = out + batch * o_batch + head * o_head + rows[:, None] * o_row + features[None, :]
    tl.store(o_tile, acc.to(out.dtype.element_ty), mask=rows[:, None] < queries)
