"""Attention over a paged cache, its parts, and what writes the cache."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from tests.engines.cases import Pair, case
from tests.engines.vllm.kernels.inputs import normal

HEADS, KEY_HEADS, SIZE, PAGE = 8, 2, 64, 16


@dataclass(frozen=True)
class Paged:
    """Sequences, of which the last `queries` tokens of each are asked for, and their keys and values in pages."""

    queries: list[int]
    lengths: list[int]
    query: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor
    table: torch.Tensor

    @property
    def starts(self) -> torch.Tensor:
        return torch.tensor([0, *self.queries]).cumsum(0).int()

    def sequence(self, pages: torch.Tensor, number: int) -> torch.Tensor:
        """Returns the keys or values of one sequence: (length, heads, size)."""
        return pages[self.table[number].long()].flatten(0, 1)[: self.lengths[number]]

    def new(self, pages: torch.Tensor) -> torch.Tensor:
        """Returns those of the tokens that are asked for."""
        return torch.cat([self.sequence(pages, i)[self.lengths[i] - count :] for i, count in enumerate(self.queries)])


def paged(queries: list[int], lengths: list[int]) -> Paged:
    blocks = -(-max(lengths) // PAGE)
    table = torch.randperm(len(lengths) * blocks).view(len(lengths), blocks).int()
    pages = [normal(len(lengths) * blocks, PAGE, KEY_HEADS, SIZE) for _ in range(2)]
    return Paged(queries, lengths, normal(sum(queries), HEADS, SIZE), *pages, table)


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = True,
    window: int = 0,
    cap: float = 0.0,
    sinks: torch.Tensor | None = None,
    slopes: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns attention of (tokens, heads, size), whose queries are the last of the keys, and the logarithms of its sums."""
    k, v = (part.float().repeat_interleave(q.shape[1] // part.shape[1], 1) for part in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q.float(), k) * SIZE**-0.5
    if cap:
        scores = cap * torch.tanh(scores / cap)
    back = torch.arange(len(k) - len(q), len(k))[:, None] - torch.arange(len(k))[None]
    if slopes is not None:
        scores = scores - slopes[:, None, None] * back
    hidden = (back < 0) & causal
    if window:
        hidden = hidden | (back >= window)
    scores = scores.masked_fill(hidden, float("-inf"))
    if sinks is not None:
        scores = torch.cat([scores, sinks.float()[:, None, None].expand(-1, len(q), 1)], 2)
    share = scores.softmax(2)[:, :, : len(k)]
    return torch.einsum("hqk,khd->qhd", share, v), scores.logsumexp(2)


def expected(data: Paged, **how: Any) -> torch.Tensor:
    """Returns attention of every sequence, one after the other."""
    parts = data.query.split(data.queries)
    return torch.cat(
        [attention(q, data.sequence(data.keys, i), data.sequence(data.values, i), **how)[0] for i, q in enumerate(parts)]
    )


def unified(data: Paged, window: int = 0, cap: float = 0.0, segments: int = 0, **more: object) -> torch.Tensor:
    """Calls vLLM's unified attention; with segments each sequence is split among programs, and a second kernel joins them."""
    from vllm.v1.attention.ops.triton_unified_attention import unified_attention

    out = torch.empty_like(data.query)
    split: dict[str, object] = {}
    if segments:
        sums = [torch.empty(len(data.queries), HEADS, segments) for _ in range(2)]
        split = {
            "seq_threshold_3D": 64,
            "num_par_softmax_segments": segments,
            "softmax_segm_output": torch.empty(len(data.queries), HEADS, segments, SIZE),
            "softmax_segm_max": sums[0],
            "softmax_segm_expsum": sums[1],
        }
    unified_attention(
        q=data.query, k=data.keys, v=data.values, out=out, cu_seqlens_q=data.starts, max_seqlen_q=max(data.queries),
        seqused_k=torch.tensor(data.lengths).int(), max_seqlen_k=max(data.lengths), softmax_scale=SIZE**-0.5, causal=True,
        window_size=(window - 1, 0) if window else (-1, -1), block_table=data.table, softcap=cap, q_descale=None, k_descale=None,
        v_descale=None, **split, **more,
    )  # fmt: skip
    return out


PREFILL = ([33, 1, 64, 17], [33, 200, 130, 80])
DECODE = ([1] * 8, [1, 17, 64, 100, 255, 256, 300, 511])


@case("unified attention, 2D", "chunks of 33, 1, 64, 17 after up to 199")
def prefill_and_decode() -> Iterator[Pair]:
    data = paged(*PREFILL)
    yield unified(data), expected(data)


@case("unified attention, 2D, window and cap", "the same, window 48")
def sliding_window() -> Iterator[Pair]:
    data = paged(*PREFILL)
    yield unified(data, window=48, cap=20.0), expected(data, window=48, cap=20.0)


@case("unified attention, 2D, sinks and ALiBi", "the same")
def sinks() -> Iterator[Pair]:
    data = paged(*PREFILL)
    sink = normal(HEADS)
    yield unified(data, sinks=sink), expected(data, sinks=sink)
    slopes = torch.rand(HEADS)
    yield unified(data, alibi_slopes=slopes), expected(data, slopes=slopes)


@case("unified attention, 3D", "8 sequences of up to 511, 16 segments")
def decode_by_segments() -> Iterator[Pair]:
    data = paged(*DECODE)
    yield unified(data, segments=16), expected(data)


@case("prefix prefill, paged decode", "chunks of 33, 1, 64, 17 after up to 199")
def chunked_prefill() -> Iterator[Pair]:
    from vllm.v1.attention.ops.chunked_prefill_paged_decode import chunked_prefill_paged_decode

    data = paged(*PREFILL)
    out, one = torch.empty_like(data.query), torch.ones(1)
    blocks = len(data.keys)
    keys = data.keys.view(blocks, PAGE, KEY_HEADS, SIZE // 8, 8).permute(0, 2, 3, 1, 4).contiguous()
    values = data.values.permute(0, 2, 3, 1).contiguous()
    chunked_prefill_paged_decode(
        query=data.query, key=data.new(data.keys), value=data.new(data.values), output=out, kv_cache_dtype="auto", key_cache=keys,
        value_cache=values, block_table=data.table, query_start_loc=data.starts, seq_lens=torch.tensor(data.lengths).int(),
        max_seq_len=max(data.lengths), max_query_len=max(data.queries), k_scale=one, v_scale=one, sm_scale=SIZE**-0.5,
    )  # fmt: skip
    yield out, expected(data)


@case("prefill attention", "sequences of 33, 100, 64")
def plain_prefill() -> Iterator[Pair]:
    from vllm.v1.attention.ops.triton_prefill_attention import context_attention_fwd

    for causal in (True, False):
        data = paged([33, 100, 64], [33, 100, 64])
        out = torch.empty_like(data.query)
        context_attention_fwd(
            data.query, data.new(data.keys), data.new(data.values), out, data.starts[:-1], torch.tensor(data.queries).int(), 100,
            is_causal=causal, softmax_scale=SIZE**-0.5,
        )  # fmt: skip
        yield out, expected(data, causal=causal)


@case("decode attention, split and joined", "8 sequences of up to 511, 4 splits; grouped and single heads")
def decode_attention() -> Iterator[Pair]:
    from vllm.v1.attention.ops.triton_decode_attention import decode_attention_fwd

    data = paged(*DECODE)
    for heads in (HEADS, KEY_HEADS):
        query = data.query[:, :heads].contiguous()
        out, lse = torch.empty_like(query), torch.empty(len(query), heads)
        work = torch.empty(len(query), heads, 4, SIZE + 1)
        decode_attention_fwd(
            query, data.keys, data.values, out, lse, data.table, torch.tensor(data.lengths).int(), work, 4, SIZE**-0.5, page_size=PAGE
        )  # fmt: skip
        wanted = [
            attention(query[i : i + 1], data.sequence(data.keys, i), data.sequence(data.values, i)) for i in range(len(query))
        ]
        yield out, torch.cat([each for each, _ in wanted])
        yield lse, torch.stack([sums[:, 0] for _, sums in wanted])


@case("merge attention states", "100 tokens, 8 heads of 64")
def merge() -> Iterator[Pair]:
    from vllm.v1.attention.ops.triton_merge_attn_states import merge_attn_states

    parts, sums = [normal(100, HEADS, SIZE) for _ in range(2)], [torch.randn(HEADS, 100) for _ in range(2)]
    out, lse = torch.empty_like(parts[0]), torch.empty_like(sums[0])
    merge_attn_states(out, parts[0], sums[0], parts[1], sums[1], lse)
    total = torch.logaddexp(*sums)
    yield (
        out,
        sum(
            (part.float() * (each - total).exp().T[:, :, None] for part, each in zip(parts, sums, strict=True)), torch.zeros(())
        ),
    )
    yield lse, total


@case("write keys and values to the cache", "77 tokens into pages of 16", 0.0)
def reshape_and_cache() -> Iterator[Pair]:
    from vllm.v1.attention.ops.triton_reshape_and_cache_flash import triton_reshape_and_cache_flash

    key, value, one = normal(77, KEY_HEADS, SIZE), normal(77, KEY_HEADS, SIZE), torch.ones(1)
    slots = torch.randperm(20 * PAGE)[:77]
    slots[5] = -1
    caches = [torch.zeros(20, PAGE, KEY_HEADS, SIZE, dtype=torch.bfloat16) for _ in range(2)]
    triton_reshape_and_cache_flash(key, value, *caches, slots, "auto", one, one)
    for given, cache in zip((key, value), caches, strict=True):
        wanted = torch.zeros(20 * PAGE, KEY_HEADS, SIZE, dtype=torch.bfloat16)
        wanted[slots[slots >= 0]] = given[slots >= 0]
        yield cache, wanted.view_as(cache)


@case("pack and unpack sequences", "lengths 5, 70, 1, 33, 96 columns", 0.0)
def packing() -> Iterator[Pair]:
    from vllm.v1.attention.ops.common import pack_seq_triton, unpack_seq_triton

    lengths = torch.tensor([5, 70, 1, 33]).int()
    x = normal(109, 96, dtype=torch.float32)
    packed = pack_seq_triton(x, lengths)
    yield packed, torch.nn.utils.rnn.pad_sequence(list(x.split(lengths.tolist())), True, float("-inf"))
    yield unpack_seq_triton(packed, lengths), x
