"""SGLang's kernels for attention, mixtures of experts and quantized matmuls, each by its own launcher, in shapes of serving.

The sizes are those of Llama 3 8B, of Mixtral on four GPUs, of DeepSeek V3 and of models with linear attention. What a launcher writes into
is zero before, as some rows stay unwritten. Results in fp8 are returned as bytes.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

from benchmarks.engine_calls import Call, Tensor, bf16, empty, fp32, normal, uniform, whole

fp8 = torch.float8_e4m3fn
OPS = "sglang.kernels.ops"


def _zeros(*shape: int, dtype: torch.dtype = bf16) -> Tensor:
    return torch.zeros(shape, device="cuda", dtype=dtype)


def _starts(sequences: int, length: int) -> Tensor:
    return torch.arange(0, sequences * length + 1, length, device="cuda", dtype=torch.int32)


def _each(count: int, value: int) -> Tensor:
    return torch.full((count,), value, device="cuda", dtype=torch.int32)


def _shuffled(count: int) -> Tensor:
    return torch.randperm(count, device="cuda").int()


def _eights(*shape: int) -> Tensor:
    return normal(*shape).to(fp8)


# -- attention ---------------------------------------------------------------------------------------------------------------

SPLITS = 8


def _decode(sequences: int, context: int, kv_heads: int) -> tuple[Any, ...]:
    """One query of 32 heads for each sequence; each token of the context lies anywhere in the pool."""
    slots = sequences * context
    return (
        normal(sequences, 32, 128), normal(slots, kv_heads, 128), normal(slots, kv_heads, 128), empty(sequences, 32, 128),
        _starts(sequences, context), _shuffled(slots), _each(sequences, SPLITS),
    )  # fmt: skip


def _decode_latent(sequences: int, context: int) -> tuple[Any, ...]:
    """16 heads, and one of 576 channels for keys, whose first 512 are the values."""
    slots = sequences * context
    pool = normal(slots, 1, 576)
    return (
        normal(sequences, 16, 576), pool, pool[..., :512], empty(sequences, 16, 512),
        _starts(sequences, context), _shuffled(slots), _each(sequences, SPLITS),
    )  # fmt: skip


def _decoded(f: Any, q: Tensor, k: Tensor, v: Tensor, out: Tensor, starts: Tensor, slots: Tensor, splits: Tensor) -> Tensor:
    sequences, heads, width = q.shape
    parts, sums = empty(sequences, heads, SPLITS, v.shape[-1], dtype=fp32), empty(sequences, heads, SPLITS, dtype=fp32)
    f(q, k, v, out, starts, slots, parts, sums, splits, SPLITS, width**-0.5, 1.0, 1.0, has_mla=width == 576)
    return out


def _extended(
    f: Any, q: Tensor, new: Tensor, keys: Tensor, values: Tensor, starts: Tensor, before: Tensor, slots: Tensor
) -> Tensor:
    out = torch.empty_like(q)
    longest = q.shape[0] // (starts.shape[0] - 1)
    f(q, new, new, out, keys, values, starts, before, slots, None, True, None, longest, 1.0, 1.0)
    return out


def _extension(sequences: int, queries: int, context: int) -> tuple[Any, ...]:
    slots = sequences * context
    return (
        normal(sequences * queries, 32, 128), normal(sequences * queries, 8, 128), normal(slots, 8, 128), normal(slots, 8, 128),
        _starts(sequences, queries), _starts(sequences, context), _shuffled(slots),
    )  # fmt: skip


def _unified(
    f: Any, q: Tensor, keys: Tensor, values: Tensor, starts: Tensor, all_starts: Tensor, slots: Tensor, before: Tensor
) -> Tensor:
    out = torch.empty_like(q)
    f(q, out, keys, values, 1.0, 1.0, starts, all_starts, slots, before, q.shape[0] // before.shape[0])
    return out


def _prefilled(f: Any, q: Tensor, k: Tensor, v: Tensor, starts: Tensor, lengths: Tensor, longest: int) -> Tensor:
    out = torch.empty_like(q)
    f(q, k, v, out, starts, lengths, longest)
    return out


def _indices(f: Any, table: Tensor, rows: Tensor, lengths: Tensor, starts: Tensor, out: Tensor) -> Tensor:
    f[(rows.shape[0],)](table, rows, lengths, starts, None, out, table.stride(0))
    return out


def _roped_and_kept(f: Any, q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
    rotated = torch.empty_like(q)
    f(q, k, v, keys, values, *rest, True, True, q_out=rotated, output_zeros=False)
    return rotated, keys, values


def _normed_and_roped(f: Any, qkv: Tensor, positions: Tensor, q: Tensor, k: Tensor, table: Tensor) -> Tensor:
    f(qkv, positions, q, k, table, 32, 8, 128, 1e-6)
    return qkv


def _latents_kept(f: Any, pool: Tensor, slots: Tensor, nope: Tensor, rope: Tensor) -> Tensor:
    f(pool, slots, nope, rope, fp8, reserved_skip_index=-1)
    return pool


ATTENTION = [
    Call(f"{OPS}.attention.decode_attention:decode_attention_fwd", "64 decode 1024", lambda: _decode(64, 1024, 8), _decoded),
    Call(f"{OPS}.attention.decode_attention:decode_attention_fwd", "16 decode 1024 of 32 heads", lambda: _decode(16, 1024, 32), _decoded),
    Call(f"{OPS}.attention.decode_attention:decode_attention_fwd", "64 decode 1024 latent", lambda: _decode_latent(64, 1024), _decoded),
    Call(f"{OPS}.attention.extend_attention:extend_attention_fwd", "4 of 512 after 512", lambda: _extension(4, 512, 512), _extended),
    Call(f"{OPS}.attention.extend_attention:extend_attention_fwd_unified", "4 of 512 after 512",
         lambda: (normal(2048, 32, 128), normal(4096, 8, 128), normal(4096, 8, 128), _starts(4, 512), _starts(4, 1024), _shuffled(4096),
                  _each(4, 512)), _unified),
    Call(f"{OPS}.attention.prefill_attention:context_attention_fwd", "4 prefill 1024",
         lambda: (normal(4096, 32, 128), normal(4096, 8, 128), normal(4096, 8, 128), _starts(4, 1024)[:-1], _each(4, 1024), 1024),
         _prefilled),
    Call(f"{OPS}.attention.dsa.triton_sparse_mla:triton_sparse_mla_fwd", "64 of 2048",
         lambda: (normal(64, 16, 512), normal(64, 16, 64), normal(65536, 1, 576), whole(65536, 64, 1, 2048, dtype=torch.int32)),
         lambda f, q, rope, pool, slots: f(q, rope, pool, slots, 576**-0.5)),
    Call(f"{OPS}.attention.dsa.triton_sparse_mla_prefill:sparse_mla_prefill", "512 of 2048",
         lambda: (normal(512, 16, 576), normal(65536, 1, 576), whole(65536, 512, 1, 2048, dtype=torch.int32)),
         lambda f, q, pool, slots: f(q, pool, slots, 576**-0.5)),
    Call(f"{OPS}.attention.kv_indices:create_flashinfer_kv_indices_triton", "64 of 1024",
         lambda: (whole(65536, 128, 8192, dtype=torch.int32), _shuffled(128)[:64], _each(64, 1024), _starts(64, 1024),
                  _zeros(65536, dtype=torch.int32)), _indices),
    Call(f"{OPS}.attention.fused_qk_rope_reshape_and_cache:fused_qk_rope_reshape_and_cache", "4096x32x128",
         lambda: (normal(4096, 32, 128), normal(4096, 8, 128), normal(4096, 8, 128), _zeros(512, 16, 8, 128), _zeros(512, 16, 8, 128),
                  torch.randperm(8192, device="cuda")[:4096], whole(4096, 4096), normal(4096, 128), uniform(1) + 1, uniform(1) + 1),
         _roped_and_kept),
    Call(f"{OPS}.attention.table_qk_norm_rope:table_qk_norm_rope_", "4096x48x128",
         lambda: (normal(4096, 48 * 128), whole(4096, 4096), normal(128), normal(128), normal(4096, 128, dtype=fp32)), _normed_and_roped),
    Call(f"{OPS}.kvcache.mla_buffer:set_mla_kv_buffer_triton_fp8_quant", "4096x576",
         lambda: (_zeros(65536, 1, 576, dtype=torch.uint8), torch.randperm(65536, device="cuda")[:4096], normal(4096, 1, 512),
                  normal(4096, 1, 64)), _latents_kept),
]  # fmt: skip

# -- linear attention --------------------------------------------------------------------------------------------------------


def _unit(*shape: int) -> Tensor:
    return torch.nn.functional.normalize(normal(*shape), dim=-1)


def _slopes(heads: int) -> Tensor:
    return 2.0 ** torch.linspace(-0.5, -8, heads, device="cuda")


def _segments(sequences: int, length: int) -> tuple[Any, ...]:
    tokens = sequences * length
    meta = SimpleNamespace(
        batch_size=sequences, max_q_length=length, q_offsets=_starts(sequences, length), s_offsets=_shuffled(sequences),
        q_lengths=_each(sequences, length), s_scales=_each(sequences, 1), mask=None,
    )  # fmt: skip
    q, k, v = (normal(tokens, 32, 128) for _ in range(3))
    return q, k, v, normal(sequences, 32, 128, 128, dtype=fp32), _slopes(32), meta


def _gated(sequences: int, length: int) -> tuple[Any, ...]:
    """Gates as models learn them: a token of a chunk forgets a part of the state, not all of it."""
    return (
        _unit(sequences, length, 16, 128), _unit(sequences, length, 16, 128), normal(sequences, length, 16, 128),
        normal(sequences, length, 16, 128), normal(sequences, length, 16), uniform(16) * 2.7, normal(16 * 128, dtype=fp32) - 4,
        normal(sequences, 16, 128, 128, dtype=fp32), _shuffled(sequences),
    )  # fmt: skip


def _gated_chunks(
    f: Any, q: Tensor, k: Tensor, v: Tensor, g: Tensor, b: Tensor, a: Tensor, bias: Tensor, state: Tensor, slots: Tensor
) -> Any:
    """The launcher writes its result into the values, which are copied for that."""
    return f(q, k, v.clone(), g, b, initial_state=state, initial_state_indices=slots, A_log=a, dt_bias=bias, beta_is_raw=True)


def _gated_step(
    f: Any, q: Tensor, k: Tensor, v: Tensor, g: Tensor, b: Tensor, a: Tensor, bias: Tensor, state: Tensor, slots: Tensor
) -> Any:
    out = f(a, g.flatten(1), bias, 1.0, 20.0, q, k, v, b.flatten(1), state, slots, use_qk_l2norm_in_kernel=True, is_kda=True)
    return out, state


def _heads_gated(sequences: int, length: int) -> tuple[Any, ...]:
    """16 heads of keys, 32 of values, each with one gate."""
    q, k, v = (_unit(sequences, length, 16, 128), _unit(sequences, length, 16, 128), normal(sequences, length, 32, 128))
    gates = torch.nn.functional.logsigmoid(normal(sequences, length, 32, dtype=fp32)) / 16
    return q, k, v, gates, uniform(sequences, length, 32), normal(sequences, 32, 128, 128, dtype=fp32), _shuffled(sequences)


def _packed_step(f: Any, qkv: Tensor, a: Tensor, b: Tensor, log: Tensor, bias: Tensor, state: Tensor, slots: Tensor) -> Any:
    return f(qkv, a, b, log, bias, 128**-0.5, state, empty(qkv.shape[0], 1, 32, 128), slots, use_qk_l2norm_in_kernel=True)


LINEAR = [
    Call(f"{OPS}.attention.linear.seg_la:seg_la_fwd", "4 prefill 1024", lambda: _segments(4, 1024), lambda f, *given: f(*given)),
    Call(f"{OPS}.attention.linear.seg_la:seg_la_fwd", "64 decode", lambda: _segments(64, 1), lambda f, *given: f(*given)),
    Call(f"{OPS}.attention.fla.kda:chunk_kda", "4x1024x16x128", lambda: _gated(4, 1024), _gated_chunks),
    Call(f"{OPS}.attention.fla.chunk:chunk_gated_delta_rule", "4x1024x32x128", lambda: _heads_gated(4, 1024),
         lambda f, q, k, v, g, b, state, slots: f(q, k, v, g, b, initial_state=state, initial_state_indices=slots)[0]),
    Call(f"{OPS}.attention.linear.fused_sigmoid_gating_recurrent:fused_sigmoid_gating_delta_rule_update", "64x16x128",
         lambda: _gated(64, 1), _gated_step),
    Call(f"{OPS}.attention.fla.fused_recurrent:fused_recurrent_gated_delta_rule_packed_decode", "64x32x128",
         lambda: (normal(64, 64 * 128), normal(64, 32), normal(64, 32), normal(32, dtype=fp32), normal(32, dtype=fp32),
                  normal(64, 32, 128, 128, dtype=fp32), _shuffled(64)), _packed_step),
]  # fmt: skip

# -- mixtures of experts -----------------------------------------------------------------------------------------------------


def _routed(tokens: int, experts: int, top: int, block: int) -> tuple[Tensor, ...]:
    """Which experts each token goes to, and the tokens sorted by expert, each expert's filled up to whole blocks."""
    weights, ids = uniform(tokens, experts).topk(top)
    flat = ids.flatten()
    order, counts = flat.argsort(stable=True), flat.bincount(minlength=experts)
    blocks = (counts + block - 1) // block
    most = (flat.numel() + experts * (block - 1)) // block + 1
    rank = torch.arange(flat.numel(), device="cuda") - (counts.cumsum(0) - counts)[flat[order]]
    sorted_ids, owners = _each(most * block, flat.numel()), _each(most, -1)
    sorted_ids[(blocks.cumsum(0) - blocks)[flat[order]] * block + rank] = order.int()
    owners[: int(blocks.sum())] = torch.arange(experts, device="cuda", dtype=torch.int32).repeat_interleave(blocks)
    return weights, ids.int(), sorted_ids, owners, (blocks.sum() * block).int().reshape(1)


