"""Roots of nests: what each walks over, evaluates, makes and writes, and whether its lanes turn."""

from __future__ import annotations

import pytest

from kernelpack.backends.cpu.plan.buffers import Buffer, OperandBuffer
from kernelpack.backends.cpu.plan.sinks import (
    Atomic,
    Histogram,
    Map,
    Materialize,
    Message,
    Reduce,
    Root,
    Scan,
    Store,
    buffers_of,
    domain_of,
    made_by,
    turned_axis,
    values_of,
)
from kernelpack.ir.core import Operation
from kernelpack.ir.printer import value_names
from kernelpack.ir.types import F32, I32
from tests.ir.examples import function, parse

MODULE = parse(
    function(
        """
        %sum = "tt.reduce"(%a) <{axis = 1 : i32}> ({
        ^bb0(%x: f32, %y: f32):
          %1 = arith.addf %x, %y : f32
          tt.reduce.return %1 : f32
        }) : (tensor<4x8xf32>) -> tensor<4xf32>
        %sums = "tt.scan"(%a) <{axis = 0 : i32, reverse = false}> ({
        ^bb0(%x: f32, %y: f32):
          %2 = arith.addf %x, %y : f32
          tt.scan.return %2 : f32
        }) : (tensor<4x8xf32>) -> tensor<4x8xf32>
        tt.store %p, %a, %m : tensor<4x8x!tt.ptr<f32>>
        %old = tt.atomic_rmw fadd, acq_rel, gpu, %p, %a, %m : (tensor<4x8x!tt.ptr<f32>>, tensor<4x8xf32>, tensor<4x8xi1>) -> tensor<4x8xf32>
        %seen = tt.atomic_cas acq_rel, gpu, %q, %i, %i : (tensor<8x!tt.ptr<i32>>, tensor<8xi32>, tensor<8xi32>) -> tensor<8xi32>
        %double = "tt.map_elementwise"(%a) <{pack = 1 : i32}> ({
        ^bb0(%x: f32):
          %3 = arith.addf %x, %x : f32
          tt.map_elementwise.return %3 : f32
        }) : (tensor<4x8xf32>) -> tensor<4x8xf32>
        %counts = tt.histogram %i : tensor<8xi32> -> tensor<16xi32>
        "tt.print"(%i) <{is_signed = array<i32: 1>, prefix = "i: "}> : (tensor<8xi32>) -> ()
        """,
        "%a: tensor<4x8xf32>, %p: tensor<4x8x!tt.ptr<f32>>, %m: tensor<4x8xi1>, %q: tensor<8x!tt.ptr<i32>>, %i: tensor<8xi32>",
    )
)
FUNCTION = MODULE.body.operations[0]
OPS = {op.name: op for op in FUNCTION.walk()}
NAMES = value_names(FUNCTION)
A = FUNCTION.body.arguments[0]


def op(name: str) -> Operation:
    return OPS[f"tt.{name}"]


WHOLE, LINE, COUNTS = Buffer("t", (4, 8), 1, F32), Buffer("l", (4,), 0, F32), Buffer("c", (16,), 0, I32)
TURNED, PACKED = Buffer("u", (4, 8), 0, F32), OperandBuffer("k", (4, 8), 0, F32, 1, k_inner=True)

ROOTS: dict[str, tuple[Root, str, str, str, str]] = {
    # the domain, the tiles evaluated, the values made, the buffers written
    "t <- %a": (Materialize(A, WHOLE, -1), "4x8", "%a", "%a", "t"),
    "u <- %a, a copy of t": (Materialize(A, TURNED, -1, WHOLE), "4x8", "%a", "%a", "u"),
    "k <- %a": (Materialize(A, PACKED, -1), "4x8", "%a", "", "k"),
    "l <- reduce axis 1 of %a": (Reduce(op("reduce"), [LINE], 0), "4x8", "%a", "%sum", "l"),
    "%sum <- reduce axis 1 of %a": (Reduce(op("reduce"), [None], 0), "4x8", "%a", "%sum", ""),
    "t <- scan axis 0 of %a": (Scan(op("scan"), [WHOLE], 1), "4x8", "%a", "%sums", "t"),
    "store %a to %p where %m": (Store(op("store"), 1, 2), "4x8", "%p %a %m", "", ""),
    "t <- atomic fadd %a at %p where %m": (Atomic(op("atomic_rmw"), WHOLE, 3), "4x8", "%p %a %m", "%old", "t"),
    "atomic fadd %a at %p where %m": (Atomic(op("atomic_rmw"), None, 3), "4x8", "%p %a %m", "%old", ""),
    "atomic cas %i, %i at %q": (Atomic(op("atomic_cas"), None, 4), "8", "%q %i %i", "%seen", ""),
    "t <- map of %a": (Map(op("map_elementwise"), [WHOLE], 5), "4x8", "%a", "%double", "t"),
    "c <- histogram of %i": (Histogram(op("histogram"), COUNTS, 6), "8", "%i", "%counts", "c"),
    "print %i": (Message(op("print"), 7), "8", "%i", "", ""),
}


@pytest.mark.parametrize("text", ROOTS)
def test_what_a_root_is_and_does(text: str) -> None:
    root, domain, evaluated, made, written = ROOTS[text]
    assert root.text(NAMES.__getitem__) == text
    assert "x".join(map(str, domain_of(root))) == domain
    assert " ".join(NAMES[value] for value in values_of(root)) == evaluated
    assert " ".join(NAMES[value] for value in made_by(root)) == made
    assert " ".join(buffer.name for buffer in buffers_of(root)) == written


@pytest.mark.parametrize(
    ("root", "turned"),
    [
        (Materialize(A, WHOLE, -1), None),
        (Materialize(A, TURNED, -1), 0),
        (Materialize(A, PACKED, -1), 0),
        (Store(op("store"), 1, 2), None),
        (Store(op("store"), 0, 2), 0),
        (Store(op("store"), None, 2), None),
        (Reduce(op("reduce"), [LINE], 0), None),
        (Scan(op("scan"), [TURNED], 1), None),
    ],
)
def test_lanes_turn_where_what_is_written_runs_along_another_axis(root: Root, turned: int | None) -> None:
    assert turned_axis(root, 1) == turned
