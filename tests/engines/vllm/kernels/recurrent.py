"""Layers with a state: convolutions, Mamba's scans, gated delta rules, linear attention."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.nn.functional import conv1d, normalize, silu, softplus

from tests.engines.cases import Pair, case
from tests.engines.vllm.kernels.inputs import normal

LENGTHS = [70, 3, 130, 64]
STARTS = torch.tensor([0, *LENGTHS]).cumsum(0).int()


@case("causal convolution, prefill", "4 sequences of up to 130, 96 channels, width 4")
def convolution() -> Iterator[Pair]:
    from vllm.model_executor.layers.mamba.ops.causal_conv1d import causal_conv1d_fn

    dim, width, total = 96, 4, sum(LENGTHS)
    x, weight, bias = normal(total, dim), normal(dim, width), normal(dim)
    states = normal(8, width - 1, dim).transpose(1, 2)
    slots, known = torch.tensor([5, 1, 7, 2]).int(), torch.tensor([True, False, True, False])
    before = states.clone()
    got = causal_conv1d_fn(x.T, weight, bias, states, STARTS, slots, known, "silu")
    outs = []
    for number, part in enumerate(x.split(LENGTHS)):
        slot = int(slots[number])
        first = before[slot] * known[number]
        line = torch.cat([first, part.T], 1)
        outs.append(silu(conv1d(line[None].float(), weight.float()[:, None], bias.float(), groups=dim))[0])
        yield states[slot], line[:, -(width - 1) :]
    yield got, torch.cat(outs, 1)


@case("causal convolution, decode", "9 tokens, 96 channels, width 4")
def convolution_step() -> Iterator[Pair]:
    from vllm.model_executor.layers.mamba.ops.causal_conv1d import causal_conv1d_update

    x, weight, bias = normal(9, 96), normal(96, 4), normal(96)
    states = normal(12, 3, 96).transpose(1, 2)
    slots = (torch.randperm(11)[:9] + 1).int()
    line = torch.cat([states[slots.long()], x[:, :, None]], 2)
    got = causal_conv1d_update(x.clone(), states, weight, bias, "silu", conv_state_indices=slots)
    yield got, silu((line.float() * weight.float()).sum(2) + bias.float())
    yield states[slots.long()], line[:, :, 1:]


@case("Mamba2, prefill", "2 sequences of 192 and 100, chunks of 64, 8 heads of 64, state of 64")
def mamba_scan() -> Iterator[Pair]:
    from vllm.model_executor.layers.mamba.ops.ssd_combined import mamba_chunk_scan_combined_varlen

    lengths, heads, size, groups, state, chunk = [192, 100], 8, 64, 2, 64, 64
    total = sum(lengths)
    x, dt = normal(total, heads, size), normal(total, heads)
    a, bias, skip = -torch.rand(heads) - 0.1, torch.rand(heads), torch.rand(heads)
    b, c = normal(total, groups, state), normal(total, groups, state)
    chunks = torch.tensor([0, 64, 128, 192, 256, 292]).int()
    out = torch.empty_like(x)
    states = mamba_chunk_scan_combined_varlen(
        x, dt, a, b, c, chunk, torch.tensor([0, 192, 292]).int(), chunks, torch.tensor([2, 4]), torch.tensor([0, 0, 0, 1, 1]).int(),
        out, D=skip, dt_bias=bias, dt_softplus=True, state_dtype=torch.float32,
    )  # fmt: skip
    step = softplus(dt.float() + bias)
    wanted, finals, at = torch.empty(total, heads, size), [], 0
    for length in lengths:
        kept = torch.zeros(heads, size, state)
        for i in range(at, at + length):
            left, right = (part[i].float().repeat_interleave(heads // groups, 0) for part in (b, c))
            kept = kept * (step[i] * a).exp()[:, None, None] + (step[i][:, None] * x[i].float())[:, :, None] * left[:, None]
            wanted[i] = (kept * right[:, None]).sum(2) + skip[:, None] * x[i].float()
        finals.append(kept)
        at += length
    yield out, wanted
    yield states, torch.stack(finals)


@case("Mamba, decode", "6 sequences, 8 heads of 64, state of 16, in chosen slots")
def mamba_step() -> Iterator[Pair]:
    from vllm.model_executor.layers.mamba.ops.mamba_ssm import selective_state_update

    heads, size, state = 8, 64, 16
    kept = torch.randn(10, heads, size, state)
    x, z = normal(6, heads, size), normal(6, heads, size)
    dt = normal(6, heads)[:, :, None].expand(-1, -1, size)
    a = (-torch.rand(heads))[:, None, None].expand(-1, size, state)
    bias, skip = (torch.rand(heads)[:, None].expand(-1, size) for _ in range(2))
    b, c = normal(6, 2, state), normal(6, 2, state)
    slots = torch.tensor([3, 9, 1, 4, 7, 2]).int()
    step = softplus(dt.float() + bias)
    left, right = (part.float().repeat_interleave(heads // 2, 1) for part in (b, c))
    after = kept[slots.long()] * (step[..., None] * a).exp() + (step * x.float())[..., None] * left[:, :, None]
    out = torch.empty_like(x)
    selective_state_update(kept, x, dt, a, b, c, skip, bias, z, True, state_batch_indices=slots, out=out)
    yield out, ((after * right[:, :, None]).sum(3) + skip * x.float()) * silu(z.float())
    yield kept[slots.long()], after


def delta_rule(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor, beta: torch.Tensor, state: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns what one sequence gives, (tokens, heads, values), and its state, (heads, values, keys), token by token."""
    group = v.shape[1] // q.shape[1]
    q, k = (normalize(part.float(), dim=-1).repeat_interleave(group, 1) for part in (q, k))
    outs = []
    for i in range(len(q)):
        decay = g[i].float().exp()
        state = state * (decay[:, None, None] if decay.dim() == 1 else decay[:, None, :])
        fresh = (v[i].float() - (state * k[i][:, None]).sum(2)) * beta[i].float()[:, None]
        state = state + fresh[:, :, None] * k[i][:, None]
        outs.append((state * q[i][:, None]).sum(2) * q.shape[-1] ** -0.5)
    return torch.stack(outs), state


