"""Matrix product with optional bias and activation: activation(a b + bias)."""

import enum

import kernelpack as kp
import kernelpack.language as tl

from ._blocks import Blocks, Epilogue, Shape, Strides, activate, place_of
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
def matmul_block(a, b, out, strides, shape, epilogue, blocks):
    """One block of a product: walks along k, and sums in registers."""
    m, n = place_of(tl.program_id(0), tl.cdiv(shape.rows, blocks.M), tl.cdiv(shape.columns, blocks.N), blocks.GROUP)
    offs_m = m * blocks.M + tl.arange(0, blocks.M)
    offs_n = n * blocks.N + tl.arange(0, blocks.N)
    offs_k = tl.arange(0, blocks.K)
    a_tile = a + offs_m[:, None] * strides.a_row + offs_k[None, :]
    if blocks.B_TRANSPOSED:
        b_tile = b + offs_k[:, None] + offs_n[None, :] * strides.b_step
    else:
        b_tile = b + offs_k[:, None] * strides.b_step + offs_n[None, :]
    acc = tl.zeros([blocks.M, blocks.N], tl.float32)
    for k in range(0, shape.depth, blocks.K):
        inside = k + offs_k < shape.depth
        x = tl.load(a_tile, mask=(offs_m[:, None] < shape.rows) & inside[None, :], other=0.0)
        y = tl.load(b_tile, mask=inside[:, None] & (offs_n[None, :] < shape.columns), other=0.0)
        acc = tl.dot(x, y, acc, input_precision="ieee")
        a_tile += blocks.K
        b_tile += blocks.K if blocks.B_TRANSPOSED else blocks.K * strides.b_step
    has_bias = (offs_n < shape.columns) & epilogue.has_bias
    acc += tl.load(epilogue.bias + offs_n, mask=has_bias, other=0.0).to(tl.float32)[None, :]
    target = out + offs_m[:, None].to(tl.int64) * shape.columns + offs_n[None, :]
    inside = (offs_m[:, None] < shape.rows) & (offs_n[None, :] < shape.columns)
    if epilogue.activation == 0:  # stored from where it was summed
        tl.store(target, acc.to(out.dtype.element_ty), mask=inside)
    else:
        tl.store(target, activate(acc, epilogue.activation).to(out.dtype.element_ty), mask=inside)


@kp.jit
def sum_rows(a, b, offs_n, strides, shape, blocks):
    """Returns a block of columns of a row times b, which is read in the order in which it lies: every element counts once."""
    offs_k = tl.arange(0, blocks.K)
    row = a + offs_k
    if blocks.B_TRANSPOSED:
        b_tile = b + offs_n[:, None] * strides.b_step + offs_k[None, :]
    else:
        b_tile = b + offs_k[:, None] * strides.b_step + offs_n[None, :]
    acc = tl.zeros([blocks.N], tl.float32)
    for k in range(0, shape.depth, blocks.K):
        inside = k + offs_k < shape.depth
        x = tl.load(row, mask=inside, other=0.0).to(tl.float32)
        if blocks.B_TRANSPOSED:
            y = tl.load(b_tile, mask=(offs_n[:, None] < shape.columns) & inside[None, :], other=0.0).to(tl.float32)
            acc += tl.sum(x[None, :] * y, axis=1)
        else:
            y = tl.load(b_tile, mask=inside[:, None] & (offs_n[None, :] < shape.columns), other=0.0).to(tl.float32)
            acc += tl.sum(x[:, None] * y, axis=0)
        row += blocks.K
        b_tile += blocks.K if blocks.B_TRANSPOSED else blocks.K * strides.b_step
    return acc


