"""Tiles in the interpreter: shapes, reductions, scans, products."""

from __future__ import annotations

import numpy as np
import pytest

from kernelpack.ir.interpret import launch
from tests.ir.examples import function, parse


def run_tile(body: str, inputs: dict[str, tuple[str, np.ndarray]], out: np.ndarray, result: str) -> np.ndarray:
    """Loads each input tile by its name, runs the body, and stores the value `%result` of type `result`."""
    arguments, loads = ["%out: !tt.ptr<" + result.split("x")[-1].rstrip(">") + ">"], []
    for name, (kind, array) in inputs.items():
        element = kind.split("x")[-1].rstrip(">")
        arguments.append(f"%{name}_p: !tt.ptr<{element}>")
        loads.append(_access(f"{name}_p", kind, array.size) + f"\n%{name} = tt.load %{name}_p_q : {_pointers(kind)}")
    store = _access("out", result, out.size) + f"\ntt.store %out_q, %result : {_pointers(result)}"
    text = function("\n".join([*loads, body, store]), ", ".join(arguments))
    launch(parse(text), 1, [out, *(array for _, array in inputs.values())])
    return out


def _pointers(kind: str) -> str:
    element = kind.split("x")[-1].rstrip(">")
    return kind.replace(element + ">", f"!tt.ptr<{element}>>")


def _access(name: str, kind: str, size: int) -> str:
    element = kind.split("x")[-1].rstrip(">")
    ints = kind.replace(element + ">", "i32>")
    return f"""
%{name}_r = tt.make_range {{end = {size} : i32, start = 0 : i32}} : tensor<{size}xi32>
%{name}_i = tt.reshape %{name}_r : tensor<{size}xi32> -> {ints}
%{name}_s = tt.splat %{name} : !tt.ptr<{element}> -> {_pointers(kind)}
%{name}_q = tt.addptr %{name}_s, %{name}_i : {_pointers(kind)}, {ints}"""


def test_shapes() -> None:
    a = np.arange(32, dtype=np.float32).reshape(8, 4)
    body = """
    %t = tt.trans %a {order = array<i32: 1, 0>} : tensor<8x4xf32> -> tensor<4x8xf32>
    %e = tt.expand_dims %t {axis = 1 : i32} : tensor<4x8xf32> -> tensor<4x1x8xf32>
    %b = tt.broadcast %e : tensor<4x1x8xf32> -> tensor<4x2x8xf32>
    %f = tt.reshape %b : tensor<4x2x8xf32> -> tensor<8x8xf32>
    %j = tt.join %f, %f : tensor<8x8xf32> -> tensor<8x8x2xf32>
    %x, %y = tt.split %j : tensor<8x8x2xf32> -> tensor<8x8xf32>
    %result = tt.cat %x, %y : tensor<8x8xf32> -> tensor<16x8xf32>
    """
    once = np.repeat(a.T, 2, axis=0)
    got = run_tile(body, {"a": ("tensor<8x4xf32>", a)}, np.zeros((16, 8), np.float32), "tensor<16x8xf32>")
    assert (got == np.concatenate([once, once])).all()


def combine(name: str, kind: str = "f32") -> str:
    return f"""({{
    ^bb0(%l: {kind}, %m: {kind}):
      %c = {name} %l, %m : {kind}
      tt.OP.return %c : {kind}
    }})"""


@pytest.mark.parametrize(("name", "oracle"), [("arith.addf", np.sum), ("arith.maximumf", np.max), ("arith.mulf", np.prod)])
@pytest.mark.parametrize("axis", [0, 1])
def test_reductions(name: str, oracle: object, axis: int) -> None:
    a = np.random.default_rng(0).integers(1, 4, (8, 4)).astype(np.float32)
    shape = "tensor<4xf32>" if axis == 0 else "tensor<8xf32>"
    body = f'%result = "tt.reduce"(%a) <{{axis = {axis} : i32}}> {combine(name)} : (tensor<8x4xf32>) -> {shape}'
    got = run_tile(body.replace("OP", "reduce"), {"a": ("tensor<8x4xf32>", a)}, np.zeros(12 - a.shape[axis], np.float32), shape)
    assert (got == oracle(a, axis=axis)).all()


def test_sums_are_pairwise() -> None:
    """A running sum in f16 would stop growing at 2048."""
    a = np.ones((1, 4096), np.float16)
    body = (
        f'%result = "tt.reduce"(%a) <{{axis = 1 : i32}}> {combine("arith.addf", "f16")} : (tensor<1x4096xf16>) -> tensor<1xf16>'
    )
    got = run_tile(body.replace("OP", "reduce"), {"a": ("tensor<1x4096xf16>", a)}, np.zeros(1, np.float16), "tensor<1xf16>")
    assert got[0] == 4096


_ARGMAX = """
%i = tt.make_range {end = 8 : i32, start = 0 : i32} : tensor<8xi32>
%best, %where = "tt.reduce"(%a, %i) <{axis = 0 : i32}> ({
^bb0(%x: f32, %j: i32, %y: f32, %k: i32):
  %gt = arith.cmpf ogt, %x, %y : f32
  %eq = arith.cmpf oeq, %x, %y : f32
  %lt = arith.cmpi slt, %j, %k : i32
  %tie = arith.andi %eq, %lt : i1
  %first = arith.ori %gt, %tie : i1
  PICK
  tt.reduce.return %v, %w : f32, i32
}) : (tensor<8xf32>, tensor<8xi32>) -> (f32, i32)
%s = tt.splat %where : i32 -> tensor<1xi32>
%result = tt.reshape %s : tensor<1xi32> -> tensor<1xi32>
"""


