"""Launches of operations on whole tiles, each with what torch computes: a part of the table in cases.py."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

from kernelpack.options import Options
from tests.backends.cuda import tile_kernels as kernels
from tests.backends.cuda.launch import Launch, fresh


def _order(num_warps: int) -> Launch:
    m, n = 4, 64
    x, i = torch.randperm(m * n).view(m, n).float(), torch.randint(0, n, (m, n), dtype=torch.int32)
    arguments = {"x": x, "i": i, "out": fresh(m, n), "places": fresh(2 * m, dtype=torch.int32), "M": m, "N": n}
    expected = x.sort(1, descending=True).values.gather(1, i.long())
    places = torch.cat([x.argmax(1), x.argmin(1)])
    return Launch(kernels.order, (1,), arguments, {"out": expected, "places": places}, options=Options(num_warps=num_warps))


def _seconds() -> Launch:
    x = torch.randn(65)
    arguments = {"x": x, "out": fresh(8, 4), "M": 4, "N": 8}
    return Launch(kernels.seconds, (1,), arguments, {"out": x[2::2].view(4, 8).T}, options=Options(num_warps=1))


def _repeated_rows() -> Launch:
    x = torch.randn(8)
    arguments = {"x": x, "out": fresh(8), "rows": fresh(8, dtype=torch.int32), "M": 4, "N": 8}
    return Launch(kernels.repeated_rows, (1,), arguments, {"out": x, "rows": torch.full((8,), 3, dtype=torch.int32)})


def _moments(m: int, n: int, axis: int) -> Launch:
    x = torch.randn(m, n) + 3
    arguments = {"x": x, "out": fresh(2 * (m if axis else n)), "M": m, "N": n, "AXIS": axis}
    variance, mean = torch.var_mean(x.double(), axis, correction=0)
    return Launch(kernels.moments, (1,), arguments, {"out": torch.cat([mean, variance])}, 1e-5)


def _recurrence(reverse: bool, num_warps: int) -> Launch:
    m, n = 2, 256
    a, b = torch.rand(m, n), torch.randn(m, n)
    y, last = torch.zeros(m, n, dtype=torch.float64), torch.zeros(m, dtype=torch.float64)
    for column in reversed(range(n)) if reverse else range(n):
        last = y[:, column] = a[:, column] * last + b[:, column]
    arguments = {"a": a, "b": b, "out": fresh(m, n), "M": m, "N": n, "REVERSE": reverse}
    return Launch(kernels.recurrence, (1,), arguments, {"out": y}, 1e-5, Options(num_warps=num_warps))


def _locked() -> Launch:
    x, lock = torch.randn(6, 64), torch.zeros(1, dtype=torch.int32)
    arguments = {"lock": lock, "total": torch.zeros(64), "x": x, "N": 64}
    return Launch(kernels.locked, (6,), arguments, {"total": x.double().sum(0), "lock": torch.zeros(1)}, 1e-6)


def _updates() -> Launch:
    n = 256
    x = torch.randn(n)
    floats, ints = torch.zeros(8), torch.zeros(16, dtype=torch.int32)
    floats[4:], ints[4:8] = 1.0, -1
    columns, whole = x.view(-1, 4), (x * 100).int().view(-1, 4)
    chosen = torch.where((torch.arange(n) % 3 == 0).view(-1, 4), columns, 1.0)
    bits = [functools.reduce(update, whole, start) for update, start in (
        (torch.bitwise_and, ints[4:8]), (torch.bitwise_or, ints[8:12]), (torch.bitwise_xor, ints[12:]),
    )]  # fmt: skip
    expected = {
        "floats": torch.cat([columns.amax(0).clamp(min=0), chosen.amin(0).clamp(max=1)]),
        "ints": torch.cat([whole.amax(0).clamp(min=0), *bits]),
    }
    return Launch(kernels.updates, (1,), {"x": x, "floats": floats, "ints": ints, "N": n}, expected)


def _assembly() -> Launch:
    x, y = (torch.randint(-(1 << 15), 1 << 15, (512,)).to(torch.int16) for _ in range(2))
    arguments = {"x": x, "y": y, "low": fresh(512, dtype=torch.int16), "high": fresh(512, dtype=torch.int16), "N": 512}
    return Launch(kernels.assembly, (1,), arguments, {"low": x & y, "high": x | y})


TILE_LAUNCHES: dict[str, Callable[[], Launch]] = {
    "order-1": functools.partial(_order, 1),
    "order-4": functools.partial(_order, 4),
    "moments-0": functools.partial(_moments, 64, 8, 0),
    "moments-1": functools.partial(_moments, 2, 512, 1),
    "seconds": _seconds,
    "repeated-rows": _repeated_rows,
    "recurrence": functools.partial(_recurrence, False, 4),
    "recurrence-reverse": functools.partial(_recurrence, True, 1),
    "locked": _locked,
    "updates": _updates,
    "assembly": _assembly,
}
