"""@aggregate: fields, defaults, inheritance, methods, and how kernels carry instances through branches, loops and calls."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.errors import CompilationError
from kernelpack.kernel.aggregates import aggregate, aggregate_replace
from tests.frontend.compiling import compile_kernel, kernel, run


@aggregate
class Running:
    total: tl.tensor
    SCALE: tl.constexpr = 2

    @kp.jit
    def add(self, x):
        return Running(self.total + x * self.SCALE, self.SCALE)

    @staticmethod
    def start(x):
        return Running(x, tl.constexpr(3))

    @kp.constexpr_function
    def squared(self):
        return self.SCALE * self.SCALE

    def first(self, _semantic=None):
        return tl.zeros([1], tl.int32, _semantic=_semantic)

    def __getitem__(self, index):
        return self.total if index == 0 else self.SCALE


@aggregate
class Named(Running):
    shape: tl.tuple


def test_instances_outside_of_kernels() -> None:
    class Shape(NamedTuple):
        x: tl.constexpr
        y: tl.constexpr

    @aggregate
    class State:
        shape: tl.tuple
        strides: tl.tuple
        SIZE: tl.constexpr = 42

        @kp.constexpr_function
        def size(self):
            return self.SIZE

    state = State(Shape(3, tl.constexpr(7)), (7, tl.constexpr(1)))
    assert isinstance(state.shape, tl.tuple)
    assert (state.shape.x.value, state.shape[1].value, state.strides[1].value, state.SIZE.value) == (3, 7, 1, 42)
    assert state.size().value == 42  # what the function gives, as it gives it
    changed = aggregate_replace(state, SIZE=5)
    assert (changed.SIZE.value, state.SIZE.value) == (5, 42)
    with pytest.raises(AttributeError, match="cannot assign to field 'SIZE' on immutable aggregate State"):
        state.SIZE = 3
    with pytest.raises(TypeError, match="has no field 'z'"):
        aggregate_replace(state, z=1)
    with pytest.raises(TypeError, match="expects an aggregate instance"):
        aggregate_replace(42, z=1)
    with pytest.raises(TypeError, match="State: no value for shape, strides"):
        State()
    with pytest.raises(TypeError, match="can only inherit from other aggregates"):
        aggregate(type("Child", (Shape,), {}))


def test_methods_fields_and_control_flow() -> None:
    fn = kernel(
        """
        state = Running.start(n)
        for i in range(4):
            state = state.add(i)
        if n > 3:
            state = kp.language.aggregate_replace(state, total=state.total + 100)
        tl.static_assert(state.squared() == 9 and state[1] == 3)
        tl.store(p, state[0])
        named = Named(n, shape=(n, 4))
        tl.store(p + 1, named.add(n).total + named.shape[1] * named.SCALE + named.shape[0])
        tl.store(p + 2 + tl.arange(0, 1), named.first())
        """,
        "p, n",
        Running=Running,
        Named=Named,
    )
    out = np.full(3, -1, np.int32)
    run(fn, 1, p=out, n=5)
    assert list(out) == [5 + 18 + 100, 5 + 10 + 8 + 5, 0]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("Running(1)", "field 'total' is a tensor, got 1"),
        ("Running(n, n)", "field 'SCALE' is constexpr, got a run-time value of type int32"),
        ("Running(n).totl", "has no attribute 'totl'"),
        ("s = Running(n)\ns.total = n", "`s.total` cannot be assigned to: values do not change"),
        ("s = Running(n)\nfor i in range(n):\n    s = Running(n, 3)", None),
    ],
)
def test_mistakes(body: str, message: str | None) -> None:
    fn = kernel(body, "n", Running=Running)
    if message is None:  # nobody reads what the loop lost
        compile_kernel(fn, n="i32")
        return
    with pytest.raises(CompilationError, match=message) as caught:
        compile_kernel(fn, n="i32")
    assert caught.value.location is not None
