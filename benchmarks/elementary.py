"""Elementary functions of float32 on CPUs, applied by a kernel to numbers in the L2 cache, beside torch's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import torch
from torch import Tensor

import kernelpack as kp
import kernelpack.language as tl
from benchmarks.measure import OURS, Case, Prepared
from benchmarks.report import main
from kernelpack.language.extra import libdevice

COUNT, BLOCK = 1 << 16, 1 << 12


@kp.jit
def apply(x, y, out, FUNCTION: tl.constexpr, TWO: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if TWO:
        tl.store(out + at, FUNCTION(tl.load(x + at), tl.load(y + at)))
    else:
        tl.store(out + at, FUNCTION(tl.load(x + at)))


def _above_one(x: Tensor) -> Tensor:
    return 1 + x.abs()


FUNCTIONS: dict[str, tuple[Any, Callable[..., Tensor], Callable[[Tensor], Tensor]]] = {
    "exp": (tl.exp, torch.exp, torch.abs),
    "log": (tl.log, torch.log, torch.abs),
    "tanh": (libdevice.tanh, torch.tanh, torch.clone),
    "erf": (tl.erf, torch.erf, torch.clone),
    "sin": (tl.sin, torch.sin, torch.clone),
    "cos": (tl.cos, torch.cos, torch.clone),
    "tan": (libdevice.tan, torch.tan, torch.clone),
    "asin": (libdevice.asin, torch.asin, torch.tanh),
    "acos": (libdevice.acos, torch.acos, torch.tanh),
    "atan": (libdevice.atan, torch.atan, torch.clone),
    "atan2": (libdevice.atan2, torch.atan2, torch.clone),
    "pow": (libdevice.pow, torch.pow, torch.abs),
    "expm1": (libdevice.expm1, torch.expm1, torch.clone),
    "log1p": (libdevice.log1p, torch.log1p, torch.abs),
    "log10": (libdevice.log10, torch.log10, torch.abs),
    "sinh": (libdevice.sinh, torch.sinh, torch.clone),
    "cosh": (libdevice.cosh, torch.cosh, torch.clone),
    "asinh": (libdevice.asinh, torch.asinh, torch.clone),
    "acosh": (libdevice.acosh, torch.acosh, _above_one),
    "atanh": (libdevice.atanh, torch.atanh, torch.tanh),
    "hypot": (libdevice.hypot, torch.hypot, torch.clone),
}
"""By name: the function of the language, that of torch, and what makes arguments of normally distributed numbers."""
_OF_TWO = ("atan2", "pow", "hypot")


def cases(device: str, quick: bool) -> Sequence[Case]:
    if device != "cpu":
        raise SystemExit("benchmarks.elementary is for CPUs; to fix: --device cpu")
    names, threads = (["sin", "pow"], (1,)) if quick else (list(FUNCTIONS), (1, 2))
    return [
        Case(f"{name} {count}t", "G numbers/s", COUNT / 1e9, "cpu", ("torch",), "", count, {"name": name})
        for count, name in product(threads, names)
    ]


def prepare(case: Case) -> Prepared:
    name = case.arguments["name"]
    ours, theirs, argument = FUNCTIONS[name]
    two = name in _OF_TWO
    x, y = argument(torch.randn(COUNT)), torch.randn(COUNT)
    out = torch.empty(COUNT)

    def run(x: Tensor, y: Tensor) -> Tensor:
        apply[(COUNT // BLOCK,)](x, y, out, FUNCTION=ours, TWO=two, BLOCK=BLOCK)
        return out

    def stock(x: Tensor, y: Tensor) -> Tensor:
        return theirs(x, y, out=out) if two else theirs(x, out=out)

    return Prepared(lambda: (x, y), {OURS: run, "torch": stock})


if __name__ == "__main__":
    main("benchmarks.elementary")
