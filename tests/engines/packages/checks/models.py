"""Whole models: transformers' Llama and Qwen with Liger's kernels put in, and layers of fla, against the same without kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from tests.engines.cases import Pair, case

SIZES = {
    "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "vocab_size": 500, "max_position_embeddings": 128,
}  # fmt: skip


def trained(model: Any, ids: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Returns the loss of a model and the gradients of its weights."""
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    return loss.detach(), {name: weight.grad.clone() for name, weight in model.named_parameters()}


def patched(kind: Any, config: Any, apply: Callable[..., None]) -> Iterator[Pair]:
    """Yields loss and gradients of a model with random weights after and before Liger's kernels are put in."""
    model = kind(config)
    ids = torch.randint(0, config.vocab_size, (2, 50))
    wanted_loss, wanted = trained(model, ids)
    model.zero_grad()
    apply(model=model)
    loss, gradients = trained(model, ids)
    yield loss, wanted_loss
    yield from ((gradients[name], wanted[name]) for name in wanted)


@case("transformers", "LlamaForCausalLM with Liger's kernels: loss and all gradients", 1e-3)
def llama() -> Iterator[Pair]:
    from liger_kernel.transformers import apply_liger_kernel_to_llama
    from transformers import LlamaConfig, LlamaForCausalLM

    yield from patched(LlamaForCausalLM, LlamaConfig(**SIZES), apply_liger_kernel_to_llama)


@case("transformers", "Qwen3ForCausalLM with Liger's kernels: loss and all gradients", 1e-3)
def qwen() -> Iterator[Pair]:
    from liger_kernel.transformers import apply_liger_kernel_to_qwen3
    from transformers import Qwen3Config, Qwen3ForCausalLM

    yield from patched(Qwen3ForCausalLM, Qwen3Config(**SIZES, head_dim=16), apply_liger_kernel_to_qwen3)
