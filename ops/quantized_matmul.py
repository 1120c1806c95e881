"""Matrix product with a quantised weight: x W^T + bias, as torch.nn.functional.linear gives it for the weight that the codes stand for."""

import kernelpack as kp
import kernelpack.language as tl

from ._blocks import Shape, Strides
from ._int8_products import Activations, int8_kernel, quantize_activations_kernel, round_activations_kernel
from ._quantized_groups import int8_groups_kernel, quantized_groups_kernel
from ._quantized_products import Result, Weight, dequantize_kernel, quantized_blocks_kernel, quantized_rows_kernel
from ._quantized_weights import dequantize
from ._rows import check_whole
from .matmul import ONE_BLOCK, few_blocks, hopper_blocks, matmul_kernel

RANGES = {
    "dtypes": ("float32", "bfloat16"),
    "codes": ("4 bits", "8 bits"),
    "scales": ("float16", "float32"),
    "bias": (None, "x"),
}

FEW_ROWS = (1, 8, 16, 32, 64, 96, 128, 192, 0)
"""Which kernels a call takes. CPUs: those for single rows (int8: 2), for at most 16 and 64 (int8: 16), or 0 for more. GPUs with bfloat16 take at
most 8, at most 16, or 32 rows at a time (int8: 8 or 32), for more what few_blocks of ops/matmul.py chooses, and with float32 what CPUs do, 64 up
to 192 rows. BYTES are those of a number that float activations become on CPUs: 1 with int8, 3 without, which takes a single row or 8."""

CPU_BLOCKS = {16: (16, 64), 64: (32, 64), 0: (128, 64)}
GPU_BLOCKS = {16: (16, 32), 64: (64, 32)}
"""BLOCK_M and BLOCK_N by FEW_ROWS."""
BFLOAT16 = {"avx512bf16", "amx", "bf16", "sve2"}
"""Features of CPUs that multiply bfloat16. Others do in float32, of which elements of the weight then are."""
GROUPS = {8: (8, 32, 16), 16: (16, 32, 16), 32: (32, 32, 8)}
"""BLOCK_M, BLOCK_N and PARTS by FEW_ROWS, of kernels that multiply codes. With int8 PARTS are 8: any batch has the same order of sums."""


DIVISIBLE = ["weight.columns", "shape.columns", *(f"strides.{name}" for name in Strides._fields)]
"""What kernels for aligned calls know to be multiples of 16."""


def needed(point):
    """Whether a call needs a kernel for FEW_ROWS and CODES: not for scales of 16 elements in float16."""
    few, kernel, on_cpu = point["FEW_ROWS"], point.kernel, point.target.backend == "cpu"
    if kernel == "int8_kernel":
        taken = few in ((1, 16, 0) if point["BYTES"] == 1 else (1, 8)) and on_cpu
    elif kernel == "int8_groups_kernel":
        taken = few in (8, 32) and not on_cpu
    elif kernel == "quantized_groups_kernel":
        taken = few in GROUPS and point["x"] == tl.bfloat16 and not on_cpu
    elif point["x"] == tl.bfloat16 and not on_cpu:
        taken = False
    else:
        taken = few == 1 and not on_cpu if kernel == "quantized_rows_kernel" else few in (16, 64, 0)
    return taken and (point["CODES"] != 16 or point["scales"] == tl.float32)


def cpu_config(point):
    kernel = point.kernel
    if point.specialized or kernel in ("matmul_kernel", "dequantize_kernel", "round_activations_kernel"):
        return None
    if kernel == "quantize_activations_kernel":
        return kp.Config({"ROWS": 32})
    if not needed(point):
        return None
    if kernel == "int8_kernel":
        return int8_cpu_config(point)
    rows, columns = CPU_BLOCKS[point["FEW_ROWS"]]
    return kp.Config({"BLOCK_M": rows, "BLOCK_N": columns, "BLOCKS": 2, "WIDE": not BFLOAT16 & {*point.target.features}})


