"""Calling an op's host function in Python, over the JIT, gives what the built op gives."""

from __future__ import annotations

import pytest
import torch

from tests.ops.functional import functional, results_of
from tests.ops.grid import OPS, cases, module_of
from tests.ops.test_gradients import FORWARD, REVERSE


@pytest.mark.parametrize("op", OPS)
def test_development_run_agrees_with_the_built_op(op: str) -> None:
    own = [case for case in cases() if case.op == op]
    for case in (own[2], own[len(own) // 2], own[-1]):
        args, kwargs = case.arguments()
        built = functional(op)(*args, **kwargs)
        developed = functional(op, getattr(module_of(op), op))(*args, **kwargs)
        strides = [[one.stride() for one in results_of(results)] for results in (developed, built)]
        assert strides[0] == strides[1]
        torch.testing.assert_close(developed, built, equal_nan=True, msg=lambda text, case=case: f"{case}: {text}")


def test_development_run_refuses_as_the_built_op_does() -> None:
    x = torch.ones(3, 4, dtype=torch.float64)
    for op in (module_of("softmax").softmax, torch.ops.kernelpack.softmax):
        with pytest.raises(RuntimeError, match=r"softmax: x has dtype .*float64, .*float32, float16, bfloat16"):
            op(x)


def test_development_run_compares_dtypes_as_the_built_op_does() -> None:
    a, b, scale = torch.ones(4, 64, dtype=torch.int8), torch.ones(64, 4).to(torch.float8_e4m3fn), torch.ones(1)
    for op in (module_of("scaled_matmul").scaled_matmul, torch.ops.kernelpack.scaled_matmul):
        with pytest.raises(RuntimeError, match=r"scaled_matmul: b must be int8, as a is"):
            op(a, b.t().contiguous().t(), scale, scale)


def test_development_run_reads_negated_views_as_the_built_op_does() -> None:
    x = torch._neg_view(torch.randn(3, 4))
    for op in (module_of("softmax").softmax, torch.ops.kernelpack.softmax):
        torch.testing.assert_close(op(x), torch.softmax(x, -1))
    out = torch._neg_view(torch.empty(3, 4))
    for write in (module_of("softmax").softmax.out, torch.ops.kernelpack.softmax.out):
        with pytest.raises(RuntimeError, match=r"negated when it is read.*\n  to fix: call \.resolve_neg\(\)"):
            write(torch.ones(3, 4), out=out)


@pytest.mark.parametrize("mode", sorted(REVERSE.keys() - {"compiled", "scripted", "vmap of grad"}))
def test_development_run_refuses_a_gradient(mode: str) -> None:
    with pytest.raises(RuntimeError, match=r"softmax has no gradient(.|\n)*to fix: .*torch\.library\.register_autograd"):
        REVERSE[mode](module_of("softmax").softmax, torch.randn(3, 8))


@pytest.mark.parametrize("mode", sorted(FORWARD.keys() - {"func.hessian"}))  # of vmap, which only built ops have
def test_development_run_refuses_a_forward_mode_gradient(mode: str) -> None:
    with pytest.raises(NotImplementedError, match=r"softmax has no forward-mode gradient(.|\n)*to fix: "):
        FORWARD[mode](module_of("softmax").softmax, torch.randn(3, 8))


def test_development_run_of_out_refuses_a_leaf() -> None:
    with pytest.raises(RuntimeError, match="requires grad"):
        module_of("softmax").softmax.out(torch.randn(3, 8), out=torch.randn(3, 8, requires_grad=True))
