"""Models with random weights in the forms that people compile: a sentence encoder, two decoders, a convolutional network."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class EncoderLayer(nn.Module):
    """As in BERT and MiniLM: attention, then two linear layers, each added and normalised."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.after_attention, self.after_mlp = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
        x = self.after_attention(x + self.out(seen))
        return self.after_mlp(x + self.down(F.gelu(self.up(x))))


class MiniLM(nn.Module):
    """Token numbers [batch, length] to one normalised vector a text."""

    def __init__(self, layers: int = 6, width: int = 384, heads: int = 12, words: int = 1000) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(512, width)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList(EncoderLayer(width, heads) for _ in range(layers))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.norm(self.words(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device)))
        for layer in self.layers:
            x = layer(x)
        return F.normalize(x.mean(1))


class LlamaLayer(nn.Module):
    """As in Llama and SmolLM2: rotary embeddings, heads that share keys, SiLU of a gate."""

    def __init__(self, width: int, heads: int, key_heads: int, inner: int) -> None:
        super().__init__()
        self.heads, self.key_heads, self.size = heads, key_heads, width // heads
        self.query, self.out = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.key, self.value = (nn.Linear(width, key_heads * self.size, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, width, bias=False)
        self.before_attention, self.before_mlp = nn.RMSNorm(width), nn.RMSNorm(width)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        normed = self.before_attention(x)
        query = rotated(self.query(normed).unflatten(-1, (self.heads, self.size)).transpose(1, 2), cos, sin)
        key = rotated(self.key(normed).unflatten(-1, (self.key_heads, self.size)).transpose(1, 2), cos, sin)
        value = self.value(normed).unflatten(-1, (self.key_heads, self.size)).transpose(1, 2)
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        normed = self.before_mlp(x)
        return x + self.down(F.silu(self.gate(normed)) * self.up(normed))


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Returns heads [..., length, size] turned by the angles of their places."""
    left, right = x.chunk(2, -1)
    return torch.cat((left * cos - right * sin, right * cos + left * sin), -1)


class SmolLM2(nn.Module):
    """Token numbers [batch, length] to logits, in the sizes of SmolLM2-135M but for the number of layers and words."""

    def __init__(self, layers: int = 4, width: int = 576, heads: int = 9, words: int = 1000) -> None:
        super().__init__()
        self.size = width // heads
        self.words = nn.Embedding(words, width)
        self.layers = nn.ModuleList(LlamaLayer(width, heads, heads // 3, 1536 * width // 576) for _ in range(layers))
        self.norm = nn.RMSNorm(width)

    def forward(self, tokens: Tensor) -> Tensor:
        rates = 10000.0 ** (-torch.arange(0, self.size, 2, device=tokens.device) / self.size)
        angles = torch.outer(torch.arange(tokens.shape[1], device=tokens.device), rates)
        x = self.words(tokens)
        for layer in self.layers:
            x = layer(x, angles.cos().to(x.dtype), angles.sin().to(x.dtype))
        return F.linear(self.norm(x), self.words.weight)


class GPTLayer(nn.Module):
    """As in GPT-2: norms before attention and before the linear layers."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.qkv(self.before_attention(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.before_mlp(x)), approximate="tanh"))


class GPT(nn.Module):
    """Token numbers [batch, length] to logits."""

    def __init__(self, layers: int = 4, width: int = 512, heads: int = 8, words: int = 1000) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(512, width)
        self.layers = nn.ModuleList(GPTLayer(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for layer in self.layers:
            x = layer(x)
        return F.linear(self.norm(x), self.words.weight)


class ResidualBlock(nn.Module):
    """As in ResNet-18: two convolutions, and what went in added."""

    def __init__(self, before: int, channels: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, channels, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(channels) for _ in range(2))
        same = stride == 1 and before == channels
        self.short = nn.Identity() if same else nn.Conv2d(before, channels, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.norms[1](self.second(F.relu(self.norms[0](self.first(x)))))
        return F.relu(inner + self.short(x))


class ResNet(nn.Module):
    """Images [batch, 3, height, width] to logits."""

    def __init__(self, channels: tuple[int, ...] = (32, 64, 128, 256)) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, channels[0], 7, 2, 3, bias=False), nn.BatchNorm2d(channels[0])
        pairs = zip((channels[0], *channels), channels, strict=False)
        self.blocks = nn.Sequential(*(ResidualBlock(before, now, 1 + (before != now)) for before, now in pairs))
        self.last = nn.Linear(channels[-1], 100)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.norm(self.first(x))), 3, 2, 1)
        return self.last(self.blocks(x).mean((2, 3)))


MODELS: dict[str, type[nn.Module]] = {"MiniLM": MiniLM, "SmolLM2": SmolLM2, "GPT": GPT, "ResNet": ResNet}


def example(name: str) -> Tensor:
    """Returns an input of a model."""
    return torch.randn(1, 3, 128, 128) if name == "ResNet" else torch.randint(0, 1000, (1, 128))