@pytest.mark.parametrize(
    "pick",
    [
        "%v = arith.select %first, %x, %y : f32\n%w = arith.select %first, %j, %k : i32",
        "%v, %w = scf.if %first -> (f32, i32) {\nscf.yield %x, %j : f32, i32\n} else {\nscf.yield %y, %k : f32, i32\n}",
    ],
    ids=["whole tiles", "element by element"],
)
def test_reduction_of_two_operands(pick: str) -> None:
    a = np.array([1, 7, 3, 7, 0, 7, 2, 5], np.float32)
    got = run_tile(_ARGMAX.replace("PICK", pick), {"a": ("tensor<8xf32>", a)}, np.zeros(1, np.int32), "tensor<1xi32>")
    assert got[0] == 1


def test_combine_may_use_values_from_outside_and_call() -> None:
    text = """
    tt.func public @kernel(%out: !tt.ptr<i32>, %m: i32) {
      %r = tt.make_range {end = 8 : i32, start = 0 : i32} : tensor<8xi32>
      %s = "tt.reduce"(%r) <{axis = 0 : i32}> ({
      ^bb0(%x: i32, %y: i32):
        %a = tt.call @add(%x, %y) : (i32, i32) -> i32
        %b = arith.remsi %a, %m : i32
        tt.reduce.return %b : i32
      }) : (tensor<8xi32>) -> i32
      tt.store %out, %s : !tt.ptr<i32>
      tt.return
    }
    tt.func private @add(%x: i32, %y: i32) -> i32 {
      %a = arith.addi %x, %y : i32
      tt.return %a : i32
    }
    """
    out = np.zeros(1, np.int32)
    launch(parse(text), 1, [out, 13])
    assert out[0] == 28 % 13


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
def test_scans(axis: int, reverse: bool) -> None:
    a = np.random.default_rng(1).integers(-9, 9, (8, 4)).astype(np.int32)
    body = f'%result = "tt.scan"(%a) <{{axis = {axis} : i32, reverse = {str(reverse).lower()}}}> {combine("arith.addi", "i32")} : (tensor<8x4xi32>) -> tensor<8x4xi32>'
    got = run_tile(body.replace("OP", "scan"), {"a": ("tensor<8x4xi32>", a)}, np.zeros((8, 4), np.int32), "tensor<8x4xi32>")
    expected = np.flip(np.cumsum(np.flip(a, axis), axis), axis) if reverse else np.cumsum(a, axis)
    assert (got == expected).all()


@pytest.mark.parametrize("reverse", [False, True])
def test_scan_keeps_order(reverse: bool) -> None:
    """`first` is associative but not commutative."""
    a = np.arange(1, 9, dtype=np.int32)
    region = "({\n^bb0(%l: i32, %m: i32):\ntt.scan.return %l : i32\n})"
    body = f'%result = "tt.scan"(%a) <{{axis = 0 : i32, reverse = {str(reverse).lower()}}}> {region} : (tensor<8xi32>) -> tensor<8xi32>'
    got = run_tile(body, {"a": ("tensor<8xi32>", a)}, np.zeros(8, np.int32), "tensor<8xi32>")
    assert (got == (8 if reverse else 1)).all()


@pytest.mark.parametrize(
    ("inputs", "out", "dtype"),
    [
        ("f32", "f32", np.float32),
        ("f16", "f32", np.float16),
        ("f16", "f16", np.float16),
        ("f64", "f64", np.float64),
        ("i8", "i32", np.int8),
    ],
)
def test_products(inputs: str, out: str, dtype: type) -> None:
    chance = np.random.default_rng(2)
    a, b = (chance.integers(-128, 127, shape).astype(dtype) for shape in ((4, 16), (16, 8)))
    if inputs != "i8":
        a, b = a / dtype(7), b / dtype(9)
    c = chance.integers(-5, 5, (4, 8)).astype({"f32": np.float32, "f16": np.float16, "f64": np.float64, "i32": np.int32}[out])
    body = f"%result = tt.dot %a, %b, %c, inputPrecision = tf32 : tensor<4x16x{inputs}> * tensor<16x8x{inputs}> -> tensor<4x8x{out}>"
    tiles = {"a": (f"tensor<4x16x{inputs}>", a), "b": (f"tensor<16x8x{inputs}>", b), "c": (f"tensor<4x8x{out}>", c)}
    got = run_tile(body, tiles, np.zeros((4, 8), c.dtype), f"tensor<4x8x{out}>")
    exact = a.astype(np.float64) @ b.astype(np.float64) + c.astype(np.float64)
    assert np.allclose(got, exact.astype(c.dtype), rtol=1e-15, atol=0)


def test_batched_product() -> None:
    chance = np.random.default_rng(3)
    a, b = chance.normal(size=(2, 4, 8)).astype(np.float32), chance.normal(size=(2, 8, 4)).astype(np.float32)
    body = """
    %c = arith.constant dense<1.0> : tensor<2x4x4xf32>
    %result = tt.dot %a, %b, %c : tensor<2x4x8xf32> * tensor<2x8x4xf32> -> tensor<2x4x4xf32>
    """
    got = run_tile(
        body,
        {"a": ("tensor<2x4x8xf32>", a), "b": ("tensor<2x8x4xf32>", b)},
        np.zeros((2, 4, 4), np.float32),
        "tensor<2x4x4xf32>",
    )
    assert np.allclose(got, a @ b + 1, atol=1e-6)
