"""What ops refuse is refused by name, with what was expected and what to do; the next call works. NaN and inf mean what torch means."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from tests.ops.far_cases import FAR_CALLS, check_far_call
from tests.ops.functional import functional, has_out
from tests.ops.grid import OPS, Case, cases, module_of

e4m3, e5m2 = torch.float8_e4m3fn, torch.float8_e5m2
f32, f16, bf16, f64 = torch.float32, torch.float16, torch.bfloat16, torch.float64
inf, nan = float("inf"), float("nan")


def x(*shape: int, dtype: torch.dtype = f32, device: str = "cpu") -> torch.Tensor:
    return torch.ones(shape, dtype=dtype, device=device)


def columns(*shape: int) -> torch.Tensor:
    """A tensor whose last dimension is not contiguous."""
    return x(*shape, 2)[..., 0]


def qkv(*shape: int, dtype: torch.dtype = f32) -> list[torch.Tensor]:
    return [x(*shape, dtype=dtype) for _ in range(3)]


def scaled(**given: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Arguments of scaled_matmul, with some in place of others."""
    fitting = {
        "a": x(40, 16, dtype=e4m3), "b": x(32, 16, dtype=e4m3).t(), "scale_a": x(40, 1), "scale_b": x(1, 32),
        "bias": x(32, dtype=bf16),
    }  # fmt: skip
    return tuple((fitting | given).values())