def int8_cpu_config(point):
    """Row by row, but for more than 16 rows where there is AMX, and for products with codes of eight bits where no instruction sums four: tiles
    are faster there."""
    few, features = point["FEW_ROWS"], point.target.features
    if few == 1 or point["BYTES"] == 3:
        return kp.Config({"BLOCK_M": 1 if few == 1 else 2, "BLOCK_N": 64, "TILES": False})
    if (few == 0 and "amx" in features) or (point["CODES"] != 4 and not features):
        return kp.Config({"BLOCK_M": few or 32, "BLOCK_N": 64, "TILES": True})
    return kp.Config({"BLOCK_M": 8, "BLOCK_N": 64, "TILES": False})


def cuda_config(point):
    """A single row wants much of a column on its way at a time. Many rows are worth a weight that is written once."""
    kernel = point.kernel
    if kernel == "matmul_kernel":
        return matmul_config(point)
    if kernel == "quantize_activations_kernel":
        return None
    if kernel == "round_activations_kernel":
        return None if point.specialized else kp.Config({"BLOCKS": 16}, num_warps=4)
    if point["CODES"] == 16 and point["scales"] == tl.float16:
        return None
    if kernel == "dequantize_kernel":
        return kp.Config({"BLOCK_N": 64, "BLOCKS": 2}, num_warps=4)
    if not needed(point):
        return None
    few = point["FEW_ROWS"]
    if kernel in ("quantized_groups_kernel", "int8_groups_kernel"):
        rows, columns, parts = GROUPS[few]
        parts = 8 if kernel == "int8_groups_kernel" else parts
        return kp.Config({"BLOCK_M": rows, "BLOCK_N": columns, "PARTS": parts}, num_warps=4, num_stages=3)
    if few == 1:
        return kp.Config({"BLOCK_N": 32, "WORDS": 128 if point["CODES"] == 4 else 256}, num_warps=8)
    if not few:
        return None
    rows, columns = GPU_BLOCKS[few]
    return kp.Config({"BLOCK_M": rows, "BLOCK_N": columns, "BLOCKS": 2, "WIDE": False}, num_warps=4, num_stages=2)


def matmul_config(point):
    """As matmul has for many rows, and a weight whose columns lie together."""
    few = point["FEW_ROWS"]
    if few not in ((0,) if point["x"] == tl.float32 else (0, 64, 96, 128, 192)):
        return None
    if point["x"] == tl.float32:
        rows, depth = (128, 32) if point.specialized else (64, 16)
        return kp.Config({**ONE_BLOCK, "BLOCK_M": rows, "BLOCK_N": 64, "BLOCK_K": depth, "GROUP": 8}, num_warps=4, num_stages=2)
    if point.specialized and point.target.arch == "sm_90a":
        return hopper_blocks(few)
    return kp.Config({**ONE_BLOCK, "BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP": 8}, num_warps=8, num_stages=3)


