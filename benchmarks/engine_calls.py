"""Kernels of engines and libraries, each by its own launcher, with the shapes of serving and training.

The list was written before the first timing. Three were removed: fla refuses the backward pass of chunk_gated_delta_rule under Triton 3.6,
Triton's code of Mamba's _chunk_scan_fwd needs more shared memory than an H100 has, and attorch's BatchNorm gives the first channel another
result than torch, by either compiler.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

Tensor = torch.Tensor
bf16, fp16, fp32 = torch.bfloat16, torch.float16, torch.float32


@dataclass(frozen=True)
class Call:
    """`run` calls what is at `place` (module:name) with `inputs()`, and returns a tensor or several."""

    place: str
    shape: str
    inputs: Callable[[], tuple[Any, ...]]
    run: Callable[..., Any]
    graph: bool = True
    """False for a launcher that waits for the GPU, which a graph cannot hold."""

    @property
    def name(self) -> str:
        module, _, function = self.place.partition(":")
        return f"{module.partition('.')[0]} {function} {self.shape}"


def normal(*shape: int, dtype: torch.dtype = bf16) -> Tensor:
    return torch.randn(shape, device="cuda", dtype=dtype)


def uniform(*shape: int, dtype: torch.dtype = fp32) -> Tensor:
    return torch.rand(shape, device="cuda", dtype=dtype)


def whole(high: int, *shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
    return torch.randint(0, high, shape, device="cuda", dtype=dtype)


def empty(*shape: int, dtype: torch.dtype = bf16) -> Tensor:
    return torch.empty(shape, device="cuda", dtype=dtype)


# -- Liger: training ---------------------------------------------------------------------------------------------------------

ROWS, COLUMNS, VOCABULARY = 8192, 4096, 32000


def _grad(place: str, shape: str, inputs: Callable[[], tuple[Any, ...]], run: Callable[..., Any]) -> Call:
    """The backward pass of an autograd Function: its forward pass is part of what is timed."""

    def both(function: Any, *given: Any) -> Any:
        leaves = [x.detach().requires_grad_() if isinstance(x, Tensor) and x.is_floating_point() else x for x in given]
        out = run(function, *leaves)
        out = out[0] if isinstance(out, tuple) else out
        wanted = [x for x in leaves if isinstance(x, Tensor) and x.requires_grad]
        return torch.autograd.grad(out, wanted, out.detach(), allow_unused=True)

    return Call(place, f"{shape} backward", inputs, both)


def _two(rows: int = ROWS, columns: int = COLUMNS) -> Callable[[], tuple[Any, ...]]:
    return lambda: (normal(rows, columns), normal(rows, columns))


LIGER = [
    Call("liger_kernel.ops.rms_norm:rms_norm_forward", "8192x4096", lambda: (normal(ROWS, COLUMNS), normal(COLUMNS)),
         lambda f, x, w: f(x, w, 1e-6, 0.0, "llama", None)[0]),
    _grad("liger_kernel.ops.rms_norm:LigerRMSNormFunction", "8192x4096", lambda: (normal(ROWS, COLUMNS), normal(COLUMNS)),
          lambda f, x, w: f.apply(x, w, 1e-6, 0.0, "llama", False)),
    Call("liger_kernel.ops.layer_norm:layer_norm_forward", "8192x4096",
         lambda: (normal(ROWS, COLUMNS), normal(COLUMNS), normal(COLUMNS)), lambda f, x, w, b: f(x, w, b, 1e-5)[0]),
    _grad("liger_kernel.ops.layer_norm:LigerLayerNormFunction", "8192x4096",
          lambda: (normal(ROWS, COLUMNS), normal(COLUMNS), normal(COLUMNS)), lambda f, x, w, b: f.apply(x, w, b, 1e-5)),
    Call("liger_kernel.ops.swiglu:swiglu_forward", "8192x11008", _two(ROWS, 11008), lambda f, a, b: f(a, b)[-1]),
    _grad("liger_kernel.ops.swiglu:LigerSiLUMulFunction", "8192x11008", _two(ROWS, 11008), lambda f, a, b: f.apply(a, b)),
    Call("liger_kernel.ops.geglu:geglu_forward", "8192x11008", _two(ROWS, 11008), lambda f, a, b: f(a, b)[-1]),
    _grad("liger_kernel.ops.geglu:LigerGELUMulFunction", "8192x11008", _two(ROWS, 11008), lambda f, a, b: f.apply(a, b)),
    Call("liger_kernel.ops.rope:rope_forward", "4x32x2048x128",
         lambda: (normal(4, 32, 2048, 128), normal(4, 8, 2048, 128), normal(1, 2048, 128), normal(1, 2048, 128)),
         lambda f, q, k, cos, sin: f(q, k, cos, sin)[:2]),
    Call("liger_kernel.ops.cross_entropy:cross_entropy_forward", "8192x32000",
         lambda: (normal(ROWS, VOCABULARY), whole(VOCABULARY, ROWS)),
         lambda f, x, t: f(x, t, None, -100, 0.0, 0.0, "mean", None, False)[0], graph=False),
    Call("liger_kernel.ops.jsd:jsd_forward", "2048x32000",
         lambda: (normal(2048, VOCABULARY, dtype=fp32).log_softmax(-1), normal(2048, VOCABULARY, dtype=fp32).log_softmax(-1)),
         lambda f, x, t: f(x, t, None, 0.5, -100, False)[0]),
    Call("liger_kernel.ops.kl_div:kldiv_forward_triton", "2048x32000",
         lambda: (normal(2048, VOCABULARY, dtype=fp32).log_softmax(-1), normal(2048, VOCABULARY, dtype=fp32).softmax(-1)),
         lambda f, x, t: f(x, t, False, "batchmean", 1e-10)),
    Call("liger_kernel.ops.tvd:tv_distance_forward_triton", "2048x32000",
         lambda: (normal(2048, VOCABULARY, dtype=fp32).softmax(-1), normal(2048, VOCABULARY, dtype=fp32).softmax(-1)),
         lambda f, p, q: f(p, q, None, "batchmean", -100, False)[0]),
    Call("liger_kernel.ops.sparsemax:_sparsemax_forward", "4096x4096", lambda: (normal(4096, 4096, dtype=fp32),),
         lambda f, x: f(x, -1)[0]),
    _grad("liger_kernel.ops.sparsemax:LigerSparsemaxFunction", "4096x4096", lambda: (normal(4096, 4096, dtype=fp32),),
          lambda f, x: f.apply(x, -1)),
    Call("liger_kernel.ops.group_norm:group_norm_forward", "16x256x4096 32 groups",
         lambda: (normal(16, 256, 4096, dtype=fp32), normal(256, dtype=fp32), normal(256, dtype=fp32)),
         lambda f, x, w, b: f(x, 256, 32, w, b, 1e-5)[0]),
    Call("liger_kernel.ops.dyt:liger_dyt_fwd", "8192x4096",
         lambda: (normal(ROWS, COLUMNS), normal(1), normal(COLUMNS), normal(COLUMNS)), lambda f, x, a, g, b: f(x, a, g, b)),
    Call("liger_kernel.ops.softmax:_softmax_forward", "8192x4096", lambda: (normal(ROWS, COLUMNS),), lambda f, x: f(x)[0]),
    _grad("liger_kernel.ops.softmax:LigerSoftmaxFunction", "8192x4096", lambda: (normal(ROWS, COLUMNS),), lambda f, x: f.apply(x)),
    Call("liger_kernel.ops.fused_add_rms_norm:fused_add_rms_norm_forward", "8192x4096",
         lambda: (normal(ROWS, COLUMNS), normal(ROWS, COLUMNS), normal(COLUMNS)),
         lambda f, x, r, w: f(x, r, w, 1e-6, 0.0, "llama")[:2]),
    Call("liger_kernel.ops.grpo_loss:fused_selective_log_softmax", "4x1024x32000",
         lambda: (normal(4, 1025, VOCABULARY), whole(VOCABULARY, 4, 1024)), lambda f, x, i: f(x, i, 0.9, None)),
]  # fmt: skip

# -- fla: linear attention ---------------------------------------------------------------------------------------------------

B, T, H, D = 4, 2048, 16, 128


def _qkv(*more: Callable[[], Tensor], heads: int = H, width: int = D) -> Callable[[], tuple[Any, ...]]:
    return lambda: (
        normal(B, T, heads, width), torch.nn.functional.normalize(normal(B, T, heads, width), dim=-1),
        normal(B, T, heads, width), *(one() for one in more),
    )  # fmt: skip


def _decay(*shape: int) -> Callable[[], Tensor]:
    return lambda: torch.nn.functional.logsigmoid(normal(*shape, dtype=fp32)) / 16


FLA = [
    Call("fla.ops.gla:chunk_gla", "4x2048x16x128", _qkv(_decay(B, T, H, D)), lambda f, q, k, v, g: f(q, k, v, g)[0]),
    _grad("fla.ops.gla:chunk_gla", "4x2048x16x128", _qkv(_decay(B, T, H, D)), lambda f, q, k, v, g: f(q, k, v, g)[0]),
    Call("fla.ops.retention:chunk_retention", "4x2048x16x128", _qkv(), lambda f, q, k, v: f(q, k, v)[0]),
    Call("fla.ops.simple_gla:chunk_simple_gla", "4x2048x16x128", _qkv(_decay(B, T, H)), lambda f, q, k, v, g: f(q, k, v, g)[0]),
    Call("fla.ops.gated_delta_rule:chunk_gated_delta_rule", "4x2048x16x128", _qkv(_decay(B, T, H), lambda: uniform(B, T, H)),
         lambda f, q, k, v, g, b: f(q, k, v, g, b)[0]),
    Call("fla.ops.gated_delta_rule:fused_recurrent_gated_delta_rule", "128x1x16x128",
         lambda: (normal(128, 1, H, D), torch.nn.functional.normalize(normal(128, 1, H, D), dim=-1), normal(128, 1, H, D),
                  _decay(128, 1, H)(), uniform(128, 1, H), normal(128, H, D, D, dtype=fp32)),
         lambda f, q, k, v, g, b, s: f(q, k, v, g, beta=b, initial_state=s, output_final_state=True)),
    Call("fla.ops.delta_rule:chunk_delta_rule", "4x2048x16x128", _qkv(lambda: uniform(B, T, H, dtype=bf16)),
         lambda f, q, k, v, b: f(q, k, v, b)[0]),
    Call("fla.ops.linear_attn:chunk_linear_attn", "4x2048x16x128", _qkv(), lambda f, q, k, v: f(q, k, v, normalize=False)[0]),
    Call("fla.ops.rwkv6:chunk_rwkv6", "4x2048x16x64",
         lambda: (normal(B, T, H, 64), normal(B, T, H, 64), normal(B, T, H, 64), _decay(B, T, H, 64)(), normal(H, 64)),
         lambda f, r, k, v, w, u: f(r, k, v, w, u)[0]),
    Call("fla.ops.hgrn:chunk_hgrn", "8x4096x1024", lambda: (normal(8, 4096, 1024), _decay(8, 4096, 1024)()),
         lambda f, x, g: f(x, g)[0]),
    Call("fla.ops.forgetting_attn:parallel_forgetting_attn", "4x2048x16x128", _qkv(_decay(B, T, H)),
         lambda f, q, k, v, g: f(q, k, v, g)),
    Call("fla.ops.attn:parallel_attn", "4x2048x16x128", _qkv(), lambda f, q, k, v: f(q, k, v)),
    Call("fla.ops.kda:chunk_kda", "4x2048x16x128", _qkv(_decay(B, T, H, D), lambda: uniform(B, T, H)),
         lambda f, q, k, v, g, b: f(q, k, v, g, b)[0]),
    Call("fla.ops.utils.cumsum:chunk_local_cumsum", "4x2048x16x128", lambda: (_decay(B, T, H, D)(),), lambda f, g: f(g, 64)),
]  # fmt: skip

# -- vLLM, Conch: serving ----------------------------------------------------------------------------------------------------

BLOCK, BLOCKS = 16, 4096


def _paged(sequences: int, queries: int, context: int) -> tuple[Any, ...]:
    """Queries of 32 heads against a cache of 8 heads in blocks of 16."""
    table = torch.randperm(BLOCKS, device="cuda", dtype=torch.int32).repeat(
        max(1, sequences * (context // BLOCK) // BLOCKS + 1)
    )
    table = table[: sequences * (context // BLOCK)].reshape(sequences, -1).contiguous()
    starts = torch.arange(0, sequences * queries + 1, queries, device="cuda", dtype=torch.int32)
    lengths = torch.full((sequences,), context, device="cuda", dtype=torch.int32)
    return (
        normal(sequences * queries, 32, 128), normal(BLOCKS, BLOCK, 8, 128), normal(BLOCKS, BLOCK, 8, 128), table, starts, lengths,
        queries, context,
    )  # fmt: skip


def _unified(
    f: Any, q: Tensor, k: Tensor, v: Tensor, table: Tensor, starts: Tensor, lengths: Tensor, queries: int, context: int
) -> Any:
    out = torch.empty_like(q)
    f(q=q, k=k, v=v, out=out, cu_seqlens_q=starts, max_seqlen_q=queries, seqused_k=lengths, max_seqlen_k=context,
      softmax_scale=128**-0.5, causal=True, window_size=(-1, -1), block_table=table, softcap=0.0, q_descale=None,
      k_descale=None, v_descale=None)  # fmt: skip
    return out


def _prefilled(sequences: int, queries: int, context: int) -> tuple[Any, ...]:
    """The same with the cache as vLLM's first kernel for prefill wants it: keys in pieces of 8, values by channel."""
    q, k, v, *rest = _paged(sequences, queries, context)
    keys = k.view(BLOCKS, BLOCK, 8, 16, 8).permute(0, 2, 3, 1, 4).contiguous()
    return q, q[:, :8].contiguous(), keys, v.permute(0, 2, 3, 1).contiguous(), *rest, torch.ones(1, device="cuda")


