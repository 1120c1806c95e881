"""No op has a gradient: whoever asks for one is told so, by name, in every mode; tensors that ops write to have a new version."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.autograd import forward_ad

from tests.ops.functional import has_out, results_of, written
from tests.ops.grid import OPS, cases

ops = torch.ops.kernelpack

REVERSE: dict[str, Callable[[Callable[[torch.Tensor], torch.Tensor], torch.Tensor], Any]] = {
    "backward": lambda f, x: f(x.requires_grad_()).sum().backward(),
    "autograd.grad": lambda f, x: torch.autograd.grad(f(x.requires_grad_()).sum(), x),
    "functional.vjp": lambda f, x: torch.autograd.functional.vjp(f, x, torch.ones_like(x)),
    "func.grad": lambda f, x: torch.func.grad(lambda t: f(t).sum())(x),
    "func.vjp": lambda f, x: torch.func.vjp(f, x)[1](torch.ones_like(x)),
    "func.jacrev": lambda f, x: torch.func.jacrev(f)(x),
    "vmap of grad": lambda f, x: torch.func.vmap(torch.func.grad(lambda t: f(t).sum()))(x),
    "checkpoint": lambda f, x: torch.utils.checkpoint.checkpoint(f, x.requires_grad_(), use_reentrant=False).sum().backward(),
    "compiled": lambda f, x: torch.compile(f, backend="aot_eager", fullgraph=True)(x.requires_grad_()),
    "scripted": lambda f, x: torch.jit.trace(f, x)(x.requires_grad_()).sum().backward(),
}


def dual(f: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> None:
    with forward_ad.dual_level():
        f(forward_ad.make_dual(x, torch.ones_like(x)))


FORWARD: dict[str, Callable[[Callable[[torch.Tensor], torch.Tensor], torch.Tensor], Any]] = {
    "dual numbers": dual,
    "func.jvp": lambda f, x: torch.func.jvp(f, (x,), (x,)),
    "func.jacfwd": lambda f, x: torch.func.jacfwd(f)(x),
    "func.hessian": lambda f, x: torch.func.hessian(lambda t: f(t).sum())(x),
}


@pytest.mark.parametrize("mode", REVERSE)
def test_a_gradient_is_refused_by_name(mode: str) -> None:
    with pytest.raises(
        Exception, match=r"kernelpack::softmax has no gradient(.|\n)*to fix: .*torch\.library\.register_autograd"
    ):
        REVERSE[mode](ops.softmax, torch.randn(3, 8))


@pytest.mark.parametrize("mode", FORWARD)
def test_a_forward_mode_gradient_is_refused_by_name(mode: str) -> None:
    with pytest.raises(NotImplementedError, match=r"kernelpack::softmax has no forward-mode gradient(.|\n)*to fix: "):
        FORWARD[mode](ops.softmax, torch.randn(3, 8))


@pytest.mark.parametrize("op", OPS)
def test_every_float_argument_of_every_op_asks(op: str) -> None:
    case = next(case for case in cases() if case.op == op)
    args, kwargs = case.arguments()
    for index, value in enumerate(args):
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            continue
        asking = [*args[:index], value.detach().requires_grad_(), *args[index + 1 :]]
        if index in written(op).values():
            with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
                getattr(ops, op)(*asking, **kwargs)
            continue
        asking = [value.detach() if place in written(op).values() else value for place, value in enumerate(asking)]
        result = getattr(ops, op)(*asking, **kwargs)
        if result is None:  # then what it wrote to asks
            result = asking[next(iter(written(op).values()))]
        elif isinstance(result, tuple):
            result = next(one for one in result if one.requires_grad)
        assert result.requires_grad
        with pytest.raises(RuntimeError, match=f"kernelpack::{op} has no gradient"):
            result.float().sum().backward()
        with torch.no_grad():
            given, _ = case.arguments()
            fresh = [*given[:index], asking[index], *given[index + 1 :]]
            results = results_of(getattr(ops, op)(*fresh, **kwargs))
            assert not any(one.requires_grad for one in (*results, *(fresh[place] for place in written(op).values())))
        if not has_out(op):
            continue
        out = torch.empty_like(result, requires_grad=False)
        with pytest.raises(RuntimeError, match=f"{op}.*out=.*requires grad"):
            getattr(ops, op).out(*asking, **kwargs, out=out)


def test_a_weight_that_is_a_parameter_asks_too() -> None:
    norm = ops.rms_norm(torch.randn(3, 8), torch.nn.Parameter(torch.ones(8)))
    with pytest.raises(RuntimeError, match="kernelpack::rms_norm has no gradient"):
        norm.sum().backward()


def test_calls_that_ask_for_nothing_give_what_they_gave() -> None:
    x = torch.randn(3, 8)
    assert not ops.softmax(x).requires_grad
    with torch.no_grad():
        assert not ops.softmax(x.clone().requires_grad_()).requires_grad
        torch.compile(ops.softmax, backend="aot_eager", fullgraph=True)(x.clone().requires_grad_())
    with torch.inference_mode():
        torch.testing.assert_close(ops.softmax(x), torch.softmax(x, -1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ops.softmax(x.clone().requires_grad_())


def test_results_are_not_written_where_torch_does_not_write_them() -> None:
    x = torch.randn(3, 8)
    with pytest.raises(RuntimeError, match=r"kernelpack::softmax.*out=.*requires grad"):
        ops.softmax.out(x, out=torch.empty(3, 8, requires_grad=True))
    with torch.no_grad():
        ops.softmax.out(x, out=torch.empty(3, 8, requires_grad=True))


def test_overwriting_what_a_backward_needs_is_noticed() -> None:
    x, scale = torch.randn(3, 8, requires_grad=True), torch.randn(3, 8)
    product = x * scale
    assert scale._version == 0
    ops.softmax.out(torch.randn(3, 8), out=scale)
    assert scale._version == 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


def test_a_gradient_of_the_users_replaces_the_refusal() -> None:
    def setup(ctx: Any, inputs: Any, output: torch.Tensor) -> None:
        ctx.save_for_backward(output)

    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        (y,) = ctx.saved_tensors
        return y * (gradient - (gradient * y).sum(-1, keepdim=True)), None

    x = torch.randn(3, 8, requires_grad=True)
    with torch.library._scoped_library("kernelpack", "FRAGMENT") as library:
        torch.library.register_autograd("kernelpack::softmax", backward, setup_context=setup, lib=library)
        weights = torch.randn(3, 8)
        (got,) = torch.autograd.grad((ops.softmax(x) * weights).sum(), x)
        (expected,) = torch.autograd.grad((torch.softmax(x, -1) * weights).sum(), x)
        torch.testing.assert_close(got, expected)
    with pytest.raises(RuntimeError, match="kernelpack::softmax has no gradient"):
        ops.softmax(x).sum().backward()