@kp.jit
def sum_row_by_row(a, b, offs_n, strides, shape):
    """The same of a few columns, whose sums stay in registers: b is read down. Each 8 products are summed apart, as sums of many lose bits."""
    inside, row = offs_n < shape.columns, b + offs_n
    whole = shape.depth // 8 * 8
    acc = tl.zeros([offs_n.shape[0]], tl.float32)
    for k in range(0, whole, 8):
        x = [tl.load(a + k + i).to(tl.float32) for i in tl.static_range(8)]
        part = tl.zeros([offs_n.shape[0]], tl.float32)
        for i in tl.static_range(8):
            part = tl.fma(x[i], tl.load(row + i * strides.b_step, mask=inside, other=0.0).to(tl.float32), part)
        acc = tl.where(inside, acc + part, acc)
        row += 8 * strides.b_step
    for k in range(whole, shape.depth):
        y = tl.load(row, mask=inside, other=0.0).to(tl.float32)
        acc = tl.where(inside, tl.fma(tl.load(a + k).to(tl.float32), y, acc), acc)
        row += strides.b_step
    return acc


@kp.jit
def matmul_row(a, b, out, strides, shape, epilogue, blocks):
    """A block of columns of a product with one row. With an a_row of 0 all columns share the first element of bias."""
    offs_n = tl.program_id(0) * blocks.N + tl.arange(0, blocks.N)
    if blocks.K == 1:
        acc = sum_row_by_row(a, b, offs_n, strides, shape)
    else:
        acc = sum_rows(a, b, offs_n, strides, shape, blocks)
    inside, has_bias, shared = offs_n < shape.columns, epilogue.has_bias, strides.a_row == 0
    acc += tl.load(epilogue.bias + offs_n, mask=inside & has_bias & (not shared), other=0.0).to(tl.float32)
    acc += tl.load(epilogue.bias, mask=has_bias & shared, other=0.0).to(tl.float32)
    tl.store(out + offs_n, activate(acc, epilogue.activation).to(out.dtype.element_ty), mask=inside)


@kp.jit
def matmul_kernel(
    a, b, bias, has_bias, out, strides, shape, activation,
    B_TRANSPOSED: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
    SLOTS: tl.constexpr, PROGRAMS: tl.constexpr,
):  # fmt: skip
    """One block of one product of a batch, or with SLOTS every PROGRAMS-th. B_TRANSPOSED: b is contiguous along k, otherwise along n.
    Without has_bias, bias is any tensor of the dtype, and not read. With BLOCK_M 1 there is one row."""
    blocks: tl.constexpr = Blocks(BLOCK_M, BLOCK_N, BLOCK_K, GROUP, B_TRANSPOSED, SLOTS)
    epilogue = Epilogue(bias, has_bias, activation)
    if SLOTS:
        matmul_by_roles(a, b, out, strides, shape, epilogue, blocks)
    else:
        batch, outer = tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
        a += outer * strides.a_outer + batch * strides.a_batch
        b += outer * strides.b_outer + batch * strides.b_batch
        out += (outer * shape.batches + batch) * shape.rows * shape.columns
        if BLOCK_M == 1:
            matmul_row(a, b, out, strides, shape, epilogue, blocks)
        else:
            matmul_block(a, b, out, strides, shape, epilogue, blocks)


ONE_BLOCK = {"SLOTS": 0, "PROGRAMS": 2**31 - 1}
"""Constexprs of kernels whose programs compute one block each."""


FEW_ROWS = (0, 1, 2, 4, 8, 16, 32, 64, 96, 128, 192)
"""Which blocks a call needs: those for at most so many rows, or 0 for more. GPUs have blocks for 16, 32, 64 and a float32 row or
column, which is 1; CPUs have those up to 128, 32 for B_TRANSPOSED, and 2 is one row times a small b, for which it is not. 128 means as many
rows at a time. On Hopper 64 to 192 are the blocks of HOPPER_BLOCKS, one larger than the other."""

SMALL = 2**22
"""Up to so many bytes the caches hold b, and one row walks down a few of its columns at a time."""

CPU_BLOCKS = {
    1: ((1, 512, 8), (1, 16, 128)),
    2: ((1, 64, 1), None),
    4: ((4, 64, 64), (4, 64, 256)),
    8: ((8, 64, 64), (8, 64, 256)),
    16: ((16, 64, 64), (16, 64, 256)),
    32: (None, (16, 64, 256)),
    64: ((64, 64, 64), (64, 64, 64)),
    128: ((128, 64, 128), (128, 64, 128)),
}
"""BLOCK_M, BLOCK_N and BLOCK_K on CPUs by FEW_ROWS: for b as it is, and for B_TRANSPOSED. Those of up to 16 rows sum along k in vectors where
B_TRANSPOSED, and read b where it lies: 32 rows do so twice. Others begin a sum anew with each block of k."""


