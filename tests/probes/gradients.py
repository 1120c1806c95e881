"""Calls that ask for a gradient: refused by name, in every mode and under every transformation; and calls beside such ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.autograd import forward_ad

from tests.probes.calls import Call, run
from tests.probes.draw import Draw
from tests.probes.judge import expect, same_bits, wrong
from tests.probes.rules import Refusal, refusals
from tests.probes.tensors import reach

Mode = Callable[[Draw, Call], str]
NO_GRADIENT = Refusal("has no (forward-mode )?gradient\n  to fix: ")


def asking(draw: Draw, call: Call) -> tuple[Call, str]:
    """Returns a call and the name of an argument that may ask for a gradient: torch refuses some that repeat elements."""
    name = draw.any([name for name, x in call.tensors.items() if x.is_floating_point()])
    x = call.arguments[name]
    return (call.given(**{name: x.contiguous()}) if reach(x) < x.numel() else call), name


def _requires_grad(draw: Draw, call: Call) -> str:
    call, name = asking(draw, call)
    given = call.given(**{name: call.arguments[name].detach().requires_grad_()})

    def right(got: Any) -> str:
        if not got.requires_grad:
            return "the result does not require grad"
        refused = [Refusal("has no gradient\n  to fix: .*register_autograd")]
        return wrong(call, got) or expect(call, lambda: got.float().sum().backward(), refused=refused)

    return expect(call, lambda: run(given), right=right)


def _no_grad_asking(draw: Draw, call: Call) -> str:
    call, name = asking(draw, call)

    def quiet() -> Any:
        with torch.no_grad():
            return run(call.given(**{name: call.arguments[name].detach().requires_grad_()}))

    return expect(call, quiet, right=lambda got: "the result requires grad" if got.requires_grad else wrong(call, got))


Function = Callable[[torch.Tensor], torch.Tensor]
Transform = Callable[[Function, torch.Tensor], Any]


def _differentiated(transform: Transform) -> Mode:
    def mode(draw: Draw, call: Call) -> str:
        call, name = asking(draw, call)
        x = call.arguments[name]
        stacked = call.given(**{name: x.contiguous()})  # as vmap's slices lie
        refused = [NO_GRADIENT, *refusals(call), *refusals(stacked)]
        return expect(call, lambda: transform(lambda t: run(call.given(**{name: t})), x), refused=refused)

    return mode


def _sum(f: Function) -> Function:
    return lambda x: f(x).float().sum()


def _dual(f: Function, x: torch.Tensor) -> None:
    with forward_ad.dual_level():
        f(forward_ad.make_dual(x, torch.ones_like(x)))


def _dual_in_no_grad(f: Function, x: torch.Tensor) -> None:
    with torch.no_grad():
        _dual(f, x)


def _jvp(f: Function, x: torch.Tensor) -> Any:
    return torch.func.jvp(f, (x,), (torch.ones_like(x),))


def _jvp_of_vmap(f: Function, x: torch.Tensor) -> Any:
    return _jvp(torch.func.vmap(f), torch.stack([x, x]))


def _vjp(f: Function, x: torch.Tensor) -> None:
    result, back = torch.func.vjp(f, x)
    back(torch.ones_like(result))


def _leaf(x: torch.Tensor) -> torch.Tensor:
    return x.detach().requires_grad_()


def _double(f: Function, x: torch.Tensor) -> None:
    leaf = _leaf(x)
    torch.autograd.grad(_sum(f)(leaf), leaf, create_graph=True)


def _checkpoint(f: Function, x: torch.Tensor) -> None:
    torch.utils.checkpoint.checkpoint(_sum(f), _leaf(x), use_reentrant=False).backward()


def _saved_elsewhere(f: Function, x: torch.Tensor) -> None:
    with torch.autograd.graph.save_on_cpu():
        _sum(f)(_leaf(x)).backward()


TRANSFORMS: Mapping[str, Transform] = {
    "grad": lambda f, x: torch.func.grad(_sum(f))(x),
    "vjp": _vjp,
    "jvp": _jvp,
    "dual": _dual,
    "dual in no_grad": _dual_in_no_grad,
    "vmap of grad": lambda f, x: torch.func.vmap(torch.func.grad(_sum(f)))(torch.stack([x, x])),
    "grad of vmap": lambda f, x: torch.func.grad(_sum(torch.func.vmap(f)))(torch.stack([x, x])),
    "vmap of jvp": lambda f, x: torch.func.vmap(lambda t: _jvp(f, t))(torch.stack([x, x])),
    "jvp of vmap": _jvp_of_vmap,
    "grad of grad": lambda f, x: torch.func.grad(_sum(torch.func.grad(_sum(f))))(x),
    "jvp of grad": lambda f, x: _jvp(torch.func.grad(_sum(f)), x),
    "linearize": lambda f, x: torch.func.linearize(f, x),
    "double backward": _double,
    "functional vjp": lambda f, x: torch.autograd.functional.vjp(_sum(f), x),
    "checkpoint, asking": _checkpoint,
    "saved elsewhere": _saved_elsewhere,
}


# -- calls beside others that are differentiated ---------------------------------------------------------------------------------


def _beside(draw: Draw, call: Call) -> str:
    """Within torch.func.grad, of tensors that are no variables: a call as any other, and the gradient of what is made of it."""
    seen: list[torch.Tensor] = []

    def function(weight: torch.Tensor) -> torch.Tensor:
        got = run(call)
        seen.append(torch._C._functorch.get_unwrapped(got))
        return (got.detach().double().nan_to_num(0.0, 0.0, 0.0) * weight).sum()

    def right(gradient: torch.Tensor) -> str:
        exact = seen[0].double().nan_to_num(0.0, 0.0, 0.0).sum()
        return wrong(call, seen[0]) or ("" if torch.allclose(gradient, exact) else f"the gradient is {gradient}, not {exact}")

    return expect(call, lambda: torch.func.grad(function)(torch.ones((), dtype=torch.float64)), right=right)


def _detached(draw: Draw, call: Call) -> str:
    """A variable that was detached asks for nothing."""
    call, name = asking(draw, call)
    x = call.arguments[name]
    seen: list[torch.Tensor] = []

    def function(t: torch.Tensor) -> torch.Tensor:
        seen.append(torch._C._functorch.get_unwrapped(run(call.given(**{name: t.detach()}))))
        return t.float().sum()

    def right(gradient: torch.Tensor) -> str:
        return wrong(call, seen[0]) or ("" if bool((gradient == 1).all()) else "the gradient is not 1")

    return expect(call, lambda: torch.func.grad(function)(x.contiguous() if reach(x) < x.numel() else x), right=right)


class _OwnGradient(torch.autograd.Function):
    """A user's gradient around an op."""

    @staticmethod
    def forward(ctx: Any, call: Call, name: str, x: torch.Tensor) -> Any:
        ctx.shape, ctx.dtype = x.shape, x.dtype
        return run(call.given(**{name: x}))

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return None, None, torch.full(ctx.shape, 2.0).to(ctx.dtype)


def _in_a_function(draw: Draw, call: Call) -> str:
    """An op within a torch.autograd.Function has the gradient of that function."""
    call, name = asking(draw, call)
    leaf = _leaf(call.arguments[name])

    def right(got: torch.Tensor) -> str:
        got.float().sum().backward()
        gradient = leaf.grad
        if gradient is None or not bool((gradient.float() == 2).all()):
            return f"the gradient is {gradient}, expected 2"
        return "" if same_bits(got.detach(), run(call)) else "the result differs"

    return expect(call, lambda: _OwnGradient.apply(call, name, leaf), right=right)


GRADIENTS: Mapping[str, Mode] = {
    "requires grad": _requires_grad,
    "no grad, asking": _no_grad_asking,
    **{name: _differentiated(transform) for name, transform in TRANSFORMS.items()},
    "beside a gradient": _beside,
    "detached": _detached,
    "in a function": _in_a_function,
}
"""Modes of calls by name."""
