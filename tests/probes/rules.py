"""What ops refuse by how tensors lie in memory: the rules of the documentation, stated once more, apart from the ops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from tests.probes.calls import Call


@dataclass(frozen=True)
class Refusal:
    """What a refusal says, as a regular expression. `by_value`: fake kernels, which know no strides by value, let the call pass."""

    said: str
    by_value: bool = False
    types: tuple[type[Exception], ...] = (RuntimeError, TypeError, ValueError)


def refusals(call: Call) -> list[Refusal]:
    """Returns why a call must be refused, any of which its error may say. None: it must give what torch gives."""
    x = call.tensors
    found: list[Refusal] = []
    match call.op:
        case "softmax" | "rms_norm" | "layer_norm":
            found += _rows(["x"], x)
            found += _vectors(x)
        case "gelu":
            if not x["x"].is_contiguous():
                found += [replace(refusal, by_value=True) for refusal in _rows(["x"], x)]
        case "silu_mul":
            if not (x["gate"].is_contiguous() and x["up"].is_contiguous()):
                found += [replace(refusal, by_value=True) for refusal in _rows(["gate", "up"], x)]
        case "rope":
            found += [refusal for name in ("x", "cos", "sin") for refusal in _last(name, x[name])]
        case "mha":
            found += [refusal for name in ("query", "key", "value") for refusal in _last(name, x[name])]
        case "matmul":
            found += _matmul(x)
        case "scaled_matmul":
            found += _scaled(x)
    return found


def _last(name: str, x: torch.Tensor) -> list[Refusal]:
    if x.dim() == 0:
        return [Refusal(f"{name} has no dimensions")]
    apart = x.stride(-1) != 1 and x.shape[-1] > 1
    return [Refusal(rf"last dimension of {name} must be contiguous, its stride is \S+\n  to fix: ")] if apart else []


def _vectors(x: dict[str, torch.Tensor]) -> list[Refusal]:
    return [
        Refusal(rf"{name} must be contiguous, its stride is \S+\n  to fix: ")
        for name, vector in x.items()
        if name in ("weight", "bias") and vector.stride(0) != 1 and vector.shape[0] > 1
    ]


def _rows(names: list[str], x: dict[str, torch.Tensor]) -> list[Refusal]:
    found = [refusal for name in names for refusal in _last(name, x[name])]
    if not found and strides_needed(x[names[0]].shape[:-1], [x[name].stride() for name in names]) > 3:
        found.append(Refusal(r"the rows of .* need more than 3 strides.*\n  to fix: ", by_value=True))
    return found


def merged(shape: Sequence[int], strides: Sequence[Sequence[int]]) -> list[tuple[int, list[int]]]:
    """Returns sizes and strides, innermost first, where dimensions merge that all tensors walk in one step."""
    places: list[tuple[int, list[int]]] = []
    for axis in reversed(range(len(shape))):
        steps = [own[axis] for own in strides]
        if shape[axis] == 0:
            return [(0, [0] * len(strides))]
        if shape[axis] == 1:
            continue
        if places and all(step == places[-1][0] * inner for step, inner in zip(steps, places[-1][1], strict=True)):
            places[-1] = (places[-1][0] * shape[axis], places[-1][1])
        else:
            places.append((shape[axis], steps))
    return places


def strides_needed(shape: Sequence[int], strides: Sequence[Sequence[int]]) -> int:
    if 0 in shape:
        return 1
    return len(merged(shape, strides))


def _matmul(x: dict[str, torch.Tensor]) -> list[Refusal]:
    a, b = x["a"], x["b"]
    found = []
    if a.stride(-1) != 1 and a.shape[-1] > 1:
        found.append(Refusal(r"last dimension of a must be contiguous, its stride is \S+\n  to fix: "))
    if b.stride(-1) != 1 and b.stride(-2) != 1 and b.shape[-1] > 1 and b.shape[-2] > 1:
        found.append(Refusal(r"one of the last two dimensions of b must be contiguous.*\n  to fix: "))
    found += _vectors(x)
    lead = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    steps = []
    for tensor in (a, b):
        own = [0 if extent == 1 else step for extent, step in zip(tensor.shape[:-2], tensor.stride(), strict=False)]
        steps.append([0] * (len(lead) - len(own)) + own)
    if strides_needed(lead, steps) > 2:
        found.append(Refusal(r"the batches of .* need more than 2 strides.*\n  to fix: ", by_value=True))
    return found


def _scaled(x: dict[str, torch.Tensor]) -> list[Refusal]:
    a, b = x["a"], x["b"]
    found = []
    if a.stride(1) != 1 and a.shape[1] > 1:
        found.append(Refusal(r"last dimension of a must be contiguous, its stride is \S+\n  to fix: "))
    if b.stride(0) != 1 and b.shape[0] > 1:
        found.append(Refusal(r"first dimension of b must be contiguous, its stride is \S+\n  to fix: "))
    for name in ("scale_a", "scale_b", "bias"):
        if name in x and (name == "bias" or x[name].numel() != 1) and not x[name].is_contiguous():
            found.append(Refusal(rf"{name} has shape .*, expected .*contiguous.*\n  to fix: "))
    return found
