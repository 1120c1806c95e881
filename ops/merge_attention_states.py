"""Attention to two sets of keys, of what attention to each of them gave."""

import kernelpack as kp
import kernelpack.language as tl

from ._exponents import LOG2_E
from ._paged import LN_2, RowStrides
from ._roles import begin_early, early
from ._rows import check_contiguous

RANGES = {"dtypes": ("float32", "float16", "bfloat16")}


@kp.jit
def merge_kernel(
    out_a, lse_a, out_b, lse_b, out, lse, a_strides, b_strides, out_strides, tokens, heads, size,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """ROWS rows, a token's heads one after the other, and COLUMNS columns of them."""
    begin_early()
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = rows < tokens.to(tl.int64) * heads
    token, head = rows // heads, rows % heads
    log_a = tl.load(lse_a + head * tokens + token, mask=inside, other=0.0)
    log_b = tl.load(lse_b + head * tokens + token, mask=inside, other=0.0)
    highest = tl.where((log_a > log_b) | (log_a != log_a), log_a, log_b)  # NaN stays NaN
    finite = tl.where(highest == -float("inf"), 0.0, highest)
    a, b = tl.exp2((log_a - finite) * LOG2_E), tl.exp2((log_b - finite) * LOG2_E)
    total = a + b
    whole = tl.where(total == 0.0, 1.0, total)
    in_tile = inside[:, None] & (columns[None, :] < size)
    at_a = token * a_strides.token + head * a_strides.head
    at_b = token * b_strides.token + head * b_strides.head
    x = tl.load(out_a + at_a[:, None] + columns[None, :], mask=in_tile, other=0.0).to(tl.float32)
    y = tl.load(out_b + at_b[:, None] + columns[None, :], mask=in_tile, other=0.0).to(tl.float32)
    # what has no weight has no say, though it may be infinite or NaN
    x, y = tl.where(a[:, None] == 0.0, 0.0, x), tl.where(b[:, None] == 0.0, 0.0, y)
    merged = x * (a / whole)[:, None] + y * (b / whole)[:, None]
    at = token * out_strides.token + head * out_strides.head
    tl.store(out + at[:, None] + columns[None, :], merged.to(out.dtype.element_ty), mask=in_tile)
    if tl.program_id(1) == 0:
        tl.store(lse + head * tokens + token, finite + tl.log2(total) * LN_2, mask=inside)


def config(point):
    wide = point.target.backend != "cpu"  # there a thread takes 16 bytes at a time where it can
    return kp.Config({"ROWS": 16, "COLUMNS": 64}, num_warps=4, specialize=wide, launch_pdl=early(point))


def check_logs(logs, name, heads, tokens):
    """A host function's check of the logarithms of one part."""
    kp.check(
        logs.dim() == 2 and logs.shape[0] == heads and logs.shape[1] == tokens,
        f"{name} has shape {logs.shape}, expected ({heads}, {tokens}): heads and tokens of out_a",
    )
    kp.check(
        logs.is_contiguous(), f"{name} must be contiguous, its strides are {logs.stride()}\n  to fix: call .contiguous() on it"
    )


@kp.op(
    "merge_attention_states(Tensor out_a, Tensor lse_a, Tensor out_b, Tensor lse_b) -> (Tensor out, Tensor lse)",
    variants={
        "out_a": [tl.float32, tl.float16, tl.bfloat16],
        "lse_a": [tl.float32],
        "out_b": [kp.same_as("out_a")],
        "lse_b": [tl.float32],
    },
    configs={"": config},
    specialize=[kp.aligned("out_a", "out_b")],
)
def merge_attention_states(out_a, lse_a, out_b, lse_b):
    """What attention to the keys of a and b together gives, of what it gave for each of them (FlashInfer; Ye et al., 2025, section 2.2).

    out_a and out_b [T, H, D] in one dtype, as paged_attention returns them; lse_a and lse_b [H, T] float32, contiguous: natural
    logarithms of the sums of exponentials of scores, -inf where there was no key. Returns out [T, H, D] in the same dtype and lse
    [H, T] float32; 0 and -inf where neither had a key. Sinks may be part of one of the two.
    """
    kp.check(out_a.dim() == 3, f"out_a must have 3 dimensions (tokens, heads, head size), its shape is {out_a.shape}")
    kp.check(out_b.shape == out_a.shape, f"out_b has shape {out_b.shape}, out_a has {out_a.shape}")
    check_contiguous(out_a, "out_a")
    check_contiguous(out_b, "out_b")
    tokens, heads, size = out_a.shape[0], out_a.shape[1], out_a.shape[2]
    check_logs(lse_a, "lse_a", heads, tokens)
    check_logs(lse_b, "lse_b", heads, tokens)
    out = kp.empty((tokens, heads, size), out_a.dtype, out_a.device)
    lse = kp.empty((heads, tokens), tl.float32, out_a.device)
    merge_kernel[lambda meta: (kp.cdiv(tokens * heads, meta["ROWS"]), max(kp.cdiv(size, meta["COLUMNS"]), 1))](
        out_a, lse_a, out_b, lse_b, out, lse, RowStrides(out_a.stride(0), out_a.stride(1)),
        RowStrides(out_b.stride(0), out_b.stride(1)), RowStrides(out.stride(0), out.stride(1)), tokens, heads, size,
    )  # fmt: skip
    return out, lse


def reference(out_a, lse_a, out_b, lse_b):
    """The same in plain torch, in float32 where its arguments are shorter."""
    import torch  # builds do without it

    dtype = torch.promote_types(out_a.dtype, torch.float32)
    lse = torch.logaddexp(lse_a.to(dtype), lse_b.to(dtype))
    none = lse == -float("inf")
    parts = [
        out.to(dtype) * torch.where(none, 0.0, torch.exp(own - lse)).t()[..., None]
        for out, own in ((out_a, lse_a), (out_b, lse_b))
    ]
    return (parts[0] + parts[1]).to(out_a.dtype), lse
