"""Matrix product with optional bias and activation: activation(a b + bias)."""

import enum

import kernelpack as kp
import kernelpack.language as tl

from ._blocks import activate, place_of
from ._matmul_roles import matmul_by_roles

RANGES = {
    "dtypes": ("float32", "float16", "bfloat16"),
    "bias": (None, "a"),
    "activation": (0, 1, 2, 3, 4),
    "ranks": (2, 3, 4),
}


class Activation(enum.IntEnum):
    NONE = 0
    RELU = 1
    GELU = 2
    GELU_TANH = 3
    SILU = 4


@kp.jit
def matmul_block(
    a, b, bias, has_bias, out, stride_ab, stride_am, stride_bb, stride_b, rows, columns, depth, activation,
    B_TRANSPOSED: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    m, n = place_of(tl.program_id(0), tl.cdiv(rows, BLOCK_M), tl.cdiv(columns, BLOCK_N), GROUP)
    offs_m = m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = n * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K)
    batch = tl.program_id(1).to(tl.int64)
    a_tile = a + batch * stride_ab + offs_m[:, None] * stride_am + offs_k[None, :]
    if B_TRANSPOSED:
        b_tile = b + batch * stride_bb + offs_k[:, None] + offs_n[None, :] * stride_b
    else:
        b_tile = b + batch * stride_bb + offs_k[:, None] * stride_b + offs_n[None, :]
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for k in range(0, depth, BLOCK_K):
        inside = k + offs_k < depth
        x = tl.load(a_tile, mask=(offs_m[:, None] < rows) & inside[None, :], other=0.0)
        y = tl.load(b_tile, mask=inside[:, None] & (offs_n[None, :] < columns), other=0.0)
        acc = tl.dot(x, y, acc, input_precision="ieee")
        a_tile += BLOCK_K
        b_tile += BLOCK_K if B_TRANSPOSED else BLOCK_K * stride_b
    acc += tl.load(bias + offs_n, mask=(offs_n < columns) & has_bias, other=0.0).to(tl.float32)[None, :]
    base = out + (batch * rows + offs_m[:, None]) * columns + offs_n[None, :]
    inside = (offs_m[:, None] < rows) & (offs_n[None, :] < columns)
    if activation == 0:  # stored from where it was summed
        tl.store(base, acc.to(out.dtype.element_ty), mask=inside)
    else:
        tl.store(base, activate(acc, activation).to(out.dtype.element_ty), mask=inside)


@kp.jit
def matmul_row(
    a, b, bias, has_bias, out, stride_ab, stride_bias, stride_bb, stride_b, columns, depth, activation,
    B_TRANSPOSED: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """A block of columns of a product with one row: every element of b counts once, so b is read in the order in which it lies.
    stride_bias is 1, or 0 where all columns share the first element of bias."""
    offs_n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K)
    batch = tl.program_id(1).to(tl.int64)
    row = a + batch * stride_ab + offs_k
    if B_TRANSPOSED:
        b_tile = b + batch * stride_bb + offs_n[:, None] * stride_b + offs_k[None, :]
    else:
        b_tile = b + batch * stride_bb + offs_k[:, None] * stride_b + offs_n[None, :]
    acc = tl.zeros([BLOCK_N], tl.float32)
    for k in range(0, depth, BLOCK_K):
        inside = k + offs_k < depth
        x = tl.load(row, mask=inside, other=0.0).to(tl.float32)
        if B_TRANSPOSED:
            y = tl.load(b_tile, mask=(offs_n[:, None] < columns) & inside[None, :], other=0.0).to(tl.float32)
            acc += tl.sum(x[None, :] * y, axis=1)
        else:
            y = tl.load(b_tile, mask=inside[:, None] & (offs_n[None, :] < columns), other=0.0).to(tl.float32)
            acc += tl.sum(x[:, None] * y, axis=0)
        row += BLOCK_K
        b_tile += BLOCK_K if B_TRANSPOSED else BLOCK_K * stride_b
    acc += tl.load(bias + offs_n, mask=(offs_n < columns) & has_bias & (stride_bias == 1), other=0.0).to(tl.float32)
    acc += tl.load(bias, mask=has_bias & (stride_bias == 0), other=0.0).to(tl.float32)
    tl.store(out + batch * columns + offs_n, activate(acc, activation).to(out.dtype.element_ty), mask=offs_n < columns)


