"""Matrix product of 8-bit floats or int8, scaled by rows and columns, as torch._scaled_mm gives it."""

import kernelpack as kp
import kernelpack.language as tl

from ._blocks import Blocks, Epilogue, Scales, Shape, Strides, place_of
from ._matmul_roles import matmul_by_roles, scale_sums
from .matmul import HOPPER_BLOCKS, ONE_BLOCK, few_blocks, hopper_blocks

RANGES = {
    "dtypes": ("float8_e4m3fn", "float8_e5m2"),
    "b": ("float8_e4m3fn",),
    "also": ("int8 a and b",),
    "bias": (None, "bfloat16"),
    "ranks": (2,),
    "result": ("bfloat16",),
}


TAIL = tl.constexpr(128)
"""How far products of few rows walk along k at a time after their last whole block."""


@kp.jit
def add_products(sums, a, b, offs_m, offs_n, first, end, strides, shape, K: tl.constexpr):
    """Adds the products of steps along k from `first` until `end`, K at a time."""
    offs_k = first + tl.arange(0, K)
    a_tile = a + offs_m[:, None] * strides.a_row + offs_k[None, :]
    b_tile = b + offs_k[:, None] + offs_n[None, :] * strides.b_step
    for k in range(0, end - first, K):
        inside = k + offs_k < end
        x = tl.load(a_tile, mask=(offs_m[:, None] < shape.rows) & inside[None, :], other=0.0)
        y = tl.load(b_tile, mask=inside[:, None] & (offs_n[None, :] < shape.columns), other=0.0)
        sums = tl.dot(x, y, sums)
        a_tile += K
        b_tile += K
    return sums


@kp.jit
def scaled_block(a, b, out, strides, shape, epilogue, blocks):
    """One block of the product: walks along k, and sums in registers."""
    m, n = place_of(tl.program_id(0), tl.cdiv(shape.rows, blocks.M), tl.cdiv(shape.columns, blocks.N), blocks.GROUP)
    offs_m = m * blocks.M + tl.arange(0, blocks.M)
    offs_n = n * blocks.N + tl.arange(0, blocks.N)
    sums = tl.zeros([blocks.M, blocks.N], tl.int32 if a.dtype.element_ty == tl.int8 else tl.float32)
    if blocks.M <= 16:  # bound by reading b, which masks slow down: less than a tail of it has them
        whole = shape.depth // blocks.K * blocks.K
        sums = add_products(sums, a, b, offs_m, offs_n, 0, whole, strides, shape, blocks.K)
        sums = add_products(sums, a, b, offs_m, offs_n, whole, shape.depth, strides, shape, TAIL)
    else:
        sums = add_products(sums, a, b, offs_m, offs_n, 0, shape.depth, strides, shape, blocks.K)
    acc = scale_sums(sums.to(tl.float32), epilogue.scales, m * blocks.M, n * blocks.N, shape)
    if epilogue.bias is not None:
        acc += tl.load(epilogue.bias + offs_n, mask=offs_n < shape.columns, other=0.0).to(tl.float32)[None, :]
    inside = (offs_m[:, None] < shape.rows) & (offs_n[None, :] < shape.columns)
    tl.store(out + offs_m[:, None].to(tl.int64) * shape.columns + offs_n[None, :], acc.to(out.dtype.element_ty), mask=inside)


@kp.jit
def scaled_matmul_kernel(
    a, b, scales, bias, out, strides, shape,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
    SLOTS: tl.constexpr, PROGRAMS: tl.constexpr,
):  # fmt: skip
    """One block, or with SLOTS every PROGRAMS-th; a and b are contiguous along k."""
    blocks: tl.constexpr = Blocks(BLOCK_M, BLOCK_N, BLOCK_K, GROUP, True, SLOTS)
    if SLOTS:
        matmul_by_roles(a, b, out, strides, shape, Epilogue(bias, bias is not None, 0, scales), blocks)
    else:
        scaled_block(a, b, out, strides, shape, Epilogue(bias, bias is not None, 0, scales), blocks)


INT8_BLOCKS = {
    0: (256, 512, 512),
    1: (1, 64, 1024),
    4: (4, 64, 512),
    16: (16, 64, 512),
    64: (64, 64, 512),
    128: (128, 128, 512),
    512: (256, 512, 512),
}
"""BLOCK_M, BLOCK_N and BLOCK_K of int8 on CPUs by FEW_ROWS: for so many rows at a time, or 0 for large blocks, and 512 for such with less than
1,024 steps along k. Up to 16 leave b where it lies."""


