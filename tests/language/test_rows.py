"""Every common feature of kernels in the wild, one small kernel each: what it means by torch, in the interpreter and on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from kernelpack.ir.interpret import launch
from kernelpack.kernel.jit import JITFunction
from tests.backends.cpu.agreement import check, ttir_of
from tests.frontend.compiling import define

HELPERS = """
OUTSIDE = tl.constexpr(3)
SHAPE: tl.constexpr = tl.constexpr((4, 4))


@kp.jit
def plain(x):
    return x + 1


@kp.jit
def with_defaults(x, by=2, sign: tl.constexpr = -1):
    return x * by * sign


@kp.jit
def two_results(x, y):
    return x + y, (x - y, x * y)


@kp.jit
def early(x, n):
    if n > 100:
        return x
    return x * 2


@kp.jit
def larger(a, b):
    return tl.maximum(a, b)


@kp.jit
def optional(x, y):
    if y is None:
        return x
    return x + y
"""
SIZE = 16
INT = torch.arange(-5, SIZE - 5, dtype=torch.int32)
FLOAT = torch.linspace(-3.0, 3.0, SIZE)


@dataclass(frozen=True)
class Row:
    """`body` computes `r`, a tile of 16, of x, y (tiles), n = 5, s = 0.5; `expected` gives it by torch."""

    name: str
    body: str
    expected: Callable[[Tensor, Tensor], Tensor]
    x: Tensor = INT
    y: Tensor = FLOAT
    tolerance: float = 0.0


I64 = torch.int64
TILE = "i4 = tl.arange(0, 4)\nt = tl.load(X + i4[:, None] * 4 + i4[None, :])\n"


def grid(x: Tensor) -> Tensor:
    return x.reshape(4, 4)


def flat(rows: Tensor) -> Tensor:
    """Returns four results, each four times: what `r = tl.reshape(tl.broadcast_to(v[:, None], [4, 4]), [16])` does."""
    return rows[:, None].expand(4, 4).reshape(16)


SPREAD = "r = tl.reshape(tl.broadcast_to({}[:, None], [4, 4]), [16])"
BIG = torch.tensor([-(2**31), 2**31 - 1, -7, 7, -8, 8, -1, 1] * 2, dtype=torch.int32)
SMALL = torch.tensor([3, -3] * 8, dtype=torch.int32)

ROWS = [
    Row("masked load", "r = tl.load(X + i, mask=i < n, other=-9)", lambda x, y: torch.where(torch.arange(16) < 5, x, -9)),
    Row("masked store", "tl.store(OUT + i, x, mask=i < n)\nr = tl.load(OUT + i)", lambda x, y: torch.where(torch.arange(16) < 5, x, 0)),
    Row("true division of integers is fp32", "r = x / 4", lambda x, y: x.float() / 4),
    Row("integer division truncates", "r = x // y", lambda x, y: torch.div(x, y, rounding_mode="trunc"), BIG, SMALL),
    Row("the remainder has the dividend's sign", "r = x % y", lambda x, y: torch.fmod(x.double(), y).int(), BIG, SMALL),
    Row("numbers keep a tile's type", "r = (x.to(tl.int8) + 100).to(tl.int32)", lambda x, y: (x.to(torch.int8) + 100).int()),
    Row("a float number makes integers fp32", "r = x * 0.5", lambda x, y: x * 0.5),
    Row("fp16 and bf16 give fp16", "r = (y.to(tl.float16) + y.to(tl.bfloat16)).to(tl.float32)",
        lambda x, y: (y.half() + y.bfloat16().half()).float()),
    Row("bf16 and fp32 give fp32", "r = y.to(tl.bfloat16) + y", lambda x, y: y.bfloat16().float() + y),
    Row("unsigned wins at equal width", "r = (x + x.to(tl.uint32) > 0).to(tl.int32)", lambda x, y: (x != 0).int()),
    Row("integers wrap when they narrow", "r = (x * 100).to(tl.int8).to(tl.int32)", lambda x, y: (x * 100).to(torch.int8).int()),
    Row("floats truncate to integers", "r = y.to(tl.int32)", lambda x, y: y.int()),
    Row("calls with defaults and names", "r = with_defaults(plain(x), by=n)", lambda x, y: (x + 1) * 5 * -1),
    Row("where", "r = tl.where(x > 2, x, -1)", lambda x, y: torch.where(x > 2, x, -1)),
    Row("bits", "r = ((x & 6) | 1) ^ (~x) + (x << 2) - (x >> 1)", lambda x, y: ((x & 6) | 1) ^ (~x) + (x << 2) - (x >> 1)),
    Row("a logical shift of unsigned", "r = (x.to(tl.uint32) >> 28).to(tl.int32)", lambda x, y: ((x.long() & 0xFFFFFFFF) >> 28).int()),
    Row("minimum, maximum, clamp, abs", "r = tl.minimum(tl.maximum(tl.abs(y), s), 2.0) + tl.clamp(y, -1.0, 1.0)",
        lambda x, y: y.abs().clamp(0.5, 2.0) + y.clamp(-1, 1)),
    Row("compile-time choices", "r = x + 1 if OUTSIDE == 3 and not (OUTSIDE > 4) else missing\nr = r if 'a' == 'a' else None", lambda x, y: x + 1),
    Row("None as a choice", "r = optional(optional(x, None), x)", lambda x, y: x + x),
    Row("broadcasting", "i4 = tl.arange(0, 4)\nr = tl.reshape(i4[:, None] * 10 + i4[None, :], [16])",
        lambda x, y: (torch.arange(4)[:, None] * 10 + torch.arange(4)).reshape(16).int()),
    Row("sum of an axis", TILE + SPREAD.format("tl.sum(t, axis=1)"), lambda x, y: flat(grid(x).sum(1))),
    Row("sum of all, keep_dims", TILE + "r = tl.reshape(t * 0 + tl.sum(t, axis=0, keep_dims=True), [16]) + tl.sum(t)",
        lambda x, y: grid(x).sum(0).repeat(4) + x.sum()),
    Row("small integers sum as int32", "r = x * 0 + tl.sum(x.to(tl.int8) * 0 + 100)", lambda x, y: x * 0 + 1600),
    Row("types can be asked", "tl.static_assert(x.dtype == tl.int32 and X.dtype.element_ty == tl.int32 and not y.dtype.is_fp8())\nr = x.to(y.dtype)",
        lambda x, y: x.float()),
    Row("square roots and divisions", "a = tl.abs(y)\nr = tl.sqrt(a) + tl.sqrt_rn(a) + tl.div_rn(y, 3.0) + tl.fdiv(y, 7.0) + tl.fma(y, y, 1.0)",
        lambda x, y: 2 * y.abs().sqrt() + y / 3 + y / 7 + (y * y + 1), tolerance=1e-6),
    Row("rsqrt", "r = tl.rsqrt(y * y + 1)", lambda x, y: (y * y + 1).rsqrt(), tolerance=1e-6),
    Row("exponentials and logarithms", "r = tl.exp(y) + tl.exp2(y) + tl.log(tl.abs(y)) + tl.log2(tl.abs(y))",
        lambda x, y: y.exp() + y.exp2() + y.abs().log() + y.abs().log2(), tolerance=1e-6),
    Row("a run-time branch", "if n > 4:\n    r = x + 1\nelse:\n    r = x - 1", lambda x, y: x + 1),
    Row("an early return", "r = early(x, n) + early(x, n + 200)", lambda x, y: x * 3),
    Row("loops", "r = x * 0\nfor k in range(1, n, 2):\n    r += k\nfor k in range(n, 0, -2):\n    r += x * k", lambda x, y: 4 + x * 9),
    Row("tuples", "a, (b, c) = two_results(x, x * 2)\nd = (a, b, c)\nr = d[0] + d[-1] - b", lambda x, y: 3 * x + 2 * x * x + x),
    Row("filled tiles", "r = tl.zeros([16], tl.float32) + tl.full((16,), n, tl.float32) + tl.zeros_like(y)", lambda x, y: torch.full((16,), 5.0)),
    Row("grid arithmetic", "r = x + tl.cdiv(n, 2) + tl.num_programs(0) + kp.next_power_of_2(OUTSIDE)", lambda x, y: x + 3 + 1 + 4),
    Row("lists as shapes", "r = tl.reshape(tl.reshape(x, [2, 8]), SHAPE)\nr = tl.reshape(r, [16])", lambda x, y: x),
    Row("builtins of Python", "r = x + max(n, 7) - min(n, 2) + int(2.9) + abs(n - 9) + float(1)", lambda x, y: (x + 7 - 2 + 2 + 4) + 1.0),
    Row("max and min of an axis", TILE + SPREAD.format("(tl.max(t, 1) * 100 + tl.min(t, 1))"), lambda x, y: flat(grid(x).amax(1) * 100 + grid(x).amin(1))),
    Row("sigmoid", "r = tl.sigmoid(y)", lambda x, y: y.sigmoid(), tolerance=1e-6),
    Row("softmax", "r = tl.softmax(y)", lambda x, y: y.softmax(0), tolerance=1e-6),
    Row("static_range", "r = x\nfor k in tl.static_range(3):\n    STEP: tl.constexpr = k * 2\n    r += STEP", lambda x, y: x + 6),
    Row("transposes", TILE + "r = tl.reshape(tl.trans(t) * 100 + t.T + tl.permute(t, (1, 0)), [16])", lambda x, y: (grid(x).T * 102).reshape(16)),
    Row("constants from outside", "LOCAL: tl.constexpr = OUTSIDE * 2\nr = x + LOCAL + tl.constexpr(4)", lambda x, y: x + 10),
    Row("running sums", "r = tl.cumsum(x, 0) + tl.cumsum(x, 0, reverse=True)", lambda x, y: (x.sum() + x).int()),
    Row("running products", "r = tl.cumprod(x * 0 + 2, 0)", lambda x, y: (2 ** torch.arange(1, 17)).int()),
    Row("tl.range", "r = x\nfor k in tl.range(0, n, num_stages=3):\n    r += k", lambda x, y: x + 10),
    Row("atomics give the old value", "old = tl.atomic_add(OUT + i, x + 1, mask=i < 12)\nr = tl.load(OUT + i) + old", lambda x, y: torch.where(torch.arange(16) < 12, x + 1, 0)),
    Row("erf and tanh", "r = tl.erf(y) + tl.math.tanh(y)", lambda x, y: y.erf() + y.tanh(), tolerance=1e-6),
    Row("sine, cosine, floor, ceil", "r = tl.sin(y) + tl.cos(y) + tl.floor(y) + tl.ceil(y)", lambda x, y: y.sin() + y.cos() + y.floor() + y.ceil(), tolerance=1e-6),
    Row("a combine function", "r = x + tl.reduce(x, 0, larger)", lambda x, y: x + 10),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_feature_means_what_torch_does(row: Row) -> None:
    body = "\n".join("    " + line for line in row.body.split("\n"))
    source = (
        f"{HELPERS}\n\n@kp.jit\ndef kernel(X, Y, OUT, n, s):\n    i = tl.arange(0, 16)\n    x = tl.load(X + i)\n"
        f"    y = tl.load(Y + i)\n{body}\n    tl.store(OUT + i, r)\n"
    )
    kernel = define(source)["kernel"]
    assert isinstance(kernel, JITFunction)
    expected = row.expected(row.x, row.y)
    out = torch.zeros(SIZE, dtype=expected.dtype)
    arguments = [row.x, row.y, out, 5, 0.5]
    found = out.clone()
    launch(ttir_of(kernel, arguments, {}), (1,), [row.x, row.y, found, 5, 0.5])
    torch.testing.assert_close(found, expected, rtol=row.tolerance, atol=row.tolerance, equal_nan=True)
    check(kernel, (1,), *arguments, rtol=row.tolerance, atol=row.tolerance)


DOTS = [
    (torch.float16, "", 2e-6),
    (torch.bfloat16, "", 2e-6),
    (torch.float32, ", input_precision='ieee'", 2e-6),
    (torch.float32, ", allow_tf32=False", 2e-6),
    (torch.float32, "", 2e-3),
    (torch.int8, ", out_dtype=tl.int32", 0.0),
]


@pytest.mark.parametrize(("dtype", "options", "tolerance"), DOTS, ids=str)
def test_dot_adds_to_its_accumulator(dtype: torch.dtype, options: str, tolerance: float) -> None:
    whole = dtype == torch.int8
    source = f"""
    @kp.jit
    def kernel(A, B, C):
        i = tl.arange(0, 16)
        k = tl.arange(0, 32)
        a = tl.load(A + i[:, None] * 32 + k[None, :])
        b = tl.load(B + k[:, None] * 16 + i[None, :])
        acc = tl.full((16, 16), 2, tl.{"int32" if whole else "float32"})
        tl.store(C + i[:, None] * 16 + i[None, :], tl.dot(a, b, acc{options}))
    """
    kernel = define(source)["kernel"]
    a, b = (torch.randint(-9, 9, shape).to(dtype) if whole else torch.randn(shape).to(dtype) for shape in ((16, 32), (32, 16)))
    expected = a.double() @ b.double() + 2
    out = torch.zeros(16, 16, dtype=torch.int32 if whole else torch.float32)
    found = out.clone()
    launch(ttir_of(kernel, [a, b, found], {}), (1,), [a, b, found])
    torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=tolerance * 10)
    check(kernel, (1,), a, b, out, rtol=tolerance, atol=tolerance * 10)
