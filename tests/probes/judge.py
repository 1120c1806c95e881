"""What a call must do: give what torch gives, or be refused with a stated error. Never either of both."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import torch

from tests.ops import extremes
from tests.ops.grid import Case, module_of, problem
from tests.probes.calls import Call
from tests.probes.rules import Refusal, refusals


def expect(
    call: Call,
    run: Callable[[], Any],
    *,
    refused: Sequence[Refusal] | None = None,
    named: bool = True,
    right: Callable[[Any], str] | None = None,
) -> str:
    """Runs a call; returns what is wrong, or "". `refused` are the errors of which it must raise one; not given, they follow from
    how the tensors lie. Without any, `right` judges what `run` returns: is it what torch gives? `named`: errors name the op."""
    refused = refusals(call) if refused is None else refused
    try:
        got = run()
    except Exception as error:
        return unexpected(call, error, refused, named)
    if refused:
        return f"was not refused: expected {' or '.join(refusal.said for refusal in refused)}"
    return wrong(call, got) if right is None else right(got)


def unexpected(call: Call, error: Exception, refused: Sequence[Refusal], named: bool = True) -> str:
    """Returns what is wrong with an error, or ""."""
    text = str(error)
    said = f"{type(error).__name__}: {text[:600]}"
    if not refused:
        return f"raised {said}"
    if "INTERNAL ASSERT" in text:
        return f"was refused by {said}"
    if not any(isinstance(error, refusal.types) and re.search(refusal.said, text, re.DOTALL) for refusal in refused):
        return f"was refused by {said}, expected {' or '.join(refusal.said for refusal in refused)}"
    if named and not re.search(rf"kernelpack(::|\.){call.op}", text):
        return f"was refused without its name: {said}"
    return ""


def wrong(call: Call, got: Any) -> str:
    """Returns what is wrong with a call's result, or ""."""
    if not isinstance(got, torch.Tensor):
        return f"gave {type(got).__name__}, expected a tensor"
    with torch.no_grad():
        memory = {x.untyped_storage().data_ptr() for x in call.tensors.values() if x.numel()}
        if got.numel() and got.untyped_storage().data_ptr() in memory:
            return "the result lies in the memory of an argument"
        return wrong_values(call, got.detach()) or wrong_strides(call, got)


def wrong_values(call: Call, got: torch.Tensor) -> str:
    """Compares with torch in float64, as the accuracy grid does."""
    overflows = extremes.may_overflow(call.op, call.dtype, call.edge)
    case = Case(call.op, call.edge, call.dtype, lambda: ((), {}), edge=bool(call.edge) and got.numel() > 0, overflows=overflows)
    args, kwargs = call.for_reference(plain_copy)
    return problem(case, args, kwargs, got.as_subclass(torch.Tensor), strict=False)


def plain_copy(x: torch.Tensor) -> torch.Tensor:
    """Returns the same elements in contiguous memory of their own."""
    x = x.detach().as_subclass(torch.Tensor).resolve_neg()
    return torch.empty(x.shape, dtype=x.dtype).copy_(x)


def wrong_strides(call: Call, got: torch.Tensor) -> str:
    """Results are contiguous; that of mha lies as its query does, dense."""
    if call.op != "mha":
        return "" if got.is_contiguous() else f"the result has strides {got.stride()}"
    query = call.arguments["query"]
    lead = range(got.dim() - 1)
    order = sorted(lead, key=lambda axis: got.stride(axis), reverse=True)
    if got.numel() and not got.permute(*order, got.dim() - 1).is_contiguous():
        return f"the result has strides {got.stride()}, which are not dense"
    apart = [axis for axis in lead if query.shape[axis] > 1 and query.stride(axis) > 0]
    for a in apart:
        for b in apart:
            if got.numel() and query.stride(a) > query.stride(b) and got.stride(a) < got.stride(b):
                return f"the result has strides {got.stride()}, the query {query.stride()}"
    return ""


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors of one dtype have the same elements, bit for bit."""
    return a.shape == b.shape and a.dtype == b.dtype and bool((bits(a) == bits(b)).all())


def bits(x: torch.Tensor) -> torch.Tensor:
    copy = torch.empty(x.shape, dtype=x.dtype).copy_(x.detach())
    return copy.flatten().view(torch.uint8) if copy.numel() else torch.empty(0)


def result_of(call: Call) -> tuple[tuple[int, ...], torch.dtype]:
    """Returns the shape and dtype of a call's result, as torch has them."""
    with torch.no_grad():
        result = call.reference(lambda x: plain_copy(x).double() if x.dtype != torch.bool else plain_copy(x))
    name = module_of(call.op).RANGES.get("result", (None,))[0]
    return tuple(result.shape), call.dtype if name is None else getattr(torch, name)
