"""Calls that must be refused: for each fault the error that says so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy
import torch

from tests.probes.calls import Call, packet
from tests.probes.draw import Draw
from tests.probes.judge import expect
from tests.probes.rules import Refusal, refusals

Fault = Callable[[Draw, Call], "tuple[Call, str]"]
"""Returns a call and what its error says."""

_OTHERS = [
    torch.float64, torch.int64, torch.int32, torch.uint8, torch.int8, torch.complex64, torch.float8_e4m3fnuz, torch.uint16,
    torch.float8_e8m0fnu, torch.float4_e2m1fn_x2,
]  # fmt: skip


def _laid_as(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A tensor of another dtype with the same strides."""
    return torch.empty_strided(x.shape, x.stride(), dtype=dtype)


def _dtype(draw: Draw, call: Call) -> tuple[Call, str]:
    name = draw.any(list(call.tensors))
    return call.given(**{name: _laid_as(call.arguments[name], draw.any(_OTHERS))}), _has_dtype(call)


def _mixed(draw: Draw, call: Call) -> tuple[Call, str]:
    """One tensor has another dtype of floats than the rest."""
    if len(call.tensors) == 1:
        return _dtype(draw, call)
    names = {"rope": ["cos", "sin"]}.get(call.op, list(call.tensors))
    name = draw.any(names)
    x = call.arguments[name]
    if call.op == "rope":
        others = [d for d in (torch.float16, torch.bfloat16) if d != call.dtype]
    else:
        taken = {x.dtype, call.dtype, torch.bool} | ({torch.float8_e5m2} if name == "a" else set())
        others = [d for d in (torch.float32, torch.float16, torch.bfloat16, torch.float8_e5m2) if d not in taken]
    return call.given(**{name: _laid_as(x, draw.any(others))}), _has_dtype(call)


def _has_dtype(call: Call) -> str:
    return rf"({'|'.join(call.tensors)}) has dtype (torch\.)?\w+, (\w+ has|built are|expected).*\n  to fix: "


def _required(call: Call) -> list[str]:
    return [argument.name for argument in call.names() if str(argument.type) == "Tensor"]


def _none(draw: Draw, call: Call) -> tuple[Call, str]:
    name = draw.any(_required(call))
    return call.given(**{name: None}), rf"{name} is None.*to fix: pass a tensor|no tensor arguments to this function"


def _no_tensor(draw: Draw, call: Call) -> tuple[Call, str]:
    name = draw.any(list(call.tensors))
    value = draw.any([3, 2.5, "text", [1.0, 2.0], numpy.ones(3), object(), True, (1, 2), {}])
    return call.given(**{name: value}), rf"Expected a value of type '(Optional\[)?Tensor\]?' for argument '{name}'"


def _freed(draw: Draw, call: Call) -> tuple[Call, str]:
    name = draw.any(list(call.tensors))
    x = call.arguments[name].clone()
    if x.numel() == 0:
        return _no_tensor(draw, call)
    x.untyped_storage().resize_(0)
    return call.given(**{name: x}), rf"{name} of shape .* has no memory.*to fix: "


def _elsewhere(draw: Draw, call: Call) -> tuple[Call, str]:
    if len(call.tensors) == 1:
        return _dtype(draw, call)
    name = draw.any(list(call.tensors))
    return call.given(**{name: call.arguments[name].to("meta")}), r"\w+ is on (cpu|meta).*\n  to fix: "


_SCALARS: dict[str, list[Any]] = {
    "int": [1.5, "a", 2**70, [1], None, 1j],
    "number": ["a", [1.0], 1j, (0.1,)],
    "bool": ["a", [True], {}],
}


def _scalar(draw: Draw, call: Call) -> tuple[Call, str]:
    """A number, a bool or an integer is something else."""
    kinds = {"int": "int", "float": "number", "bool": "bool", "Optional[float]": "number"}
    scalars = [(argument.name, kinds[str(argument.type)]) for argument in call.names() if str(argument.type) in kinds]
    if not scalars:
        return _no_tensor(draw, call)
    name, kind = draw.any(scalars)
    return call.given(**{name: draw.any(_SCALARS[kind])}), rf"for argument '{name}'|Unable to cast"