def _experts(tokens: int, experts: int, top: int, rows: int, columns: int, config: dict[str, int]) -> tuple[Any, ...]:
    routed = _routed(tokens, experts, top, config["BLOCK_SIZE_M"])
    return normal(tokens, columns), normal(experts, rows, columns), None, None, *routed, config


def _experts_fp8(tokens: int, experts: int, top: int, rows: int, columns: int, config: dict[str, int]) -> tuple[Any, ...]:
    """Scales of 128 channels of a token, and of squares of 128 of the weights."""
    routed = _routed(tokens, experts, top, config["BLOCK_SIZE_M"])
    scales = uniform(tokens, columns // 128), uniform(experts, rows // 128, columns // 128)
    return _eights(tokens, columns), _eights(experts, rows, columns), *scales, *routed, config


def _mixed(
    f: Any, x: Tensor, w: Tensor, x_scale: Tensor | None, w_scale: Tensor | None, weights: Tensor, ids: Tensor, sorted_ids: Tensor,
    owners: Tensor, padded: Tensor, config: dict[str, int],
) -> Tensor:  # fmt: skip
    out, eights = empty(*ids.shape, w.shape[1]), x_scale is not None
    compute = importlib.import_module("triton.language").bfloat16
    f(x, w, None, out, x_scale, w_scale, None, weights, ids, sorted_ids, owners, padded, False, ids.shape[1], config, compute,
      eights, False, False, False, False, [128, 128] if eights else None)  # fmt: skip
    return out


def _experts_int4(tokens: int, experts: int, top: int, rows: int, columns: int, config: dict[str, int]) -> tuple[Any, ...]:
    """Two weights a byte, and a scale for 128 of a row."""
    weights, scales = (
        whole(256, experts, rows, columns // 2, dtype=torch.uint8),
        uniform(experts, rows, columns // 128, dtype=bf16),
    )
    return normal(tokens, columns), weights, scales, *_routed(tokens, experts, top, config["BLOCK_SIZE_M"]), config


def _mixed_int4(
    f: Any, x: Tensor, w: Tensor, scale: Tensor, weights: Tensor, ids: Tensor, sorted_ids: Tensor, owners: Tensor, padded: Tensor,
    config: dict[str, int],
) -> Tensor:  # fmt: skip
    out = empty(*ids.shape, w.shape[1])
    compute = importlib.import_module("triton.language").bfloat16
    f(x, w, None, out, None, scale, None, weights, ids, sorted_ids, owners, padded, True, ids.shape[1], config, compute,
      False, False, False, True, False, [0, 128])  # fmt: skip
    return out


def _config(m: int, n: int, k: int, group: int, warps: int, stages: int) -> dict[str, int]:
    blocks = {"BLOCK_SIZE_M": m, "BLOCK_SIZE_N": n, "BLOCK_SIZE_K": k, "GROUP_SIZE_M": group}
    return {**blocks, "num_warps": warps, "num_stages": stages}


def _masked(f: Any, x: Tensor, out: Tensor, scale: Tensor, counts: Tensor) -> tuple[Tensor, ...]:
    f(x, out, scale, 128, counts)
    return out.view(torch.uint8), scale


def _reordered(f: Any, x: Tensor, out: Tensor, places: Tensor, ids: Tensor, scale: Tensor) -> Tensor:
    f(x, out, places, ids, scale, 8, ids.shape[1], *x.shape)
    return out.view(torch.uint8)


def _into(f: Any, *given: Any) -> Tensor:
    """A launcher whose last argument takes the result."""
    f(*given)
    out: Tensor = given[-1]
    return out


def _summed(f: Any, x: Tensor, out: Tensor) -> Tensor:
    f(x, out, 2.5)
    return out


EXPERTS = [
    Call(f"{OPS}.moe.fused_moe_triton_kernels:invoke_fused_moe_kernel", "16 to 2 of 8, 7168x4096",
         lambda: _experts(16, 8, 2, 7168, 4096, _config(16, 64, 128, 1, 4, 4)), _mixed),
    Call(f"{OPS}.moe.fused_moe_triton_kernels:invoke_fused_moe_kernel", "1024 to 2 of 8, 7168x4096",
         lambda: _experts(1024, 8, 2, 7168, 4096, _config(128, 128, 64, 16, 8, 4)), _mixed),
    Call(f"{OPS}.moe.fused_moe_triton_kernels:invoke_fused_moe_kernel", "int4 16 to 2 of 8, 7168x4096",
         lambda: _experts_int4(16, 8, 2, 7168, 4096, _config(16, 64, 128, 1, 4, 4)), _mixed_int4),
    Call(f"{OPS}.moe.fused_moe_triton_kernels:invoke_fused_moe_kernel", "fp8 16 to 8 of 32, 4096x7168",
         lambda: _experts_fp8(16, 32, 8, 4096, 7168, _config(16, 128, 128, 1, 4, 4)), _mixed),
    Call(f"{OPS}.moe.fused_moe_triton_kernels:invoke_fused_moe_kernel", "fp8 512 to 8 of 32, 4096x7168",
         lambda: _experts_fp8(512, 32, 8, 4096, 7168, _config(64, 128, 128, 32, 4, 3)), _mixed),
    Call(f"{OPS}.moe.fused_moe_triton_kernels:act_and_mul_triton", "8192x4096", lambda: (normal(8192, 4096), empty(8192, 2048)),
         lambda f, x, out: _into(lambda *given: f(*given, {}), x, out)),
    Call(f"{OPS}.moe.fused_moe_triton_kernels:moe_sum_reduce_triton", "1024x8x7168", lambda: (normal(1024, 8, 7168), empty(1024, 7168)), _summed),
    Call(f"{OPS}.moe.gate_topk:gate_topk", "4096x256 8", lambda: (normal(4096, 256, dtype=fp32),), lambda f, x: f(x, 8)),
    Call(f"{OPS}.moe.router:fused_moe_router_shim", "1024x4096 2 of 8", lambda: (normal(1024, 4096), normal(8, 4096) / 64),
         lambda f, x, w: f(30.0, x, w, 2, False)[0]),
    Call(f"{OPS}.moe.router:fused_moe_router_shim", "64x4096 2 of 8", lambda: (normal(64, 4096), normal(8, 4096) / 64),
         lambda f, x, w: f(30.0, x, w, 2, False)[0]),
    Call(f"{OPS}.moe.ep_moe_kernels:silu_and_mul_masked_post_quant_fwd", "32x512x4096",
         lambda: (normal(32, 512, 4096), _zeros(32, 512, 2048).to(fp8), _zeros(32, 512, 16, dtype=fp32), whole(513, 32, dtype=torch.int32)),
         _masked),
    Call(f"{OPS}.moe.ep_moe_kernels:pre_reorder_for_cutlass_moe", "1024 to 2 of 8, 4096",
         lambda: (normal(1024, 4096), _zeros(2048, 4096).to(fp8), _shuffled(2048), _routed(1024, 8, 2, 16)[1], _each(1, 2).float()),
         _reordered),
    Call(f"{OPS}.moe.ep_moe_kernels:ep_gather", "1024x8x7168",
         lambda: (normal(8192, 7168), whole(32, 1024, 8, dtype=torch.int32), uniform(1024, 8), _shuffled(8192).view(1024, 8), empty(1024, 7168)),
         _into),
]  # fmt: skip

# -- quantized matmuls -------------------------------------------------------------------------------------------------------


def _squares(rows: int, take: Callable[..., Tensor]) -> Callable[[], tuple[Any, ...]]:
    """A scale for 128 channels of a row, and for squares of 128 of the weights, of 4096 x 7168."""
    return lambda: (take(rows, 7168), take(4096, 7168), uniform(rows, 56), uniform(32, 56))


def _bytes(*shape: int) -> Tensor:
    return whole(100, *shape, dtype=torch.int8)


MATMULS = [
    Call(f"{OPS}.quantization.fp8_kernel:_per_token_group_quant_8bit_raw", "4096x7168", lambda: (normal(4096, 7168),),
         lambda f, x: f(x, 128)[0].view(torch.uint8)),
    Call(f"{OPS}.quantization.fp8_kernel:static_quant_fp8", "4096x4096", lambda: (normal(4096, 4096), uniform(1) + 1),
         lambda f, x, s: f(x, s)[0].view(torch.uint8)),
    Call(f"{OPS}.quantization.int8_kernel:per_token_quant_int8", "4096x4096", lambda: (normal(4096, 4096),), lambda f, x: f(x)),
    Call(f"{OPS}.gemm.fp8_kernel:w8a8_block_fp8_matmul_triton", "64x4096x7168", _squares(64, _eights),
         lambda f, a, b, s, t: f(a, b, s, t, [128, 128], bf16)),
    Call(f"{OPS}.gemm.fp8_kernel:w8a8_block_fp8_matmul_triton", "1024x4096x7168", _squares(1024, _eights),
         lambda f, a, b, s, t: f(a, b, s, t, [128, 128], bf16)),
    Call(f"{OPS}.gemm.fp8_kernel:triton_scaled_mm", "fp8 1024x4096x4096",
         lambda: (_eights(1024, 4096), _eights(4096, 4096).t(), uniform(1024, 1), uniform(4096, 1)),
         lambda f, a, b, s, t: f(a, b, s, t, bf16)),
    Call(f"{OPS}.gemm.int8_kernel:w8a8_block_int8_matmul", "1024x4096x7168", _squares(1024, _bytes),
         lambda f, a, b, s, t: f(a, b, s, t, [128, 128], bf16)),
]  # fmt: skip

CALLS = (*ATTENTION, *LINEAR, *EXPERTS, *MATMULS)