def cached(**given: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Arguments of rope_and_cache, with some in place of others."""
    fitting = {
        "query": x(3, 4, 8), "key": x(3, 2, 8), "value": x(3, 2, 8), "key_cache": x(5, 16, 2, 8), "value_cache": x(5, 16, 2, 8),
        "positions": torch.arange(3), "angles": x(9, 8), "slots": torch.arange(3),
    }  # fmt: skip
    return tuple((fitting | given).values())


def blocks(**given: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Arguments of copy_blocks, with some in place of others."""
    fitting = {"key_cache": x(5, 4, 2, 8), "value_cache": x(5, 4, 2, 8), "pairs": torch.tensor([[0, 1], [3, 4]])}
    return tuple((fitting | given).values())


def quantized(**given: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Arguments of quantized_matmul, with some in place of others."""
    fitting = {
        "x": x(3, 64), "codes": words(1, 2, 4, 64), "scales": x(1, 2, 64, dtype=f16), "mins": x(1, 2, 64, dtype=f16), "bias": x(64),
    }  # fmt: skip
    return tuple((fitting | given).values())


def words(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.int32)


# op, arguments, keywords, and what the message says
BAD: list[tuple[str, tuple[Any, ...], dict[str, Any], str]] = [
    ("softmax", (x(2, 3, dtype=f64),), {}, r"x has dtype float64, built are: float32, float16, bfloat16.*to fix: .*x\.to"),
    ("softmax", (x(2, 3, dtype=torch.int64),), {}, r"x has dtype int64"),
    ("softmax", (x(2, 3, dtype=torch.uint8).view(torch.float8_e8m0fnu),), {}, r"x has dtype float8_e8m0fnu, built are"),
    ("softmax", (x(2, 3, dtype=torch.uint8).view(torch.float4_e2m1fn_x2),), {}, r"x has dtype float4_e2m1fn_x2, built are"),
    ("softmax", (x(),), {}, r"x has no dimensions, expected at least one"),
    ("softmax", (x(2, 3),), {"dim": 0}, r"dim is 0, expected the last dimension of x: -1"),
    ("softmax", (columns(2, 3),), {}, r"last dimension of x must be contiguous, its stride is 2\n  to fix: call \.contiguous\(\)"),
    ("softmax", (x(4, 6, 4, 6, 8)[::2, ::2, ::2, ::2],), {}, r"strides.*more than 3 strides.*\n  to fix: call \.contiguous\(\)"),
    ("rms_norm", (x(2, 3, dtype=f64),), {}, r"x has dtype float64"),
    ("rms_norm", (x(2, 3), x(3, dtype=f16)), {}, r"weight has dtype float16, built are: .*float32"),
    ("rms_norm", (x(2, 3), x(4)), {}, r"weight has shape \(4,\), expected one dimension of 3, the last of x"),
    ("rms_norm", (x(2, 3), x(1, 3)), {}, r"weight has shape \(1, 3\), expected one dimension of 3"),
    ("rms_norm", (x(2, 3), columns(3)), {}, r"weight must be contiguous, its stride is 2"),
    ("rms_norm", (x(2, 3), x(3, device="meta")), {}, r"weight is on meta, x is on cpu"),
    ("rms_norm", (x(),), {}, r"x has no dimensions"),
    ("rms_norm", (columns(2, 3),), {}, r"last dimension of x must be contiguous"),
    ("layer_norm", (x(2, 3, dtype=torch.complex64),), {}, r"x has dtype complex64"),
    ("layer_norm", (x(2, 3), x(3), x(2)), {}, r"bias has shape \(2,\), expected one dimension of 3"),
    ("layer_norm", (x(2, 3), x(3, dtype=bf16)), {}, r"weight has dtype bfloat16"),
    ("layer_norm", (x(2, 3), None, x(3, dtype=bf16)), {}, r"bias has dtype bfloat16"),
    ("layer_norm", (columns(2, 3),), {}, r"last dimension of x must be contiguous"),
    ("layer_norm", (x(2, 3), x(3, device="meta")), {}, r"weight is on meta, x is on cpu"),
    ("gelu", (x(2, 3, dtype=f64),), {}, r"x has dtype float64"),
    ("gelu", (x(2, 3),), {"approximate": 2}, r"approximate is 2, expected 0 \(none: by erf\) or 1 \(tanh\)"),
    ("gelu", (columns(2, 3),), {}, r"last dimension of x must be contiguous"),
    ("silu_mul", (x(2, 3, dtype=f64), x(2, 3)), {}, r"gate has dtype float64"),
    ("silu_mul", (x(2, 3), x(2, 3, dtype=f16)), {}, r"up has dtype float16, gate has float32.*to fix"),
    ("silu_mul", (x(2, 3), x(3)), {}, r"up has shape \(3,\), gate has \(2, 3\)"),
    ("silu_mul", (x(2, 3), columns(2, 3)), {}, r"last dimension of up must be contiguous"),
    ("silu_mul", (x(2, 3), x(2, 3, device="meta")), {}, r"up is on meta, gate is on cpu"),
    ("rope", (x(2, 3, 4, 8, dtype=f64), x(4, 4), x(4, 4)), {}, r"x has dtype float64"),
    ("rope", (x(3, 4, 8), x(4, 4), x(4, 4)), {}, r"x must have 4 dimensions, it has shape \(3, 4, 8\)"),
    ("rope", (x(2, 3, 4, 8, dtype=bf16), x(4, 4, dtype=f16), x(4, 4, dtype=f16)), {}, r"cos has dtype float16"),
    ("rope", (x(2, 3, 4, 8), x(4, 4), x(4, 4, dtype=f16)), {}, r"sin has dtype float16"),
    ("rope", (x(2, 3, 4, 8), x(4, 5), x(4, 5)), {}, r"cos has 5 columns.*at most half of x's head size, which is 8"),
    ("rope", (x(2, 3, 4, 8), x(4, 4), x(4, 3)), {}, r"sin has shape \(4, 3\), cos has \(4, 4\)"),
    ("rope", (x(2, 3, 4, 8), x(5, 4), x(5, 4)), {}, r"cos of shape \(5, 4\) does not broadcast to \(2, 3, 4, 4\)"),
    ("rope", (columns(2, 3, 4, 8), x(4, 4), x(4, 4)), {}, r"last dimension of x must be contiguous"),
    ("rope", (x(2, 3, 4, 8), columns(4, 4), x(4, 4)), {}, r"last dimension of cos must be contiguous"),
    ("rope", (x(2, 3, 4, 8), x(4, 4), x(4, 4, device="meta")), {}, r"sin is on meta, x is on cpu"),
    ("mha", tuple(qkv(1, 2, 3, 8, dtype=f64)), {}, r"query has dtype float64"),
    ("mha", (x(1, 2, 3, 8), x(1, 2, 3, 8, dtype=f16), x(1, 2, 3, 8)), {}, r"key has dtype float16"),
    ("mha", (*qkv(1, 2, 3, 8), x(3, 3, dtype=torch.int64)), {}, r"attn_mask has dtype int64, built are: .*bool.*float32"),
    ("mha", (*qkv(1, 2, 3, 8), x(3, 3, dtype=f16)), {}, r"attn_mask has dtype float16"),
    ("mha", (*qkv(1, 2, 3, 8), x(4, 3)), {}, r"attn_mask of shape \(4, 3\) does not broadcast to \(1, 2, 3, 3\)"),
    ("mha", (*qkv(1, 2, 3, 8), x(1, 1, 1, 3, 3)), {}, r"does not broadcast to \(1, 2, 3, 3\)"),
    ("mha", (*qkv(1, 2, 3, 8), x(3, 3)), {"is_causal": True}, r"attn_mask and is_causal.*exclude.*to fix"),
    ("mha", tuple(qkv(3, 8)), {}, r"query must have 3 or 4 dimensions.*its shape is \(3, 8\)"),
    ("mha", tuple(qkv(1, 2, 3, 257)), {}, r"query has head size 257, at most 256"),
    ("mha", (x(1, 2, 3, 8), x(1, 2, 3, 8), x(1, 2, 3, 300)), {}, r"value has head size 300, at most 256"),
    ("mha", (x(1, 2, 3, 8), x(1, 2, 3, 9), x(1, 2, 3, 8)), {}, r"key has head size 9, query has 8"),
    ("mha", (x(1, 2, 3, 8), x(1, 2, 4, 8), x(1, 2, 3, 8)), {}, r"value has length 3, key has 4"),
    ("mha", (x(1, 2, 3, 8), x(2, 2, 3, 8), x(2, 2, 3, 8)), {}, r"key has batch size 2, query has 1"),
    ("mha", (x(1, 4, 3, 8), x(1, 2, 3, 8), x(1, 2, 3, 8)), {}, r"key has 2 heads, query has 4.*to fix: pass enable_gqa=True"),
    ("mha", (x(1, 4, 3, 8), x(1, 3, 3, 8), x(1, 3, 3, 8)), {"enable_gqa": True}, r"query has 4 heads, which is no multiple of .*3"),
    ("mha", (columns(1, 2, 3, 8), *qkv(1, 2, 3, 8)[1:]), {}, r"last dimension of query must be contiguous, its stride is 2"),
    ("mha", (x(1, 2, 3, 8), columns(1, 2, 3, 8), x(1, 2, 3, 8)), {}, r"last dimension of key must be contiguous"),
    ("mha", (*qkv(1, 2, 3, 8)[:2], x(1, 2, 3, 8, device="meta")), {}, r"value is on meta, query is on cpu"),
    ("add_rms_norm", (x(2, 3, dtype=f64), x(2, 3), x(3)), {}, r"x has dtype float64"),
    ("add_rms_norm", (x(2, 3), x(2, 3, dtype=f16), x(3)), {}, r"residual has dtype float16.*float32"),
    ("add_rms_norm", (x(2, 3), x(2, 3), x(3, dtype=f16)), {}, r"weight has dtype float16.*float32"),
    ("add_rms_norm", (x(2, 3), x(3), x(3)), {}, r"residual has shape \(3,\), x has \(2, 3\)"),
    ("add_rms_norm", (x(2, 3), x(2, 3), x(2)), {}, r"weight has shape \(2,\), expected one dimension of 3, the last of x"),
    ("add_rms_norm", (columns(2, 3), x(2, 3), x(3)), {}, r"last dimension of x must be contiguous"),
    ("add_rms_norm", (x(2, 3), columns(2, 3), x(3)), {}, r"last dimension of residual must be contiguous"),
    ("add_rms_norm", (x(2, 3), x(3).expand(2, 3), x(3)), {}, r"residual is written to, but its dimension 0 repeats .*\n  to fix: "),
    ("add_rms_norm", (x(), x(), x(1)), {}, r"x has no dimensions"),
    ("add_rms_norm", (x(2, 3), x(2, 3, device="meta"), x(3)), {}, r"residual is on meta, x is on cpu"),
    ("add_rms_norm_int8", (x(2, 3, dtype=f64), x(2, 3), x(3)), {}, r"x has dtype float64"),
    ("add_rms_norm_int8", (x(2, 3), x(3), x(3)), {}, r"residual has shape \(3,\), x has \(2, 3\)"),
    ("add_rms_norm_int8", (x(2, 3), x(3).expand(2, 3), x(3)), {}, r"residual is written to, but its dimension 0 repeats"),
    ("add_rms_norm_fp8", (x(2, 3), x(2, 3), x(2)), {}, r"weight has shape \(2,\), expected one dimension of 3"),
    ("add_rms_norm_fp8", (x(2, 3), columns(2, 3), x(3)), {}, r"last dimension of residual must be contiguous"),
    ("silu_and_mul", (x(2, 4, dtype=f64),), {}, r"x has dtype float64"),
    ("silu_and_mul", (x(2, 3),), {}, r"last dimension of x is 3, expected an even number"),
    ("silu_and_mul", (columns(2, 4),), {}, r"last dimension of x must be contiguous"),
    ("silu_and_mul", (x(),), {}, r"x has no dimensions"),
    ("gelu_and_mul", (x(2, 4, dtype=torch.int32),), {}, r"x has dtype int32"),
    ("gelu_and_mul", (x(2, 3),), {}, r"last dimension of x is 3, expected an even number"),
    ("gelu_and_mul", (x(2, 4),), {"approximate": 2}, r"approximate is 2, expected 0 \(none: by erf\) or 1 \(tanh\)"),
    ("gelu_and_mul", (columns(2, 4),), {}, r"last dimension of x must be contiguous"),
    ("rope_and_cache", cached(query=x(3, 4, 8, dtype=f64)), {}, r"query has dtype float64"),
    ("rope_and_cache", cached(key=x(3, 2, 8, dtype=f16)), {}, r"key has dtype float16"),
    ("rope_and_cache", cached(value_cache=x(5, 16, 2, 8).to(e4m3)), {}, r"value_cache has dtype float8_e4m3fn"),
    ("rope_and_cache", cached(key_cache=x(5, 16, 2, 8).to(e5m2)), {}, r"key_cache has dtype float8_e5m2"),
    ("rope_and_cache", cached(positions=torch.arange(3).int()), {}, r"positions has dtype int32, built are: int64"),
    ("rope_and_cache", cached(slots=torch.arange(3).int()), {}, r"slots has dtype int32, built are: int64"),
    ("rope_and_cache", cached(angles=x(9, 8, dtype=bf16)), {}, r"angles has dtype bfloat16, built are: float32"),
    ("rope_and_cache", cached(query=x(3, 32)), {}, r"query must have 3 dimensions, it has shape \(3, 32\)"),
    ("rope_and_cache", cached(key=x(2, 2, 8)), {}, r"key has shape \(2, 2, 8\), expected 3 tokens and heads of 8"),
    ("rope_and_cache", cached(key=x(3, 2, 6)), {}, r"key has shape \(3, 2, 6\), expected 3 tokens and heads of 8"),
    ("rope_and_cache", cached(value=x(3, 1, 8)), {}, r"value has shape \(3, 1, 8\), expected 3 tokens of 2 heads"),
    ("rope_and_cache", cached(key_cache=x(5, 16, 2, 6)), {}, r"key_cache has shape \(5, 16, 2, 6\), expected 2 heads of 8, as key has"),
    ("rope_and_cache", cached(value_cache=x(5, 16, 1, 8)), {}, r"value_cache has shape .* expected 2 heads of 8, as value has"),
    ("rope_and_cache", cached(value_cache=x(5, 8, 2, 8)), {}, r"value_cache has 5 blocks of 8, key_cache has 5 of 16"),
    ("rope_and_cache", cached(key_cache=x(80, 2, 8)), {}, r"key_cache must have 4 dimensions"),
    ("rope_and_cache", cached(positions=torch.arange(2)), {}, r"positions has shape \(2,\), expected \(3,\): one for each token"),
    ("rope_and_cache", cached(slots=torch.arange(4)), {}, r"slots has shape \(4,\), expected \(3,\)"),
    ("rope_and_cache", cached(slots=torch.arange(6)[::2]), {}, r"slots must be contiguous, its stride is 2"),
    ("rope_and_cache", cached(angles=x(9, 7)), {}, r"angles has 7 columns, expected .* an even number up to 8"),
    ("rope_and_cache", cached(angles=x(9, 10)), {}, r"angles has 10 columns, expected .* up to 8"),
    ("rope_and_cache", cached(query=columns(3, 4, 8)), {}, r"last dimension of query must be contiguous"),
    ("rope_and_cache", cached(key_cache=columns(5, 16, 2, 8)), {}, r"last dimension of key_cache must be contiguous"),
    ("rope_and_cache", cached(key=x(1, 2, 8).expand(3, 2, 8)), {}, r"key is written to, but its dimension 0 repeats"),
    ("rope_and_cache", cached(), {"key_scale": x(3)}, r"key_scale has shape \(3,\), expected \(1,\), or one value for each of 2"),
    ("rope_and_cache", cached(), {"value_scale": x()}, r"value_scale has shape \(\), expected \(1,\)"),
    ("rope_and_cache", cached(), {"value_scale": columns(2)}, r"value_scale must be contiguous"),
    ("rope_and_cache", cached(slots=x(3, device="meta").long()), {}, r"slots is on meta, query is on cpu"),
    ("embedding", (torch.arange(2), x(3, 4, dtype=f64)), {}, r"weight has dtype float64"),
    ("embedding", (x(2), x(3, 4)), {}, r"ids has dtype float32, built are: int64, int32"),
    ("embedding", (torch.arange(2), x(3)), {}, r"weight must have 2 dimensions, it has shape \(3,\)"),
    ("embedding", (torch.arange(2), columns(3, 4)), {}, r"last dimension of weight must be contiguous"),
    ("embedding", (torch.arange(4)[::2], x(5, 4)), {}, r"ids must be contiguous, its strides are \(2,\)\n  to fix"),
    ("embedding", (torch.arange(2), x(3, 4, device="meta")), {}, r"weight is on meta, ids is on cpu"),
    ("embedding", (torch.tensor([1, 3]), x(3, 4)), {}, r"embedding: ids: one lies outside of the rows of weight"),
    ("embedding", (torch.tensor([1, -1]), x(3, 4)), {}, r"embedding: ids: one lies outside of the rows of weight"),
    ("embedding", (torch.tensor([1, 2**40]), x(3, 4)), {}, r"embedding: ids: one lies outside of the rows of weight"),
    ("copy_blocks", blocks(key_cache=x(5, 4, 2, 8, dtype=f64)), {}, r"key_cache has dtype float64"),
    ("copy_blocks", blocks(value_cache=x(5, 4, 2, 8, dtype=f16)), {}, r"value_cache has dtype float16"),
    ("copy_blocks", blocks(key_cache=x(5, 4, 16)), {}, r"key_cache must have 4 dimensions, it has shape \(5, 4, 16\)"),
    ("copy_blocks", blocks(value_cache=x(6, 4, 2, 8)), {}, r"value_cache has 6 blocks, key_cache has 5"),
    ("copy_blocks", blocks(key_cache=x(5, 2, 4, 8).transpose(1, 2)), {}, r"the blocks of key_cache must be contiguous"),
    ("copy_blocks", blocks(value_cache=columns(5, 4, 2, 8)), {}, r"the blocks of value_cache must be contiguous"),
    ("copy_blocks", blocks(key_cache=x(1, 4, 2, 8).expand(5, 4, 2, 8)), {}, r"key_cache is written to, but its dimension 0 repeats"),
    ("copy_blocks", blocks(pairs=torch.ones(2, 3).long()), {}, r"pairs has shape \(2, 3\), expected two columns"),
    ("copy_blocks", blocks(pairs=torch.ones(2).long()), {}, r"pairs has shape \(2,\), expected two columns"),
    ("copy_blocks", blocks(pairs=torch.ones(2, 2).int()), {}, r"pairs has dtype int32, built are: int64"),
    ("copy_blocks", blocks(pairs=torch.ones(2, 4).long()[:, ::2]), {}, r"pairs must be contiguous"),
    ("copy_blocks", blocks(pairs=torch.tensor([[1, 5]])), {}, r"copy_blocks: pairs: a block lies outside of key_cache"),
    ("copy_blocks", blocks(pairs=torch.tensor([[1, 2], [-1, 3]])), {}, r"copy_blocks: pairs: a block lies outside of key_cache"),
    ("copy_blocks", blocks(pairs=torch.tensor([[0, 1], [2, 1]])), {}, r"copy_blocks: pairs: a block that is copied to comes in"),
    ("copy_blocks", blocks(pairs=torch.tensor([[0, 1], [1, 2]])), {}, r"copy_blocks: pairs: a block that is copied to comes in"),
    ("sample", (x(2, 9, dtype=f64),), {}, r"logits has dtype float64, built are: float32, float16, bfloat16"),
    ("sample", (x(9),), {}, r"logits must have 2 dimensions, it has shape \(9,\)"),
    ("sample", (x(2, 0),), {}, r"logits has shape \(2, 0\), expected at least one column"),
    ("sample", (columns(2, 9),), {}, r"last dimension of logits must be contiguous, its stride is 2\n  to fix: .*\.contiguous"),
    ("sample", (x(2, 9), torch.arange(3)), {}, r"seeds has shape \(3,\), expected \(2,\): one value for each row of logits"),
    ("sample", (x(2, 9), torch.arange(2).int()), {}, r"seeds has dtype int32, built are: .*int64"),
    ("sample", (x(2, 9), torch.arange(4)[::2]), {}, r"seeds must be contiguous, its stride is \(2,\)\n  to fix"),
    ("sample", (x(2, 9), torch.arange(2).to("meta")), {}, r"seeds is on meta, logits is on cpu"),
    ("sample", (x(2, 9),), {"positions": x(2)}, r"positions has dtype float32, built are: .*int64"),
    ("sample", (x(2, 9),), {"temperature": x(2, dtype=f16)}, r"temperature has dtype float16, built are: .*float32"),
    ("sample", (x(2, 9),), {"temperature": x(2, 1)}, r"temperature has shape \(2, 1\), expected \(2,\)"),
    ("sample", (x(2, 9),), {"top_k": x(2)}, r"top_k has dtype float32, built are: .*int64"),
    ("sample", (x(2, 9),), {"top_p": x(1)}, r"top_p has shape \(1,\), expected \(2,\)"),
    ("sample", (x(2, 9),), {"min_p": x()}, r"min_p has shape \(\), expected \(2,\)"),
    ("sample", (x(2, 9),), {"bias": x(9)}, r"bias has shape \(9,\), logits has \(2, 9\)"),
    ("sample", (x(2, 9),), {"bias": columns(2, 9)}, r"last dimension of bias must be contiguous"),
    ("sample", (x(2, 9),), {"prompt_mask": x(2, 9)}, r"prompt_mask has dtype float32, built are: .*bool"),
    ("sample", (x(2, 9),), {"prompt_mask": x(2, 8) > 0}, r"prompt_mask has shape \(2, 8\), logits has \(2, 9\)"),
    ("sample", (x(2, 9),), {"output_counts": x(2, 9).long()}, r"output_counts has dtype int64, built are: .*int32"),
    ("sample", (x(2, 9),), {"output_counts": x(3, 9).int()}, r"output_counts has shape \(3, 9\), logits has \(2, 9\)"),
    ("sample", (x(2, 9),), {"repetition_penalty": x(3)}, r"repetition_penalty has shape \(3,\), expected \(2,\)"),
    ("sample", (x(2, 9),), {"presence_penalty": x(3)}, r"presence_penalty has shape \(3,\), expected \(2,\)"),
    ("sample", (x(2, 9),), {"frequency_penalty": x(3)}, r"frequency_penalty has shape \(3,\), expected \(2,\)"),
    *(
        ("sample", (x(2, 9), torch.arange(2)), {name: torch.tensor([1.0, value])}, rf"sample: {name}: a row's is .*, expected")
        for name, values in {
            "temperature": (-1e-3, nan, inf), "top_p": (0.0, -0.5, 1.001, nan), "min_p": (-1e-3, 1.001, nan),
            "repetition_penalty": (0.0, -1.0, nan, inf),
        }.items()
        for value in values
    ),
    ("matmul", (x(2, 3, dtype=f64), x(3, 4, dtype=f64)), {}, r"a has dtype float64"),
    ("matmul", (x(2, 3), x(3, 4, dtype=f16)), {}, r"b has dtype float16"),
    ("matmul", (x(2, 3), x(3, 4), x(4, dtype=f16)), {}, r"bias has dtype float16"),
    ("matmul", (x(3), x(3, 4)), {}, r"a must have at least 2 dimensions, its shape is \(3,\)"),
    ("matmul", (x(2, 3), x(4, 4)), {}, r"b has 4 rows, a has 3 columns"),
    ("matmul", (x(2, 3), x(3, 4), x(5)), {}, r"bias has shape \(5,\), expected \(4,\)"),
    ("matmul", (x(2, 3), x(3, 4)), {"activation": 5}, r"activation is 5, expected 0"),
    ("matmul", (columns(2, 3), x(3, 4)), {}, r"last dimension of a must be contiguous, its stride is 2\n  to fix: .*\.contiguous"),
    ("matmul", (x(2, 3), x(3, 4), columns(4)), {}, r"bias must be contiguous, its stride is 2\n  to fix: .*\.contiguous"),
    ("matmul", (x(2, 3), x(3)), {}, r"b must have at least 2 dimensions, its shape is \(3,\)"),
    ("matmul", (x(2, 3, 2, 4, 5), x(3, 1, 5, 4)), {}, r"the batches of a of shape .* need more than 2 strides.*\n  to fix: call \.expand"),
    ("matmul", (x(2, 3), x(3, 4, 2)[..., 0]), {}, r"dimensions of b must be contiguous.*to fix"),
    ("matmul", (x(2, 3, 4), x(3, 4, 5)), {}, r"dimensions \(2,\) and \(3,\) do not broadcast: 2 is not 3\n  to fix"),
    ("matmul", (x(2, 3), x(3, 4, device="meta")), {}, r"b is on meta, a is on cpu"),
    ("quantized_matmul", quantized(x=x(3, 64, dtype=f16)), {}, r"x has dtype float16, built are: float32, bfloat16"),
    ("quantized_matmul", quantized(codes=words(1, 2, 4, 64).long()), {}, r"codes has dtype int64, built are: int32"),
    ("quantized_matmul", quantized(scales=x(1, 2, 64, dtype=f64)), {}, r"scales has dtype float64, built are: float16, float32"),
    ("quantized_matmul", quantized(mins=x(1, 2, 64)), {}, r"mins has dtype float32, .*float16"),
    ("quantized_matmul", quantized(bias=x(64, dtype=bf16)), {}, r"bias has dtype bfloat16, .*float32"),
    ("quantized_matmul", quantized(x=x()), {}, r"x has no dimensions"),
    ("quantized_matmul", quantized(x=x(3, 96)), {}, r"x has 96 columns, expected 64: 32 for each block of codes"),
    ("quantized_matmul", quantized(x=columns(3, 64)), {}, r"x must be contiguous, its strides are \(128, 2\)\n  to fix"),
    ("quantized_matmul", quantized(codes=words(2, 4, 64)), {}, r"codes has shape \(2, 4, 64\), expected .*\n  to fix: make it with repack"),
    ("quantized_matmul", quantized(codes=words(1, 2, 6, 64)), {}, r"codes has shape \(1, 2, 6, 64\), expected \(tiles, blocks, 4 or 8, 64\)"),
    ("quantized_matmul", quantized(codes=words(1, 2, 4, 32)), {}, r"codes has shape \(1, 2, 4, 32\), expected"),
    ("quantized_matmul", quantized(codes=words(1, 2, 4, 128)[..., ::2]), {}, r"codes must be contiguous"),
    ("quantized_matmul", quantized(scales=x(2, 64, dtype=f16)), {}, r"scales has shape \(2, 64\), expected \(1, groups, 64\)"),
    ("quantized_matmul", quantized(mins=x(2, 64, dtype=f16)), {}, r"mins has shape \(2, 64\), expected \(1, 0, 64\)"),
    ("quantized_matmul", quantized(scales=x(1, 3, 64, dtype=f16)), {}, r"scales has 3 groups for 2 blocks of 32 elements"),
    ("quantized_matmul", quantized(scales=x(1, 0, 64, dtype=f16)), {}, r"scales has 0 groups for 2 blocks of 32 elements"),
    ("quantized_matmul", quantized(scales=x(1, 4, 64), mins=x(1, 0, 64)), {}, r"scales has 4 groups for 2 blocks .* 8-bit codes"),
    (
        "quantized_matmul", quantized(codes=words(1, 2, 8, 64), scales=x(1, 4, 64, dtype=f16), mins=x(1, 0, 64, dtype=f16)), {},
        r"scales is float16, expected float32 where 16 elements share one",
    ),
    ("quantized_matmul", quantized(mins=x(1, 1, 64, dtype=f16)), {}, r"mins has shape \(1, 1, 64\), expected \(1, 0, 64\), or with 4-bit codes \(1, 2, 64\)"),
    ("quantized_matmul", quantized(codes=words(1, 2, 8, 64)), {}, r"mins has shape \(1, 2, 64\), expected \(1, 0, 64\)"),
    ("quantized_matmul", quantized(), {"columns": 65}, r"columns is 65, expected a number that ends in the last of 1 tiles of 64"),
    ("quantized_matmul", quantized(), {"columns": 0}, r"columns is 0, expected"),
    ("quantized_matmul", quantized(), {"columns": -1}, r"columns is -1, expected"),
    ("quantized_matmul", quantized(bias=x(23)), {}, r"bias has shape \(23,\), expected one contiguous dimension of 64"),
    ("quantized_matmul", quantized(scales=x(1, 2, 64, dtype=f16, device="meta")), {}, r"scales is on meta, x is on cpu"),
    ("scaled_matmul", scaled(a=x(40, 16)), {}, r"a has dtype float32, built are: float8_e4m3fn, float8_e5m2"),
    ("scaled_matmul", scaled(b=x(32, 16, dtype=e5m2).t()), {}, r"b has dtype float8_e5m2, built are: float8_e4m3fn"),
    ("scaled_matmul", scaled(scale_a=x(40, 1, dtype=f16)), {}, r"scale_a has dtype float16, built are: float32"),
    ("scaled_matmul", scaled(scale_b=x(1, 32, dtype=f64)), {}, r"scale_b has dtype float64"),
    ("scaled_matmul", scaled(bias=x(32)), {}, r"bias has dtype float32, built are: .*bfloat16"),
    ("scaled_matmul", scaled(a=x(2, 20, 16, dtype=e4m3)), {}, r"a must have 2 dimensions, its shape is \(2, 20, 16\)"),
    ("scaled_matmul", scaled(b=x(16, dtype=e4m3)), {}, r"b must have 2 dimensions, its shape is \(16,\)"),
    ("scaled_matmul", scaled(b=x(32, 15, dtype=e4m3).t()), {}, r"b has shape \(15, 32\), expected 16 rows, as a has columns"),
    ("scaled_matmul", scaled(a=x(40, 16, 2, dtype=e4m3)[..., 0]), {}, r"last dimension of a .*, its stride is 2\n  to fix: .*\.contiguous"),
    ("scaled_matmul", scaled(b=x(16, 32, dtype=e4m3)), {}, r"first dimension of b must be contiguous.*to fix: pass weight\.t\(\)"),
    ("scaled_matmul", scaled(scale_a=x(39, 1)), {}, r"scale_a has shape \(39, 1\), expected one value, or 40"),
    ("scaled_matmul", scaled(scale_a=x(40, 2)[:, :1]), {}, r"scale_a has shape \(40, 1\), expected .* contiguous\n  to fix"),
    ("scaled_matmul", scaled(scale_b=x(32, 1)), {}, r"scale_b has shape \(32, 1\), expected one value, or 32"),
    ("scaled_matmul", scaled(bias=x(31, dtype=bf16)), {}, r"bias has shape \(31,\), expected one contiguous dimension of 32"),
    ("scaled_matmul", scaled(scale_b=x(1, 32, device="meta")), {}, r"scale_b is on meta, a is on cpu"),
]  # fmt: skip


@pytest.mark.parametrize("index", range(len(BAD)), ids=lambda index: f"{BAD[index][0]}-{index}")
def test_refused_by_name(index: int) -> None:
    op, args, kwargs, said = BAD[index]
    packet = getattr(torch.ops.kernelpack, op)
    with pytest.raises((RuntimeError, NotImplementedError)) as raised:
        packet(*args, **kwargs)
    text = str(raised.value)
    assert re.search(said, text, re.DOTALL), text
    assert f"kernelpack::{op}" in text, text
    _works(op)


def test_every_op_has_bad_input() -> None:
    assert {entry[0] for entry in BAD} == set(OPS)


def _first(op: str) -> Case:
    return next(case for case in cases() if case.op == op)


def _works(op: str) -> None:
    args, kwargs = _first(op).arguments()
    got = functional(op)(*args, **kwargs)
    torch.testing.assert_close(got, module_of(op).reference(*args, **kwargs))


@pytest.mark.parametrize("op", [op for op in OPS if has_out(op)])
def test_an_output_that_does_not_fit_is_refused(op: str) -> None:
    case = _first(op)
    args, kwargs = case.arguments()
    packet = getattr(torch.ops.kernelpack, op)
    fits = torch.empty_like(packet(*args, **kwargs))
    dtype = str(case.result).removeprefix("torch.")
    for out, said in (
        (torch.empty(7, 7, 7, 7, 7), r"out has shape \(7, 7, 7, 7, 7\), the result has"),
        (fits.double(), r"out has dtype (torch\.)?float64, the result has (torch\.)?" + dtype),
    ):
        with pytest.raises(RuntimeError, match=f"kernelpack::{op}.*{said}"):
            packet.out(*args, **kwargs, out=out)
    _works(op)


@pytest.mark.parametrize("op", [op for op in OPS if has_out(op)])
def test_writing_is_refused_where_a_tensor_is_negated_when_it_is_read(op: str) -> None:
    """Torch's own function for such tensors ends the process: it looks for a result to write back, and `.out` has none."""
    args, kwargs = _first(op).arguments()
    packet = getattr(torch.ops.kernelpack, op)
    out = torch.zeros_like(packet(*args, **kwargs))
    negated = next(i for i, value in enumerate(args) if isinstance(value, torch.Tensor) and value.element_size() > 1)
    views = tuple(torch._neg_view(value) if i == negated else value for i, value in enumerate(args))
    for given, target in ((args, torch._neg_view(out)), (views, out)):
        for mode in (torch.enable_grad, torch.inference_mode):
            with mode(), pytest.raises(RuntimeError, match=rf"kernelpack::{op}: .*negated.*\n  to fix: call \.resolve_neg\(\)"):
                packet.out(*given, **kwargs, out=target)
    assert not out.any()
    _works(op)


def test_negative_and_huge_sizes_come_as_tensors_only_and_are_refused_there() -> None:
    """A negative stride or size cannot enter: torch has neither. What remains are sizes whose products are huge."""
    one = torch.ones(1)
    huge = one.as_strided((2**20, 2**20, 2**20), (0, 0, 0))
    for call in (
        lambda: torch.ops.kernelpack.softmax(huge),
        lambda: torch.ops.kernelpack.gelu(huge),
        lambda: torch.ops.kernelpack.matmul(huge[0], huge[0]),
    ):
        with pytest.raises(RuntimeError) as raised:
            call()
        assert re.search("alloc|memory|overflow|stride|huge|large", str(raised.value)), str(raised.value)
    _works("softmax")


# -- 2^31 elements: results are small, or the call is refused before anything is allocated ------------------------------------


@pytest.mark.parametrize("name", FAR_CALLS)
def test_offsets_beyond_2_to_the_31_elements(name: str) -> None:
    check_far_call(name, "cpu")


def test_a_row_of_2_to_the_31_elements_is_refused_by_name() -> None:
    long = torch.ones(1, dtype=torch.bfloat16).as_strided((1, 2**31), (0, 0))
    with pytest.raises(RuntimeError, match="last dimension"):
        torch.ops.kernelpack.softmax(long)
    _works("softmax")


# -- NaN and infinity ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [f32, f16, bf16])
@pytest.mark.parametrize("op", ["softmax", "rms_norm", "layer_norm", "silu_mul"])
@pytest.mark.parametrize("special", [nan, inf, -inf])
def test_nan_and_infinity_go_where_torch_lets_them(op: str, special: float, dtype: torch.dtype) -> None:
    values = torch.randn(4, 150)
    values[1, 7] = special
    values[2, 149] = special
    args = [values.to(dtype)] * (2 if op == "silu_mul" else 1)
    got = getattr(torch.ops.kernelpack, op)(*args)
    torch.testing.assert_close(got, module_of(op).reference(*args), equal_nan=True, atol=2e-2, rtol=2e-2)


@pytest.mark.parametrize("dtype", [f32, f16, bf16])
@pytest.mark.parametrize("approximate", [0, 1])
def test_gelu_of_nan_and_infinity_is_that_of_torch(dtype: torch.dtype, approximate: int) -> None:
    """Infinity stays, -inf gives NaN: -inf times 0. The sign of 0 stays; where nothing is left of a negative number, 0 may have any."""
    got = torch.ops.kernelpack.gelu(torch.tensor([nan, inf, -inf, -0.0, 0.0, -100.0] * 9, dtype=dtype), approximate=approximate)
    torch.testing.assert_close(got, torch.tensor([nan, inf, nan, -0.0, 0.0, -0.0] * 9, dtype=dtype), equal_nan=True)
    assert got.view(9, 6)[:, 3:5].signbit().tolist() == [[True, False]] * 9


def test_a_scale_that_is_no_number_gives_none() -> None:
    for queries in (1, 40):
        q, k = torch.randn(1, 2, queries, 64), torch.randn(1, 2, 300, 64)
        assert torch.ops.kernelpack.mha(q, k, k, scale=nan).isnan().all()


@pytest.mark.parametrize("dtype", [f32, f16, bf16])
@pytest.mark.parametrize(("m", "n", "size"), [(1, 300, 64), (5, 9, 32), (70, 131, 64), (130, 260, 128)])
def test_the_largest_value_is_no_infinity(m: int, n: int, size: int, dtype: torch.dtype) -> None:
    """Weights above 1, by a unit in the last place, would make it one."""
    for seed in range(12):
        torch.manual_seed(seed)
        q, k, v = (torch.randn(1, 2, length, size).to(dtype) for length in (m, n, n))
        v[0, 0, seed % n, 0] = torch.finfo(dtype).max * (-1) ** seed
        for causal in (False, True):
            got = torch.ops.kernelpack.mha(q * 3, k, v, is_causal=causal)
            exact = torch.nn.functional.scaled_dot_product_attention((q * 3).double(), k.double(), v.double(), is_causal=causal)
            assert got.isfinite().all()
            torch.testing.assert_close(got[0, 0, :, 0].double(), exact[0, 0, :, 0], rtol=2e-2, atol=1.0)


@pytest.mark.parametrize("dtype", [f32, f16, bf16])
def test_nan_in_matrices_reaches_its_row_and_column(dtype: torch.dtype) -> None:
    a, b = torch.randn(40, 50, dtype=dtype), torch.randn(50, 60, dtype=dtype)
    a[3, 7], a[5, 1], b[9, 50] = nan, inf, nan
    got = torch.ops.kernelpack.matmul(a, b)
    torch.testing.assert_close(got, (a.double() @ b.double()).to(dtype), equal_nan=True, atol=0.2, rtol=2e-2)


@pytest.mark.parametrize("dtype", [e4m3, e5m2])
def test_nan_in_8_bits_reaches_its_row_and_column(dtype: torch.dtype) -> None:
    a, weight = torch.randn(40, 48).to(dtype), torch.randn(60, 48).to(e4m3)
    a[3, 7], weight[50, 9] = nan, nan
    if dtype == e5m2:  # e4m3 has no infinity
        a[5, 1] = inf
    scale = torch.ones(40, 1)
    scale[20] = inf
    args = (a, weight.t(), scale, torch.ones(1, 60))
    got = torch.ops.kernelpack.scaled_matmul(*args)
    expected = module_of("scaled_matmul").reference(*(x.double() for x in args))
    torch.testing.assert_close(got, expected.bfloat16(), equal_nan=True, atol=0.2, rtol=2e-2)


@pytest.mark.parametrize("dtype", [f32, f16, bf16])
def test_nan_in_attention_reaches_the_queries_that_see_it(dtype: torch.dtype) -> None:
    q, k, v = (torch.randn(1, 2, 70, 32, dtype=dtype) for _ in range(3))
    q[0, 0, 3, 1] = nan
    v[0, 1, 40, 5] = nan
    got = torch.ops.kernelpack.mha(q, k, v, is_causal=True)
    expected = torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double(), is_causal=True)
    assert got[0, 0, 3].isnan().all()
    assert not got[0, 0, 4:].isnan().any()
    assert torch.equal(got[0, 1, 40:, 5].isnan(), expected[0, 1, 40:, 5].isnan())
    assert not got[0, 1, :, :5].isnan().any()
    keep = ~(got.isnan() | expected.isnan())
    torch.testing.assert_close(got[keep].double(), expected[keep], atol=2e-2, rtol=2e-2)


@pytest.mark.parametrize("dtype", [f32, f16, bf16])
@pytest.mark.parametrize("queries", [1, 4, 16, 70])
@pytest.mark.parametrize("keys", [1, 9, 700])
def test_a_query_whose_scores_are_all_minus_infinity_gives_0(queries: int, keys: int, dtype: torch.dtype) -> None:
    q, k, v = x(1, queries, 8, dtype=dtype), torch.full((1, keys, 8), -inf, dtype=dtype), x(1, keys, 8, dtype=dtype)
    assert torch.equal(torch.ops.kernelpack.mha(q, k, v), torch.nn.functional.scaled_dot_product_attention(q, k, v))
    assert not torch.ops.kernelpack.mha(q, k, v).any()


def test_zero_size_tensors_give_zero_size_results() -> None:
    for op, args in {
        "softmax": (x(0, 3),),
        "rms_norm": (x(3, 0), x(0)),
        "layer_norm": (x(0, 0),),
        "gelu": (x(0),),
        "silu_mul": (x(2, 0, 3), x(2, 0, 3)),
        "rope": (x(2, 0, 4, 8), x(4, 4), x(4, 4)),
        "mha": tuple(qkv(0, 2, 3, 8)),
        "matmul": (x(0, 3), x(3, 4)),
        "scaled_matmul": (x(0, 3, dtype=e4m3), x(4, 3, dtype=e4m3).t(), x(1), x(1, 4)),
    }.items():
        assert getattr(torch.ops.kernelpack, op)(*args).numel() == 0
    assert torch.equal(torch.ops.kernelpack.matmul(x(2, 0), x(0, 3), x(3)), x(2, 3))
    assert torch.equal(torch.ops.kernelpack.mha(x(1, 1, 2, 8), x(1, 1, 0, 8), x(1, 1, 0, 8)), torch.zeros(1, 1, 2, 8))
    nothing = torch.ops.kernelpack.scaled_matmul(x(2, 0, dtype=e4m3), x(3, 0, dtype=e4m3).t(), x(1), x(1), x(3, dtype=bf16))
    assert torch.equal(nothing, x(2, 3, dtype=bf16))