@kp.jit
def matmul_kernel(
    a, b, bias, has_bias, out,
    stride_ab: tl.int64, stride_am: tl.int64, stride_bb: tl.int64, stride_b: tl.int64,
    batches, rows, columns, depth, activation,
    B_TRANSPOSED: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
    STAGES: tl.constexpr, PROGRAMS: tl.constexpr,
):  # fmt: skip
    """One block of one product of a batch, or with STAGES every PROGRAMS-th. B_TRANSPOSED: b is contiguous along k, otherwise along
    n; stride_b belongs to the other dimension. Without has_bias, bias is any tensor of the dtype, and not read. With BLOCK_M 1 there
    is one row, and stride_am is the stride of bias."""
    if STAGES:
        matmul_by_roles(
            a, b, bias, has_bias, out, stride_ab, stride_am, stride_bb, stride_b, batches, rows, columns, depth, activation,
            B_TRANSPOSED, BLOCK_M, BLOCK_N, BLOCK_K, GROUP, STAGES,
        )  # fmt: skip
    elif BLOCK_M == 1:
        matmul_row(
            a, b, bias, has_bias, out, stride_ab, stride_am, stride_bb, stride_b, columns, depth, activation,
            B_TRANSPOSED, BLOCK_N, BLOCK_K,
        )  # fmt: skip
    else:
        matmul_block(
            a, b, bias, has_bias, out, stride_ab, stride_am, stride_bb, stride_b, rows, columns, depth, activation,
            B_TRANSPOSED, BLOCK_M, BLOCK_N, BLOCK_K, GROUP,
        )  # fmt: skip


ONE_BLOCK = {"STAGES": 0, "PROGRAMS": 2**31 - 1}
"""Constexprs of kernels whose programs compute one block each."""


FEW_ROWS = (0, 1, 4, 8, 16, 32, 64, 128)
"""Which blocks a call needs: those for at most so many rows, or 0 for more. GPUs have blocks for 16, 32 (16-bit inputs), 64 and a float32
column, which is 1; CPUs have all but 32. 128 is for CPUs and means as many rows at a time."""

CPU_BLOCKS = {
    1: ((1, 512, 8), (1, 16, 128)),
    4: ((4, 128, 32), (4, 64, 256)),
    8: ((8, 128, 32), (8, 64, 256)),
    16: ((16, 128, 64), (16, 128, 256)),
    64: ((32, 128, 64), (32, 128, 256)),
}
"""BLOCK_M, BLOCK_N and BLOCK_K on CPUs by FEW_ROWS: for b as it is, and for B_TRANSPOSED."""