def multiply(x, weight, result, codes, int8, batch_invariant):
    """A host function's launches. codes: 4 or 8 bits, or 16 for 8 bits where 16 elements share a scale."""
    rows, columns, blocks = result.rows, weight.columns, weight.blocks
    # GPUs sum a block of few rows in another order than a large one
    few = 0 if batch_invariant and x.is_cuda else 16 if rows <= 16 else 64 if rows <= (192 if x.is_cuda else 64) else 0
    if not x.is_cuda and (int8 or (rows <= (8 if codes == 4 else 6) and not batch_invariant)):
        count, few = 1 if int8 else 3, 1 if rows == 1 or (int8 and rows == 2) else 8 if not int8 else 16 if rows <= 16 else 0
        space = rows if few == 1 else kp.cdiv(rows, 8) * 8
        activations = Activations(
            kp.empty((blocks, space, count, 32), tl.int8, x.device),
            kp.empty((blocks, 2, space), tl.float32, x.device),
            kp.empty((blocks, space, count, 2), tl.int32, x.device),
            space,
        )
        together = blocks if rows * blocks <= 400 else 4  # few take less time than other threads to begin
        quantize_activations_kernel[lambda meta: (kp.cdiv(blocks, together), kp.cdiv(space, meta["ROWS"]))](
            x, activations, rows, blocks, together, BYTES=count
        )
        int8_kernel[lambda meta: (kp.cdiv(rows, meta["BLOCK_M"]), kp.cdiv(columns, meta["BLOCK_N"]))](
            activations, weight, result, CODES=codes, FEW_ROWS=few, BYTES=count
        )
    elif int8:
        values = kp.empty((rows, blocks * 32), tl.bfloat16, x.device)
        steps = kp.empty((rows, blocks), tl.float32, x.device)
        round_activations_kernel[lambda meta: (rows, kp.cdiv(blocks, meta["BLOCKS"]))](x, values, steps, blocks)
        int8_groups_kernel[lambda meta: (kp.cdiv(rows, meta["BLOCK_M"]), kp.cdiv(columns, meta["BLOCK_N"]))](
            values, steps, weight, result, CODES=codes, FEW_ROWS=8 if rows <= 8 else 32
        )
    elif x.is_cuda and x.dtype == tl.bfloat16 and rows <= 128 and not batch_invariant:
        quantized_groups_kernel[lambda meta: (kp.cdiv(rows, meta["BLOCK_M"]), kp.cdiv(columns, meta["BLOCK_N"]))](
            x, weight, result, CODES=codes, FEW_ROWS=8 if rows <= 8 else 16 if rows <= 16 else 32
        )
    elif x.is_cuda and (x.dtype == tl.bfloat16 or few == 0):
        whole = kp.empty((blocks * 32, columns), x.dtype, x.device)
        dequantize_kernel[lambda meta: (kp.cdiv(blocks, meta["BLOCKS"]), kp.cdiv(columns, meta["BLOCK_N"]))](
            weight, whole, CODES=codes
        )
        matmul_kernel[
            lambda meta: (min(kp.cdiv(rows, meta["BLOCK_M"]) * kp.cdiv(columns, meta["BLOCK_N"]), meta["PROGRAMS"]), 1, 1)
        ](
            x, whole, result.bias, result.has_bias, result.out, Strides(0, 0, blocks * 32, 0, 0, columns),
            Shape(1, 1, rows, columns, blocks * 32), 0, B_TRANSPOSED=False,
            FEW_ROWS=0 if x.dtype == tl.float32 else few_blocks(rows, columns, 1),
        )  # fmt: skip
    elif rows == 1 and not batch_invariant:
        quantized_rows_kernel[lambda meta: (rows, kp.cdiv(columns, meta["BLOCK_N"]))](
            x, weight, result, CODES=codes, FEW_ROWS=1
        )
    else:
        quantized_blocks_kernel[lambda meta: (kp.cdiv(rows, meta["BLOCK_M"]), kp.cdiv(columns, meta["BLOCK_N"]))](
            x, weight, result, CODES=codes, FEW_ROWS=few
        )


