"""Memory-bound ops over rows: softmax, rms_norm, layer_norm, silu_mul and gelu beside torch's, allocating and with out=."""

from __future__ import annotations

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

    return {
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
    if device == "cpu":  # in the L2 cache, about the last-level cache, and beyond every cache
        return list(_cases(device, ["fp32", "bf16"], [(128, 768), (2048, 1024), (1024, 16384)], [1, 2]))
    return list(_cases(device, ["fp32", "bf16"], [(16384, 1024), (8192, 4096), (4096, 32768)], [1]))


def _cases(device: str, dtypes: list[str], shapes: list[tuple[int, int]], threads: list[int]) -> Iterator[Case]:
    for (name, op), dtype, shape, result, count in product(_ops().items(), dtypes, shapes, ("allocating", "out="), threads):
        text = f"{name} {dtype} {shape[0]}x{shape[1]} {result}" + (f" {count}t" if device == "cpu" else "")
        moved = (op.reads + 1) * shape[0] * shape[1] * DTYPES[dtype].itemsize
        peers = ("stock torch",) if device == "cpu" else ("stock torch", "copy bandwidth")
        arguments = {"shape": shape, "dtype": dtype, "out": result == "out="}
        yield Case(text, "GB/s", moved / 1e9, device, peers, name, count, arguments)


def prepare(case: Case) -> Prepared:
    op, shape, dtype = _ops()[case.op], case.arguments["shape"], DTYPES[case.arguments["dtype"]]

    def random(*extents: int) -> Tensor:
        return torch.randn(extents, device=case.device, dtype=dtype)

    def inputs() -> tuple[Tensor, ...]:
        x, weight = random(*shape), random(shape[1])
        copied = (op.reads + 1) * x.numel() // 2 if "copy bandwidth" in case.peers else 0  # a copy that moves as many bytes
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
