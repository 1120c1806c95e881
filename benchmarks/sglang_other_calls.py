"""Kernels of SGLang other than attention, experts and quantisation, and gemlite's, each by its own launcher, with the shapes of serving.

The list was written before the first timing.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from benchmarks.engine_calls import Call, Tensor, empty, fp16, fp32, normal, uniform, whole

TOKENS, WIDTH, HEADS, KV_HEADS, HEAD = 4096, 4096, 32, 8, 128
INNER, VOCABULARY = 14336, 128256
i32, i64 = torch.int32, torch.int64


def steps(count: int, step: int = 1, dtype: torch.dtype = i32) -> Tensor:
    """0, step, 2 * step and so on."""
    return empty(count, dtype=dtype).fill_(step).cumsum(0, dtype=dtype) - step


def shuffled(count: int, dtype: torch.dtype = i32) -> Tensor:
    return uniform(count).argsort().to(dtype)


# -- Norms, gates and activations ----------------------------------------------------------------------------------------------


def _added(f: Any, x: Tensor, gate: Tensor, shared: Tensor, out: Tensor) -> Tensor:
    f(x, gate, shared, out)
    return out


def _qkv_norm(f: Any, q: Tensor, k: Tensor, v: Tensor, wq: Tensor, wk: Tensor) -> tuple[Tensor, ...]:
    f(q, k, v, wq, wk, HEADS, KV_HEADS, HEAD)
    return q, k, v


def _softcap(f: Any, x: Tensor) -> Any:
    return f(x, 30.0, empty(*x.shape, dtype=fp32))


ROWS = [
    Call("sglang.kernels.ops.elementwise.elementwise:fused_sigmoid_mul", "4096x32x128 strided gate",
         lambda: (normal(TOKENS, WIDTH), normal(TOKENS, HEADS, 2 * HEAD)[..., HEAD:]), lambda f, x, g: f(x, g)),
    Call("sglang.kernels.ops.elementwise.elementwise:fused_gate_sigmoid_mul_add", "4096x4096",
         lambda: (normal(TOKENS, WIDTH), normal(WIDTH) / 64, normal(TOKENS, WIDTH), normal(TOKENS, WIDTH)), _added),
    Call("sglang.kernels.ops.layernorm.gemma4_fused_ops:gemma_dual_rmsnorm_residual_scalar", "4096x4096",
         lambda: (normal(TOKENS, WIDTH), normal(WIDTH), normal(TOKENS, WIDTH), normal(WIDTH), normal(WIDTH),
                  normal(TOKENS, WIDTH), normal(1)),
         lambda f, *given: f(*given)),
    Call("sglang.kernels.ops.layernorm.gemma4_fused_ops:gemma_qkv_rmsnorm", "4096x32+8+8x128",
         lambda: (normal(TOKENS, HEADS * HEAD), normal(TOKENS, KV_HEADS * HEAD), normal(TOKENS, KV_HEADS * HEAD),
                  normal(HEAD), normal(HEAD)), _qkv_norm),
    Call("sglang.kernels.ops.layernorm.hc_combine_norm:hc_combine_norm", "4096x4x5120",
         lambda: (normal(TOKENS, 4 * 5120), uniform(TOKENS, 4), normal(5120)), lambda f, x, p, w: f(x, p, w, 1e-6)),
    Call("sglang.kernels.ops.activation.gelu_and_mul_triton:gelu_and_mul_triton", "4096x28672",
         lambda: (normal(TOKENS, 2 * INNER),), lambda f, x: f(x)[0]),
    Call("sglang.kernels.ops.activation.softcap:softcap_to_float32_logits", "64x128256", lambda: (normal(64, VOCABULARY) * 30,), _softcap),
]  # fmt: skip

# -- Diffusion -----------------------------------------------------------------------------------------------------------------

IMAGES, PIXELS, CHANNELS = 2, 128, 3072


def _group_norm(f: Any, x: Tensor, w: Tensor, b: Tensor) -> Any:
    with torch.no_grad():
        return f(x, w, b, 32)


DIFFUSION = [
    Call("sglang.kernels.ops.diffusion.norm.norm_triton:rms_norm_fn", "residual 8192x3072",
         lambda: (normal(IMAGES * TOKENS, CHANNELS), normal(CHANNELS), normal(IMAGES * TOKENS, CHANNELS)),
         lambda f, x, w, r: f(x, w, None, residual=r)),
    Call("sglang.kernels.ops.diffusion.norm.norm_triton:norm_infer", "8192x3072",
         lambda: (normal(IMAGES * TOKENS, CHANNELS), normal(CHANNELS), normal(CHANNELS)), lambda f, x, w, b: f(x, w, b, 1e-6)),
    Call("sglang.kernels.ops.diffusion.norm.group_norm_silu_triton:triton_group_norm_silu", "2x512x128x128",
         lambda: (normal(IMAGES, 512, PIXELS, PIXELS), normal(512), normal(512)), _group_norm),
    Call("sglang.kernels.ops.diffusion.modulate.scale_shift_triton:fuse_scale_shift_kernel", "2x4096x3072",
         lambda: (normal(IMAGES, TOKENS, CHANNELS), normal(IMAGES, CHANNELS), normal(IMAGES, CHANNELS)), lambda f, x, s, t: f(x, s, t)),
    Call("sglang.kernels.ops.diffusion.modulate.scale_shift_triton:fuse_layernorm_scale_shift_gate_select01_kernel", "2x4096x3072",
         lambda: (normal(IMAGES, TOKENS, CHANNELS), normal(CHANNELS), normal(CHANNELS), *(normal(IMAGES, CHANNELS) for _ in range(6)),
                  whole(2, IMAGES, TOKENS, dtype=i32)),
         lambda f, *given: f(*given, 1e-6)),
    Call("sglang.kernels.ops.diffusion.rope.rotary_triton:apply_rotary_embedding", "2x4096x24x128",
         lambda: (normal(IMAGES, TOKENS, 24, HEAD), normal(TOKENS, HEAD // 2, dtype=fp32), normal(TOKENS, HEAD // 2, dtype=fp32)),
         lambda f, x, cos, sin: f(x, cos, sin)),
]  # fmt: skip

# -- LoRA: 8 adapters of rank 16, on the projection of queries, keys and values ------------------------------------------------

ADAPTERS, RANK, SEGMENT = 8, 16, 64
OFFSETS = (0, HEADS * HEAD, (HEADS + KV_HEADS) * HEAD, (HEADS + 2 * KV_HEADS) * HEAD)


def _batch(sorted_by_adapter: bool) -> SimpleNamespace:
    """Segments of 64 rows, each with an adapter."""
    segments = TOKENS // SEGMENT
    return SimpleNamespace(
        use_cuda_graph=False, bs=segments, num_segments=segments, seg_indptr=steps(segments + 1, SEGMENT), max_len=SEGMENT,
        weight_indices=whole(ADAPTERS, segments, dtype=i32), lora_ranks=empty(ADAPTERS, dtype=i32).fill_(RANK),
        scalings=uniform(ADAPTERS) + 0.5, seg_lens=empty(segments, dtype=i32).fill_(SEGMENT), permutation=shuffled(TOKENS) if sorted_by_adapter else None,
    )  # fmt: skip


def _expand(f: Any, x: Tensor, w: Tensor, batch: SimpleNamespace, offsets: Tensor, host: Tensor) -> Any:
    return f(x, w, batch, offsets, OFFSETS[1], None, host)


def _offsets() -> Tensor:
    return torch.tensor(OFFSETS, dtype=i32)


LORA = [
    Call("sglang.kernels.ops.lora.dense.sgemm_lora_a:sgemm_lora_a_fwd", "4096x4096 3x16",
         lambda: (normal(TOKENS, WIDTH), normal(ADAPTERS, 3 * RANK, WIDTH), _batch(False)), lambda f, x, w, batch: f(x, w, batch, 3)),
    Call("sglang.kernels.ops.lora.dense.sgemm_lora_b:sgemm_lora_b_fwd", "4096x16x4096",
         lambda: (normal(TOKENS, RANK), normal(ADAPTERS, WIDTH, RANK), _batch(False)), lambda f, x, w, batch: f(x, w, batch)),
    Call("sglang.kernels.ops.lora.dense.chunked_sgmv_shrink:chunked_sgmv_lora_shrink_forward", "4096x4096 3x16",
         lambda: (normal(TOKENS, WIDTH), normal(ADAPTERS, 3 * RANK, WIDTH), _batch(True)), lambda f, x, w, batch: f(x, w, batch, 3)),
    Call("sglang.kernels.ops.lora.dense.chunked_sgmv_expand:chunked_sgmv_lora_expand_forward", "4096x3x16 6144",
         lambda: (normal(TOKENS, 3 * RANK), normal(ADAPTERS, OFFSETS[-1], RANK), _batch(True),
                  _offsets().to(empty(0).device), _offsets()), _expand),
]  # fmt: skip

# -- Mamba and short convolutions ----------------------------------------------------------------------------------------------

SEQUENCES, DECODING, STATES = 8, 128, 256


def _sequences() -> tuple[Tensor, ...]:
    """Where 8 sequences start, which state each has, and that it has one."""
    return steps(SEQUENCES + 1, TOKENS // SEQUENCES), shuffled(SEQUENCES), empty(SEQUENCES, dtype=torch.bool).fill_(True)


def _conv(f: Any, x: Tensor, w: Tensor, b: Tensor, states: Tensor, starts: Tensor, slots: Tensor, known: Tensor) -> Any:
    return f(x, w, b, states, starts, [TOKENS // SEQUENCES] * SEQUENCES, slots, known)


def _conv_decode(f: Any, x: Tensor, w: Tensor, b: Tensor, states: Tensor, slots: Tensor) -> Any:
    return f(x, states, w, b, "silu", conv_state_indices=slots)


def _short_conv(f: Any, b: Tensor, c: Tensor, x: Tensor, w: Tensor, states: Tensor, *sequences: Tensor) -> Any:
    return f(b, c, x, w, states, *sequences, TOKENS // SEQUENCES)


def _scanned(f: Any, scores: Tensor, x: Tensor, *given: Tensor) -> Tensor:
    out = torch.empty_like(x)
    f(scores, x, *given, out=out)
    return out


MAMBA = [
    Call("sglang.kernels.ops.mamba.triton_ops.ssd_chunk_scan:_chunk_scan_fwd", "4x2048x64x64x128",
         lambda: (normal(4, 8, 1, 256, 256, dtype=fp32), normal(4, 2048, 64, 64), uniform(4, 64, 8, 256),
                  uniform(4, 64, 8, 256).div(-16).cumsum(-1), normal(4, 2048, 1, 128), normal(4, 8, 64, 64, 128), normal(64, dtype=fp32)),
         _scanned),
    Call("sglang.kernels.ops.mamba.triton_ops.ssd_state_passing:_state_passing_fwd", "4x8x64x8192",
         lambda: (normal(4, 8, 64, 64 * HEAD, dtype=fp32), -uniform(4, 64, 8, 256)), lambda f, s, a: f(s, a)),
    Call("sglang.kernels.ops.mamba.causal_conv1d_triton:causal_conv1d_fn", "8x512x4096 4",
         lambda: (normal(TOKENS, WIDTH).t(), normal(WIDTH, 4), normal(WIDTH), normal(SEQUENCES, 3, WIDTH).transpose(1, 2),
                  *_sequences()), _conv),
    Call("sglang.kernels.ops.mamba.causal_conv1d_triton:causal_conv1d_update", "128x4096 4",
         lambda: (normal(DECODING, WIDTH), normal(WIDTH, 4), normal(WIDTH), normal(STATES, 3, WIDTH).transpose(1, 2),
                  shuffled(STATES)[:DECODING]), _conv_decode),
    Call("sglang.kernels.ops.mamba.lfm_short_conv:fused_lfm_short_conv_prefill", "8x512x2048 3",
         lambda: (normal(TOKENS, 2048), normal(TOKENS, 2048), normal(TOKENS, 2048), normal(2048, 3), normal(SEQUENCES, 2048, 2),
                  *_sequences()), _short_conv),
]  # fmt: skip

# -- Sampling, speculation and hashes ------------------------------------------------------------------------------------------


def _hashed(f: Any, ids: Tensor, positions: Tensor, *tables: Tensor) -> Any:
    history, token_map, multipliers, primes, offsets = tables
    return f(
        ids,
        positions,
        mode=0,
        history=history,
        token_map=token_map,
        multipliers=multipliers,
        primes=primes,
        offsets=offsets,
        pad_id=2,
    )


SAMPLING = [
    Call("sglang.kernels.ops.sampling.temperature_softmax:temperature_softmax", "32x128256",
         lambda: (normal(32, VOCABULARY, dtype=fp32), uniform(32, 1) + 0.5), lambda f, x, t: f(x, t)),
    Call("sglang.kernels.ops.sampling.murmur_hash:murmur_hash32", "64x128256",
         lambda: (whole(2**62, 64), whole(8192, 64), steps(VOCABULARY, dtype=i64)), lambda f, s, p, c: f(s, p, c).view(i32)),
    Call("sglang.kernels.ops.speculative.row_argmax:row_argmax", "64x128256",
         lambda: (normal(64, VOCABULARY, dtype=fp32),), lambda f, x: f(x)),
    Call("sglang.srt.layers.logsumexp:row_logsumexp_topk", "256x128256 top 5", lambda: (normal(256, VOCABULARY),), lambda f, x: f(x, 5)),
    Call("sglang.kernels.ops.embeddings.engram_hash:engram_hash_ids", "4096 of 4 2x8",
         lambda: (whole(VOCABULARY, TOKENS), whole(8192, TOKENS), whole(VOCABULARY, TOKENS, 3, dtype=i32), whole(VOCABULARY, VOCABULARY),
                  whole(2**30, 2, 4) * 2 + 1, whole(100000, 2, 3, 8) + 400009, steps(48, 500009, i64).view(2, 24)), _hashed),
]  # fmt: skip

# -- Results that do not depend on the batch -----------------------------------------------------------------------------------

INVARIANT = [
    Call("sglang.srt.batch_invariant_ops.batch_invariant_ops:matmul_persistent", "4096x4096x4096",
         lambda: (normal(TOKENS, WIDTH), normal(WIDTH, WIDTH).t()), lambda f, a, b: f(a, b)),
    Call("sglang.srt.batch_invariant_ops.batch_invariant_ops:bmm_batch_invariant", "16x1024x1024x1024",
         lambda: (normal(16, TOKENS // 4, 1024, dtype=fp16), normal(16, 1024, 1024, dtype=fp16)), lambda f, a, b: f(a, b)),
    Call("sglang.srt.batch_invariant_ops.batch_invariant_ops:log_softmax", "64x128256", lambda: (normal(64, VOCABULARY, dtype=fp32),),
         lambda f, x: f(x)),
    Call("sglang.srt.batch_invariant_ops.batch_invariant_ops:mean_dim", "4096x4096", lambda: (normal(TOKENS, WIDTH, dtype=fp32) + 1,),
         lambda f, x: f(x, -1)),
    Call("sglang.srt.batch_invariant_ops.batch_invariant_ops:rms_norm", "4096x4096", lambda: (normal(TOKENS, WIDTH), normal(WIDTH)),
         lambda f, x, w: f(x, w)),
]  # fmt: skip

# -- Memory: pages of 64, a cache of 16 layers ---------------------------------------------------------------------------------

PAGE, PAGES, LAYERS, SLOTS, MOVED = 64, 8192, 16, 2048, 256


def _pages() -> tuple[Tensor, ...]:
    """The lengths of 64 sequences before and after, where each ends, free pages, and room for the new tokens."""
    before = whole(4096, 64) + 1
    return (
        before,
        before + whole(1024, 64) + 1,
        whole(PAGES, 64) * PAGE + (before - 1) % PAGE,
        shuffled(PAGES, i64),
        empty(64 * 1024, dtype=i64).zero_(),
    )


def _extended(f: Any, before: Tensor, after: Tensor, last: Tensor, free: Tensor, out: Tensor) -> Tensor:
    f[(64,)](before, after, last, free, out, 64, PAGE)
    return out


def _caches() -> tuple[Tensor, ...]:
    """A buffer for keys and one for values of each layer, their addresses, the bytes of a row, where rows go and where they are."""
    caches = normal(2 * LAYERS, SLOTS, KV_HEADS * HEAD)
    addresses = torch.tensor([cache.data_ptr() for cache in caches], dtype=torch.uint64).to(caches.device)
    slots = shuffled(SLOTS, i64)
    return caches, addresses, empty(2 * LAYERS, dtype=i64).fill_(KV_HEADS * HEAD * 2), slots[:MOVED], slots[MOVED : 2 * MOVED]


def _moved(f: Any, caches: Tensor, addresses: Tensor, strides: Tensor, to: Tensor, of: Tensor) -> Tensor:
    f(
        addresses,
        strides,
        to,
        of,
        MOVED,
        MOVED,
        {"byte_tiles": KV_HEADS * HEAD * 2 // 128, "bytes_per_tile": 128, "num_warps": 4},
    )
    return caches


MEMORY = [
    Call("sglang.kernels.ops.memory.allocator:alloc_extend_kernel", "64 sequences", _pages, _extended),
    Call("sglang.kernels.ops.kvcache.cache_move:copy_all_layer_kv_cache_func", "256 rows of 32x1024", _caches, _moved),
]

# -- gemlite: 4 bits in groups of 128, 8 bits by channel -----------------------------------------------------------------------

HALF, SINGLE = 1, 0
"""gemlite's numbers of types."""


