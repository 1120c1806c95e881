"""The language's own functions at the edge of what float32 holds: interpreter, CPU and emulated CUDA code agree with torch in float64."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.runtime.interpreter import Interpreter
from kernelpack.simt import Emulator
from tests.ops.extremes import ROWS

COLUMNS = 64
WHERE: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "cpu": contextlib.nullcontext,
    "interpreter": Interpreter,
    "cuda": lambda: Emulator("cuda:sm_90a"),
}
FUNCTIONS: dict[str, tuple[Any, Callable[[torch.Tensor], torch.Tensor]]] = {
    "softmax": (tl.softmax, lambda x: torch.softmax(x, 0)),
    "sigmoid": (tl.sigmoid, torch.sigmoid),
    "tanh": (tl.math.tanh, torch.tanh),
    "exp": (tl.exp, torch.exp),
    "exp2": (tl.exp2, torch.exp2),
    "erf": (tl.erf, torch.erf),
}


@kp.jit
def apply(x, out, FUNCTION: tl.constexpr, COLUMNS: tl.constexpr):
    at = tl.arange(0, COLUMNS)
    tl.store(out + at, FUNCTION(tl.load(x + at)))


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_extremes(name: str, where: str) -> None:
    function, reference = FUNCTIONS[name]
    for row, make in ROWS.items():
        x = make(COLUMNS, torch.finfo(torch.float32)).float()
        out = torch.full_like(x, 7.0)
        with WHERE[where]():
            apply[(1,)](x, out, function, COLUMNS)
        expected = reference(x.double()).float()
        # results below the normal range are zero in CUDA code
        torch.testing.assert_close(
            out, expected, rtol=3e-6, atol=1.2e-38, equal_nan=True, msg=lambda text, row=row: f"{row}: {text}"
        )
