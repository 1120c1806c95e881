"""Tuples, named tuples and aggregates as arguments of kernels: what is compiled for them, and what reaches the kernel."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.backends.installed import backend_of
from kernelpack.errors import ArgumentOverflowError, CompilationError
from kernelpack.kernel.aggregates import aggregate
from kernelpack.runtime.specialization import specialize
from kernelpack.target import Target
from kernelpack.tools.tensor_descriptor import TensorDescriptor


class Matrix(NamedTuple):
    ptr: tl.tensor
    shape: tuple
    fn: tl.constexpr


@aggregate
class Pair:
    left: tl.tensor
    COUNT: tl.constexpr


@kp.jit
def negate(x):
    return -x


@kp.jit
def through_all(out, xs, matrix, pair, blocks, flags: tl.constexpr):
    tl.static_assert(xs[1] is None and xs[2][0] == 1 and xs[2][1] == 4)
    tl.static_assert(flags[1] == "b" and len(flags) == 2)
    value = tl.load(xs[0]) + xs[2][2]
    tl.store(out, matrix.fn(value) * matrix.shape[1])
    tl.store(out + 1, tl.load(matrix.ptr + matrix.shape[0]) + pair.COUNT + tl.load(pair.left))
    tile = blocks[0].load([0, 0])
    for _ in range(2):
        matrix = Matrix(matrix.ptr + 1, matrix.shape, matrix.fn)
    tl.store(out + 2, tl.sum(tile) + tl.load(matrix.ptr) + blocks[1])


def test_nested_arguments_reach_the_kernel() -> None:
    out, x, m, y = torch.zeros(3), torch.full((1,), 5.0), torch.arange(4.0), torch.full((1,), 2.0)
    block = TensorDescriptor.from_tensor(torch.ones(4, 4), [4, 4])
    through_all[(1,)](
        out,
        (x, None, (1, tl.constexpr(4), 7)),
        Matrix(m, (3, 2), negate),
        Pair(y, 9),
        (block, 0.5),
        ["a", "b"],
    )
    assert out.tolist() == [-24.0, 3 + 9 + 2, 16 + 2 + 0.5]


def test_what_is_compiled() -> None:
    x = torch.zeros(64)

    @kp.jit
    def kernel(xs, named):
        pass

    backend = backend_of(Target("cuda", "sm_90a"))
    special, values = specialize(kernel, {"xs": (x, (16, 1, 3)), "named": Matrix(x, (2, None), negate)}, backend)
    assert special.signature == (
        ("xs", ("*fp32", ("i32", "constexpr", "i32"))),
        ("named", ("*fp32", ("i32", "constexpr"), "constexpr")),
    )
    assert special.constexprs == (("xs.1.1", 1), ("named", Matrix), ("named.1.1", None), ("named.2", negate))
    assert {fact.parameter for fact in special.facts if fact.property == "tt.divisibility"} == {"xs_0", "xs_1_0", "named_ptr"}
    assert values == [x, 16, 3, x, 2]


class Extent(NamedTuple):
    rows: tl.int64
    columns: int
    scale: tl.float32


def test_numbers_have_the_types_that_fields_state() -> None:
    """As parameters do: one that is 1 is no constant then. Python's own types ask for nothing, as in Triton."""

    @kp.jit
    def kernel(out, extent):
        tl.static_assert(extent.rows.dtype == tl.int64 and extent.scale.dtype == tl.float32)
        tl.store(out, extent.rows * extent.columns * extent.scale)

    out = torch.zeros(1)
    special, values = specialize(kernel, {"out": out, "extent": Extent(1, 1, 3)}, backend_of(Target("cpu", "x86-64-v3")))
    assert special.signature[1] == ("extent", ("i64", "constexpr", "fp32"))
    assert values[1:] == [1, 3]
    for rows, columns in ((1, 1), (2, 2**33)):
        kernel[(1,)](out, Extent(rows, columns, 0.5))
        assert out.item() == rows * columns * 0.5
    with pytest.raises(ArgumentOverflowError, match="argument extent of kernel is 9223372036854775808"):
        kernel[(1,)](out, Extent(2**63, 1, 0.5))


class Named(NamedTuple):
    value: tl.tensor
    type: tl.tensor


def test_fields_may_be_called_as_what_constexprs_have() -> None:
    @kp.jit
    def kernel(out, named):
        tl.store(out, tl.load(named.value) * named.type)

    out = torch.zeros(1)
    kernel[(1,)](out, Named(torch.full((1,), 3.0), 5))
    assert out.item() == 15


def test_functions_and_types_need_no_annotation() -> None:
    @kp.jit
    def kernel(out, fn, kind):
        tl.store(out, fn(tl.load(out)).to(kind))

    out = torch.full((1,), 2.5)
    kernel[(1,)](out, negate, tl.int32)
    assert out.item() == -2.0


def test_constant_pointers_are_not_stored_through() -> None:
    @kp.jit
    def kernel(x: tl.const, out, chosen, BLOCK: tl.constexpr):
        target = out if chosen else x
        tl.store(target + tl.arange(0, BLOCK), 1.0)

    x = torch.zeros(4)
    with pytest.raises(CompilationError, match="Ternary expression with dynamic condition has inconsistent types"):
        kernel[(1,)](x, x, 5, BLOCK=4)

    @kp.jit
    def direct(x: tl.const):
        tl.store(x, 1.0)

    with pytest.raises(CompilationError, match="Cannot store to a constant pointer"):
        direct[(1,)](x)
