"""The all-MiniLM-L6-v2 sentence encoder (BERT with six layers) as a small module, over kernelpack's ops or over torch's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Config:
    """The sizes of a model; the defaults are those of all-MiniLM-L6-v2."""

    vocabulary: int = 30522
    positions: int = 512
    hidden: int = 384
    layers: int = 6
    heads: int = 12
    intermediate: int = 1536
    eps: float = 1e-12
    padding: int = 0  # the id of the token that fills a batch up; the model ignores it


MINILM = Config()


class Ops(NamedTuple):
    """The three ops that a model is parametrised with; all else is the same torch code."""

    attention: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
    layer_norm: Callable[[Tensor, Tensor, Tensor, float], Tensor]
    gelu: Callable[[Tensor], Tensor]


def kernelpack_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    return torch.ops.kernelpack.mha(query, key, value, mask)


def kernelpack_layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    return torch.ops.kernelpack.layer_norm(x, weight, bias, eps=eps)


def kernelpack_gelu(x: Tensor) -> Tensor:
    return torch.ops.kernelpack.gelu(x)


def torch_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    return functional.scaled_dot_product_attention(query, key, value, mask)


def torch_layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    return functional.layer_norm(x, [x.size(-1)], weight, bias, eps)


def torch_gelu(x: Tensor) -> Tensor:
    return functional.gelu(x)


KERNELPACK = Ops(kernelpack_attention, kernelpack_layer_norm, kernelpack_gelu)
TORCH = Ops(torch_attention, torch_layer_norm, torch_gelu)


class LayerNorm(nn.Module):
    """Layer norm over the last dimension by one of the ops."""

    def __init__(self, config: Config, ops: Ops) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(config.hidden))
        self.bias = nn.Parameter(torch.zeros(config.hidden))
        self.eps = config.eps
        self.op = ops.layer_norm

    def forward(self, x: Tensor) -> Tensor:
        return self.op(x, self.weight, self.bias, self.eps)


class Layer(nn.Module):
    """Attention and the feed-forward network, each added to its input and normalised."""

    def __init__(self, config: Config, ops: Ops) -> None:
        super().__init__()
        self.heads = config.heads
        self.query_key_value = nn.Linear(config.hidden, 3 * config.hidden)
        self.output = nn.Linear(config.hidden, config.hidden)
        self.output_norm = LayerNorm(config, ops)
        self.up = nn.Linear(config.hidden, config.intermediate)
        self.down = nn.Linear(config.intermediate, config.hidden)
        self.down_norm = LayerNorm(config, ops)
        self.attention = ops.attention
        self.gelu = ops.gelu

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        batch, sequence, hidden = x.size(0), x.size(1), x.size(2)
        heads = self.query_key_value(x).view(batch, sequence, 3, self.heads, hidden // self.heads)
        query, key, value = heads.permute(2, 0, 3, 1, 4).unbind(0)
        context = self.attention(query, key, value, mask)
        x = self.output_norm(x + self.output(context.transpose(1, 2).reshape(batch, sequence, hidden)))
        return self.down_norm(x + self.down(self.gelu(self.up(x))))


class SentenceEncoder(nn.Module):
    """Maps token ids (int64, [batch, sequence], padded) to embeddings of length 1 (float32, [batch, hidden])."""

    def __init__(self, config: Config, ops: Ops) -> None:
        super().__init__()
        self.padding = config.padding
        self.words = nn.Embedding(config.vocabulary, config.hidden)
        self.positions = nn.Parameter(torch.randn(config.positions, config.hidden))
        self.norm = LayerNorm(config, ops)
        self.layers = nn.ModuleList(Layer(config, ops) for _ in range(config.layers))

    def forward(self, tokens: Tensor) -> Tensor:
        real = tokens != self.padding
        mask = real[:, None, None, :]
        x = self.norm(self.words(tokens) + self.positions[: tokens.size(1)])
        for layer in self.layers:
            x = layer(x, mask)
        weight = real.unsqueeze(-1).to(x.dtype)
        mean = (x * weight).sum(1) / weight.sum(1).clamp(min=1.0)
        return functional.normalize(mean)


def load_encoder(ops: Ops, weights: Path) -> SentenceEncoder:
    """Returns all-MiniLM-L6-v2 with the weights of a safetensors file, ready to serve."""
    model = SentenceEncoder(MINILM, ops)
    model.load_state_dict(rename_weights(load_file(weights), MINILM))
    return model.eval().requires_grad_(False)


def rename_weights(given: dict[str, Tensor], config: Config) -> dict[str, Tensor]:
    """Returns BERT's tensors under this model's names, with query, key and value as one matrix."""
    names = {
        "output": "attention.output.dense",
        "output_norm": "attention.output.LayerNorm",
        "up": "intermediate.dense",
        "down": "output.dense",
        "down_norm": "output.LayerNorm",
    }
    made = {
        "words.weight": given["embeddings.word_embeddings.weight"],
        # every token of a single sentence has type 0: its embedding joins that of the position
        "positions": given["embeddings.position_embeddings.weight"] + given["embeddings.token_type_embeddings.weight"][0],
    }
    for part in ("weight", "bias"):
        made[f"norm.{part}"] = given[f"embeddings.LayerNorm.{part}"]
        for i in range(config.layers):
            bert = f"encoder.layer.{i}"
            joined = [given[f"{bert}.attention.self.{name}.{part}"] for name in ("query", "key", "value")]
            made[f"layers.{i}.query_key_value.{part}"] = torch.cat(joined)
            made |= {f"layers.{i}.{own}.{part}": given[f"{bert}.{name}.{part}"] for own, name in names.items()}
    return made