def cpu_config(point):
    whole, few = point["a"] == tl.int8, point["FEW_ROWS"]
    if whole != (point["b"] == tl.int8) or few not in (INT8_BLOCKS if whole else (0,)):
        return None
    rows, columns, depth = INT8_BLOCKS[few] if whole else (64, 64, 64)
    return kp.Config({**ONE_BLOCK, "BLOCK_M": rows, "BLOCK_N": columns, "BLOCK_K": depth, "GROUP": 8})


AMX_INT8_BLOCKS = {0: (512, 128, 1024), 16: (16, 128, 1024), 64: (64, 128, 512), 512: (512, 128, 512)}
"""The same in the tiles of AMX, as those of bfloat16 in ops/matmul.py."""


def amx_config(point):
    plain, few = cpu_config(point), point["FEW_ROWS"]
    if plain is None or point["a"] != tl.int8 or few not in AMX_INT8_BLOCKS:
        return plain
    rows, columns, depth = AMX_INT8_BLOCKS[few]
    group = 8 if few in (16, 64) else 1
    return kp.Config({**plain.kwargs, "BLOCK_M": rows, "BLOCK_N": columns, "BLOCK_K": depth, "GROUP": group})


GPU_INT8_BLOCKS = {16: (16, 32, 256, 4, 4), 64: (64, 64, 128, 4, 4), 128: (128, 128, 128, 8, 3), 0: (128, 128, 128, 8, 3)}
"""BLOCK_M, BLOCK_N, BLOCK_K, warps and stages of int8 on GPUs by FEW_ROWS. Hopper has twice as many columns for 0: GPUs that run what is
compiled for sm_80 have 99 kB of shared memory, or more."""


def gpu_config(point):
    whole, few = point["a"] == tl.int8, point["FEW_ROWS"]
    if whole != (point["b"] == tl.int8) or few not in (GPU_INT8_BLOCKS if whole else HOPPER_BLOCKS):
        return None
    rows, columns, depth, warps, stages = GPU_INT8_BLOCKS[few] if whole and point.specialized else (128, 128, 64, 8, 3)
    blocks = {"BLOCK_M": rows, "BLOCK_N": columns, "BLOCK_K": depth, "GROUP": 8}
    return kp.Config({**ONE_BLOCK, **blocks}, num_warps=warps, num_stages=stages)


def hopper_config(point):
    plain, few = gpu_config(point), point["FEW_ROWS"]
    if plain is None or not point.specialized:
        return plain
    if point["a"] != tl.int8:
        return hopper_blocks(few, 8)
    return plain if few else kp.Config({**plain.kwargs, "BLOCK_N": 256}, num_warps=8, num_stages=3)


def int8_blocks(rows, columns):
    """A host function's choice of FEW_ROWS on GPUs for more than 32 rows of int8: blocks of 64 x 64 while two for each of 132 multiprocessors
    do, then those that are done sooner. Large ones take 1.3 times as long as those of 128 x 128."""
    square = kp.cdiv(kp.cdiv(rows, 128) * kp.cdiv(columns, 128), 132)
    large = kp.cdiv(kp.cdiv(rows, 128) * kp.cdiv(columns, 256), 132)
    return 64 if kp.cdiv(rows, 64) * kp.cdiv(columns, 64) <= 264 else 128 if 10 * square < 13 * large else 0


