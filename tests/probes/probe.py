"""One probe: a call of an op, drawn along every axis, and whether the op did what it must."""

from __future__ import annotations

import warnings

import torch

from tests.probes.calls import CALLS, Call
from tests.probes.draw import Draw, Watch, ignored
from tests.probes.faults import faulty
from tests.probes.kinds import KINDS
from tests.probes.modes import MODES
from tests.probes.outputs import OUTPUTS
from tests.probes.tensors import protect, reach

FOCUS = ["mode", "mode", "mode", "output", "output", "kind", "kind", "fault", "alias"]
"""What is unusual about a call besides its tensors' layout, memory and values: each time one thing."""

AXES = [
    "op", "dtype", "rank", "batches", "odd", "layout", "memory", "eps", "focus", "mode", "output", "kind", "fault", "context", "alias",
]  # fmt: skip
"""What is counted of the cases that ran."""

ALIASES = {
    "gelu": [],
    "softmax": [],
    "rms_norm": [],
    "layer_norm": [("weight", "bias")],
    "matmul": [("a", "b")],
    "mha": [("query", "key"), ("key", "value"), ("query", "value")],
    "rope": [("cos", "sin")],
    "scaled_matmul": [("scale_a", "scale_b")],
    "silu_mul": [("gate", "up")],
}
"""Arguments that may be one tensor, or lie in each other's memory."""


def aliased(draw: Draw, call: Call) -> Call:
    """Returns the call with one tensor for two arguments, or with one that begins a bit further on in the same memory."""
    pairs = [pair for pair in ALIASES[call.op] if all(name in call.tensors for name in pair)]
    if not pairs or call.edge:
        draw.note("alias", "none")
        return call
    first, second = draw.any(pairs)
    x, y = call.arguments[first], call.arguments[second]
    shift = draw.deal("alias", ["0", "1", "5"])
    if x.dtype != y.dtype:
        return call
    flat = torch.randn(max(reach(x), reach(y) + int(shift))).to(x.dtype)
    return call.given(**{first: flat.as_strided(x.shape, x.stride()), second: flat.as_strided(y.shape, y.stride(), int(shift))})


def probe(seed: int, index: int, watch: Watch = ignored) -> tuple[dict[str, str], str]:
    """Returns what was drawn for a case, and what is wrong with what the op did, or ""."""
    draw = Draw(seed, index, watch=watch)
    call = CALLS[draw.op](draw)
    draw.note("shapes", " ".join(f"{name}{tuple(x.shape)}{x.stride()}" for name, x in call.tensors.items()))
    draw.note("values", call.edge or "usual")
    for placed in call.memory:
        protect(placed)
    before = [placed.whole.clone() for placed in call.memory]
    focus = draw.focus(FOCUS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        problem = _judged(draw, call, focus)
    for placed, bytes_before in zip(call.memory, before, strict=True):
        if not torch.equal(placed.whole, bytes_before):
            problem = "the memory of an argument was written to"
    return draw.drawn, problem


def _judged(draw: Draw, call: Call, focus: str) -> str:
    if focus == "mode":
        return draw.deal_from("mode", MODES)(draw, call)
    if focus == "output":
        return draw.deal_from("output", OUTPUTS)(draw, call)
    if focus == "kind":
        return draw.deal_from("kind", KINDS)(draw, call, draw.any(list(call.tensors)))
    if focus == "fault":
        return faulty(draw, call)
    return MODES["plain"](draw, aliased(draw, call))
