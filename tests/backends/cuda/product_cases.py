"""Launches of matrix products and attention, each with what torch computes: every dtype, order, and shape of tile."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

import kernelpack.language as tl
from kernelpack.options import Options
from tests.backends.cuda import kernels
from tests.backends.cuda.launch import EPSILON, FLOATS, Case, Launch, fresh, name_of, random

LOG2_E = 1.4426950408889634
_LANGUAGE = {torch.float32: tl.float32, torch.float64: tl.float64, torch.float16: tl.float16, torch.int32: tl.int32}


@dataclass(frozen=True)
class Product:
    """A matrix product. `order` gives A's and B's storage: r for rows, c for columns."""

    dtype: torch.dtype = torch.bfloat16
    shape: tuple[int, int, int] = (100, 72, 80)
    block: tuple[int, int, int] = (64, 64, 32)
    order: str = "rr"
    precision: str = "ieee"
    num_warps: int = 4
    num_stages: int = 2
    acc: torch.dtype = torch.float32

    @property
    def name(self) -> str:
        sizes = ["x".join(map(str, sizes)) for sizes in (self.shape, self.block)]
        kind = (name_of(self.dtype), name_of(self.acc), *sizes, self.order, self.precision, self.num_warps, self.num_stages)
        return "-".join(map(str, ("matmul", *kind)))

    def launch(self) -> Launch:
        (m, n, k), (bm, bn, bk) = self.shape, self.block
        a = random(m, k, dtype=self.dtype) if self.order[0] == "r" else random(k, m, dtype=self.dtype).T
        b = random(k, n, dtype=self.dtype) if self.order[1] == "r" else random(n, k, dtype=self.dtype).T
        out = self.acc if self.dtype == torch.int8 else self.dtype
        c = fresh(m, n, dtype=out)
        arguments: dict[str, Any] = {"a": a, "b": b, "c": c, "M": m, "N": n, "K": k, "BM": bm, "BN": bn, "BK": bk}
        strides = ("sam", "sak", "sbk", "sbn", "scm", "scn")
        arguments |= dict(zip(strides, (*a.stride(), *b.stride(), *c.stride()), strict=True))
        arguments |= {"PRECISION": self.precision, "ACC": _LANGUAGE[self.acc]}
        tolerance = {torch.int8: 0.0, torch.float32: 1e-3 if self.precision == "tf32" else 3e-6}.get(self.dtype)
        return Launch(
            kernels.matmul, (-(-m // bm), -(-n // bn)), arguments, {"c": a.double() @ b.double()},
            EPSILON[self.dtype] if tolerance is None else tolerance,
            Options(num_warps=self.num_warps, num_stages=self.num_stages),
        )  # fmt: skip


def _products() -> Iterator[tuple[Product, bool]]:
    for dtype in (torch.bfloat16, torch.float16):
        for order in ("rr", "rc", "cr", "cc"):
            yield Product(dtype, order=order), True
    for order in ("rr", "rc", "cr", "cc"):
        yield Product(torch.float32, order=order, precision="tf32", shape=(64, 64, 64), block=(32, 32, 32)), True
        yield Product(torch.float32, order=order, shape=(64, 64, 64), block=(32, 32, 32)), True
        yield Product(torch.int8, order=order, acc=torch.int32, block=(32, 32, 64)), True
    yield Product(torch.float32, precision="tf32x3"), True
    yield Product(torch.float16, acc=torch.float16), True
    yield Product(torch.float64, acc=torch.float64, block=(32, 32, 16)), True
    for num_warps in (1, 2, 4, 8):
        yield Product(block=(64, 32, 64), num_warps=num_warps, num_stages=3), True
        yield Product(torch.float32, block=(32, 32, 16), num_warps=num_warps, num_stages=3), num_warps < 8
        yield Product(torch.float16, (300, 260, 200), (128, 128, 32), "rc", num_warps=num_warps), False
    for num_stages in (1, 2, 3, 4):
        yield Product(num_stages=num_stages, shape=(64, 64, 200)), True
        yield Product(torch.float32, (64, 64, 72), (32, 64, 16), precision="tf32", num_stages=num_stages), True
        yield Product(torch.bfloat16, (513, 257, 1000), (128, 64, 64), "cr", num_stages=num_stages, num_warps=8), False
    for block in ((16, 16, 16), (16, 128, 64), (128, 16, 16), (256, 64, 32), (64, 256, 32), (32, 8, 16)):
        yield Product(shape=(257, 300, 130), block=block, num_warps=4), False
        yield Product(torch.float16, shape=(40, 60, 70), block=block, order="rc", num_warps=2), block[0] * block[1] < 4096
    yield Product(shape=(1, 1, 1)), True
    yield from warpgroup_products()
    yield Product(torch.bfloat16, (1024, 1024, 1024), (128, 128, 64), num_warps=8, num_stages=3), False


def warpgroup_products() -> Iterator[tuple[Product, bool]]:
    """Tiles that wgmma computes where there is one: both majors, every swizzle, warpgroups along rows and columns."""
    f16, bf16, f32, i8 = torch.float16, torch.bfloat16, torch.float32, torch.int8
    for order in ("rr", "rc", "cr", "cc"):
        yield Product(bf16, (208, 272, 144), (128, 128, 64), order, num_stages=3), False
        yield Product(bf16, (72, 96, 80), (64, 64, 16), order), True
        yield Product(f16, (128, 80, 64), (64, 32, 32), order, num_stages=3), True
        yield Product(f16, (128, 80, 64), (64, 16, 64), order, num_stages=1), True
    for order in ("rr", "rc"):
        yield Product(bf16, (272, 528, 336), (128, 256, 64), order, num_warps=8, num_stages=3), False
        yield Product(bf16, (528, 144, 336), (256, 128, 64), order, num_warps=8, num_stages=4), False
        yield Product(bf16, (80, 272, 144), (64, 256, 64), order, num_warps=8, num_stages=3), False
        yield Product(f16, (272, 528, 144), (128, 256, 32), order, num_warps=16, num_stages=2), False
    for shape, block in (((72, 80, 64), (64, 64, 32)), ((136, 72, 256), (128, 64, 64))):
        yield Product(f32, shape, block, "rc", "tf32"), block[0] == 64
        yield Product(i8, shape, block, "rc", acc=torch.int32), block[0] == 64
    yield Product(f16, (128, 80, 64), (64, 32, 32), "rc", num_stages=3, acc=f16), True


def _gated() -> Launch:
    a, b, gate = (random(*shape, dtype=torch.bfloat16) for shape in ((64, 128), (128, 64), (128, 64)))
    arguments = {"a": a, "b": b, "gate": gate, "out": fresh(64, 64), "K": 128, "M": 64, "N": 64, "BK": 32}
    expected = (a.double() @ b.double()).relu() * (a.double() @ gate.double())
    return Launch(kernels.gated_product, (1,), arguments, {"out": expected}, 3e-6, Options(num_stages=3))


def _changing() -> Launch:
    a, b = random(64, 192, dtype=torch.float16), random(64, 64, dtype=torch.float16)
    expected = sum(a[:, 64 * step : 64 * step + 64].double() @ b.double() * 2**step for step in range(3))
    arguments = {"a": a, "b": b, "out": fresh(64, 64), "K": 192, "N": 64}
    return Launch(kernels.product_of_changing_tile, (1,), arguments, {"out": torch.as_tensor(expected)}, 3e-6)


def _small_integers(a_is_small: bool) -> Launch:
    a, b = random(64, 128, dtype=torch.bfloat16), random(128, 64, dtype=torch.bfloat16)
    small = torch.randint(-128, 128, (128, 64), dtype=torch.int8)
    a, b = (small.T.contiguous(), b) if a_is_small else (a, small)
    arguments = {"a": a, "b": b, "out": fresh(64, 64), "K": 128, "M": 64, "N": 64, "BK": 32, "A_IS_SMALL": a_is_small}
    return Launch(kernels.product_of_small_integers, (1,), arguments, {"out": a.double() @ b.double()}, 3e-6)


E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


def small_floats(a: torch.dtype, b: torch.dtype, order: str, limit: int | None, flip: bool = False) -> Launch:
    x, y = torch.randn(64, 256).to(a), torch.randn(64, 256).to(b)
    y = y.T if order == "c" else y.T.contiguous()
    arguments = {"a": x, "b": y, "out": fresh(64, 64), "K": 256, "sbk": y.stride(0), "sbn": y.stride(1), "M": 64, "N": 64}
    expected = (x.double() @ y.double()) * (-1 if flip else 1)
    return Launch(
        kernels.product_of_small_floats, (1,), arguments | {"BK": 128, "LIMIT": limit, "FLIP": flip}, {"out": expected}, 2e-3,
        Options(num_stages=2),
    )  # fmt: skip


WARPGROUP_IDIOMS: dict[str, Callable[[], Launch]] = {
    "gated-product": _gated,
    "product-of-changing-tile": _changing,
    "product-e4m3": functools.partial(small_floats, E4M3, E4M3, "c", None),
    "product-e5m2-e4m3-rows": functools.partial(small_floats, E5M2, E4M3, "r", None),
    "product-e4m3-e5m2-limited": functools.partial(small_floats, E4M3, E5M2, "c", 64, True),
    "product-of-small-a": functools.partial(_small_integers, True),
    "product-of-small-b": functools.partial(_small_integers, False),
}


def _batched(dtype: torch.dtype, batch: int, m: int, n: int, k: int, nested: bool = False) -> Launch:
    a, b = random(batch, m, k, dtype=dtype), random(batch, k, n, dtype=dtype)
    arguments = {"a": a, "b": b, "c": fresh(batch, m, n), "BATCH": batch, "M": m, "N": n, "K": k, "NESTED": nested}
    return Launch(kernels.batched_dot, (1,), arguments, {"c": a.double() @ b.double()}, 3e-6)


@dataclass(frozen=True)
class Attention:
    dtype: torch.dtype = torch.bfloat16
    heads: int = 2
    queries: int = 100
    keys: int = 90
    dim: int = 64
    block: tuple[int, int] = (64, 32)
    causal: bool = False
    mask: str | None = None
    num_warps: int = 4
    num_stages: int = 2

    @property
    def name(self) -> str:
        sizes = f"{self.heads}x{self.queries}x{self.keys}x{self.dim}-{self.block[0]}x{self.block[1]}"
        kind = ("causal" if self.causal else "full") + (f"-{self.mask}" if self.mask else "")
        return f"attention-{name_of(self.dtype)}-{sizes}-{kind}-{self.num_warps}-{self.num_stages}"

    def launch(self) -> Launch:
        q, k, v = (random(self.heads, n, self.dim, dtype=self.dtype) for n in (self.queries, self.keys, self.keys))
        out = fresh(self.heads, self.queries, self.dim, dtype=self.dtype)
        mask = None
        if self.mask == "float":
            mask = random(self.queries, self.keys)
            mask[3] = -float("inf")
            mask[:, ::7] = -float("inf")
        bm, bn = self.block
        padded = 1 << (self.dim - 1).bit_length()
        scale = self.dim**-0.5
        arguments = {
            "q": q, "k": k, "v": v, "out": out, "mask": mask, "M": self.queries, "N": self.keys, "D": self.dim,
            "scale": scale * LOG2_E, "smm": self.keys, "BM": bm, "BN": bn, "HEAD_DIM": padded, "CAUSAL": self.causal,
        }  # fmt: skip
        for name, tensor in (("q", q), ("k", k), ("o", out)):
            arguments |= {f"s{name}h": tensor.stride(0), f"s{name}{'n' if name == 'k' else 'm'}": tensor.stride(1)}
        scores = q.double() @ k.double().transpose(1, 2) * scale
        if self.causal:
            scores = scores.masked_fill(~torch.ones(self.queries, self.keys).tril().bool(), -float("inf"))
        if mask is not None:
            scores = scores + mask.double()
        expected = scores.softmax(-1).nan_to_num(0.0) @ v.double()
        tolerance = {torch.float32: 4e-6, torch.float16: 2e-3, torch.bfloat16: 1.5e-2}[self.dtype]
        return Launch(
            kernels.attention, (-(-self.queries // bm), self.heads), arguments, {"out": expected}, tolerance,
            Options(num_warps=self.num_warps, num_stages=self.num_stages),
        )  # fmt: skip


def _attentions() -> Iterator[tuple[Attention, bool]]:
    for dtype in FLOATS:
        for causal in (False, True):
            yield Attention(dtype, dim=32, causal=causal), True
            yield Attention(dtype, 3, 513, 700, 64, (64, 64), causal, num_warps=4), False
        yield Attention(dtype, dim=32, mask="float"), True
    yield Attention(dim=24, block=(16, 16)), True
    yield Attention(torch.float16, 1, 64, 64, 128, (64, 32), num_warps=8, num_stages=3), True
    for dim in (16, 80, 128, 192, 256):
        yield Attention(torch.bfloat16, 2, 300, 333, dim, (64, 32), True, num_stages=3), False
    for num_warps in (1, 2, 4, 8):
        yield Attention(torch.float16, 2, 256, 256, 64, (64, 64), True, num_warps=num_warps), False
    for causal in (False, True):
        yield Attention(torch.bfloat16, 1, 64, 100, 64, (64, 64), causal), True
        yield Attention(torch.float16, 1, 128, 200, 64, (128, 32), causal, num_warps=8, num_stages=3), True
        yield Attention(torch.bfloat16, 2, 600, 1030, 128, (128, 64), causal, num_warps=8, num_stages=3), False
        yield Attention(torch.float16, 2, 300, 520, 128, (128, 128), causal, num_warps=8), False
        yield Attention(torch.bfloat16, 2, 300, 520, 128, (128, 64), causal, num_stages=3), False
    for num_stages in (1, 2, 3, 4):
        yield Attention(torch.bfloat16, 2, 512, 1000, 128, (128, 64), num_warps=8, num_stages=num_stages), False


def product_cases() -> Iterator[Case]:
    """Yields every case of this file."""
    for product, small in _products():
        yield Case(product.name, product.launch, small)
    for dtype, sizes in ((torch.float16, (2, 16, 16, 32)), (torch.float32, (4, 16, 8, 16)), (torch.bfloat16, (8, 32, 16, 16))):
        yield Case(f"batched-{name_of(dtype)}", functools.partial(_batched, dtype, *sizes))
    yield Case("batched-twice", functools.partial(_batched, torch.float16, 4, 16, 16, 16, True))
    for name, launch in WARPGROUP_IDIOMS.items():
        yield Case(name, launch)
    for attention, small in _attentions():
        yield Case(attention.name, attention.launch, small)