@kp.op(
    "quantized_matmul(Tensor x, Tensor codes, Tensor scales, Tensor mins, Tensor? bias=None, *, int? columns=None, "
    "bool int8=False, bool batch_invariant=False) -> Tensor",
    variants={
        "x": [tl.float32, tl.bfloat16],
        "codes": [tl.int32],
        "scales": [tl.float16, tl.float32],
        "mins": [kp.same_as("scales")],
        "bias": [None, kp.same_as("x")],
        "CODES": (4, 8, 16),
        "BYTES": (1, 3),
        "FEW_ROWS": FEW_ROWS,
    },
    configs={"cpu": cpu_config, "cuda": cuda_config},
    specialize=[kp.aligned("x", "codes", "scales", "mins", divisible=DIVISIBLE)],
)
def quantized_matmul(x, codes, scales, mins, bias, columns, int8, batch_invariant):
    """Returns x W^T + bias in x's dtype, [..., N], for x [..., K] and a weight W [N, K] in the layout that `repack` gives.

    - `codes` int32 [N / 64, K / 32, 4 or 8, 64], `scales` float16 or float32 [N / 64, K / group, 64], `mins` of their dtype
      [N / 64, K / group, 64] or [N / 64, 0, 64] (ops/_quantized_weights.py says what each word holds). The shape of codes names the
      layout: how many bits a code has. Where N is no multiple of 64, `columns` says what it is: it ends in the last tile.
    - `bias` [N] has x's dtype.

    Without int8 the product is that of x and the weight: an element of the weight is scale * code + min in float32, rounded to bfloat16 if
    many rows of x have it (on GPUs more than 128), and sums are in float32. Up to eight rows on CPUs, or six with codes of 8 bits, are taken
    in fixed point of 24 bits: each 32 elements as multiples of 1/8355711 of the largest of them, with errors like those of sums in float32.
    With int8, x is rounded first: each 32 elements of a row to multiples of 1/127 of the largest of them, as llama.cpp does (Q8_0, Q8_1).
    Products of codes with either are summed in int32, exact. An infinity or NaN in x gives NaN or infinities in its row; elements below 2^-98
    may count as 0.

    batch_invariant: a row of the result has the same bits whatever rows are beside it.
    """
    kp.check(x.dim() >= 1, "x has no dimensions, expected at least one")
    kp.check(
        codes.dim() == 4 and codes.shape[3] == 64 and (codes.shape[2] == 4 or codes.shape[2] == 8),
        f"codes has shape {codes.shape}, expected (tiles, blocks, 4 or 8, 64)\n  to fix: make it with repack",
    )
    tiles, blocks, bits = codes.shape[0], codes.shape[1], codes.shape[2]
    kp.check(x.shape[-1] == blocks * 32, f"x has {x.shape[-1]} columns, expected {blocks * 32}: 32 for each block of codes")
    kp.check(
        scales.dim() == 3 and scales.shape[0] == tiles and scales.shape[2] == 64,
        f"scales has shape {scales.shape}, expected ({tiles}, groups, 64)",
    )
    groups = scales.shape[1]
    halves = blocks > 0 and groups == 2 * blocks
    kp.check(
        (halves and bits == 8) or (groups > 0 and blocks % groups == 0) or blocks == 0,
        f"scales has {groups} groups for {blocks} blocks of 32 elements, expected one for a whole number of blocks, or two for a block of "
        f"8-bit codes",
    )
    kp.check(not halves or scales.dtype == tl.float32, "scales is float16, expected float32 where 16 elements share one")
    kp.check(
        mins.dim() == 3
        and mins.shape[0] == tiles
        and mins.shape[2] == 64
        and (mins.shape[1] == 0 or (mins.shape[1] == groups and bits == 4)),
        f"mins has shape {mins.shape}, expected ({tiles}, 0, 64), or with 4-bit codes {scales.shape}, as scales has",
    )
    if columns is None:
        columns = tiles * 64
    else:
        kp.check(
            columns >= 0 and kp.cdiv(columns, 64) == tiles,
            f"columns is {columns}, expected a number that ends in the last of {tiles} tiles of 64",
        )
    check_whole(x, "x")
    check_whole(codes, "codes")
    check_whole(scales, "scales")
    check_whole(mins, "mins")
    kp.check(codes.numel() < 2**31, f"codes has {codes.numel()} words, expected fewer than 2**31")
    if bias is not None:
        kp.check(
            bias.dim() == 1 and bias.shape[0] == columns and bias.is_contiguous(),
            f"bias has shape {bias.shape}, expected one contiguous dimension of {columns}, a row of the weight each",
        )
    out = kp.empty((*x.shape[:-1], columns), x.dtype, x.device)
    rows = out.numel() // max(columns, 1)
    least = mins.shape[1] > 0
    weight = Weight(
        codes,
        scales,
        mins if least else scales,
        1.0 if least else -8.0,
        columns,
        blocks,
        groups,
        1 if halves else max(blocks // max(groups, 1), 1),
    )
    result = Result(out, out if bias is None else bias, bias is not None, rows)
    if scales.dtype == tl.float16:
        multiply(x, weight, result, 4 if bits == 4 else 8, int8, batch_invariant)
    else:
        multiply(x, weight, result, 4 if bits == 4 else 16 if halves else 8, int8, batch_invariant)
    return out


def rounded(x):
    """Returns what int8 makes of rows x [..., K]: each 32 elements in multiples of 1/127 of the largest, in x's dtype, with torch."""
    parts = x.float().unflatten(-1, (-1, 32))
    step = parts.abs().amax(-1, keepdim=True) / 127
    return (
        ((parts / step).nan_to_num().round().clamp(-127, 127) * step)
        .flatten(-2)
        .to(x.dtype if x.dtype.itemsize > 4 else step.dtype)
    )


def reference(x, codes, scales, mins, bias=None, columns=None, int8=False, batch_invariant=False):
    """The same with torch, in x's dtype or wider; with int8, of what x is rounded to."""
    weight = dequantize(codes, scales, mins, x.dtype, columns)
    product = (rounded(x).to(x.dtype) if int8 else x) @ weight.T
    return product if bias is None else product + bias
