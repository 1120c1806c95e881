"""Kernels that work row by row: norms, quantisation, sampling."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.nn.functional import silu

from tests.engines.cases import Pair, case
from tests.engines.vllm.kernels.inputs import normal


def rms(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x.float() * (x.float().square().mean(-1, keepdim=True) + 1e-6).rsqrt() * weight.float()


@case("gated norms", "37 rows of 192, in groups of 64 too")
def gated_norms() -> Iterator[Pair]:
    from vllm.model_executor.layers.mamba.ops import layernorm_gated

    x, z, weight = normal(37, 192), normal(37, 192), normal(192)
    yield layernorm_gated.rms_norm_gated(x, weight, None, z, 1e-6), rms(x, weight) * silu(z.float())
    got = layernorm_gated.rms_norm_gated(x, weight, None, z, 1e-6, group_size=64, norm_before_gate=False)
    gated = (x.float() * silu(z.float())).view(37, 3, 64)
    yield got, rms(gated, weight.view(3, 64)).view(37, 192)


@case("norms of queries and keys", "300 rows of 64")
def l2norm() -> Iterator[Pair]:
    from vllm.third_party.flash_linear_attention.ops.l2norm import l2norm_fwd

    x = normal(300, 64)
    yield l2norm_fwd(x), torch.nn.functional.normalize(x.float(), dim=-1)


@case("batch-invariant rows", "65 rows of 1,000")
def batch_invariant() -> Iterator[Pair]:
    from vllm.model_executor.determinism import batch_invariant as invariant

    x, weight = normal(65, 1000), normal(1000)
    yield invariant.log_softmax(x.float()), x.float().log_softmax(-1)
    yield invariant.softmax(x.float()), x.float().softmax(-1)
    yield invariant.mean_dim(x.float(), 1), x.float().mean(1)
    yield invariant.rms_norm_batch_invariant(x, weight), rms(x, weight)


@case("embedding and norm", "33 tokens, 500 words of 256")
def embedding() -> Iterator[Pair]:
    from vllm.model_executor.layers.fused_embed_norm import fused_embed_norm

    words, weight, ids = normal(500, 256), normal(256), torch.randint(0, 500, (33,))
    rows, normed = fused_embed_norm(ids, words, weight, 1e-6)
    yield rows, words[ids]
    yield normed, rms(words[ids], weight)


@case("quantise rows and groups to int8, fp8", "37 rows of 256, groups of 64", 4e-2)
def quantise() -> Iterator[Pair]:
    from vllm.model_executor.layers.quantization.utils.fp8_utils import per_token_group_quant_fp8
    from vllm.model_executor.layers.quantization.utils.int8_utils import per_token_group_quant_int8, per_token_quant_int8

    x = normal(37, 256)
    numbers, scales = per_token_quant_int8(x)
    yield scales, x.float().abs().amax(1, keepdim=True) / 127
    yield numbers * scales, x
    numbers, scales = per_token_group_quant_int8(x, 64)
    yield scales, x.float().view(37, 4, 64).abs().amax(2) / 127
    yield numbers * scales.repeat_interleave(64, 1), x
    numbers, scales = per_token_group_quant_fp8(x, 64)
    yield numbers.float() * scales.repeat_interleave(64, 1), x


@case("top-k and top-p", "16 rows of 49,152", 0.0)
def top_k_and_top_p() -> Iterator[Pair]:
    from vllm.v1.sample.ops.topk_topp_triton import apply_top_k_top_p_triton

    logits = torch.randn(16, 49152) * 3
    k = torch.randint(1, 200, (16,)).int()
    order = logits.argsort(1, descending=True)
    ranks = order.argsort(1)
    few = logits.masked_fill(ranks >= k[:, None], float("-inf"))
    yield apply_top_k_top_p_triton(logits.clone(), k, None), few
    p = torch.rand(16) * 0.5 + 0.4
    share = few.double().softmax(1).gather(1, order)
    before = (share.cumsum(1) - share).gather(1, ranks)
    yield apply_top_k_top_p_triton(logits.clone(), k, p), few.masked_fill(before >= p[:, None], float("-inf"))


@case("rejection of drafts: repeat for tokens", "5 requests with up to 4 drafts", 0.0)
def expand() -> Iterator[Pair]:
    from vllm.v1.sample.rejection_sampler import expand_batch_to_tokens

    x, counts = torch.tensor([0.0, 1.5, 2.5, 0.0, 4.0]), torch.tensor([3, 0, 4, 1, 2])
    yield expand_batch_to_tokens(x, counts.cumsum(0).int(), 10, 0, 1), torch.where(x == 0, 1.0, x).repeat_interleave(counts)