def cpu_config(point):
    few = point["FEW_ROWS"]
    if few:
        chosen = CPU_BLOCKS.get(few, (None, None))[point["B_TRANSPOSED"]]
        if chosen is None:
            return None
        rows, columns, depth = chosen
        if few == 1 and point["B_TRANSPOSED"] and not point.target.arch.startswith("x86-64-v4"):
            columns, depth = 8, 64  # with AVX-512 memory is slower than either
        return kp.Config({**ONE_BLOCK, "BLOCK_M": rows, "BLOCK_N": columns, "BLOCK_K": depth, "GROUP": 8})
    if point["a"] != tl.float32:  # rows are packed too, and the second cache holds all
        return kp.Config({**ONE_BLOCK, "BLOCK_M": 256, "BLOCK_N": 256, "BLOCK_K": 128, "GROUP": 8})
    depth = 512 if point.target.arch.startswith("x86-64-v4") else 256  # CPUs with AVX-512 have second caches of 1 or 2 MB
    return kp.Config({**ONE_BLOCK, "BLOCK_M": 512, "BLOCK_N": 256, "BLOCK_K": depth, "GROUP": 8})


AMX_BLOCKS = {0: (512, 128, 512), 16: (16, 128, 512), 32: (32, 128, 512), 64: (32, 128, 512), 128: (128, 128, 512)}
"""The same for bfloat16 in the tiles of AMX, which want many steps along k: a block of sums is read and written for each block of k.
Large blocks of the same rows come one after the other, as the second cache keeps these."""


def amx_config(point):
    if point["a"] != tl.bfloat16 or point["FEW_ROWS"] not in AMX_BLOCKS:
        return cpu_config(point)
    rows, columns, depth = AMX_BLOCKS[point["FEW_ROWS"]]
    group = 8 if point["FEW_ROWS"] else 1
    return kp.Config({**ONE_BLOCK, "BLOCK_M": rows, "BLOCK_N": columns, "BLOCK_K": depth, "GROUP": group})


FLOAT32_BLOCKS = {16: (16, 32, 64), 32: (32, 32, 32), 64: (16, 64, 32)}
"""BLOCK_M, BLOCK_N and BLOCK_K of few rows of float32 on GPUs by FEW_ROWS: 16 where these blocks are few, 32 for more than 16 rows."""


def cuda_config(point):
    wide, few = point["a"] == tl.float32, point["FEW_ROWS"]
    if few in ((2, 4, 8, 96, 192) if wide else (2, 4, 8)) or (few == 1 and not (wide and point["B_TRANSPOSED"])):
        return None
    if few == 1:  # a column: each warp reads two rows of a, 1 KB at a time
        return kp.Config({**ONE_BLOCK, "BLOCK_M": 1, "BLOCK_N": 8, "BLOCK_K": 256, "GROUP": 1}, num_warps=4)
    if few in (16, 32, 64):
        few = few if point.specialized else 64
        rows, columns, depth = FLOAT32_BLOCKS[few] if wide else (few, 64, 64)
        blocks = {"BLOCK_M": rows, "BLOCK_N": columns, "BLOCK_K": depth, "GROUP": 1}
        return kp.Config({**ONE_BLOCK, **blocks}, num_warps=4, num_stages=3)
    if wide:
        rows, depth = (128, 32) if point.specialized else (64, 16)  # addresses that nothing is known of take the registers
        return kp.Config({**ONE_BLOCK, "BLOCK_M": rows, "BLOCK_N": 64, "BLOCK_K": depth, "GROUP": 8}, num_warps=4, num_stages=2)
    return kp.Config({**ONE_BLOCK, "BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP": 8}, num_warps=8, num_stages=3)


HOPPER_BLOCKS = {
    16: (16, 64, 128, 8),
    32: (32, 64, 128, 8),
    64: (64, 64, 128, 6),
    96: (64, 128, 128, 4),
    128: (128, 128, 64, 6),
    192: (192, 128, 64, 4),
    0: (128, 256, 64, 4),
}
"""BLOCK_M, BLOCK_N, BLOCK_K and SLOTS of 16-bit matrices on Hopper by FEW_ROWS. Few rows are bound by reading b: many narrow blocks, much on its
way at a time."""