def rule_inputs(total: int, heads: int = 4, keys: int = 64, values: int = 64) -> tuple[torch.Tensor, ...]:
    q, k, v = normal(1, total, heads // 2, keys), normal(1, total, heads // 2, keys), normal(1, total, heads, values)
    g, beta = -torch.rand(1, total, heads), torch.rand(1, total, heads).bfloat16()
    return q, k, v, g, beta


@case("gated delta rule, chunks", "4 sequences of up to 130, 4 heads of 64", 2e-2)
def chunked_rule() -> Iterator[Pair]:
    from vllm.third_party.flash_linear_attention.ops.chunk import chunk_gated_delta_rule

    q, k, v, g, beta = rule_inputs(sum(LENGTHS))
    state = torch.randn(4, 4, 64, 64)
    out, final = chunk_gated_delta_rule(
        q,
        k,
        v,
        g,
        beta,
        initial_state=state.clone(),
        output_final_state=True,
        cu_seqlens=STARTS.long(),
        use_qk_l2norm_in_kernel=True,
    )
    parts = zip(*(x[0].split(LENGTHS) for x in (q, k, v, g, beta)), strict=True)
    wanted = [delta_rule(*part, state[i]) for i, part in enumerate(parts)]
    yield out[0], torch.cat([each for each, _ in wanted])
    yield final, torch.stack([each for _, each in wanted])


@case("gated delta rule, decode", "6 sequences in chosen slots, 4 heads of 64")
def rule_step() -> Iterator[Pair]:
    from vllm.third_party.flash_linear_attention.ops.fused_recurrent import fused_recurrent_gated_delta_rule

    q, k, v, g, beta = rule_inputs(6)
    states, slots = torch.randn(10, 4, 64, 64), torch.tensor([3, 9, 1, 4, 7, 2]).int()
    wanted = [delta_rule(*(x[0, i : i + 1] for x in (q, k, v, g, beta)), states[int(slot)]) for i, slot in enumerate(slots)]
    out, after = fused_recurrent_gated_delta_rule(
        q,
        k,
        v,
        g,
        beta,
        initial_state=states,
        cu_seqlens=torch.arange(7),
        ssm_state_indices=slots,
        use_qk_l2norm_in_kernel=True,
    )
    yield out[0], torch.cat([each for each, _ in wanted])
    yield after[slots.long()], torch.stack([each for _, each in wanted])


@case("gated delta rule, decode with its gates", "6 sequences in chosen slots, 4 heads of 64")
def rule_step_with_gates() -> Iterator[Pair]:
    from vllm.third_party.flash_linear_attention.ops.fused_sigmoid_gating import fused_sigmoid_gating_delta_rule_update

    q, k, v, _, _ = rule_inputs(6)
    states, slots = torch.randn(10, 4, 64, 64), torch.tensor([3, 9, 1, 4, 7, 2]).int()
    log, bias, a, b = torch.randn(4), torch.randn(4), normal(6, 4), normal(6, 4)
    g, beta = -log.exp() * softplus(a.float() + bias), b.float().sigmoid()
    wanted = [
        delta_rule(q[0, i : i + 1], k[0, i : i + 1], v[0, i : i + 1], g[i : i + 1], beta[i : i + 1], states[int(slot)])
        for i, slot in enumerate(slots)
    ]
    out, after = fused_sigmoid_gating_delta_rule_update(
        log,
        a,
        b,
        bias,
        q,
        k,
        v,
        initial_state=states,
        cu_seqlens=torch.arange(7),
        ssm_state_indices=slots,
        use_qk_l2norm_in_kernel=True,
    )
    yield out[0], torch.cat([each for each, _ in wanted])
    yield after[slots.long()], torch.stack([each for _, each in wanted])


@case("Kimi delta attention, decode", "6 tokens of one sequence, 4 heads of 64, a gate for each key")
def kimi_step() -> Iterator[Pair]:
    from vllm.third_party.flash_linear_attention.ops.kda import fused_recurrent_kda

    q, k, v = (normal(1, 6, 4, 64) for _ in range(3))
    g, beta = -torch.rand(1, 6, 4, 64), torch.rand(1, 6, 4).bfloat16()
    state = torch.randn(1, 4, 64, 64)
    wanted, final = delta_rule(q[0], k[0], v[0], g[0], beta[0], state[0])
    out, after = fused_recurrent_kda(q, k, v, g, beta, initial_state=state.clone(), inplace_final_state=False)
    yield out[0], wanted
    yield after[-1:], final[None]


@case("sums within chunks", "4 sequences of up to 130, 4 heads, chunks of 64", 1e-5)
def sums_within_chunks() -> Iterator[Pair]:
    from vllm.third_party.flash_linear_attention.ops.cumsum import chunk_local_cumsum

    g = torch.randn(1, sum(LENGTHS), 4)
    got = chunk_local_cumsum(g, 64, cu_seqlens=STARTS.long())
    yield got[0], torch.cat([chunk.cumsum(0) for part in g[0].split(LENGTHS) for chunk in part.split(64)])


@case("lightning attention", "200 tokens, 4 heads of 64", 2e-2)
def lightning() -> Iterator[Pair]:
    from vllm.model_executor.layers.lightning_attn import lightning_attention

    q, k, v = (normal(1, 4, 200, 64, dtype=torch.float32, scale=0.3) for _ in range(3))
    slopes = torch.rand(4) / 10
    out, _ = lightning_attention(q, k, v, slopes)
    state, wanted = torch.zeros(4, 64, 64), []
    for i in range(200):
        state = state * (-slopes).exp()[:, None, None] + k[0, :, i].float()[:, :, None] * v[0, :, i].float()[:, None]
        wanted.append((q[0, :, i].float()[:, :, None] * state).sum(1))
    yield out[0], torch.stack(wanted, 1)


@case("linear attention, decode", "6 sequences in chosen slots, 4 heads of 64")
def linear_step() -> Iterator[Pair]:
    from vllm.model_executor.layers.lightning_attn import linear_decode_forward_triton

    q, k, v = (normal(6, 4, 1, 64) for _ in range(3))
    caches, slopes, slots = torch.randn(10, 4, 64, 64), torch.rand(4), torch.tensor([3, 9, 1, 4, 7, 2])
    after = caches[slots] * (-slopes).exp()[:, None, None] + k[:, :, 0, :, None].float() * v[:, :, 0, None, :].float()
    out = linear_decode_forward_triton(q, k, v, caches, slopes, slots)
    yield out, (q[:, :, 0, :, None].float() * after).sum(2).flatten(1)
    yield caches[slots], after