def _unknown(draw: Draw, call: Call) -> tuple[Call, str]:
    return call.given(
        **{draw.any(["weigth", "input", "axis", "self", "Out", ""]): 1}
    ), "Unknown keyword argument|expected at most"


def _missing(draw: Draw, call: Call) -> tuple[Call, str]:
    name = draw.any(_required(call))
    kept = {key: value for key, value in call.arguments.items() if key != name}
    return Call(call.op, call.dtype, kept), rf"is missing value for argument '{name}'"


def _value(draw: Draw, call: Call) -> tuple[Call, str]:
    """A number of the right type means nothing."""
    far = draw.any([2**31, -(2**31) - 1, 2**63 - 1, -(2**63), 17, -7])
    match call.op:
        case "softmax":
            return call.given(dim=far), rf"dim is {far}, expected the last dimension of x: -1"
        case "gelu":
            return call.given(approximate=far), rf"approximate is {far}, expected 0 \(none: by erf\) or 1 \(tanh\)"
        case "matmul":
            return call.given(activation=far), rf"activation is {far}, expected 0 \(none\), 1 \(relu\)"
        case "mha":
            mask = torch.ones(1, 1, dtype=torch.bool)
            return call.given(attn_mask=mask, is_causal=True), r"attn_mask and is_causal=True exclude each other\n  to fix: "
    return _shape(draw, call)


def _resized(x: torch.Tensor, axis: int, by: int = 1) -> torch.Tensor:
    shape = list(x.shape)
    shape[axis] += by
    return torch.ones(shape).to(x.dtype)


def _transposed_resized(x: torch.Tensor, axis: int, by: int) -> torch.Tensor:
    return _resized(x.t(), 1 - axis, by).t()


