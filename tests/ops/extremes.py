"""Calls of ops at the edge of what their dtypes hold: part of the accuracy grid."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from tests.ops.arguments import Arguments, Typed

Calls = Iterator[tuple[str, Callable[[], Arguments]]]

inf, nan = float("inf"), float("nan")


def _repeat(columns: int, *values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64).repeat(-(-columns // len(values)))[:columns]


def usual(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64)


def _with(columns: int, place: int, value: float) -> Tensor:
    """Usual numbers, but for one."""
    return usual(columns).index_fill(0, torch.tensor([place % columns]), value)


def _every_second(columns: int, value: float) -> Tensor:
    """Usual numbers, but for every second one."""
    return torch.where(torch.arange(columns) % 2 == 0, usual(columns), value)


Row = Callable[[int, torch.finfo], Tensor]

ROWS: dict[str, Row] = {
    "all lowest": lambda n, info: _repeat(n, info.min),
    "all largest": lambda n, info: _repeat(n, info.max),
    "lowest and largest": lambda n, info: _repeat(n, info.min, info.max),
    "largest, 0, 1, 2": lambda n, info: _repeat(n, info.max, 0.0, 1.0, 2.0),
    "one largest": lambda n, info: _with(n, n // 2, info.max),
    "one lowest": lambda n, info: _with(n, 0, info.min),
    "half lowest": lambda n, info: _every_second(n, info.min),
    "equal": lambda n, info: _repeat(n, 3.3),
    "equal and large": lambda n, info: _repeat(n, min(1e9, info.max / 3)),
    "equal roots of the largest": lambda n, info: _repeat(n, info.max**0.5),
    "equal but one": lambda n, info: _repeat(n, 1000.0).index_fill(0, torch.tensor([n - 1]), 1001.0),
    "roots of the largest": lambda n, info: _repeat(n, info.max**0.5, -(info.max**0.5), info.max**0.5 / 2),
    "third roots of the largest": lambda n, info: _repeat(n, info.max ** (1 / 3), -(info.max ** (1 / 3)), 7.0),
    "subnormal": lambda n, info: torch.rand(n, dtype=torch.float64) * info.smallest_normal,
    "smallest normal": lambda n, info: _repeat(n, info.smallest_normal, -info.smallest_normal),
    "zeros": lambda n, info: _repeat(n, 0.0),
    "signed zeros": lambda n, info: _repeat(n, 0.0, -0.0, -0.0),
    "one infinity": lambda n, info: _with(n, n // 2, inf),
    "one -infinity": lambda n, info: _with(n, -1, -inf),
    "half -infinity": lambda n, info: _every_second(n, -inf),
    "all -infinity": lambda n, info: _repeat(n, -inf),
    "one NaN": lambda n, info: _with(n, -1, nan),
}
"""Rows of n numbers by name. Where squares and cubes overflow, too: at roots of the largest number."""


def _of_rows(dtype: torch.dtype, parameters: int = 0) -> Calls:
    """Each row above a usual one, and as many usual ones beside them: a few numbers, and more than a block holds."""
    for columns in (40, 5000):
        for name, make in ROWS.items():

            def arguments(columns: int = columns, make: Row = make) -> Arguments:
                x = torch.stack([make(columns, torch.finfo(dtype)), usual(columns)])
                return (x, *(usual(columns) for _ in range(parameters))), {}

            yield f"{name}, {columns}", arguments


def softmax(dtype: torch.dtype) -> Calls:
    yield from _of_rows(dtype)


def rms_norm(dtype: torch.dtype) -> Calls:
    yield from _of_rows(dtype, 1)


def layer_norm(dtype: torch.dtype) -> Calls:
    yield from _of_rows(dtype, 2)


def gelu(dtype: torch.dtype) -> Calls:
    for name, arguments in _of_rows(dtype):
        for approximate in (0, 1):
            yield f"{name}, {approximate}", lambda a=arguments, approximate=approximate: (a()[0], {"approximate": approximate})


def silu_mul(dtype: torch.dtype) -> Calls:
    for name, make in ROWS.items():
        for other in ("one lowest", "subnormal", "signed zeros"):

            def arguments(make: Row = make, other: Row = ROWS[other]) -> Arguments:
                return (make(300, torch.finfo(dtype)), other(300, torch.finfo(dtype))), {}

            yield f"{name} times {other}", arguments


def rope(dtype: torch.dtype) -> Calls:
    for name, make in ROWS.items():
        for interleaved in (False, True):

            def arguments(make: Row = make, interleaved: bool = interleaved) -> Arguments:
                x = torch.stack([make(40, torch.finfo(dtype)) for _ in range(6)]).reshape(1, 2, 3, 40)
                angles = torch.rand(3, 20, dtype=torch.float64) * 6
                angles[0] = 0.0  # where a turn is none
                return (x, angles.cos(), angles.sin()), {"interleaved": interleaved}

            yield f"{name}, {interleaved}", arguments


def matmul(dtype: torch.dtype) -> Calls:
    for name, make in ROWS.items():
        for m, n in ((1, 1), (3, 40), (70, 1), (70, 130)):

            def arguments(make: Row = make, m: int = m, n: int = n) -> Arguments:
                a = usual(m, 50)
                a[m // 2] = make(50, torch.finfo(dtype))
                return (a, usual(50, n) / 8, usual(n)), {}

            yield f"{name}, {m}x{n}", arguments
    for activation in range(5):

        def activated(activation: int = activation) -> Arguments:
            info = torch.finfo(dtype)
            sums = torch.tensor([[info.max], [info.min], [-info.smallest_normal], [-0.0]], dtype=torch.float64)
            return (sums, torch.ones(1, 64, dtype=torch.float64)), {"activation": activation}

        yield f"activation {activation}", activated


MASKS: dict[str, Callable[[int, int, torch.finfo], Tensor]] = {
    "all lowest": lambda m, n, info: torch.full((m, n), info.min, dtype=torch.float64),
    "all largest": lambda m, n, info: torch.full((m, n), info.max / 2, dtype=torch.float64),
    "all -infinity": lambda m, n, info: torch.full((m, n), -inf, dtype=torch.float64),
    "rows lowest": lambda m, n, info: torch.where(torch.arange(m)[:, None] % 2 == 0, info.min, 0.0).double().expand(m, n),
    "columns lowest": lambda m, n, info: torch.where(torch.arange(n) % 3 == 1, info.min, 0.0).double().expand(m, n),
    "columns low and lower": lambda m, n, info: (
        torch.where(torch.arange(n) % 3 == 1, info.min, 0.7 * info.min).double().expand(m, n)
    ),
    "columns lowest and -infinity": lambda m, n, info: (
        torch.where(torch.arange(n) < n // 2, info.min, -inf).double().expand(m, n)
    ),
    "all but one lowest": lambda m, n, info: torch.full((m, n), info.min).double().index_fill(1, torch.tensor([n // 2]), 0.5),
    "none": lambda m, n, info: torch.zeros(m, n, dtype=torch.bool),
    "rows of none": lambda m, n, info: (torch.arange(m)[:, None] % 2 == 0).expand(m, n),
}


def mha(dtype: torch.dtype) -> Calls:
    info = torch.finfo(dtype)
    large = {torch.float16: 1e4, torch.bfloat16: 1e9, torch.float32: 1e9}[dtype]
    for m, n, size in ((1, 300, 64), (5, 9, 32), (70, 131, 64), (130, 260, 128)):

        def qkv(m: int = m, n: int = n, size: int = size) -> list[Tensor]:
            return [usual(1, 2, length, size) for length in (m, n, n)]

        for name, mask in MASKS.items():
            yield f"mask {name}, {m}x{n}", lambda m=m, n=n, mask=mask, qkv=qkv: ((*qkv(), mask(m, n, info)), {})
            if m == 1:  # keys that several programs share: one of them may have none that count

                def shared(mask: Callable[[int, int, torch.finfo], Tensor] = mask) -> Arguments:
                    return (*(usual(1, 2, length, 64) for length in (1, 700, 700)), mask(1, 700, info)), {
                        "batch_invariant": True
                    }

                yield f"mask {name}, 1x700", shared
        for factor in (30.0, 1e3, large):
            for causal in (False, True):

                def scaled(qkv: Callable[[], list[Tensor]] = qkv, factor: float = factor, causal: bool = causal) -> Arguments:
                    q, k, v = qkv()
                    return (q * factor, k * factor, v), {"is_causal": causal}

                yield f"queries and keys times {factor:g}, {'causal' if causal else 'full'}, {m}x{n}", scaled
        for scale in (-0.7, 0.0, -0.0, 1e-30, 1e-44, 5.0):
            yield f"scale {scale}, {m}x{n}", lambda scale=scale, qkv=qkv: (tuple(qkv()), {"scale": scale})
        for name in ("one largest", "one lowest", "subnormal", "zeros", "one infinity", "one NaN", "all largest"):
            for argument in range(3):

                def with_row(qkv: Callable[[], list[Tensor]] = qkv, name: str = name, argument: int = argument) -> Arguments:
                    tensors = qkv()
                    tensors[argument][0, 1, -1] = ROWS[name](tensors[argument].shape[-1], info)
                    return tuple(tensors), {}

                yield f"{name} in {('query', 'key', 'value')[argument]}, {m}x{n}", with_row

        def equal(qkv: Callable[[], list[Tensor]] = qkv) -> Arguments:
            q, k, v = qkv()
            return (q, k[:, :, :1].expand(k.shape).contiguous(), v), {}

        yield f"equal keys, {m}x{n}", equal


def scaled_matmul(dtype: torch.dtype) -> Calls:
    for name in ("all largest", "all lowest", "lowest and largest", "one largest", "signed zeros", "one NaN", "subnormal"):
        for scale in (1.0, 1e-30, 1e-6, nan):

            def arguments(name: str = name, scale: float = scale) -> Arguments:
                a = torch.stack([ROWS[name](48, torch.finfo(dtype)), *usual(4, 48)])
                weight = usual(40, 48).to(torch.float8_e4m3fn)
                return (a, Typed(weight.t()), Typed(torch.tensor(scale)), Typed(torch.full((1, 40), 2.0)), None), {}

            yield f"{name}, scale {scale}", arguments


CALLS: dict[str, Callable[[torch.dtype], Calls]] = {
    "gelu": gelu,
    "layer_norm": layer_norm,
    "matmul": matmul,
    "mha": mha,
    "rms_norm": rms_norm,
    "rope": rope,
    "scaled_matmul": scaled_matmul,
    "silu_mul": silu_mul,
    "softmax": softmax,
}
"""By op, its calls at the edge: arguments are float64, and become the dtype given, which must hold them."""


def may_overflow(op: str, dtype: torch.dtype, name: str) -> bool:
    """Whether torch's own op overflows on the way to one of a call's results, which then is no measure of ours."""
    return any(re.fullmatch(pattern, name) and dtype in dtypes for pattern, dtypes in OVERFLOWS.get(op, ()))


_WIDE = {torch.float32, torch.bfloat16}
_ALL = {torch.float16, *_WIDE}
_RMS_NORM = [
    ("(all|one|half) (lowest|largest).*|lowest and largest.*|largest, 0.*|.*roots of the largest.*", _WIDE),  # squares
    ("(one|half) -?infinity.*", _ALL),  # float64 on GPUs, all of the row
]
OVERFLOWS: dict[str, list[tuple[str, set[torch.dtype]]]] = {
    "rms_norm": _RMS_NORM,
    "add_rms_norm": _RMS_NORM,
    "layer_norm": [
        ("(all|one|half) (lowest|largest).*|lowest and largest.*|largest, 0.*|.*roots of the largest.*", _WIDE),  # squares
        ("(all lowest|all largest|equal and large).*", _ALL),  # rounding in the mean counts as much
    ],
    "gelu_and_mul": [
        ("((all|one) largest|lowest and largest|largest, 0).*0", _WIDE),  # x (1 + erf) before it is halved
        ("one infinity times .*0", _ALL),  # NaN, in float16 with AVX512-FP16
        ("(subnormal|smallest normal) times .*0", {torch.bfloat16}),  # 0, before it is multiplied
    ],
    "gelu": [
        ("(all|one) largest.*0|lowest and largest.*0|largest, 0.*0", _WIDE),  # x (1 + erf) before it is halved
        ("one infinity.*0", _ALL),  # NaN, with AVX-512, in float16 with AVX512-FP16
    ],
    "matmul": [
        ("(all|half) lowest.*|all largest.*|lowest and largest.*|largest, 0.*", _WIDE),
        ("activation [234]", _ALL),
    ],
    "mha": [
        ("(one|all) (largest|lowest) in (query|key).*", _WIDE),
        (r"one (NaN|infinity) in (query.*|key, \d+x1)", _ALL),  # gives 0, where scores are NaN
    ],
}


def magnitudes(op: str, args: tuple[Any, ...], exact: Tensor) -> Tensor:
    """Returns what units in the last place are counted of: the largest element of a row of results, of a head's values, the sum of
    absolute products, or the element itself. Infinity where sums of products may overflow. `args` and `exact` are float64."""
    if op in ("matmul", "scaled_matmul"):
        a, b = (_finite(x) for x in args[:2])
        bias = args[2] if op == "matmul" and len(args) > 2 else None
        scales = 1.0 if op == "matmul" else _finite(args[2]) * _finite(args[3])
        return a @ b * scales + (0.0 if bias is None else bias.abs())
    if op == "quantized_matmul":  # codes are summed as they are, and 16 with them
        x, _, scales, mins = (_finite(one) for one in args[:4])
        scales, mins = (one.transpose(0, 1).flatten(1)[:, : exact.shape[-1]] for one in (scales, mins))
        groups = scales.repeat_interleave(x.shape[-1] // scales.shape[0], 0)
        least = mins.repeat_interleave(x.shape[-1] // mins.shape[0], 0) if mins.shape[0] else 0.0
        return x @ (groups * (32 if mins.shape[0] else 128) + least)
    if op == "mha":
        query, key, value = (_finite(x) for x in args[:3])
        scores = (query @ key.mT).amax(-1, keepdim=True)
        return torch.where(scores < torch.finfo(torch.float32).max, value.amax((-1, -2), keepdim=True), inf).expand_as(exact)
    if op == "gelu":  # below 0 it is a difference from x
        return torch.where(args[0] < 0, _finite(args[0]), _finite(exact))
    if op == "gelu_and_mul":
        gate, value = _finite(args[0]).chunk(2, -1)
        return torch.where(args[0].chunk(2, -1)[0] < 0, gate * value, _finite(exact))
    if op in ("silu_mul", "silu_and_mul"):
        return _finite(exact)
    return _finite(exact).amax(-1, keepdim=True).expand_as(exact)


def _finite(x: Tensor) -> Tensor:
    """Returns absolute values; of what is not finite, 0."""
    return torch.where(x.isfinite(), x.abs(), 0.0)
