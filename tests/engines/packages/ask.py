"""A transformers model with kernels of Liger and of fla: the example of docs/adopting.md."""

import sys

import torch
from fla.ops.simple_gla import chunk_simple_gla
from liger_kernel.transformers import apply_liger_kernel_to_llama
from transformers import LlamaConfig, LlamaForCausalLM

apply_liger_kernel_to_llama()
sizes = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 1000}
torch.manual_seed(0)
model = LlamaForCausalLM(LlamaConfig(**sizes)).to(getattr(torch, sys.argv[1]))
tokens = torch.randint(0, 1000, (1, 128))
heads = model.model(tokens).last_hidden_state.detach().view(1, -1, 4, 64)
mixed, _ = chunk_simple_gla(heads, heads, heads, g_gamma=torch.full((4,), -0.1))
print(f"loss {model(tokens, labels=tokens).loss.item():.3f}, mixed {mixed.abs().mean().item():.2f}")