def _of_4_bits(rows: int) -> tuple[Any, ...]:
    """Scales and shifts such that weights are around 0: w = q * scale + shift."""
    scales = uniform(WIDTH // 128, WIDTH, dtype=fp16) / 100
    return normal(rows, WIDTH, dtype=fp16), whole(2**31 - 1, WIDTH // 8, WIDTH, dtype=i32), scales, scales * -7.5


def _int4(f: Any, x: Tensor, w: Tensor, scales: Tensor, shifts: Tensor) -> Any:
    return f(x, w, scales, shifts, None, 4, 128, 15, 8, HALF, HALF, SINGLE, HALF, 0, 4, True, 100 * HALF + 4)


def _of_8_bits() -> tuple[Any, ...]:
    weights = whole(256, WIDTH, WIDTH, dtype=torch.int16).sub(128).to(torch.int8)
    return normal(1, WIDTH, dtype=fp16), weights.t(), uniform(1, WIDTH, dtype=fp16) / 1000, empty(1, 0, dtype=i32)


def _int8(f: Any, x: Tensor, w: Tensor, scales: Tensor, zeros: Tensor) -> Any:
    return f(x, w, scales, zeros, None, 8, WIDTH, 255, 1, HALF, HALF, SINGLE, HALF, 1, 0, True, 100 * HALF + 8)


GEMLITE = [
    Call(
        "gemlite.triton_kernels.gemv_revsplitK_kernels:gemv_revsplitK_forward", "int4 1x4096x4096", lambda: _of_4_bits(1), _int4
    ),
    Call("gemlite.triton_kernels.gemm_splitK_kernels:gemm_splitK_forward", "int4 16x4096x4096", lambda: _of_4_bits(16), _int4),
    Call("gemlite.triton_kernels.gemm_kernels:gemm_forward", "int4 1024x4096x4096", lambda: _of_4_bits(1024), _int4),
    Call("gemlite.triton_kernels.gemv_splitK_kernels:gemv_splitK_forward", "int8 1x4096x4096", _of_8_bits, _int8),
]

CALLS = (*ROWS, *DIFFUSION, *LORA, *MAMBA, *SAMPLING, *INVARIANT, *MEMORY, *GEMLITE)
