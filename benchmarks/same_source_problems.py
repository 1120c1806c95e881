"""What benchmarks.same_source launches: inputs, launches of its kernels, and what torch computes instead."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import kernelpack
from benchmarks.measure import DTYPES, Result


@dataclass(frozen=True)
class Launch:
    """kernel[grid](*args, **kwargs), of either compiler's kernel."""

    kernel: str
    grid: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Problem:
    """What a case computes: `inputs` makes tensors, outputs poisoned; `launches` says what they are passed to, `result` which
    of them it fills, `reference` what torch gives for it. `before` is called ahead of the launches."""

    inputs: Callable[[], tuple[Any, ...]]
    launches: Callable[..., list[Launch]]
    result: Callable[..., Result]
    reference: Callable[..., Result]
    before: Callable[..., None] | None = None


def _blocks(n: int) -> Callable[[Mapping[str, Any]], tuple[int]]:
    return lambda meta: (-(-n // meta["BLOCK"]),)


def _tiles(rows: int, columns: int, *more: str) -> Callable[[Mapping[str, Any]], tuple[int, ...]]:
    """A grid of one dimension over the tiles of a matrix, and of further ones by the constexprs named in `more`."""

    def grid(meta: Mapping[str, Any]) -> tuple[int, ...]:
        return -(-rows // meta["BLOCK_M"]) * -(-columns // meta["BLOCK_N"]), *(meta[name] for name in more)

    return grid


class Problems:
    """Makes the problems, for one device and dtype."""

    def __init__(self, device: str, dtype: str) -> None:
        self.device, self.dtype = device, DTYPES[dtype]

    def random(self, *extents: int, dtype: torch.dtype | None = None) -> Tensor:
        return torch.randn(extents, device=self.device, dtype=dtype or self.dtype)

    def poisoned(self, *extents: int, dtype: torch.dtype | None = None) -> Tensor:
        return torch.full(extents, math.nan, device=self.device, dtype=dtype or self.dtype)

    def add(self, n: int) -> Problem:
        return Problem(
            lambda: (self.random(n), self.random(n), self.poisoned(n)),
            lambda x, y, out: [Launch("add", _blocks(n), (x, y, out, n))],
            lambda x, y, out: out,
            lambda x, y, out: x + y,
        )

    def swiglu(self, rows: int, columns: int) -> Problem:
        n = rows * columns
        return Problem(
            lambda: (self.random(n), self.random(n), self.poisoned(n)),
            lambda gate, up, out: [Launch("swiglu", _blocks(n), (gate, up, out, n))],
            lambda gate, up, out: out,
            lambda gate, up, out: F.silu(gate.float()) * up.float(),
        )

    def dropout(self, n: int) -> Problem:
        p, seed = 0.25, 1234

        def reference(x: Tensor, out: Tensor) -> Tensor:
            return torch.where(_uniform(seed, n, self.device) > p, x.float() / (1 - p), 0.0)

        return Problem(
            lambda: (self.random(n), self.poisoned(n)),
            lambda x, out: [Launch("dropout", _blocks(n), (x, out, n, p, seed))],
            lambda x, out: out,
            reference,
        )

    def rope(self, batch: int, positions: int, heads: int, half: int) -> Problem:
        def inputs() -> tuple[Tensor, ...]:
            angle = self.random(positions, half, dtype=torch.float32)
            x = self.random(batch, positions, heads, 2 * half)
            return x, angle.cos(), angle.sin(), self.poisoned(*x.shape)

        def reference(x: Tensor, cos: Tensor, sin: Tensor, out: Tensor) -> Tensor:
            a, b = x.float().chunk(2, -1)
            c, s = cos[:, None], sin[:, None]
            return torch.cat((a * c - b * s, b * c + a * s), -1)

        meta = {"HEADS": kernelpack.next_power_of_2(heads), "HALF": half}
        return Problem(
            inputs,
            lambda x, cos, sin, out: [Launch("rope", (batch * positions,), (x, cos, sin, out, heads, positions), meta)],
            lambda x, cos, sin, out: out,
            reference,
        )

    def softmax(self, rows: int, columns: int) -> Problem:
        meta = {"BLOCK": kernelpack.next_power_of_2(columns)}
        return Problem(
            lambda: (self.random(rows, columns), self.poisoned(rows, columns)),
            lambda x, out: [Launch("softmax", (rows,), (x, out, columns, columns, columns), meta)],
            lambda x, out: out,
            lambda x, out: torch.softmax(x.float(), -1),
        )

    def rms_norm(self, rows: int, columns: int) -> Problem:
        meta = {"BLOCK": kernelpack.next_power_of_2(columns)}
        return Problem(
            lambda: (self.random(rows, columns), self.random(columns), self.poisoned(rows, columns)),
            lambda x, w, out: [Launch("rms_norm", (rows,), (x, w, out, columns, columns, 1e-6), meta)],
            lambda x, w, out: out,
            lambda x, w, out: F.rms_norm(x.float(), (columns,), w.float(), 1e-6),
        )

    def layer_norm(self, rows: int, columns: int) -> Problem:
        meta = {"BLOCK": kernelpack.next_power_of_2(columns)}

        def inputs() -> tuple[Tensor, ...]:
            figures = [self.poisoned(rows, dtype=torch.float32) for _ in range(2)]
            return (
                self.random(rows, columns),
                self.random(columns),
                self.random(columns),
                self.poisoned(rows, columns),
                *figures,
            )

        return Problem(
            inputs,
            lambda x, w, b, out, mean, scale: [
                Launch("layer_norm", (rows,), (x, w, b, out, mean, scale, columns, columns, 1e-5), meta)
            ],
            lambda x, w, b, out, mean, scale: (out, mean, scale),
            lambda x, w, b, out, mean, scale: tuple(
                made.view(wanted.shape)
                for made, wanted in zip(
                    torch.native_layer_norm(x.float(), (columns,), w.float(), b.float(), 1e-5), (out, mean, scale), strict=True
                )
            ),
        )

    def layer_norm_backward(self, rows: int, columns: int) -> Problem:
        meta = {"BLOCK": kernelpack.next_power_of_2(columns)}
        programs = min(rows, 264)  # two for each multiprocessor

        def inputs() -> tuple[Tensor, ...]:
            x, grad, weight = self.random(rows, columns), self.random(rows, columns), self.random(columns)
            _, mean, scale = torch.native_layer_norm(x.float(), (columns,), None, None, 1e-5)
            partials = [self.poisoned(programs, columns, dtype=torch.float32) for _ in range(2)]
            return (
                grad, x, weight, mean.flatten(), scale.flatten(),
                self.poisoned(rows, columns), *partials, self.poisoned(columns), self.poisoned(columns),
            )  # fmt: skip

        def launches(*t: Any) -> list[Launch]:
            grad, x, weight, mean, scale, grad_x, partial_weight, partial_bias, grad_weight, grad_bias = t
            operands = (grad, x, weight, mean, scale, grad_x, partial_weight, partial_bias, columns, rows, columns)
            sums = (partial_weight, partial_bias, grad_weight, grad_bias, programs, columns)
            return [
                Launch("layer_norm_backward", (programs,), operands, meta),
                Launch("sum_partials", lambda meta: (-(-columns // meta["COLUMNS"]),), sums),
            ]

        def reference(*t: Any) -> Result:
            x, weight = t[1].float().requires_grad_(), t[2].float().requires_grad_()
            bias = torch.zeros_like(weight, requires_grad=True)
            return torch.autograd.grad(F.layer_norm(x, (columns,), weight, bias, 1e-5), (x, weight, bias), t[0].float())

        return Problem(inputs, launches, lambda *t: (t[5], t[8], t[9]), reference)

    def cross_entropy(self, rows: int, classes: int) -> Problem:
        def inputs() -> tuple[Tensor, ...]:
            target = torch.randint(classes, (rows,), device=self.device)
            loss, grad = self.poisoned(rows, dtype=torch.float32), self.poisoned(rows, classes)
            return 3 * self.random(rows, classes), target, loss, grad

        def reference(logits: Tensor, target: Tensor, loss: Tensor, grad: Tensor) -> Result:
            values = logits.float()
            slope = torch.softmax(values, -1)
            slope[torch.arange(rows, device=self.device), target] -= 1
            return F.cross_entropy(values, target, reduction="none"), slope / rows

        return Problem(
            inputs,
            lambda logits, target, loss, grad: [
                Launch("cross_entropy", (rows,), (logits, target, loss, grad, classes, classes, 1 / rows))
            ],
            lambda logits, target, loss, grad: (loss, grad),
            reference,
        )

    def _product(self, kernel: str, grid: Any, m: int, n: int, k: int, out: torch.dtype | None = None) -> Problem:
        return Problem(
            lambda: (self.random(m, k), self.random(k, n), self.poisoned(m, n, dtype=out)),
            lambda a, b, c: [Launch(kernel, grid, (a, b, c, m, n, k, k, 1, n, 1, n, 1))],
            lambda a, b, c: c,
            lambda a, b, c: a.float() @ b.float(),
            (lambda a, b, c: c.zero_()) if out is not None else None,
        )

    def matmul(self, m: int, n: int, k: int) -> Problem:
        return self._product("matmul", lambda meta: (-(-m // meta["BLOCK_M"]), -(-n // meta["BLOCK_N"])), m, n, k)

    def matmul_grouped_order(self, m: int, n: int, k: int) -> Problem:
        return self._product("matmul_grouped_order", _tiles(m, n), m, n, k)

    def matmul_split_k(self, m: int, n: int, k: int) -> Problem:
        return self._product("matmul_split_k", _tiles(m, n, "SPLIT"), m, n, k, torch.float32)

    def matmul_grouped(self, *sizes: tuple[int, int, int]) -> Problem:
        def inputs() -> tuple[Any, ...]:
            a = [self.random(m, k) for m, _, k in sizes]
            b = [self.random(k, n) for _, n, k in sizes]
            c = [self.poisoned(m, n) for m, n, _ in sizes]
            addresses = [torch.tensor([x.data_ptr() for x in group], device=self.device) for group in (a, b, c)]
            return *addresses, torch.tensor(sizes, device=self.device, dtype=torch.int32), *a, *b, *c

        count = len(sizes)
        programs = 132 if self.device == "cuda" else 4

        def launches(*t: Any) -> list[Launch]:
            return [Launch("matmul_grouped", (programs,), (*t[:4], count, t[4]))]

        def reference(*t: Any) -> Result:
            return tuple(a.float() @ b.float() for a, b in zip(t[4 : 4 + count], t[4 + count : 4 + 2 * count], strict=True))

        return Problem(inputs, launches, lambda *t: t[4 + 2 * count :], reference)

    def attention(self, batch: int, heads: int, length: int, head: int, causal: bool) -> Problem:
        shape = (batch, heads, length, head)

        def launches(q: Tensor, k: Tensor, v: Tensor, out: Tensor) -> list[Launch]:
            strides = [stride for x in (q, k, v, out) for stride in x.stride()[:3]]
            operands = (q, k, v, out, 1 / math.sqrt(head), heads, length, length, *strides)
            return [
                Launch(
                    "attention",
                    lambda meta: (-(-length // meta["BLOCK_M"]), batch * heads),
                    operands,
                    {"HEAD": head, "CAUSAL": causal},
                )
            ]

        return Problem(
            lambda: (*(self.random(*shape) for _ in range(3)), self.poisoned(*shape)),
            launches,
            lambda q, k, v, out: out,
            lambda q, k, v, out: F.scaled_dot_product_attention(q, k, v, is_causal=causal),
        )


def _uniform(seed: int, n: int, device: str) -> Tensor:
    """Returns what tl.rand(seed, i) is for i < n, computed by torch: Philox 4x32-10 of counters (i, 0, 0, 0)."""
    mask = (1 << 32) - 1
    c = [torch.arange(n, device=device), *(torch.zeros(n, dtype=torch.int64, device=device) for _ in range(3))]
    keys = [seed & mask, seed >> 32]
    for _ in range(10):
        low, high = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]  # the product's bits, though its sign may be wrong
        c = [
            (high >> 32 & mask) ^ c[1] ^ keys[0], high & mask,
            (low >> 32 & mask) ^ c[3] ^ keys[1], low & mask,
        ]  # fmt: skip
        keys = [(keys[0] + 0x9E3779B9) & mask, (keys[1] + 0xBB67AE85) & mask]
    word = torch.where(c[0] > mask >> 1, mask - c[0], c[0])
    return word.to(torch.int32).float() * 4.6566127342e-10
