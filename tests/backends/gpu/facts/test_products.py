"""Which loads of a loop feed its products."""

from __future__ import annotations

from kernelpack.backends.gpu.facts.products import loads_for_dots
from kernelpack.ir.core import entry_function
from tests.backends.gpu.ttgir import parse

A, P = "tensor<16x16xf16>", "tensor<16x16x!tt.ptr<f16>>"
ARGUMENTS = f"%p: {P}, %q: {P}, %s: {P}, %n: i32, %start: tensor<16x16xf32>, %old: {A}"


def found(body: str) -> list[str | None]:
    """Returns the names of the loads that feed a product; `%c` is the sum, `%last` what the iteration before loaded."""
    text = f"""
    %r:2 = scf.for %i = %n to %n step %n iter_args(%c = %start, %last = %old) -> (tensor<16x16xf32>, {A}) : i32 {{
    {body}
    scf.yield %d, %x : tensor<16x16xf32>, {A}
    }}
    """
    loop = next(op for op in entry_function(parse(text, ARGUMENTS, {})).walk() if op.name == "scf.for")
    return sorted(op.result.name for op in loads_for_dots(loop))


def dot(a: str, b: str) -> str:
    return f"%d = tt.dot {a}, {b}, %c : {A} * {A} -> tensor<16x16xf32>"


def test_operands_are_found_directly_and_through_arithmetic() -> None:
    x, y = (f"%{name} = tt.load %{pointer} : {P}" for name, pointer in (("x", "p"), ("y", "q")))
    half = f"%h = arith.addf %y, %y : {A}\n%h2 = arith.mulf %h, %h : {A}"
    assert found(f"{x}\n{y}\n{half}\n{dot('%x', '%h2')}") == ["x", "y"]


def test_what_only_another_iteration_multiplies_is_not() -> None:
    x, y = (f"%{name} = tt.load %{pointer} : {P}" for name, pointer in (("x", "p"), ("y", "q")))
    assert found(f"{x}\n{y}\n{dot('%y', '%last')}") == ["y"]


def test_what_is_stored_is_not() -> None:
    x, y = (f"%{name} = tt.load %{pointer} : {P}" for name, pointer in (("x", "p"), ("y", "q")))
    assert found(f"{x}\n{y}\ntt.store %s, %x : {P}\n{dot('%y', '%y')}") == ["y"]