def hopper_blocks(few, bits=16):
    """Returns the config of kernels with roles for matrices of 16 or 8 bits."""
    rows, columns, depth, slots = HOPPER_BLOCKS[few]
    blocks = {"BLOCK_M": rows, "BLOCK_N": columns, "BLOCK_K": depth * 16 // bits, "SLOTS": slots}
    group = 1 if few in (16, 32, 64) else 8
    # H100 (SXM) and H200 have 132 multiprocessors; elsewhere some programs wait for others
    return kp.Config({**blocks, "GROUP": group, "PROGRAMS": 132}, launch_pdl=True)


def hopper_config(point):
    """Roles need inputs that TMA can address; of float32, large blocks."""
    plain, wide = cuda_config(point), point["a"] == tl.float32
    if plain is None or not point.specialized or (wide and point["FEW_ROWS"]):
        return plain
    if wide:
        blocks = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 32, "GROUP": 8, "SLOTS": 4}
        return kp.Config({**blocks, "PROGRAMS": 132}, launch_pdl=True)
    return hopper_blocks(point["FEW_ROWS"])


def few_blocks(rows, columns, batches):
    """A host function's choice of FEW_ROWS on GPUs for more than 64 rows of 16 bits, or 32 of 8: the blocks that are done soonest on an H200, the
    larger ones where two are. 132 are computed at a time; for 16 bits of depth 4,096 a time takes as many microseconds as stand here. All
    sum in one order."""
    small = 10 * kp.cdiv(kp.cdiv(rows, 64) * kp.cdiv(columns, 64) * batches, 132)
    flat = 15 * kp.cdiv(kp.cdiv(rows, 64) * kp.cdiv(columns, 128) * batches, 132)
    square = 23 * kp.cdiv(kp.cdiv(rows, 128) * kp.cdiv(columns, 128) * batches, 132)
    tall = 35 * kp.cdiv(kp.cdiv(rows, 192) * kp.cdiv(columns, 128) * batches, 132)
    large = 45 * kp.cdiv(kp.cdiv(rows, 128) * kp.cdiv(columns, 256) * batches, 132)
    least = min(min(small, flat), min(square, min(tall, large)))
    return 0 if large == least else 192 if tall == least else 128 if square == least else 96 if flat == least else 64


def invariant(few, transposed, tiles):
    """A host function's choice of FEW_ROWS on CPUs among those that sum in one order. tiles: few rows have another one where there is AMX."""
    least = 16 if tiles else 4
    most = 16 if transposed else 64
    return max(least, min(64 if few == 0 else few, most))