def cpu_config(point):
    few = point["FEW_ROWS"]
    if few == 32:
        return None
    small = kp.Config({**ONE_BLOCK, "BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 128, "GROUP": 8})
    if few == 128:
        return small
    if few:
        rows, columns, depth = CPU_BLOCKS[few][point["B_TRANSPOSED"]]
        return kp.Config({**ONE_BLOCK, "BLOCK_M": rows, "BLOCK_N": columns, "BLOCK_K": depth, "GROUP": 8})
    wide = point["a"] == tl.float32  # such rows are read where they lie; others are packed too, and the second cache holds all
    sizes = {"BLOCK_M": 512 if wide else 256, "BLOCK_N": 256, "BLOCK_K": 256 if wide else 128}
    configs = [kp.Config({**ONE_BLOCK, **sizes, "GROUP": 8}), small]
    return kp.fastest(configs, key=["rows", "columns"])


def cuda_config(point):
    wide, few = point["a"] == tl.float32, point["FEW_ROWS"]
    if few in (4, 8, 128) or (wide and few in (16, 32)) or (few == 1 and not (wide and point["B_TRANSPOSED"])):
        return None
    if few == 1:  # a column: each warp reads two rows of a, 1 KB at a time
        return kp.Config({**ONE_BLOCK, "BLOCK_M": 1, "BLOCK_N": 8, "BLOCK_K": 256, "GROUP": 1}, num_warps=4)
    if few:
        rows, depth = (16, 32) if wide else (few if point.specialized else 64, 64)
        return kp.Config({**ONE_BLOCK, "BLOCK_M": rows, "BLOCK_N": 64, "BLOCK_K": depth, "GROUP": 1}, num_warps=4, num_stages=3)
    if wide:
        rows, depth = (128, 32) if point.specialized else (64, 16)  # addresses that nothing is known of take the registers
        return kp.Config({**ONE_BLOCK, "BLOCK_M": rows, "BLOCK_N": 64, "BLOCK_K": depth, "GROUP": 8}, num_warps=4, num_stages=2)
    return kp.Config({**ONE_BLOCK, "BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP": 8}, num_warps=8, num_stages=3)


def hopper_config(point):
    """Roles need 16-bit inputs that TMA can address."""
    plain = cuda_config(point)
    if plain is None or not point.specialized or point["a"] == tl.float32:
        return plain
    if point["FEW_ROWS"]:  # bound by reading b: many narrow blocks, much on its way at a time
        stages = 6 if point["FEW_ROWS"] == 64 else 8
        blocks = {"BLOCK_M": point["FEW_ROWS"], "BLOCK_N": 64, "BLOCK_K": 128, "GROUP": 1, "STAGES": stages}
    else:
        blocks = {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP": 8, "STAGES": 4}
    # H100 (SXM) and H200 have 132 multiprocessors; elsewhere some programs wait for others
    return kp.Config({**blocks, "PROGRAMS": 132}, launch_pdl=True)


def tuning_calls(tensor):
    """Products with the weights of small models, in either order."""
    for rows in (128, 384, 2048):
        for columns in (768, 3072):
            bias = tensor("bias", columns)
            yield tensor("a", rows, 768), tensor("b", 768, columns), bias
            yield tensor("a", rows, 768), tensor("b", columns, 768).t(), bias


@kp.op(
    "matmul(Tensor a, Tensor b, Tensor? bias=None, *, int activation=0) -> Tensor",
    variants={
        "a": [tl.float32, tl.float16, tl.bfloat16],
        "B_TRANSPOSED": [False, True],
        "FEW_ROWS": FEW_ROWS,
    },
    configs={"cpu": cpu_config, "cuda": cuda_config, "cuda:sm_90a": hopper_config},
    tune=tuning_calls,
    specialize=[kp.aligned(divisible=("stride_ab", "stride_am", "stride_bb", "stride_b"))],
)
def matmul(a, b, bias, activation):
    """activation(a b + bias), summed in float32 (float32 products are exact, never tf32).

    a [..., M, K] with a contiguous last dimension, b [..., K, N], contiguous along one of its last two dimensions (b may be a
    transposed weight); bias [N]; all of one dtype. The dimensions in front broadcast as in torch.matmul, where nothing has to be
    copied for it. activation is one of Activation: 0 none, 1 relu, 2 gelu (erf), 3 gelu (tanh), 4 silu. Returns [..., M, N],
    contiguous.
    """
    kp.check(a.dim() >= 2, f"a must have at least 2 dimensions, its shape is {a.shape}")
    kp.check(b.dim() >= 2, f"b must have at least 2 dimensions, its shape is {b.shape}")
    depth, columns = a.shape[-1], b.shape[-1]
    kp.check(b.shape[-2] == depth, f"b has {b.shape[-2]} rows, a has {depth} columns")
    kp.check(
        a.stride(-1) == 1 or depth <= 1,
        f"the last dimension of a must be contiguous, its stride is {a.stride(-1)}\n  to fix: call .contiguous() on it before the op",
    )
    kp.check(
        b.stride(-1) == 1 or columns <= 1 or b.stride(-2) == 1 or depth <= 1,
        f"one of the last two dimensions of b must be contiguous, its strides are {b.stride()}\n  to fix: call .contiguous() on it",
    )
    if bias is not None:
        kp.check(bias.dim() == 1 and bias.shape[0] == columns, f"bias has shape {bias.shape}, expected ({columns},)")
        kp.check(
            bias.stride(0) == 1 or columns <= 1,
            f"bias must be contiguous, its stride is {bias.stride(0)}\n  to fix: call .contiguous() on it before the op",
        )
    kp.check(
        0 <= activation <= 4,
        f"activation is {activation}, expected 0 (none), 1 (relu), 2 (gelu), 3 (gelu_tanh) or 4 (silu)",
    )
    out = kp.empty((*kp.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], columns), a.dtype, a.device)
    if b.dim() == 2:
        (batches, rows), (stride_ab, stride_am) = kp.collapse_rows(a, ndims=2)
        stride_bb = 0
    else:
        (outer, batches), (outer_a, stride_ab), (outer_b, stride_bb) = kp.collapse_batches(a, b, ndims=2)
        rows, stride_am = a.shape[-2], a.stride(-2)
        if stride_bb == 0 and (rows == 1 or stride_ab == rows * stride_am):
            # matrices of a that share one of b, and lie one below the other, are a taller one
            stride_am = stride_ab if rows == 1 else stride_am
            batches, rows, stride_ab, stride_bb = outer, batches * rows, outer_a, outer_b
        else:
            kp.check(
                outer == 1,
                f"the batches of a of shape {a.shape} with strides {a.stride()} and of b of shape {b.shape} with strides {b.stride()} "
                "need more than one stride, which is what the kernel takes\n  to fix: call .expand(...) on the tensor that repeats, "
                "and .contiguous() on both",
            )
    transposed = b.stride(-1) != 1 and columns > 1
    if columns == 1 and (a.element_size() == 4 or not a.is_cuda) and (b.stride(-2) == 1 or depth <= 1):
        # its transpose has one row: then the rows of a, which are b's columns, are read as they lie and summed in many chains
        matmul_kernel[lambda meta: (kp.cdiv(rows, meta["BLOCK_N"]), batches)](
            b, a, out if bias is None else bias, bias is not None, out,
            stride_bb, 0, stride_ab, stride_am, batches, 1, rows, depth, activation, B_TRANSPOSED=True, FEW_ROWS=1,
        )  # fmt: skip
    else:
        if a.is_cuda:
            few = 0 if rows > 64 else 64
            if rows <= 32 and a.element_size() == 2:
                few = 16 if rows <= 16 else 32
        elif rows <= 64:
            few = 1 if rows <= 1 else 4 if rows <= 4 else 8 if rows <= 8 else 16 if rows <= 16 else 64
        else:
            large = 512 if a.element_size() == 4 else 256
            blocks = kp.cdiv(rows, large) * kp.cdiv(columns, 256) * batches
            # large blocks, all threads at a time: an eighth of what they compute, or of the threads, must not be in vain
            computed = kp.cdiv(blocks, kp.num_threads()) * kp.num_threads() * (large * 256)
            few = 128 if computed // 9 > rows * columns * batches // 8 else 0
        matmul_kernel[
            lambda meta: (min(kp.cdiv(rows, meta["BLOCK_M"]) * kp.cdiv(columns, meta["BLOCK_N"]), meta["PROGRAMS"]), batches)
        ](
            a, b, out if bias is None else bias, bias is not None, out,
            stride_ab, 1 if rows == 1 and not a.is_cuda else stride_am, stride_bb, b.stride(-1) if transposed else b.stride(-2),
            batches, rows, columns, depth, activation, B_TRANSPOSED=transposed, FEW_ROWS=few,
        )  # fmt: skip
    return out


def reference(a, b, bias=None, activation=0):
    """The same in plain torch, in the dtype of its arguments."""
    import torch  # builds do without it

    x = a @ b if bias is None else a @ b + bias
    gelu = torch.nn.functional.gelu
    functions = (lambda y: y, torch.relu, gelu, lambda y: gelu(y, approximate="tanh"), torch.nn.functional.silu)
    return functions[activation](x)
