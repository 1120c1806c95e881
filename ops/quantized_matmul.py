"""Matrix product with a quantised weight: x W^T + bias, as torch.nn.functional.linear gives it for the weight that the codes stand for."""

import kernelpack as kp
import kernelpack.language as tl

from ._int8_products import Activations, int8_blocks_kernel, int8_rows_kernel, quantize_activations_kernel
from ._quantized_products import Result, Weight, quantized_blocks_kernel, quantized_rows_kernel
from ._quantized_weights import dequantize
from .repack import check_whole

RANGES = {
    "dtypes": ("float32", "bfloat16"),
    "codes": ("4 bits", "8 bits"),
    "scales": ("float16", "float32"),
    "bias": (None, "x"),
}

FEW_ROWS = (1, 16, 0)
"""Which kernels a call takes: those for single rows, for at most 16, or 0 for more."""


def config(point):
    cpu, kernel = point.target.backend == "cpu", point.kernel
    if kernel == "quantize_activations_kernel":
        return kp.Config({"BLOCKS": 4}, num_warps=4)
    few = point["FEW_ROWS"]
    if point["CODES"] == 16 and point["scales"] == tl.float16:
        return None
    if (few == 1) != kernel.endswith("rows_kernel"):
        return None
    if few == 1:
        if kernel == "int8_rows_kernel":
            return kp.Config({"BLOCK_N": 64}) if cpu else None
        return kp.Config({"BLOCK_N": 128, "WORDS": 0}) if cpu else kp.Config({"BLOCK_N": 32, "WORDS": 32}, num_warps=4)
    blocks = {"BLOCK_M": 16 if few else 128 if cpu else 64, "BLOCK_N": 64}
    return kp.Config(blocks if kernel == "int8_blocks_kernel" else {**blocks, "BLOCKS": 2}, num_warps=4)


def multiply(x, weight, result, codes, int8, batch_invariant):
    """A host function's launches. codes: 4 or 8 bits, or 16 for 8 bits where 16 elements share a scale."""
    rows, columns, blocks = result.rows, weight.columns, weight.blocks
    # GPUs sum a block of few rows in another order than a large one
    few = 16 if rows <= 16 and not (batch_invariant and x.is_cuda) else 0
    if int8:
        values = kp.empty((rows, blocks * 32), tl.int8, x.device)
        steps = kp.empty((rows, blocks), tl.float32, x.device)
        sums = kp.empty((rows, blocks * 2), tl.int32, x.device)
        activations = Activations(values, steps, sums)
        quantize_activations_kernel[(rows,)](x, activations, blocks)
        if not x.is_cuda and rows <= 4:
            int8_rows_kernel[lambda meta: (rows, kp.cdiv(columns, meta["BLOCK_N"]))](
                activations, weight, result, CODES=codes, FEW_ROWS=1
            )
        else:
            int8_blocks_kernel[lambda meta: (kp.cdiv(rows, meta["BLOCK_M"]), kp.cdiv(columns, meta["BLOCK_N"]))](
                activations, weight, result, CODES=codes, FEW_ROWS=few
            )
    elif rows <= (1 if x.is_cuda else 4) and not batch_invariant:
        quantized_rows_kernel[lambda meta: (rows, kp.cdiv(columns, meta["BLOCK_N"]))](
            x, weight, result, CODES=codes, FEW_ROWS=1
        )
    else:
        quantized_blocks_kernel[lambda meta: (kp.cdiv(rows, meta["BLOCK_M"]), kp.cdiv(columns, meta["BLOCK_N"]))](
            x, weight, result, CODES=codes, FEW_ROWS=few
        )


@kp.op(
    "quantized_matmul(Tensor x, Tensor codes, Tensor scales, Tensor mins, Tensor? bias=None, *, bool int8=False, "
    "bool batch_invariant=False) -> Tensor",
    variants={
        "x": [tl.float32, tl.bfloat16],
        "codes": [tl.int32],
        "scales": [tl.float16, tl.float32],
        "mins": [kp.same_as("scales")],
        "bias": [None, kp.same_as("x")],
        "CODES": (4, 8, 16),
        "FEW_ROWS": FEW_ROWS,
    },
    configs={"": config},
    specialize=[],
)
def quantized_matmul(x, codes, scales, mins, bias, int8, batch_invariant):
    """Returns x W^T + bias in x's dtype, [..., N], for x [..., K] and a weight W [N, K] in the layout that `repack` gives.

    - `codes` int32 [K / 32, 4 or 8, N], `scales` float16 or float32 [K / group, N], `mins` of their dtype [K / group, N] or [0, N]
      (ops/_quantized_weights.py says what each word holds). The shape of codes names the layout: how many bits a code has.
    - `bias` [N] has x's dtype.

    Without int8 the product is that of x and the weight: an element of the weight is scale * code + min in float32, which more than one
    row of bfloat16 round to it, and sums are in float32. With int8, x is rounded first: each 32 elements of a row
    to multiples of 1/127 of the largest of them, as llama.cpp does (Q8_0, Q8_1), and products of codes are summed in int32, exact. An
    infinity or NaN in x gives NaN or infinities in its row; elements below 2^-98 may count as 0. batch_invariant: a row of the result has the same bits whatever rows are beside it.
    """
    kp.check(x.dim() >= 1, "x has no dimensions, expected at least one")
    kp.check(codes.dim() == 3, f"codes must have 3 dimensions, it has shape {codes.shape}\n  to fix: make it with repack")
    blocks, bits, columns = codes.shape
    kp.check(
        bits == 4 or bits == 8,
        f"codes has shape {codes.shape}, expected 4 or 8 words for each 32 elements\n  to fix: make it with repack",
    )
    kp.check(x.shape[-1] == blocks * 32, f"x has {x.shape[-1]} columns, expected {blocks * 32}: 32 for each block of codes")
    kp.check(scales.dim() == 2 and scales.shape[1] == columns, f"scales has shape {scales.shape}, expected (groups, {columns})")
    groups = scales.shape[0]
    halves = blocks > 0 and groups == 2 * blocks
    kp.check(
        (halves and bits == 8) or (groups > 0 and blocks % groups == 0) or blocks == 0,
        f"scales has {groups} rows for {blocks} blocks of 32 elements, expected one row for a whole number of blocks, or two for a block of "
        f"8-bit codes",
    )
    kp.check(not halves or scales.dtype == tl.float32, "scales is float16, expected float32 where 16 elements share one")
    kp.check(
        mins.dim() == 2 and mins.shape[1] == columns and (mins.shape[0] == 0 or (mins.shape[0] == groups and bits == 4)),
        f"mins has shape {mins.shape}, expected (0, {columns}), or with 4-bit codes {scales.shape}, as scales has",
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
    least = mins.shape[0] > 0
    weight = Weight(
        codes,
        scales,
        mins if least else scales,
        1.0 if least else -8.0,
        columns,
        blocks,
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


def reference(x, codes, scales, mins, bias=None, int8=False, batch_invariant=False):
    """The same with torch, in x's dtype or wider; with int8, of what x is rounded to."""
    weight = dequantize(codes, scales, mins, x.dtype)
    product = (rounded(x).to(x.dtype) if int8 else x) @ weight.T
    return product if bias is None else product + bias