@kp.op(
    "scaled_matmul(Tensor a, Tensor b, Tensor scale_a, Tensor scale_b, Tensor? bias=None) -> Tensor",
    variants={
        "a": [tl.float8e4nv, tl.float8e5, tl.int8],
        "b": [tl.float8e4nv, tl.int8],
        "scale_a": [tl.float32],
        "scale_b": [tl.float32],
        "bias": [None, tl.bfloat16],
        "FEW_ROWS": tuple({**INT8_BLOCKS, **HOPPER_BLOCKS}),
    },
    configs={"cpu": cpu_config, "cpu:x86-64-v4+amx": amx_config, "": gpu_config, "cuda:sm_90a": hopper_config},
    specialize=[kp.aligned(divisible=["strides.a_row", "strides.b_step"])],
)
def scaled_matmul(a, b, scale_a, scale_b, bias):
    """a b * scale_a * scale_b + bias in bfloat16, for a [M, K] and b [K, N] in 8-bit floats, or both in int8.

    a is contiguous along its last dimension, b along its first (a transposed weight). The float32 scales hold one value, or one for
    each row of a ([M, 1]) and column of b ([1, N]); bias [N] is bfloat16. On Hopper, tensor cores sum 8-bit products with 14 bits,
    as torch._scaled_mm does with use_fast_accum. Products of int8 are summed in int32, which holds every sum up to K = 131,071.
    """
    kp.check(a.dim() == 2, f"a must have 2 dimensions, its shape is {a.shape}")
    kp.check(b.dim() == 2, f"b must have 2 dimensions, its shape is {b.shape}")
    if a.dtype == tl.int8:
        kp.check(b.dtype == tl.int8, "b must be int8, as a is")
    else:
        kp.check(b.dtype != tl.int8, "b is int8, a has 8-bit floats\n  to fix: pass both as int8, or both as 8-bit floats")
    rows, depth, columns = a.shape[0], a.shape[1], b.shape[1]
    kp.check(b.shape[0] == depth, f"b has shape {b.shape}, expected {depth} rows, as a has columns")
    kp.check(
        a.stride(1) == 1 or depth <= 1,
        f"the last dimension of a must be contiguous, its stride is {a.stride(1)}\n  to fix: call .contiguous() on it before the op",
    )
    kp.check(
        b.stride(0) == 1 or depth <= 1,
        f"the first dimension of b must be contiguous, its stride is {b.stride(0)}\n  to fix: pass weight.t() of a weight [N, K]",
    )
    kp.check(
        scale_a.numel() == 1 or (scale_a.numel() == rows and scale_a.shape[0] == rows and scale_a.is_contiguous()),
        f"scale_a has shape {scale_a.shape}, expected one value, or {rows}: one for each row of a, contiguous"
        "\n  to fix: call .contiguous() on it before the op, or .reshape(-1, 1) on a vector",
    )
    kp.check(
        scale_b.numel() == 1 or (scale_b.numel() == columns and scale_b.shape[-1] == columns and scale_b.is_contiguous()),
        f"scale_b has shape {scale_b.shape}, expected one value, or {columns}: one for each column of b, contiguous"
        "\n  to fix: call .contiguous() on it before the op, or .reshape(1, -1)",
    )
    if bias is not None:
        kp.check(
            bias.dim() == 1 and bias.shape[0] == columns and bias.is_contiguous(),
            f"bias has shape {bias.shape}, expected one contiguous dimension of {columns}, as b has columns"
            "\n  to fix: call .contiguous() on it before the op",
        )
    out = kp.empty((rows, columns), tl.bfloat16, a.device)
    few = 0
    if a.is_cuda and a.dtype == tl.int8:
        few = 16 if rows <= 32 else int8_blocks(rows, columns)
    elif a.is_cuda:
        few = 16 if rows <= 16 else 32 if rows <= 32 else few_blocks(rows, columns, 1)
    elif a.dtype == tl.int8:
        blocks = kp.cdiv(rows, 512) * kp.cdiv(columns, 256)
        # large blocks, all threads at a time: an eighth of what they compute, or of the threads, must not be in vain
        computed = kp.cdiv(blocks, kp.num_threads()) * kp.num_threads() * (512 * 256)
        few = 1 if rows <= 1 else 4 if rows <= 8 else 16 if rows <= 32 else 64
        if rows > 64:
            few = 128 if depth < 512 or computed // 9 > rows * columns // 8 else 512 if depth < 1024 else 0
    scales = Scales(scale_a, scale_b, 0 if scale_a.numel() == 1 else 1, 0 if scale_b.numel() == 1 else 1)
    strides = Strides(None, None, a.stride(0), None, None, b.stride(1))
    scaled_matmul_kernel[
        lambda meta: (min(kp.cdiv(rows, meta["BLOCK_M"]) * kp.cdiv(columns, meta["BLOCK_N"]), meta["PROGRAMS"]),)
    ](a, b, scales, bias, out, strides, Shape(None, None, rows, columns, depth), FEW_ROWS=few)
    return out


def reference(a, b, scale_a, scale_b, bias=None):
    """The same with torch: by torch._scaled_mm, or in the dtype of a and b if they are wider; sums of int8 exact, by float64."""
    import torch  # builds do without it

    if a.element_size() > 1:
        x = a @ b * scale_a * scale_b
        return x if bias is None else x + bias
    if a.dtype == torch.int8:
        x = (a.double() @ b.double()).float() * scale_a * scale_b
        return (x if bias is None else x + bias).bfloat16()

    def padded(x, *shape):
        filled = torch.zeros(shape, dtype=x.dtype, device=x.device)
        filled[tuple(slice(size) for size in x.shape)] = x
        return filled

    # GPUs want multiples of 16 and scales of one kind; zeros add nothing
    rows, columns = a.shape[0], b.shape[1]
    depth, width = (max(16, -(-size // 16) * 16) for size in b.shape)
    if scale_a.numel() != 1 or scale_b.numel() != 1:
        scale_a, scale_b = padded(scale_a.expand(rows, 1), rows, 1), padded(scale_b.expand(1, columns), 1, width)
    x = torch._scaled_mm(
        padded(a, rows, depth), padded(b.t(), width, depth).t(), scale_a, scale_b,
        bias=None if bias is None else padded(bias, width), out_dtype=torch.bfloat16, use_fast_accum=True,
    )  # fmt: skip
    return x[:, :columns]
