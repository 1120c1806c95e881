"""Elementary functions of float32 on CPUs, applied by a kernel to numbers in the L2 cache, beside torch's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import torch
from torch import Tensor

import kernelpack as kp
import kernelpack.language as tl
from benchmarks.math_accuracy import FUNCTIONS
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


ARGUMENTS: dict[str, Callable[[Tensor], Tensor]] = {
    **dict.fromkeys(("exp", "log", "pow", "log1p", "log10"), torch.abs),
    **dict.fromkeys(
        ("tanh", "erf", "sin", "cos", "tan", "atan", "atan2", "expm1", "sinh", "cosh", "asinh", "hypot"), torch.clone
    ),
    **dict.fromkeys(("asin", "acos", "atanh"), torch.tanh),
    "acosh": _above_one,
}
"""By the name of a function: what makes its first argument of normally distributed numbers."""
_OF_TWO: dict[str, tuple[Any, Callable[..., Tensor]]] = {
    "atan2": (libdevice.atan2, torch.atan2),
    "pow": (libdevice.pow, torch.pow),
    "hypot": (libdevice.hypot, torch.hypot),
}


def cases(device: str, quick: bool) -> Sequence[Case]:
    if device != "cpu":
        raise SystemExit("benchmarks.elementary is for CPUs; to fix: --device cpu")
    names, threads = (["sin", "pow"], (1,)) if quick else (list(ARGUMENTS), (1, 2))
    return [
        Case(f"{name} {count}t", "G numbers/s", COUNT / 1e9, "cpu", ("torch",), "", count, {"name": name})
        for count, name in product(threads, names)
    ]


def prepare(case: Case) -> Prepared:
    name = case.arguments["name"]
    two = name in _OF_TWO
    ours, theirs = _OF_TWO[name] if two else FUNCTIONS[name]
    x, y = ARGUMENTS[name](torch.randn(COUNT)), torch.randn(COUNT)
    out = torch.empty(COUNT)

    def run(x: Tensor, y: Tensor) -> Tensor:
        apply[(COUNT // BLOCK,)](x, y, out, FUNCTION=ours, TWO=two, BLOCK=BLOCK)
        return out

    def stock(x: Tensor, y: Tensor) -> Tensor:
        return theirs(x, y, out=out) if two else theirs(x, out=out)

    return Prepared(lambda: (x, y), {OURS: run, "torch": stock})


if __name__ == "__main__":
    main("benchmarks.elementary")