@kp.op(
    "matmul(Tensor a, Tensor b, Tensor? bias=None, *, int activation=0, bool batch_invariant=False) -> Tensor",
    variants={
        "a": [tl.float32, tl.float16, tl.bfloat16],
        "B_TRANSPOSED": [False, True],
        "FEW_ROWS": FEW_ROWS,
    },
    configs={"cpu": cpu_config, "cpu:x86-64-v4+amx": amx_config, "cuda": cuda_config, "cuda:sm_90a": hopper_config},
    specialize=[kp.aligned(inner=8, divisible=[f"strides.{name}" for name in Strides._fields])],
)
def matmul(a, b, bias, activation, batch_invariant):
    """activation(a b + bias), summed in float32 (float32 products are exact, never tf32).

    a [..., M, K] with a contiguous last dimension, b [..., K, N], contiguous along one of its last two dimensions (b may be a
    transposed weight); bias [N]; all of one dtype. The dimensions before the last two broadcast as in torch.matmul, and must collapse to
    two: up to rank 4 they always do. activation is one of Activation: 0 none, 1 relu, 2 gelu (erf), 3 gelu (tanh), 4 silu.
    batch_invariant: a row of the result has the same bits whatever other rows and matrices are in the call, where tensors begin at
    multiples of 16 bytes. Returns [..., M, N], contiguous.
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
    (outer, batches), (a_outer, a_batch), (b_outer, b_batch) = kp.collapse_batches(a, b, ndims=2)
    rows, a_row = a.shape[-2], a.stride(-2)
    if b_batch == 0 and (rows == 1 or a_batch == rows * a_row):
        # matrices of a that share one of b, and lie one below the other, are a taller one
        a_row = a_batch if rows == 1 else a_row
        rows, batches, a_batch, b_batch = batches * rows, outer, a_outer, b_outer
        outer, a_outer, b_outer = 1, 0, 0
    transposed = b.stride(-1) != 1 and columns > 1
    if columns == 1 and (a.element_size() == 4 or not a.is_cuda) and (b.stride(-2) == 1 or depth <= 1):
        # its transpose has one row: then the rows of a, which are b's columns, are read as they lie and summed in many chains
        matmul_kernel[lambda meta: (kp.cdiv(rows, meta["BLOCK_N"]), batches, outer)](
            b, a, out if bias is None else bias, bias is not None, out,
            Strides(b_outer, b_batch, 0, a_outer, a_batch, a_row), Shape(outer, batches, 1, rows, depth), activation,
            B_TRANSPOSED=True, FEW_ROWS=1,
        )  # fmt: skip
    else:
        if a.is_cuda:
            few = 64
            if rows > 64 and a.element_size() == 2:
                few = few_blocks(rows, columns, batches * outer)
            if rows > 64 and a.element_size() == 4:
                blocks = kp.cdiv(rows, 128) * kp.cdiv(columns, 64) * batches * outer
                few = 128 if batch_invariant or blocks <= 132 else 0  # blocks that all run at once are done sooner if small
            if rows <= 32 and a.element_size() == 2 and not batch_invariant:
                few = 16 if rows <= 16 else 32
            if rows <= 64 and a.element_size() == 4 and not batch_invariant:
                blocks = kp.cdiv(rows, 16) * kp.cdiv(columns, 32) * batches * outer
                few = 1 if rows == 1 and transposed else 16 if blocks <= 264 else 32 if rows > 16 else 64
        elif rows <= 64:
            few = 1 if rows <= 1 else 4 if rows <= 4 else 8 if rows <= 8 else 16 if rows <= 16 else 64
            if 16 < rows <= 32 and transposed:
                few = 32
            if rows == 1 and not transposed:
                idle = kp.cdiv(columns, 512) * batches * outer < kp.num_threads()
                few = 2 if idle or depth * columns * b.element_size() <= SMALL else 1
        else:
            large = 256 if a.dtype == tl.float16 else 512  # bfloat16's without AMX has half the rows
            blocks = kp.cdiv(rows, large) * kp.cdiv(columns, 256) * batches * outer
            # large blocks, all threads at a time: an eighth of what they compute, or of the threads, must not be in vain
            computed = kp.cdiv(blocks, kp.num_threads()) * kp.num_threads() * (large * 256)
            few = 128 if computed // 9 > rows * columns * batches * outer // 8 else 0
        if batch_invariant and not a.is_cuda:
            few = invariant(few, transposed, a.dtype == tl.bfloat16)
        matmul_kernel[
            lambda meta: (
                min(kp.cdiv(rows, meta["BLOCK_M"]) * kp.cdiv(columns, meta["BLOCK_N"]), meta["PROGRAMS"]),
                batches,
                outer,
            )
        ](
            a, b, out if bias is None else bias, bias is not None, out,
            Strides(
                a_outer, a_batch, 16 if rows == 1 else a_row,
                b_outer, b_batch, b.stride(-1) if transposed else b.stride(-2),
            ),
            Shape(outer, batches, rows, columns, depth), activation, B_TRANSPOSED=transposed, FEW_ROWS=few,
        )  # fmt: skip
    return out


def reference(a, b, bias=None, activation=0, batch_invariant=False):
    """The same in plain torch, in the dtype of its arguments."""
    import torch  # builds do without it

    x = a @ b if bias is None else a @ b + bias
    gelu = torch.nn.functional.gelu
    functions = (lambda y: y, torch.relu, gelu, lambda y: gelu(y, approximate="tanh"), torch.nn.functional.silu)
    return functions[activation](x)
