"""A decoder layer that calls every op, in every dtype: what the tests compile, export, script and serve."""

from __future__ import annotations

import torch

WIDTH, HIDDEN = 64, 96  # 4 query heads and 2 key heads of 16


class Layer(torch.nn.Module):
    """Attention and a gated feed-forward part, on x [batch, length, WIDTH] in one dtype."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()

        def weight(name: str, *shape: int) -> None:
            self.register_buffer(name, (torch.randn(shape) * shape[0] ** -0.5).to(dtype))

        weight("norm", WIDTH)
        weight("query", WIDTH, 64)
        weight("key", WIDTH, 32)
        weight("value", WIDTH, 32)
        weight("merge", 64, WIDTH)
        weight("merge_bias", WIDTH)
        weight("scale", WIDTH)
        weight("shift", WIDTH)
        weight("gate", WIDTH, HIDDEN)
        weight("up", WIDTH, HIDDEN)
        weight("down", HIDDEN, WIDTH)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        batch, length = x.size(0), x.size(1)
        h = torch.ops.kernelpack.rms_norm(x, self.norm, 1e-6)
        q = torch.ops.kernelpack.matmul(h, self.query).view(batch, length, 4, 16).transpose(1, 2)
        k = torch.ops.kernelpack.matmul(h, self.key).view(batch, length, 2, 16).transpose(1, 2)
        v = torch.ops.kernelpack.matmul(h, self.value).view(batch, length, 2, 16).transpose(1, 2)
        q = torch.ops.kernelpack.rope(q, cos, sin)
        k = torch.ops.kernelpack.rope(k, cos, sin, interleaved=False)
        a = torch.ops.kernelpack.mha(q, k, v, None, is_causal=True, enable_gqa=True)
        a = a + torch.ops.kernelpack.mha(q, k, v, bias, scale=0.2, enable_gqa=True)
        a = a.transpose(1, 2).reshape(batch, length, 64)
        x = x + torch.ops.kernelpack.matmul(a, self.merge, self.merge_bias)
        h = torch.ops.kernelpack.layer_norm(x, self.scale, self.shift)
        h = torch.ops.kernelpack.silu_mul(
            torch.ops.kernelpack.matmul(h, self.gate), torch.ops.kernelpack.matmul(h, self.up, None, activation=4)
        )
        h = torch.ops.kernelpack.gelu(torch.ops.kernelpack.matmul(h, self.down), approximate=1)
        return torch.ops.kernelpack.softmax(torch.ops.kernelpack.gelu(x + h))


class Model(torch.nn.Module):
    """One layer for each dtype; their results as float32, [3, batch, length, WIDTH]."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.in_float32 = Layer(torch.float32)
        self.in_float16 = Layer(torch.float16)
        self.in_bfloat16 = Layer(torch.bfloat16)

    def forward(self, x: torch.Tensor, angles: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        cos, sin = angles.cos(), angles.sin()
        single = self.in_float32(x, cos, sin, bias)
        half = self.in_float16(x.half(), cos.half(), sin.half(), bias.half())
        brain = self.in_bfloat16(x.to(torch.bfloat16), cos, sin, bias.to(torch.bfloat16))
        return torch.stack((single, half.float(), brain.float()))


def inputs(batch: int, length: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns x, the angles of positions and an additive mask."""
    torch.manual_seed(batch * 10_000 + length)
    positions = torch.arange(length)[:, None] * 100.0 ** (-torch.arange(8) / 8)
    return torch.randn(batch, length, WIDTH), positions, torch.randn(length, length)


SIZES = ((2, 24), (1, 1), (3, 2), (1, 130), (5, 65), (1, 4096))
