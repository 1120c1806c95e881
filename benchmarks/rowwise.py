"""Memory-bound ops over rows: softmax, rms_norm, layer_norm, silu_mul, gelu and rope beside torch's, allocating and with out=."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.measure import DTYPES, OURS, Case, Prepared
from benchmarks.report import main

aten = torch.ops.aten

_HEAD = 128


@functools.cache
def _angles(positions: int, device: str) -> tuple[Tensor, Tensor]:
    """Returns cos and sin [positions, 64], as rotary embeddings have them."""
    turns = torch.outer(torch.arange(positions, device=device), 10000.0 ** -torch.linspace(0, 1, _HEAD // 2, device=device))
    return turns.cos(), turns.sin()


@dataclass(frozen=True)
class _Op:
    """What torch calls to compute it from x, another x (or None) and weight; and the same into a result that exists.

    torch's norms have no form of their own that fills a result (native_layer_norm.out allocates and copies): the best that
    its users can do is to allocate.
    """

    ours: Callable[..., Tensor]
    ours_out: Callable[..., Any]
    stock: Callable[..., Tensor]
    stock_out: Callable[..., Any]
    reads: int = 1


def _ops() -> dict[str, _Op]:
    own = torch.ops.kernelpack

    def silu_mul_out(x: Tensor, y: Tensor, w: Tensor, out: Tensor) -> None:
        torch.mul(aten.silu.out(x, out=out), y, out=out)

    def turned(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the rows as positions of heads of 128, [1, heads, positions, 128] in strides, and the angles' cos and sin."""
        return x.unflatten(-1, (-1, _HEAD)).transpose(0, 1)[None], *_angles(x.shape[0], str(x.device))

    def rope(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
        heads, cos, sin = turned(x)
        left, right = heads.chunk(2, -1)
        return torch.cat((left * cos - right * sin, right * cos + left * sin), -1).to(x.dtype)

    def rope_out(x: Tensor, y: Tensor, w: Tensor, out: Tensor) -> None:
        out.view(1, -1, x.shape[0], _HEAD).copy_(rope(x, y, w))

    return {
        "rope": _Op(
            lambda x, y, w: own.rope(*turned(x)),
            lambda x, y, w, out: own.rope.out(*turned(x), out=out.view(1, -1, x.shape[0], _HEAD)),
            rope,
            rope_out,
        ),
        "softmax": _Op(
            lambda x, y, w: own.softmax(x),
            lambda x, y, w, out: own.softmax.out(x, out=out),
            lambda x, y, w: torch.softmax(x, -1),
            lambda x, y, w, out: torch.softmax(x, -1, out=out),
        ),
        "rms_norm": _Op(
            lambda x, y, w: own.rms_norm(x, w, eps=1e-6),
            lambda x, y, w, out: own.rms_norm.out(x, w, eps=1e-6, out=out),
            lambda x, y, w: F.rms_norm(x, w.shape, w, 1e-6),
            lambda x, y, w, out: F.rms_norm(x, w.shape, w, 1e-6),
        ),
        "layer_norm": _Op(
            lambda x, y, w: own.layer_norm(x, w, w),
            lambda x, y, w, out: own.layer_norm.out(x, w, w, out=out),
            lambda x, y, w: F.layer_norm(x, w.shape, w, w),
            lambda x, y, w, out: F.layer_norm(x, w.shape, w, w),
        ),
        "silu_mul": _Op(
            lambda x, y, w: own.silu_mul(x, y),
            lambda x, y, w, out: own.silu_mul.out(x, y, out=out),
            lambda x, y, w: F.silu(x) * y,
            silu_mul_out,
            reads=2,
        ),
        "gelu": _Op(
            lambda x, y, w: own.gelu(x),
            lambda x, y, w, out: own.gelu.out(x, out=out),
            lambda x, y, w: F.gelu(x),
            lambda x, y, w, out: aten.gelu.out(x, out=out),
        ),
    }


def cases(device: str, quick: bool) -> Sequence[Case]:
    if quick:
        return list(_cases(device, ["fp32"], [(64, 256)], [1]))
    if device == "cpu":  # short rows; in the L2 cache, about the last-level cache, and beyond every cache
        shapes = [(4096, 16), (1024, 77), (4096, 200), (128, 768), (2048, 1024), (1024, 16384)]
        return list(_cases(device, ["fp32", "bf16"], shapes, [1, 2]))
    return list(_cases(device, ["fp32", "bf16"], [(16384, 1024), (8192, 4096), (4096, 32768)], [1]))


def _cases(device: str, dtypes: list[str], shapes: list[tuple[int, int]], threads: list[int]) -> Iterator[Case]:
    for (name, op), dtype, shape, result, count in product(_ops().items(), dtypes, shapes, ("allocating", "out="), threads):
        if name == "rope" and shape[1] % _HEAD:
            continue
        text = f"{name} {dtype} {shape[0]}x{shape[1]} {result}" + (f" {count}t" if device == "cpu" else "")
        moved = (op.reads + 1) * shape[0] * shape[1] * DTYPES[dtype].itemsize
        if name == "rope":
            moved += 2 * shape[0] * (_HEAD // 2) * 4  # cos and sin
        peers = ("stock torch",) if device == "cpu" else ("stock torch", "copy bandwidth")
        arguments = {"shape": shape, "dtype": dtype, "out": result == "out="}
        yield Case(text, "GB/s", moved / 1e9, device, peers, name, count, arguments)


def prepare(case: Case) -> Prepared:
    op, shape, dtype = _ops()[case.op], case.arguments["shape"], DTYPES[case.arguments["dtype"]]

    def random(*extents: int) -> Tensor:
        return torch.randn(extents, device=case.device, dtype=dtype)

    def inputs() -> tuple[Tensor, ...]:
        x, weight = random(*shape), random(shape[1])
        copied = (
            round(case.work * 1e9) // (2 * x.element_size()) if "copy bandwidth" in case.peers else 0
        )  # that moves as many bytes
        return x, (random(*shape) if op.reads == 2 else x), weight, torch.empty_like(x), random(copied), random(copied)

    def into_result(call: Callable[..., Any]) -> Callable[..., Tensor]:
        def run(x: Tensor, y: Tensor, weight: Tensor, out: Tensor, *copied: Tensor) -> Tensor:
            made = call(x, y, weight, out)
            return made if isinstance(made, Tensor) else out

        return run

    def allocating(call: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return lambda x, y, weight, *rest: call(x, y, weight)

    def copy(*inputs: Tensor) -> None:
        *_, source, target = inputs
        target.copy_(source)

    if case.arguments["out"]:
        ours, stock = into_result(op.ours_out), into_result(op.stock_out)
    else:
        ours, stock = allocating(op.ours), allocating(op.stock)
    return Prepared(inputs, {OURS: ours, "stock torch": stock, "copy bandwidth": copy})


if __name__ == "__main__":
    main("benchmarks.rowwise")
