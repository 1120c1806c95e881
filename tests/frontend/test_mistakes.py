"""What people write by habit from Python, NumPy, torch, or in haste: each mistake is told with its line, its column and a cure."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import kernelpack.language as tl
from kernelpack.errors import CompilationError
from tests.frontend.compiling import compile_kernel, define, kernel

HELPERS = define(
    "@kp.jit\ndef helper(x):\n    return x + 1\n\n\n@kp.jit\ndef nothing(x):\n    x + 1\n\n\n@kp.jit\ndef again(x):\n    return again(x - 1)\n"
)

# a statement after `x = tl.arange(0, 8)`, what the message says, what the cure says
MISTAKES = [
    ("y = ofsets + 1", "ofsets is not defined", "did you mean offsets?"),
    ("tl.laod(p)", "kernelpack.language has no 'laod'", "did you mean tl.load?"),
    ("tl.math.expp(s)", "has no 'expp'", "did you mean tl.math.exp"),
    ("x.to(tl.float)", "has no 'float'", "tl.float32"),
    ("tl.empty([8], tl.float32)", "has no 'empty'", "use tl.zeros"),
    ("tl.mean(x)", "has no 'mean'", "divide a sum: tl.sum(x, axis) / n"),
    ("sum(x)", "sum is not defined", "use tl.sum"),
    ("sorted(x)", "sorted is not defined", "use tl.sort(x)"),
    ("round(s)", "round is not defined", "use tl.floor(x + 0.5)"),
    ('print(f"s is {s}")', "an f-string cannot hold `s`", 'print("x", x)'),
    ("np.sqrt(s)", "np.sqrt is not part of the kernel language", "use tl.sqrt"),
    ("torch.exp(s)", "torch.exp is not part of the kernel language", "use tl.exp"),
    ("math.exp(s)", "`math.exp(s)` needs compile-time values, got fp32", "use tl.exp"),
    ("x.to(torch.float32)", "torch.float32 is not part of the kernel language", "use tl.float32"),
    ("x.float()", "no attribute 'float'", "write x.to(tl.float32)"),
    ("x.stride(0)", "no attribute 'stride'", "pass sizes and strides as arguments of the kernel"),
    ("x.item()", "only a tile of one element has an item", "reduce the tile to a scalar with tl.sum or tl.max"),
    ("x.summ()", "no attribute 'summ'", "did you mean sum"),
    ("xs = []\nxs.append(s)", "a tuple has no attribute 'append'", "xs = xs + (x,)"),
    ("p.shape[0]", "`p.shape[0]`: tuple index out of range", "pass sizes as arguments"),
    ("p[0]", "pointers are not indexed", "tl.load(p + i)"),
    ("n[0]", "scalars are not indexed", None),
    ("x[0]", "tiles are indexed with `:` and None only", "compute with masks"),
    ("x[:, :, None]", "2 axes are indexed, but the shape [8] has 1", "x[:, None]"),
    ("tl.arange(0, 100)", "tl.arange(0, 100) has 100 elements, which is no power of two", "write tl.arange(0, 128), and mask"),
    ("tl.arange(4, 10)", "tl.arange(4, 10) has 6 elements", "write tl.arange(4, 12), and mask"),
    ("tl.arange(8)", "arange(): missing a required argument: 'end'", "its signature is arange(start, end)"),
    ("tl.sum(x, dim=0)", "unexpected keyword argument 'dim'", "its signature is sum(input, axis=None, keep_dims=False, dtype=None)"),
    ("tl.zeros([n], tl.float32)", "must be a compile-time integer", "take it from a tl.constexpr parameter"),
    ("x + tl.arange(0, 16)", "shapes [8] and [16] do not broadcast", "rows[:, None], columns[None, :]"),
    ("tl.load(p + x, mask=tl.arange(0, 16) < n)", "shapes [8] (pointer) and [16] (mask) do not broadcast", "rows[:, None]"),
    ("tl.store(p + x, tl.arange(0, 16))", "shapes [8] (pointer) and [16] (value) do not broadcast", "rows[:, None]"),
    ("tl.where(x > 3, tl.arange(0, 16), 0)", "shapes [8] (condition) and [16] (x) and [16] (y) do not", "rows[:, None]"),
    ("tl.store(p, nothing(n))", "None is used where a value is expected", "a function without `return` gives None"),
    ("tl.store(p, again(3))", "again is called inside too many other calls", "must shrink a compile-time value"),
    ("tl.store(p, p)", "cannot cast pointer<fp32> to fp32", "load what it points to: tl.load(x)"),
    ("if BLOCK > 8:\n    late = n\ntl.store(p, late)", "late is not defined", "is left out by a compile-time condition, or comes later"),
    ("tl.load(p + s)", "+ does not take pointer<fp32> and fp32", "cast the offset to an integer: x.to(tl.int64)"),
    ("tl.load(p * n)", "* does not take pointer<fp32> and int32", "load the value first with tl.load"),
    ("tl.load(n)", "tl.load needs a pointer", "add the offset to a pointer parameter first"),
    ("tl.load(p + x, other=0.0)", "tl.load with other= needs a mask", "give mask=..."),
    ("tl.load(p, mask=x < n)", "a scalar pointer takes a scalar mask", "ptr + tl.arange(0, BLOCK)"),
    ("tl.store(p, x)", "a scalar pointer takes a scalar value", "ptr + tl.arange(0, BLOCK)"),
    ("tl.exp(p)", "tl.exp takes fp32 or fp64, not pointer<fp32>", "load what it points to first"),
    ("tl.exp(n)", "tl.exp takes fp32 or fp64, not int32", "cast first: x.to(tl.float32)"),
    ("s & 1", "& does not take floats", "cast to an integer: x.to(tl.int32)"),
    ("s ** 2", "** does not take run-time values", "write x * x"),
    ("n // 0", "int32 // 0 has no result", "leave the code out by an `if` where the right side is 0, or divide floats: x.to(tl.float32) / y"),
    ("n % 0", "int32 % 0 has no result", "by an `if`"),
    ("n //= 0", "int32 // 0 has no result", "by an `if`"),
    ("n %= 0", "int32 % 0 has no result", "by an `if`"),
    ("x // (BLOCK - 8)", "int32 // 0 has no result", "by an `if`"),
    ("zero = tl.full([8], 0, tl.uint8)\ny = x.to(tl.uint8) % zero", "uint8 % 0 has no result", "by an `if`"),
    ("y = x // tl.zeros([8], tl.int64)", "int64 // 0 has no result", "by an `if`"),
    ("n << 100", "int32 << 100 has no result", "shift by 0 to 31, or shift a wider type: x.to(tl.int64)"),
    ("n << -1", "int32 << -1 has no result", "shift by 0 to 31"),
    ("n >> 32", "int32 >> 32 has no result", "shift by 0 to 31, or shift a wider type"),
    ("n <<= 32", "int32 << 32 has no result", "shift by 0 to 31"),
    ("x >>= -BLOCK", "int32 >> -8 has no result", "shift by 0 to 31"),
    ("n.to(tl.uint64) >> 64", "uint64 >> 64 has no result", "shift by 0 to 63"),
    ("x.to(tl.uint8) << 8", "uint8 << 8 has no result", "shift by 0 to 7, or shift a wider type"),
    ("by = tl.full([8], 200, tl.uint8)\ny = x << by", "int32 << 200 has no result", "shift by 0 to 31"),
    ("n + None", "+ does not take None", "`if NAME is not None:`"),
    ("if n is 3:\n    pass", "`is` compares with None only", "write =="),
    ("if x > 3:\n    pass", "a condition must be a scalar", "use tl.where"),
    ("if 0 < n < 8:\n    pass", "chained comparisons", "(a < b) & (b < c)"),
    ("for v in x:\n    pass", "a loop cannot run over", "use range, tl.range, tl.static_range or a tuple"),
    ("for i in range(n):\n    if i > 3:\n        return", "Cannot have `return` statements inside", "return after the loop"),
    ("acc = 0\nfor i in range(n):\n    acc += 1.5", "it is int32 before the loop and fp32 at its end", "start with the type that it has later"),
    ("a, b = x", "cannot be unpacked into 2 variables", "only tuples can"),
    ("helper[(1,)](n)", "helper is launched with a grid from outside only", "call it: helper(...)"),
    ("return n", "a kernel returns nothing", "tl.store"),
    ("y = {v for v in range(4)}", "a set is not part of the kernel language", "use a tuple"),
]  # fmt: skip


@pytest.mark.parametrize(("statement", "message", "cure"), MISTAKES, ids=[row[0].split("\n")[0] for row in MISTAKES])
@pytest.mark.filterwarnings("ignore:.is. with:SyntaxWarning")
def test_mistakes_are_told_with_their_cure(statement: str, message: str, cure: str | None) -> None:
    fn = kernel(
        f"x = tl.arange(0, 8)\noffsets = x + 1\n{statement}",
        "p, n, s",
        np=np,
        torch=torch,
        math=math,
        **{name: HELPERS[name] for name in ("helper", "nothing", "again")},
        BLOCK=tl.constexpr(8),
    )
    with pytest.raises(CompilationError) as caught:
        compile_kernel(fn, p="*fp32", n="i32", s="fp32")
    error = caught.value
    assert message in error.message
    assert (cure in (error.cure or "")) if cure else error.cure is None
    assert error.location is not None
    place = error.call_sites[-1] if error.call_sites else error.location
    assert 5 <= place.line <= 5 + statement.count("\n")
    assert len(str(error).splitlines()) < 20
    assert error.location.column > 0


@pytest.mark.parametrize(
    "statement",
    [
        "s / 0",
        "s % 0",
        "s % 0.0",
        "n / 0",
        "n << 31",
        "x >> 0",
        "n.to(tl.int64) << 63",
        "x // -1",
        "if BLOCK != 8:\n    n // 0",
    ],
)
def test_what_has_a_result_is_no_mistake(statement: str) -> None:
    fn = kernel(f"x = tl.arange(0, 8)\n{statement}", "n, s", BLOCK=tl.constexpr(8))
    compile_kernel(fn, n="i32", s="fp32")


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("tl.arange(2, 7)", "arange's range must be a power of 2"),
        ("tl.full([33], 0, tl.int64)", "Shape element 0 must be a power of 2"),
        ("tl.dot(x, x, max_num_imprecise_acc=128)", "max_num_imprecise_acc (128) must be <= K (64)"),
        ("tl.dot_scaled(u, w, 'e5m2', u, s, 'e5m2')", "Operands must have the same scale factor; (lhs: 16 vs rhs: 32)"),
    ],
)
def test_the_cause_is_worded_as_in_triton(statement: str, reason: str) -> None:
    fn = kernel(
        "x = tl.full([64, 64], 0.0, tl.float8e5)\nu = tl.full([64, 64], 0, tl.uint8)\n"
        f"w = tl.full([64, 4], 0, tl.uint8)\ns = tl.full([64, 2], 0, tl.uint8)\n{statement}",
        "n",
    )
    with pytest.raises(CompilationError) as caught:
        compile_kernel(fn, n="i32")
    assert str(caught.value.__cause__) == reason
