"""The same model with plain torch, on weights that the package gguf has dequantised: what kernelpack's ops are held to."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from serving_examples.language_model.gguf_file import Config, File

Linear = Callable[[Tensor, Tensor], Tensor]
Past = list[tuple[Tensor, Tensor]]
"""Keys and values of each layer: [key heads, tokens, head size]."""


class TorchModel:
    """Maps tokens of one sequence to logits. `linear(x, weight)` is the product of all layers and of the head."""

    def __init__(self, file: File, dtype: torch.dtype = torch.float32, linear: Linear = functional.linear) -> None:
        self.config, self.linear = Config.of(file), linear
        self.weights = {name: file.floats(name).to(dtype) for name in file.tensors}

    def __call__(self, tokens: list[int], past: Past | None = None) -> tuple[Tensor, Past]:
        """Returns the logits after each token, [tokens, vocabulary], and the keys and values of all tokens so far."""
        before = past or [None] * self.config.layers
        x = self.weights["token_embd.weight"][tokens]
        now = []
        for i, seen in enumerate(before):
            own = {name: self.weights[f"blk.{i}.{name}.weight"] for name in NAMES}
            attended, kept = self.attend(self.normalize(x, own["attn_norm"]), own, seen)
            now.append(kept)
            x = x + self.linear(attended, own["attn_output"])
            y = self.normalize(x, own["ffn_norm"])
            x = x + self.linear(
                functional.silu(self.linear(y, own["ffn_gate"])) * self.linear(y, own["ffn_up"]), own["ffn_down"]
            )
        return self.linear(self.normalize(x, self.weights["output_norm.weight"]), self.weights["token_embd.weight"]), now

    def normalize(self, x: Tensor, weight: Tensor) -> Tensor:
        return functional.rms_norm(x, weight.shape, weight, self.config.eps)

    def attend(
        self, x: Tensor, own: dict[str, Tensor], seen: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        count, size = len(x), self.config.size
        query, key, value = (
            self.linear(x, own[f"attn_{name}"]).view(count, -1, size).transpose(0, 1) for name in ("q", "k", "v")
        )
        start = 0 if seen is None else seen[0].shape[1]
        query, key = self.turn(query, start), self.turn(key, start)
        if seen is not None:
            key, value = torch.cat((seen[0], key), 1), torch.cat((seen[1], value), 1)
        visible = torch.ones(count, start + count, dtype=torch.bool).tril(start)
        out = functional.scaled_dot_product_attention(query[None], key[None], value[None], visible, enable_gqa=True)[0]
        return out.transpose(0, 1).flatten(1), (key, value)

    def turn(self, x: Tensor, start: int) -> Tensor:
        """Rotates pairs (2i, 2i + 1) of heads [heads, tokens, head size] by their tokens' positions."""
        exponents = torch.arange(0, self.config.size, 2, dtype=torch.float64) / self.config.size
        turns = torch.arange(start, start + x.shape[1])[:, None] * self.config.base**-exponents
        cos, sin = turns.cos().to(x.dtype), turns.sin().to(x.dtype)
        left, right = x[..., ::2], x[..., 1::2]
        return torch.stack((left * cos - right * sin, right * cos + left * sin), -1).flatten(-2)


NAMES = ("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down")
"""The weights of a layer."""
