"""Matrix products: experts, LoRA, quantised weights."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from tests.engines.cases import Pair, case
from tests.engines.vllm.kernels.inputs import normal

TILES = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 32, "GROUP_SIZE_M": 8, "SPLIT_K": 1}
TOKENS, EXPERTS, TOP, HIDDEN, WIDE = 37, 8, 2, 128, 192


def assignment() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns the experts of tokens and their weights, and the same sorted by expert, each expert's padded to a tile."""
    weights, ids = torch.randn(TOKENS, EXPERTS).softmax(1).topk(TOP)
    tile, flat, order, owners = TILES["BLOCK_SIZE_M"], ids.flatten(), [], []
    for expert in range(EXPERTS):
        own = (flat == expert).nonzero().flatten().tolist()
        own += [flat.numel()] * (-len(own) % tile)
        order += own
        owners += [expert] * (len(own) // tile)
    return weights, ids, torch.tensor(order).int(), torch.tensor(owners).int(), torch.tensor([len(order)]).int()


def by_expert(x: torch.Tensor, matrices: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Returns (tokens, top, columns): each token by the matrices, (experts, columns, rows), of its experts."""
    return torch.einsum("tk,tenk->ten", x.float(), matrices.float()[ids])


@case("fused MoE", f"{TOKENS} tokens, {EXPERTS} experts of {WIDE} x {HIDDEN}, top {TOP}")
def fused_moe() -> Iterator[Pair]:
    import vllm.triton_utils as names
    from vllm.model_executor.layers.fused_moe.fused_moe import invoke_fused_moe_triton_kernel

    weights, ids, order, owners, count = assignment()
    x, matrices, bias = normal(TOKENS, HIDDEN), normal(EXPERTS, WIDE, HIDDEN), normal(EXPERTS, WIDE)
    for weighted in (False, True):
        out = torch.empty(TOKENS, TOP, WIDE, dtype=torch.bfloat16)
        invoke_fused_moe_triton_kernel(
            x, matrices, out, None, None, weights, order, owners, count, weighted, TOP, dict(TILES), names.tl.bfloat16,
            False, False, False, False, False, None, bias,
        )  # fmt: skip
        wanted = by_expert(x, matrices, ids) + bias.float()[ids]
        yield out, wanted * weights[:, :, None] if weighted else wanted


@case("fused MoE, int8 tokens and weights", "the same, a scale for each row and column")
def fused_moe_int8() -> Iterator[Pair]:
    import vllm.triton_utils as names
    from vllm.model_executor.layers.fused_moe.fused_moe import invoke_fused_moe_triton_kernel

    weights, ids, order, owners, count = assignment()
    x, matrices = (torch.randint(-127, 128, sizes, dtype=torch.int8) for sizes in ((TOKENS, HIDDEN), (EXPERTS, WIDE, HIDDEN)))
    rows, columns = torch.rand(TOKENS, 1) / 100, torch.rand(EXPERTS, WIDE, 1) / 100
    out = torch.empty(TOKENS, TOP, WIDE, dtype=torch.bfloat16)
    invoke_fused_moe_triton_kernel(
        x, matrices, out, rows, columns, weights, order, owners, count, False, TOP, dict(TILES), names.tl.bfloat16,
        False, True, False, False, True,
    )  # fmt: skip
    yield out, by_expert(x * rows, matrices * columns, ids)


@case("fused MoE, w4a16", "the same, 4-bit weights in groups of 32")
def fused_moe_int4() -> Iterator[Pair]:
    import vllm.triton_utils as names
    from vllm.model_executor.layers.fused_moe.fused_moe import invoke_fused_moe_wna16_triton_kernel

    weights, ids, order, owners, count = assignment()
    x, numbers = normal(TOKENS, HIDDEN), torch.randint(0, 16, (EXPERTS, WIDE, HIDDEN), dtype=torch.uint8)
    scales = torch.rand(EXPERTS, WIDE, HIDDEN // 32).bfloat16() / 8
    packed = numbers[:, :, ::2] | numbers[:, :, 1::2] << 4
    out = torch.empty(TOKENS, TOP, WIDE, dtype=torch.bfloat16)
    invoke_fused_moe_wna16_triton_kernel(
        x,
        packed,
        out,
        scales,
        None,
        weights,
        order,
        owners,
        count,
        False,
        TOP,
        dict(TILES),
        names.tl.bfloat16,
        False,
        True,
        [0, 32],
    )
    real = (numbers.float() - 8) * scales.float().repeat_interleave(32, 2)
    yield out, by_expert(x, real, ids)


@case("batched MoE", f"{EXPERTS} experts with up to 24 tokens")
def batched_moe() -> Iterator[Pair]:
    import vllm.triton_utils as names
    from vllm.model_executor.layers.fused_moe.experts.fused_batched_moe import invoke_moe_batched_triton_kernel

    counts = torch.randint(1, 25, (EXPERTS,)).int()
    x, matrices = normal(EXPERTS, 32, HIDDEN), normal(EXPERTS, WIDE, HIDDEN)
    out = torch.zeros(EXPERTS, 32, WIDE, dtype=torch.bfloat16)
    invoke_moe_batched_triton_kernel(
        x, matrices, out, counts, names.tl.bfloat16, None, None, None, False, False, False, dict(TILES), False
    )
    for expert, count in enumerate(counts.tolist()):
        yield out[expert, :count], x[expert, :count].float() @ matrices[expert].float().T


@case("tokens of experts, experts of this rank", "300 tokens, 16 experts", 0.0)
def expert_counts() -> Iterator[Pair]:
    from vllm.model_executor.layers.fused_moe.utils import count_expert_num_tokens, remap_topk_to_local

    ids = torch.randint(0, 16, (300, TOP))
    yield count_expert_num_tokens(ids, 16, None), torch.bincount(ids.flatten(), minlength=16)
    local = torch.full((16,), -1, dtype=torch.int32)
    local[4:12] = torch.arange(8)
    yield remap_topk_to_local(ids, local), local[ids].long()


@case("LoRA shrink and expand", "48 tokens, 3 of 4 adapters of rank 16, 2 slices")
def lora() -> Iterator[Pair]:
    from vllm.lora.ops.triton_ops.lora_expand_op import _lora_expand
    from vllm.lora.ops.triton_ops.lora_shrink_op import _lora_shrink

    tokens, adapters, rank = 48, 4, 16
    which = torch.randint(-1, 3, (tokens,))
    present, counts = which.unique(return_counts=True)
    padded = torch.full((adapters + 1,), -1)
    padded[: len(present)] = present
    per = torch.zeros(adapters + 1, dtype=torch.long)
    per[: len(present)] = counts
    starts = torch.cat([torch.zeros(1, dtype=torch.long), per.cumsum(0)])
    plan = [
        which.int(), which.argsort(stable=True).int(), per.int(), starts.int(), padded.int(), torch.tensor([False]),
        torch.tensor([len(present)], dtype=torch.int32),
    ]  # fmt: skip
    x = normal(tokens, HIDDEN)
    down = [normal(adapters, rank, HIDDEN) for _ in range(2)]
    up = [normal(adapters, WIDE, rank) for _ in range(2)]
    shrunk = torch.zeros(2, tokens, rank)
    _lora_shrink(x, down, shrunk, *plan, 0.5)
    own = which >= 0
    wanted = torch.zeros(2, tokens, rank)
    for part, weights in enumerate(down):
        wanted[part, own] = 0.5 * torch.einsum("tk,trk->tr", x[own].float(), weights[which[own]].float())
    yield shrunk, wanted
    base = normal(tokens, 2 * WIDE)
    out = base.clone()
    _lora_expand(shrunk, up, out, *plan, offset_start=0, add_inputs=True)
    total = base.float()
    for part, weights in enumerate(up):
        total[own, part * WIDE : (part + 1) * WIDE] += torch.einsum(
            "tr,tnr->tn", shrunk[part, own].bfloat16().float(), weights[which[own]].float()
        )
    yield out, total


@case("scaled mm, int8", "33 x 256 by 256 x 192")
def scaled_mm() -> Iterator[Pair]:
    from vllm.model_executor.layers.quantization.compressed_tensors.triton_scaled_mm import triton_scaled_mm

    a, b = (torch.randint(-127, 128, sizes, dtype=torch.int8) for sizes in ((33, 256), (256, 192)))
    rows, columns, bias = torch.rand(33, 1) / 100, torch.rand(192, 1) / 100, normal(192)
    got = triton_scaled_mm(a, b, rows, columns, torch.bfloat16, bias)
    yield got, (a.float() @ b.float()) * rows * columns.T + bias.float()


@case("scaled mm, fp8", "33 x 256 by 256 x 192")
def scaled_mm_fp8() -> Iterator[Pair]:
    from vllm.model_executor.layers.quantization.compressed_tensors.triton_scaled_mm import triton_scaled_mm

    a, b = (normal(*sizes, dtype=torch.float32).to(torch.float8_e4m3fn) for sizes in ((33, 256), (256, 192)))
    rows, columns = torch.rand(33, 1), torch.rand(192, 1)
    yield triton_scaled_mm(a, b, rows, columns, torch.bfloat16), (a.float() @ b.float()) * rows * columns.T


@case("block-scaled mm, fp8", "33 x 256 by 256 x 192, blocks of 64")
def block_scaled_mm() -> Iterator[Pair]:
    from vllm.model_executor.layers.quantization.utils.fp8_utils import w8a8_triton_block_scaled_mm

    a, b = (normal(*sizes, dtype=torch.float32).to(torch.float8_e4m3fn) for sizes in ((33, 256), (192, 256)))
    rows, blocks = torch.rand(33, 4), torch.rand(3, 4)
    got = w8a8_triton_block_scaled_mm(a, b, rows, blocks, [64, 64], torch.bfloat16)
    left = a.float() * rows.repeat_interleave(64, 1)
    yield got, left @ (b.float() * blocks.repeat_interleave(64, 0).repeat_interleave(64, 1)).T


@case("AWQ, w4a16", "33 x 256 by 256 x 128, groups of 64")
def awq() -> Iterator[Pair]:
    from vllm.model_executor.layers.quantization.awq_triton import awq_dequantize_triton, awq_gemm_triton

    order = [0, 4, 1, 5, 2, 6, 3, 7]  # of the numbers in a word, by column
    numbers, zeros = torch.randint(0, 16, (256, 128)), torch.randint(0, 16, (4, 128))

    def packed(x: torch.Tensor) -> torch.Tensor:
        shifts = 4 * torch.tensor(order)
        return (x.view(len(x), -1, 8) << shifts).sum(2).to(torch.int64).to(torch.int32)

    scales, x = torch.rand(4, 128).half(), normal(33, 256, dtype=torch.float16)
    real = (numbers - zeros.repeat_interleave(64, 0)).float() * scales.float().repeat_interleave(64, 0)
    yield awq_dequantize_triton(packed(numbers), scales, packed(zeros)), real
    yield awq_gemm_triton(x, packed(numbers), scales, packed(zeros), 4), x.float() @ real


@case("batch-invariant products", "130 x 192 by 192 x 96, 3 at once")
def batch_invariant() -> Iterator[Pair]:
    from vllm.model_executor.determinism import batch_invariant as invariant

    a, b, bias = normal(130, 192), normal(192, 96), normal(96)
    yield invariant.matmul_persistent(a, b, bias), a.float() @ b.float() + bias.float()
    many, others = normal(3, 65, 192), normal(3, 192, 96)
    yield invariant.bmm_batch_invariant(many, others), many.float() @ others.float()