def _shape(draw: Draw, call: Call) -> tuple[Call, str]:
    """A tensor does not fit the others, or has too few or too many dimensions."""
    x = call.tensors
    one = torch.ones((), dtype=call.dtype) if call.dtype.itemsize > 1 else torch.ones(()).to(call.dtype)
    faults: list[tuple[dict[str, Any], str]] = []

    def add(said: str, **arguments: Any) -> None:
        faults.append((arguments, said))

    match call.op:
        case "softmax" | "rms_norm" | "layer_norm":
            add("x has no dimensions, expected at least one", x=one)
            for name in ("weight", "bias"):
                if name in x:
                    add(rf"{name} has shape .*, expected one dimension of \d+", **{name: _resized(x[name], 0)})
                    add(rf"{name} has shape .*, expected one dimension of \d+", **{name: x[name][None]})
                    add(rf"{name} has shape .*, expected one dimension of \d+", **{name: one})
        case "silu_mul":
            add(r"up has shape .*, gate has", up=_resized(x["up"], 0))
            add(r"up has shape .*, gate has", up=x["up"][None])
            add(r"up has shape .*, gate has", gate=x["gate"][None])
            add(r"up has shape .*, gate has", up=one)
        case "rope":
            pairs, size = x["cos"].shape[-1], x["x"].shape[-1]
            add(r"sin has shape .*, cos has", sin=_resized(x["sin"], -1))
            add(r"x must have 4 dimensions, it has shape", x=torch.ones(3, 8, dtype=call.dtype))
            add(r"x must have 4 dimensions, it has shape", x=x["x"][None])
            wide = torch.ones(size // 2 + 1, dtype=x["cos"].dtype)
            add(rf"cos has {size // 2 + 1} columns, .*head size, which is {size}", cos=wide, sin=wide)
            many = torch.ones(x["x"].shape[2] + 2, pairs, dtype=x["cos"].dtype)
            add(r"cos of shape .* does not broadcast to", cos=many, sin=many)
            add(r"cos has no dimensions", cos=one.to(many.dtype), sin=one.to(many.dtype))
        case "matmul":
            add(r"a must have at least 2 dimensions, its shape is", a=x["a"].flatten())
            add(r"a must have at least 2 dimensions, its shape is", a=one)
            add(r"b must have at least 2 dimensions, its shape is", b=x["b"].flatten())
            add(r"b has \d+ rows, a has \d+ columns", b=_resized(x["b"], -2))
            add(r"b has \d+ rows, a has \d+ columns", a=_resized(x["a"], -1))
            add(r"bias has shape .*, expected \(\d+,\)", bias=torch.ones(x["b"].shape[-1] + 1, dtype=call.dtype))
            add(r"bias has shape .*, expected \(\d+,\)", bias=torch.ones(1, x["b"].shape[-1], dtype=call.dtype))
        case "mha":
            query, key, value = x["query"], x["key"], x["value"]
            rank = r"query must have 3 or 4 dimensions|(key|value) has \d dimensions, query has"
            add(rank, query=query[0] if query.shape[0] else query[None, None])
            add(rank, query=query[None, None])
            add(rank, key=key[None, None])
            add(rank, value=one)
            add(r"key has head size \d+, query has", key=_resized(key, -1))
            add(r"value has length \d+, key has", value=_resized(value, -2))
            add(r"value has \d+ heads, key has", value=_resized(value, -3))
            if query.dim() == 4:
                add(r"key has batch size \d+, query has", key=_resized(key, 0))
                add(r"value has batch size \d+, query has", value=_resized(value, 0))
            large = torch.ones(*query.shape[:-1], 257, dtype=call.dtype)
            add(r"query has head size 257, at most 256", query=large, key=torch.ones(*key.shape[:-1], 257, dtype=call.dtype))
            add(r"value has head size 300, at most 256", value=torch.ones(*value.shape[:-1], 300, dtype=call.dtype))
            heads = _resized(query, -3, 2 * key.shape[-3] + 1)
            add(r"key has \d+ heads, query has \d+\n  to fix: pass enable_gqa", query=heads, enable_gqa=False)
            if key.shape[-3] != 1:
                add(r"query has \d+ heads, which is no multiple of key's \d+", query=heads, enable_gqa=True)
            mask = torch.ones(query.shape[-2] + 2, key.shape[-2], dtype=torch.bool)
            add(r"attn_mask of shape .* does not broadcast to", attn_mask=mask, is_causal=False)
            five = torch.ones(1, 1, 1, 1, 1, dtype=torch.bool)
            add(r"attn_mask of shape .* does not broadcast to", attn_mask=five, is_causal=False)
        case "scaled_matmul":
            a, b = x["a"], x["b"]
            add(r"a must have 2 dimensions, its shape is", a=a[None])
            add(r"b must have 2 dimensions, its shape is", b=b[0] if b.shape[0] else b[None])
            add(r"b has shape .*, expected \d+ rows, as a has columns", b=_transposed_resized(b, 0, 1))
            add(r"scale_a has shape .*, expected one value, or \d+", scale_a=torch.ones(a.shape[0] + 2, 1))
            add(r"scale_b has shape .*, expected one value, or \d+", scale_b=torch.ones(1, b.shape[1] + 2))
            add(r"bias has shape .*, expected one contiguous dimension", bias=torch.ones(b.shape[1] + 1, dtype=torch.bfloat16))
    name = next(iter(x))
    many = torch.ones(()).to(x[name].dtype).view([1] * 65)
    add(rf"{name} has 65 dimensions, at most 64 can be read\n  to fix: ", **{name: many})
    arguments, said = draw.any(faults)
    return call.given(**arguments), said


FAULTS: Mapping[str, Fault] = {
    "dtype": _dtype,
    "mixed dtypes": _mixed,
    "None": _none,
    "no tensor": _no_tensor,
    "freed memory": _freed,
    "elsewhere": _elsewhere,
    "scalar": _scalar,
    "unknown name": _unknown,
    "missing": _missing,
    "value": _value,
    "shape": _shape,
}


def faulty(draw: Draw, call: Call) -> str:
    """Makes a fault, and looks whether it is refused: by the fault's error, or one that the call deserved before."""
    given, said = draw.deal_from("fault", FAULTS)(draw, call)
    args, kwargs = given.spelled()
    context = draw.deal_from("context", _CONTEXTS)

    def run() -> Any:
        with context():
            return packet(call.op)(*args, **kwargs)

    return expect(given, run, refused=[Refusal(said), *refusals(call)])


_CONTEXTS: Mapping[str, Callable[[], Any]] = {
    "plain": torch.enable_grad,
    "no grad": torch.no_grad,
    "inference": torch.inference_mode,
}
