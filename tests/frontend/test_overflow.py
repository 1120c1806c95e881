"""Integers that overflow in kernels compiled for debugging."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.errors import EmulationError, RunTimeAssertionFailure
from kernelpack.runtime.interpreter import Interpreter
from kernelpack.simt import Emulator


@kp.jit
def combine(x, y, out, n, SYMBOL: tl.constexpr):
    at = tl.arange(0, 4)
    a, b = tl.load(x + at, mask=at < n), tl.load(y + at, mask=at < n)
    if SYMBOL == "+":
        result = a + b
    elif SYMBOL == "-":
        result = a - b
    else:
        result = a * b
    tl.store(out + at, result, mask=at < n)


@kp.jit
def negate(x, out):
    tl.store(out, -tl.load(x))


@kp.jit
def add(x, y, out, CHECKED: tl.constexpr):
    tl.store(out, tl.add(tl.load(x), tl.load(y), sanitize_overflow=CHECKED))


@kp.jit
def count(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.cumsum(tl.load(x + at), 0) + (tl.rand(7, at) * 4).to(tl.int32))


PYTHON: dict[str, Callable[[int, int], int]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.uint8, torch.uint16, torch.uint32])
@pytest.mark.parametrize("symbol", PYTHON)
def test_an_operation_stops_exactly_where_its_result_does_not_fit(dtype: torch.dtype, symbol: str) -> None:
    least, most = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    ends = [least, least + 1, -1 if least < 0 else 3, 0, 1, 2, most // 2, most - 1, most]
    for a in ends:
        for b in ends:
            x, y = (torch.tensor([value], dtype=torch.int64).to(dtype) for value in (a, b))
            out = torch.zeros(1, dtype=dtype)
            exact = PYTHON[symbol](a, b)
            if least <= exact <= most:
                combine[(1,)](x, y, out, 1, symbol, debug=True)
                assert out.item() == exact
            else:
                with pytest.raises(RunTimeAssertionFailure, match=rf"test_overflow.py:\d+: .*\{symbol} overflows u?int\d"):
                    combine[(1,)](x, y, out, 1, symbol, debug=True)


def test_every_backend_stops() -> None:
    x = torch.full((4,), 2**30, dtype=torch.int32)
    out = torch.zeros_like(x)
    with Interpreter(), pytest.raises(RunTimeAssertionFailure, match="overflows int32"):
        combine[(1,)](x, x, out, 4, "+", debug=True)
    with Emulator("cuda:sm_80"), pytest.raises(EmulationError, match="overflows int32"):
        combine[(1,)](x, x, out, 4, "+", debug=True)
    with Emulator("cuda:sm_80"):
        combine[(1,)](x, -x, out, 4, "+", debug=True)
    assert not out.any()


def test_negation_is_a_difference() -> None:
    out = torch.zeros(1, dtype=torch.int16)
    negate[(1,)](torch.tensor([-(2**15) + 1], dtype=torch.int16), out, debug=True)
    assert out.item() == 2**15 - 1
    with pytest.raises(RunTimeAssertionFailure, match="- overflows int16"):
        negate[(1,)](torch.tensor([-(2**15)], dtype=torch.int16), out, debug=True)


@pytest.mark.parametrize("options", [{}, {"debug": False}, {"debug": True, "sanitize_overflow": False}])
def test_integers_wrap_around_unless_asked_for(options: dict[str, Any]) -> None:
    x = torch.full((4,), 2**31 - 1, dtype=torch.int32)
    out = torch.zeros_like(x)
    combine[(1,)](x, torch.ones_like(x), out, 4, "+", **options)
    assert (out == -(2**31)).all()


def test_one_operation_may_wrap_around() -> None:
    x, one, out = (torch.tensor([value], dtype=torch.int32) for value in (2**31 - 1, 1, 0))
    add[(1,)](x, one, out, False, debug=True)
    assert out.item() == -(2**31)
    with pytest.raises(RunTimeAssertionFailure, match=r"\+ overflows int32"):
        add[(1,)](x, one, out, True, debug=True)


def test_integers_of_64_bits_are_not_checked() -> None:
    x = torch.full((4,), 2**63 - 1, dtype=torch.int64)
    out = torch.zeros_like(x)
    combine[(1,)](x, torch.ones_like(x), out, 4, "+", debug=True)
    assert (out == -(2**63)).all()


def test_the_languages_own_functions_may_count_modulo_a_power_of_two() -> None:
    x, out = torch.ones(64, dtype=torch.int32), torch.zeros(64, dtype=torch.int32)
    count[(1,)](x, out, BLOCK=64, debug=True)
    plain = torch.zeros_like(out)
    count[(1,)](x, plain, BLOCK=64)
    assert torch.equal(out, plain)