def _prefix(
    f: Any, q: Tensor, new: Tensor, keys: Tensor, values: Tensor, table: Tensor, starts: Tensor, lengths: Tensor,
    queries: int, context: int, one: Tensor,
) -> Any:  # fmt: skip
    out = torch.empty_like(q)
    f(q, new, new, out, "auto", keys, values, table, starts, lengths, context, queries, one, one, sm_scale=128**-0.5)
    return out


def _merged(f: Any, a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
    out = torch.empty_like(a)
    f(out, a, c, b, d)
    return out


def _conch_paged(f: Any, q: Tensor, k: Tensor, v: Tensor, table: Tensor, starts: Tensor, lengths: Tensor, *_: int) -> Any:
    return f(q, k, v, table, lengths)


def _conch_varlen(
    f: Any, q: Tensor, k: Tensor, v: Tensor, table: Tensor, starts: Tensor, lengths: Tensor, m: int, n: int
) -> Any:
    return f(q, k, v, starts, m, lengths, n, table, causal=True)


def _int4(rows: int) -> Callable[[], tuple[Any, ...]]:
    return lambda: (
        normal(rows, 4096, dtype=fp16), whole(2**31 - 1, 4096 // 8, 4096, dtype=torch.int32),
        uniform(4096 // 128, 4096, dtype=fp16) / 100,
    )  # fmt: skip


def _int8(rows: int) -> Callable[[], tuple[Any, ...]]:
    return lambda: (
        whole(100, rows, 4096, dtype=torch.int8), whole(100, 4096, 4096, dtype=torch.int8).t(),
        uniform(rows, 1), uniform(4096, 1),
    )  # fmt: skip


SERVING = [
    Call("vllm.v1.attention.ops.triton_unified_attention:unified_attention", "64 decode 1024", lambda: _paged(64, 1, 1024), _unified),
    Call("vllm.v1.attention.ops.triton_unified_attention:unified_attention", "4 prefill 1024", lambda: _paged(4, 1024, 1024), _unified),
    Call("vllm.v1.attention.ops.prefix_prefill:context_attention_fwd", "4 of 512 after 512", lambda: _prefilled(4, 512, 1024), _prefix),
    Call("vllm.v1.attention.ops.triton_merge_attn_states:merge_attn_states", "4096x32x128",
         lambda: (normal(4096, 32, 128), normal(4096, 32, 128), normal(32, 4096, dtype=fp32), normal(32, 4096, dtype=fp32)), _merged),
    Call("conch.ops.attention.paged_attention:paged_attention", "64 decode 1024", lambda: _paged(64, 1, 1024), _conch_paged),
    Call("conch.ops.attention.varlen_attention:varlen_attention", "4 prefill 1024", lambda: _paged(4, 1024, 1024), _conch_varlen),
    Call("conch.ops.activation.silu_and_mul:silu_and_mul", "4096x22016", lambda: (normal(4096, 22016),), lambda f, x: f(x)),
    Call("conch.ops.activation.gelu_tanh_and_mul:gelu_tanh_and_mul", "4096x22016 fp32", lambda: (normal(4096, 22016, dtype=fp32),), lambda f, x: f(x)),
    Call("conch.ops.normalization.rms_norm:rms_norm", "4096x4096", lambda: (normal(4096, 4096), normal(4096)),
         lambda f, x, w: f(x, w, 1e-6)),
    Call("conch.ops.embedding.rotary_embedding:rotary_embedding", "4096x32x128",
         lambda: (whole(4096, 4096), normal(4096, 4096), normal(4096, 1024), normal(4096, 128)),
         lambda f, p, q, k, c: f(p, q.clone(), k.clone(), 128, c)),
    Call("conch.ops.quantization.fp8:scaled_fp8_quant", "4096x4096", lambda: (normal(4096, 4096), uniform(1)),
         lambda f, x, s: f(x, s)[0].float()),
    Call("conch.ops.quantization.int8:scaled_int8_quant", "4096x4096", lambda: (normal(4096, 4096), uniform(1)),
         lambda f, x, s: f(x, s)[0]),
    Call("conch.ops.quantization.gemm:mixed_precision_gemm", "int4 1x4096x4096", _int4(1),
         lambda f, x, w, s: f(x, w, s, None, 4, 8, 128)),
    Call("conch.ops.quantization.gemm:mixed_precision_gemm", "int4 1024x4096x4096", _int4(1024),
         lambda f, x, w, s: f(x, w, s, None, 4, 8, 128)),
    Call("conch.ops.quantization.gemm:scaled_gemm", "int8 1024x4096x4096", _int8(1024), lambda f, a, b, s, t: f(a, b, s, t, bf16)),
]  # fmt: skip

# -- FlagGems, attorch, bitsandbytes, Mamba, torchao ---------------------------------------------------------------------------


def _map() -> Tensor:
    return torch.linspace(-1, 1, 256, device="cuda")


def _adam8(f: Any, g: Tensor, p: Tensor, a: Tensor, b: Tensor, code: Tensor, sa: Tensor, sb: Tensor) -> Tensor:
    f("adam", g, p, a, b, 0.9, 0.999, 0.0, 0.0, 1e-8, 3, 1e-3, code, code, sa, sb)
    return p


def _adam32(f: Any, g: Tensor, p: Tensor, a: Tensor, b: Tensor) -> Tensor:
    f("adam", g, p, a, b, None, 0.0, 0.0, 0.9, 0.999, 0.0, 0.0, 1e-8, 0.0, 3, 1e-3)
    return p


def _nf4(f: Any, x: Tensor) -> Tensor:
    n = x.numel()
    absmax, out = empty(n // 64, dtype=fp32), empty(n // 2, 1, dtype=torch.uint8)
    f(x, 64, "nf4", n // 64, absmax, n, out)
    return out


def _from_nf4(f: Any, x: Tensor, absmax: Tensor) -> Tensor:
    out = empty(x.numel() * 2)
    f(x, absmax, 64, "nf4", bf16, out)
    return out


ELEMENTS = 16 * 2**20
OTHERS = [
    Call("flag_gems.ops.cummax:cummax", "4096x4096", lambda: (normal(4096, 4096, dtype=fp32),), lambda f, x: f(x, 1)),
    Call("flag_gems.ops.cumsum:cumsum", "4096x4096", lambda: (normal(4096, 4096, dtype=fp32),), lambda f, x: f(x, 1)),
    Call("flag_gems.ops.sort:sort", "64x32768", lambda: (normal(64, 32768, dtype=fp32),), lambda f, x: f(x, -1)[0]),
    Call("flag_gems.ops.topk:topk", "64x32768 64", lambda: (normal(64, 32768, dtype=fp32),), lambda f, x: f(x, 64)[0]),
    Call("flag_gems.ops.argmax:argmax", "4096x4096", lambda: (normal(4096, 4096, dtype=fp32),), lambda f, x: f(x, 1)),
    Call("flag_gems.ops.softmax:softmax", "8192x4096", lambda: (normal(8192, 4096),), lambda f, x: f(x, -1)),
    Call("flag_gems.ops.log_softmax:log_softmax", "8192x4096", lambda: (normal(8192, 4096),), lambda f, x: f(x, -1)),
    Call("flag_gems.ops.layernorm:layer_norm", "8192x4096", lambda: (normal(8192, 4096), normal(4096), normal(4096)),
         lambda f, x, w, b: f(x, (4096,), w, b)[0]),
    Call("flag_gems.ops.mm:mm", "4096x4096x4096", lambda: (normal(4096, 4096), normal(4096, 4096)), lambda f, a, b: f(a, b)),
    Call("flag_gems.ops.bmm:bmm", "16x1024x1024x1024", lambda: (normal(16, 1024, 1024), normal(16, 1024, 1024)), lambda f, a, b: f(a, b)),
    Call("flag_gems.ops.gather:gather", "4096x4096", lambda: (normal(4096, 4096), whole(4096, 4096, 4096)), lambda f, x, i: f(x, 1, i)),
    Call("flag_gems.ops.embedding:embedding", "32000x4096 of 8192", lambda: (normal(32000, 4096), whole(32000, 8192)),
         lambda f, w, i: f(w, i)),
    Call("flag_gems.ops.var_mean:var_mean", "8192x4096", lambda: (normal(8192, 4096, dtype=fp32),), lambda f, x: f(x, dim=[1])),
    Call("flag_gems.ops.sum:sum_dim", "8192x4096", lambda: (normal(8192, 4096, dtype=fp32),), lambda f, x: f(x, dim=[1])),
    Call("attorch.conv_layer:Conv2dAutoGrad", "32x128x56x56 3x3", lambda: (normal(32, 128, 56, 56, dtype=fp16), normal(128, 128, 3, 3, dtype=fp16)),
         lambda f, x, w: f.apply(x, w, None, 1, 1, 1, 1, 1)),
    Call("attorch.layer_norm_layer:LayerNormAutoGrad", "8192x4096",
         lambda: (normal(8192, 4096, dtype=fp32), normal(4096, dtype=fp32), normal(4096, dtype=fp32)), lambda f, x, w, b: f.apply(x, w, b)),
    Call("attorch.linear_layer:LinearAutoGrad", "4096x1024x4096",
         lambda: (normal(4096, 1024, dtype=fp16), normal(1024, 4096, dtype=fp16)), lambda f, x, w: f.apply(x, w, None, None)),
    Call("attorch.softmax_layers:SoftmaxAutoGrad", "8192x4096", lambda: (normal(8192, 4096, dtype=fp32),),
         lambda f, x: f.apply(x, False, False)),
    Call("attorch.cross_entropy_loss_layer:CrossEntropyLossAutoGrad", "4096x4096",
         lambda: (normal(4096, 4096, dtype=fp32), whole(4096, 4096)), lambda f, x, t: f.apply(x, t, None)),
    Call("bitsandbytes.backends.triton.kernels_8bit_quant:quantize_blockwise_triton", "16M of 256",
         lambda: (normal(ELEMENTS), _map()), lambda f, x, c: f(x, c, 256)[0]),
    Call("bitsandbytes.backends.triton.kernels_8bit_quant:dequant_8bit_blockwise", "16M of 256",
         lambda: (whole(256, ELEMENTS, dtype=torch.uint8), uniform(ELEMENTS // 256), _map()),
         lambda f, x, s, c: f(x, s, c, 256, dtype=bf16)),
    Call("bitsandbytes.backends.triton.kernels_4bit:quantize_4bit_blockwise_triton", "16M of 64", lambda: (normal(ELEMENTS),), _nf4),
    Call("bitsandbytes.backends.triton.kernels_4bit:dequantize_4bit_impl", "16M of 64",
         lambda: (whole(256, ELEMENTS // 2, 1, dtype=torch.uint8), uniform(ELEMENTS // 64)), _from_nf4),
    Call("bitsandbytes.backends.triton.kernels_optim:optimizer_update_8bit_blockwise_impl", "16M",
         lambda: (normal(ELEMENTS), normal(ELEMENTS), whole(256, ELEMENTS, dtype=torch.uint8), whole(256, ELEMENTS, dtype=torch.uint8),
                  _map(), uniform(ELEMENTS // 256), uniform(ELEMENTS // 256)), _adam8),
    Call("bitsandbytes.backends.triton.kernels_optim:optimizer_update_32bit_impl", "16M",
         lambda: (normal(ELEMENTS), normal(ELEMENTS), normal(ELEMENTS, dtype=fp32), uniform(ELEMENTS)), _adam32),
    Call("mamba_ssm.ops.triton.selective_state_update:selective_state_update", "128x64x64x128",
         lambda: (normal(128, 64, 64, 128, dtype=fp32), normal(128, 64, 64), normal(128, 64, 64), -uniform(64, 64, 128),
                  normal(128, 1, 128), normal(128, 1, 128), normal(64, 64, dtype=fp32)),
         lambda f, s, x, t, a, b, c, d: f(s, x, t, a, b, c, d, dt_bias=d[:, :], dt_softplus=True)),
    Call("mamba_ssm.ops.triton.ssd_chunk_state:_chunk_cumsum_fwd", "4x2048x64 256", lambda: (normal(4, 2048, 64), -uniform(64)),
         lambda f, t, a: f(t, a, 256)),
    Call("mamba_ssm.ops.triton.ssd_chunk_state:_chunk_state_fwd", "4x2048x64x64x128",
         lambda: (normal(4, 2048, 1, 128), normal(4, 2048, 64, 64), uniform(4, 64, 8, 256), -uniform(4, 64, 8, 256)),
         lambda f, b, x, t, a: f(b, x, t, a)),
    Call("mamba_ssm.ops.triton.ssd_bmm:_bmm_chunk_fwd", "4x2048x1x128 256", lambda: (normal(4, 2048, 1, 128), normal(4, 2048, 1, 128)),
         lambda f, a, b: f(a, b, 256)),
    Call("mamba_ssm.ops.triton.layer_norm:_layer_norm_fwd", "8192x4096", lambda: (normal(8192, 4096), normal(4096), normal(4096)),
         lambda f, x, w, b: f(x, w, b, 1e-5)[0]),
    Call("mamba_ssm.ops.triton.layernorm_gated:_layer_norm_fwd", "gated 8192x4096", lambda: (normal(8192, 4096), normal(4096), normal(4096), normal(8192, 4096)),
         lambda f, x, w, b, z: f(x, w, b, 1e-5, z=z)[0]),
    Call("torchao.kernel.blockwise_quantization:fp8_blockwise_act_quant", "4096x4096", lambda: (normal(4096, 4096),),
         lambda f, x: f(x, 128)[0].float()),
    Call("torchao.kernel.blockwise_quantization:fp8_blockwise_weight_quant", "4096x4096", lambda: (normal(4096, 4096),),
         lambda f, x: f(x, 128)[0].float()),
]  # fmt: skip

CALLS = (*LIGER, *FLA, *SERVING, *OTHERS)
