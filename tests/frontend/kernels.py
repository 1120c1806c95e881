"""Kernels in the idioms that real code uses, written for these tests: each compiles, and computes what torch does."""

from __future__ import annotations

import kernelpack as kp
import kernelpack.language as tl

LOG2_E: tl.constexpr = tl.constexpr(1.4426950408889634)


@kp.jit
def vector_add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(axis=0)
    offsets = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + y, mask=mask)


@kp.jit
def softmax_rows(out_ptr, in_ptr, in_stride, out_stride, n_rows, n_cols, BLOCK: tl.constexpr, num_stages: tl.constexpr):
    """A persistent kernel: programs walk over rows."""
    row_start = tl.program_id(0)
    row_step = tl.num_programs(0)
    for row in tl.range(row_start, n_rows, row_step, num_stages=num_stages):
        columns = tl.arange(0, BLOCK)
        mask = columns < n_cols
        values = tl.load(in_ptr + row * in_stride + columns, mask=mask, other=-float("inf"))
        shifted = values - tl.max(values, axis=0)
        numerator = tl.exp(shifted)
        denominator = tl.sum(numerator, axis=0)
        tl.store(out_ptr + row * out_stride + columns, numerator / denominator, mask=mask)


@kp.jit
def layer_norm_forward(x_ptr, y_ptr, w_ptr, b_ptr, mean_ptr, rstd_ptr, stride, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    y_ptr += row * stride
    x_ptr += row * stride
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, N, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + columns, mask=columns < N, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / N
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, N, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + columns, mask=columns < N, other=0.0).to(tl.float32)
        x = tl.where(columns < N, x - mean, 0.0)
        squares += x * x
    rstd = 1 / tl.sqrt(tl.sum(squares, axis=0) / N + eps)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)
    for start in range(0, N, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        mask = columns < N
        x = tl.load(x_ptr + columns, mask=mask, other=0.0).to(tl.float32)
        y = (x - mean) * rstd
        if w_ptr is not None:
            y = y * tl.load(w_ptr + columns, mask=mask)
        if b_ptr is not None:
            y = y + tl.load(b_ptr + columns, mask=mask)
        tl.store(y_ptr + columns, y, mask=mask)


@kp.jit
def layer_norm_backward(dx_ptr, dy_ptr, dw_ptr, x_ptr, w_ptr, mean_ptr, rstd_ptr, stride, N, BLOCK: tl.constexpr):
    """One program a row; the gradient of the weight is gathered with atomics."""
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < N
    x = tl.load(x_ptr + row * stride + columns, mask=mask, other=0).to(tl.float32)
    dy = tl.load(dy_ptr + row * stride + columns, mask=mask, other=0).to(tl.float32)
    w = tl.load(w_ptr + columns, mask=mask).to(tl.float32)
    mean = tl.load(mean_ptr + row)
    rstd = tl.load(rstd_ptr + row)
    normal = tl.where(mask, (x - mean) * rstd, 0.0)
    wdy = tl.where(mask, w * dy, 0.0)
    c1 = tl.sum(normal * wdy, axis=0) / N
    c2 = tl.sum(wdy, axis=0) / N
    dx = (wdy - (normal * c1 + c2)) * rstd
    tl.store(dx_ptr + row * stride + columns, dx, mask=mask)
    tl.atomic_add(dw_ptr + columns, dy * normal, mask=mask)


@kp.jit
def leaky_relu(x):
    return tl.where(x >= 0, x, 0.01 * x)


@kp.jit
def matmul_grouped(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(axis=0)
    num_pid_m = tl.cdiv(M, BLOCK_M)
    num_pid_n = tl.cdiv(N, BLOCK_N)
    num_pid_in_group = GROUP_M * num_pid_n
    group_id = pid // num_pid_in_group
    first_pid_m = group_id * GROUP_M
    group_size_m = min(num_pid_m - first_pid_m, GROUP_M)
    pid_m = first_pid_m + ((pid % num_pid_in_group) % group_size_m)
    pid_n = (pid % num_pid_in_group) // group_size_m
    tl.assume(pid_m >= 0)

    offs_am = (pid_m * BLOCK_M + tl.arange(0, BLOCK_M)) % M
    offs_bn = (pid_n * BLOCK_N + tl.arange(0, BLOCK_N)) % N
    offs_k = tl.arange(0, BLOCK_K)
    offs_am = tl.max_contiguous(tl.multiple_of(offs_am, BLOCK_M), BLOCK_M)
    a_ptrs = a_ptr + (offs_am[:, None] * stride_am + offs_k[None, :] * stride_ak)
    b_ptrs = b_ptr + (offs_k[:, None] * stride_bk + offs_bn[None, :] * stride_bn)
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(tl.cdiv(K, BLOCK_K)):
        a = tl.load(a_ptrs, mask=offs_k[None, :] < K - k * BLOCK_K, other=0.0)
        b = tl.load(b_ptrs, mask=offs_k[:, None] < K - k * BLOCK_K, other=0.0)
        accumulator = tl.dot(a, b, accumulator)
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    if ACTIVATION == "leaky_relu":
        accumulator = leaky_relu(accumulator)
    c = accumulator.to(c_ptr.dtype.element_ty)
    offs_cm = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_cn = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    c_ptrs = c_ptr + stride_cm * offs_cm[:, None] + stride_cn * offs_cn[None, :]
    tl.store(c_ptrs, c, mask=(offs_cm[:, None] < M) & (offs_cn[None, :] < N))


@kp.jit
def _attention_inner(
    acc, l_i, m_i, q, k_ptrs, v_ptrs, stride_kn, stride_vn, start_m, scale, offs_m, offs_n, seqlen,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, STAGE: tl.constexpr,
):  # fmt: skip
    """Stage 1: blocks left of the diagonal; stage 2: blocks that it crosses; stage 3: all blocks."""
    if STAGE == 1:
        lo, hi = 0, start_m * BLOCK_M
    elif STAGE == 2:
        lo, hi = start_m * BLOCK_M, (start_m + 1) * BLOCK_M
        lo = tl.multiple_of(lo, BLOCK_M)
    else:
        lo, hi = 0, seqlen
    for start_n in range(lo, tl.minimum(hi, seqlen), BLOCK_N):
        start_n = tl.multiple_of(start_n, BLOCK_N)
        inside = start_n + offs_n < seqlen
        k = tl.load(k_ptrs + start_n * stride_kn, mask=inside[:, None], other=0.0)
        qk = tl.dot(q, tl.trans(k))
        visible = inside[None, :]
        if STAGE == 2:
            visible = visible & (offs_m[:, None] >= (start_n + offs_n[None, :]))
        qk = qk * scale + tl.where(visible, 0, -1.0e6)
        m_ij = tl.maximum(m_i, tl.max(qk, 1))
        p = tl.math.exp2(qk - m_ij[:, None])
        alpha = tl.math.exp2(m_i - m_ij)
        l_i = l_i * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None]
        v = tl.load(v_ptrs + start_n * stride_vn, mask=inside[:, None], other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc)
        m_i = m_ij
    return acc, l_i, m_i


@kp.jit
def attention_forward(
    q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, sm_scale, stride_bh, stride_n, seqlen,
    HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, STAGE: tl.constexpr,
):  # fmt: skip
    tl.static_assert(BLOCK_N <= HEAD_DIM, f"BLOCK_N={BLOCK_N} is too large")
    start_m = tl.program_id(0)
    off_bh = tl.program_id(1).to(tl.int64)
    offs_m = start_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    offs_d = tl.arange(0, HEAD_DIM)
    base = off_bh * stride_bh
    q_ptrs = q_ptr + base + offs_m[:, None] * stride_n + offs_d[None, :]
    k_ptrs = k_ptr + base + offs_n[:, None] * stride_n + offs_d[None, :]
    v_ptrs = v_ptr + base + offs_n[:, None] * stride_n + offs_d[None, :]
    m_i = tl.zeros([BLOCK_M], dtype=tl.float32) - float("inf")
    l_i = tl.zeros([BLOCK_M], dtype=tl.float32) + 1.0
    acc = tl.zeros([BLOCK_M, HEAD_DIM], dtype=tl.float32)
    scale = sm_scale * LOG2_E
    q = tl.load(q_ptrs, mask=offs_m[:, None] < seqlen, other=0.0)
    if STAGE & 1:
        acc, l_i, m_i = _attention_inner(
            acc, l_i, m_i, q, k_ptrs, v_ptrs, stride_n, stride_n, start_m, scale, offs_m, offs_n, seqlen,
            BLOCK_M, BLOCK_N, 4 - STAGE,
        )  # fmt: skip
    if STAGE & 2:
        acc, l_i, m_i = _attention_inner(
            acc, l_i, m_i, q, k_ptrs, v_ptrs, stride_n, stride_n, start_m, scale, offs_m, offs_n, seqlen,
            BLOCK_M, BLOCK_N, 2,
        )  # fmt: skip
    m_i += tl.math.log2(l_i)
    acc = acc / l_i[:, None]
    rows = offs_m < seqlen
    tl.store(lse_ptr + off_bh * seqlen + offs_m, m_i, mask=rows)
    tl.store(out_ptr + base + offs_m[:, None] * stride_n + offs_d[None, :], acc.to(out_ptr.type.element_ty), mask=rows[:, None])


@kp.jit
def rope(q_ptr, q_row_stride, cos_ptr, sin_ptr, cs_row_stride, seqlen, n_heads, HEAD_DIM: tl.constexpr, BACKWARD: tl.constexpr):
    """Rotates the halves of every head in place; the backward pass turns the other way."""
    ROPE_GROUP_SIZE = 4
    row = tl.program_id(0)
    group = tl.program_id(1)
    half: tl.constexpr = HEAD_DIM // 2
    columns = tl.arange(0, half)
    sin = tl.load(sin_ptr + (row % seqlen) * cs_row_stride + columns)
    cos = tl.load(cos_ptr + (row % seqlen) * cs_row_stride + columns)
    if BACKWARD:
        sin = -sin
    head_start = group * ROPE_GROUP_SIZE
    head_end = min(head_start + ROPE_GROUP_SIZE, n_heads)
    for head in range(head_start, head_end):
        first = row * q_row_stride + head * HEAD_DIM + columns
        second = first + half
        q1 = tl.load(q_ptr + first).to(sin.dtype)
        q2 = tl.load(q_ptr + second).to(sin.dtype)
        tl.store(q_ptr + first, q1 * cos - q2 * sin)
        tl.store(q_ptr + second, q2 * cos + q1 * sin)


@kp.jit
def swiglu(a_ptr, b_ptr, c_ptr, stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    a_ptr += row * stride
    b_ptr += row * stride
    c_ptr += row * stride
    columns = tl.arange(0, BLOCK)
    mask = columns < n_cols
    a = tl.load(a_ptr + columns, mask=mask, other=0).to(tl.float32)
    b = tl.load(b_ptr + columns, mask=mask, other=0)
    c = (a * tl.sigmoid(a)).cast(b.dtype) * b
    tl.store(c_ptr + columns, c, mask=mask)


@kp.jit
def cross_entropy(x_ptr, x_stride, y_ptr, loss_ptr, n_cols, ignore_index, label_smoothing, BLOCK: tl.constexpr):
    """Writes the loss, and the gradient over the logits; an ignored row leaves early."""
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(y_ptr + row)
    x_ptr += row * x_stride
    if target == ignore_index:
        for start in range(0, n_cols, BLOCK):
            columns = start + tl.arange(0, BLOCK)
            tl.store(x_ptr + columns, 0.0, mask=columns < n_cols)
        tl.store(loss_ptr + row, 0.0)
        return
    m = float("-inf")
    d = 0.0
    total = 0.0
    picked = tl.load(x_ptr + target).cast(tl.float32)
    eps = label_smoothing / n_cols
    for start in range(0, n_cols, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + columns, mask=columns < n_cols, other=float("-inf")).cast(tl.float32)
        block_max = tl.max(x)
        if label_smoothing > 0:
            total += tl.sum(tl.where(columns < n_cols, -eps * x, 0.0))
        m_new = tl.maximum(m, block_max)
        d = d * tl.exp(m - m_new) + tl.sum(tl.exp(x - m_new))
        m = m_new
    lse = m + tl.log(d)
    for start in range(0, n_cols, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        mask = columns < n_cols
        x = tl.load(x_ptr + columns, mask=mask, other=float("-inf")).cast(tl.float32)
        gradient = tl.exp(x - m) / d - eps
        gradient = tl.where(columns != target, gradient, gradient - (1 - label_smoothing))
        tl.store(x_ptr + columns, gradient, mask=mask)
    tl.debug_barrier()
    loss = lse - picked
    if label_smoothing > 0:
        loss = loss * (1 - label_smoothing) + (total + label_smoothing * lse)
    tl.store(loss_ptr + row, loss)
