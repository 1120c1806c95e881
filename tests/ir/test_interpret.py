"""The interpreter: memory is checked and mutated in place, control flow runs, reductions and products have their meaning."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kernelpack.errors import LaunchError, SourceLocation
from kernelpack.ir.core import Location
from kernelpack.ir.interpret import launch
from tests.ir.examples import function, parse

ADD = function(
    """
    %pid = tt.get_program_id x : i32
    %c8 = arith.constant 8 : i32
    %base = arith.muli %pid, %c8 : i32
    %r = tt.make_range {end = 8 : i32, start = 0 : i32} : tensor<8xi32>
    %bs = tt.splat %base : i32 -> tensor<8xi32>
    %off = arith.addi %bs, %r : tensor<8xi32>
    %ns = tt.splat %n : i32 -> tensor<8xi32>
    %m = arith.cmpi slt, %off, %ns : tensor<8xi32>
    %xs = tt.splat %x : !tt.ptr<f32> -> tensor<8x!tt.ptr<f32>>
    %xp = tt.addptr %xs, %off : tensor<8x!tt.ptr<f32>>, tensor<8xi32>
    %v = tt.load %xp, %m : tensor<8x!tt.ptr<f32>>
    %w = arith.addf %v, %v : tensor<8xf32>
    %ys = tt.splat %y : !tt.ptr<f32> -> tensor<8x!tt.ptr<f32>>
    %yp = tt.addptr %ys, %off : tensor<8x!tt.ptr<f32>>, tensor<8xi32>
    tt.store %yp, %w, %m : tensor<8x!tt.ptr<f32>>
    """,
    "%x: !tt.ptr<f32>, %y: !tt.ptr<f32>, %n: i32",
)


def copy(kind: str, size: int = 8) -> str:
    """A kernel that copies `size` elements from x + a to y + b."""
    pointers = f"tensor<{size}x!tt.ptr<{kind}>>"
    return function(
        f"""
        %r = tt.make_range {{end = {size} : i32, start = 0 : i32}} : tensor<{size}xi32>
        %x1 = tt.addptr %x, %a : !tt.ptr<{kind}>, i32
        %xs = tt.splat %x1 : !tt.ptr<{kind}> -> {pointers}
        %xp = tt.addptr %xs, %r : {pointers}, tensor<{size}xi32>
        %v = tt.load %xp : {pointers}
        %y1 = tt.addptr %y, %b : !tt.ptr<{kind}>, i32
        %ys = tt.splat %y1 : !tt.ptr<{kind}> -> {pointers}
        %yp = tt.addptr %ys, %r : {pointers}, tensor<{size}xi32>
        tt.store %yp, %v : {pointers}
        """,
        f"%x: !tt.ptr<{kind}>, %y: !tt.ptr<{kind}>, %a: i32, %b: i32",
    )


# ---- memory ----


def test_masked_kernel_over_a_grid_works_in_place() -> None:
    x, y = np.arange(19, dtype=np.float32), np.full(19, -1, np.float32)
    launch(parse(ADD), 3, [x, y, 19])
    assert (y == 2 * x).all()


def test_torch_tensors_are_written_in_place() -> None:
    x, y = torch.arange(19.0), torch.full((19,), -1.0)
    launch(parse(ADD), (3,), [x, y, 19])
    assert torch.equal(y, 2 * x)


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        ("i1", torch.bool),
        ("i8", torch.uint8),
        ("i16", torch.int16),
        ("i32", torch.int32),
        ("i64", torch.int64),
        ("f16", torch.float16),
        ("bf16", torch.bfloat16),
        ("f32", torch.float32),
        ("f64", torch.float64),
        ("f8E4M3FN", torch.float8_e4m3fn),
        ("f8E5M2", torch.float8_e5m2),
    ],
)
def test_every_type_goes_through_memory_unchanged(kind: str, dtype: torch.dtype) -> None:
    x = torch.tensor([0, 1, 1, 0, 1, 1, 0, 1]) if dtype == torch.bool else torch.linspace(-3.5, 60, 8)
    x, y = x.to(dtype), torch.zeros(8).to(dtype)
    launch(parse(copy(kind)), 1, [x, y, 0, 0])
    assert torch.equal(x.view(torch.uint8), y.view(torch.uint8))


def test_bfloat16_as_integers() -> None:
    x, y = np.array([0x3F80, 0xC000] * 4, np.uint16), np.zeros(8, np.int16)
    launch(parse(copy("bf16")), 1, [x, y, 0, 0])
    assert (x == y.view(np.uint16)).all()


def test_interior_pointers_reach_back_no_further_than_their_view() -> None:
    whole = np.arange(32, dtype=np.float32)
    out = np.zeros(8, np.float32)
    launch(parse(copy("f32")), 1, [whole[16:], out, 3, 0])
    assert (out == whole[19:27]).all()
    with pytest.raises(LaunchError, match=r"reads 4 bytes at byte -4 of argument x, which has 64 bytes \(1 lanes"):
        launch(parse(copy("f32")), 1, [whole[16:], out, -1, 0])


def test_reversed_view_points_at_its_last_byte() -> None:
    whole, out = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    launch(parse(copy("f32")), 1, [whole[::-1], out, -7, 0])
    assert (out == whole).all()


def test_gaps_of_a_view_are_outside() -> None:
    whole, out = np.arange(64, dtype=np.float32).reshape(4, 16), np.zeros(8, np.float32)
    launch(parse(copy("f32")), 1, [whole[:, :8], out, 16, 0])
    assert (out == whole[1, :8]).all()
    with pytest.raises(LaunchError, match=r"at byte 32 of argument x, between its elements \(1 lanes .* lane 7\)"):
        launch(parse(copy("f32")), 1, [whole[:, :8], out, 1, 0])
    launch(parse(copy("f32")), 1, [whole.T, out, 5, 0])  # a transposed view has none
    assert (out == np.arange(5, 13)).all()


def test_out_of_bounds_names_line_argument_and_lane() -> None:
    module = parse(ADD)
    load = next(op for op in module.walk() if op.name == "tt.load")
    load.location = Location(SourceLocation("kernel.py", 7, 9))
    with pytest.raises(LaunchError) as caught:
        launch(module, 3, [np.zeros(19, np.float32), np.zeros(19, np.float32), 20])
    text = str(caught.value)
    assert text.startswith(
        "kernel.py:7:9: program (2, 0, 0): tt.load reads 4 bytes at byte 76 of argument x, which has 76 bytes"
    )
    assert "(1 lanes of tensor<8x!tt.ptr<f32>> do; the first is lane 3)" in text
    assert "to fix: mask the access" in text


def test_store_out_of_bounds_changes_nothing() -> None:
    x, y = np.arange(8, dtype=np.float32), np.zeros(6, np.float32)
    with pytest.raises(LaunchError, match=r"tt.store writes 4 bytes at byte 24 of argument y, which has 24 bytes \(2 lanes"):
        launch(parse(copy("f32")), 1, [x, y, 0, 0])
    assert (y == 0).all()


def test_offset_into_another_argument_is_out_of_bounds() -> None:
    """Both views lie in one allocation, so the address itself would be valid."""
    whole = np.arange(64, dtype=np.float32)
    with pytest.raises(LaunchError, match="of argument x, which has 128 bytes"):
        launch(parse(copy("f32")), 1, [whole[:32], whole[32:], 32, 0])


def test_read_only_and_misaligned() -> None:
    x, y = np.zeros(8, np.float32), np.zeros(8, np.float32)
    y.flags.writeable = False
    with pytest.raises(LaunchError, match="writes argument y, which is read-only"):
        launch(parse(copy("f32")), 1, [x, y, 0, 0])
    odd = function(
        """
        %b = tt.bitcast %x : !tt.ptr<i8> -> !tt.ptr<i8>
        %c1 = arith.constant 1 : i32
        %p = tt.addptr %b, %c1 : !tt.ptr<i8>, i32
        %q = tt.bitcast %p : !tt.ptr<i8> -> !tt.ptr<i32>
        %v = tt.load %q : !tt.ptr<i32>
        """,
        "%x: !tt.ptr<i8>",
    )
    with pytest.raises(LaunchError, match="at byte 1 of argument x: not a multiple of 4"):
        launch(parse(odd), 1, [np.zeros(8, np.int8)])


def test_null_and_masked_off_pointers_are_never_touched() -> None:
    text = function(
        """
        %false = arith.constant false
        %v = tt.load %p, %false : !tt.ptr<f32>
        tt.store %out, %v : !tt.ptr<f32>
        tt.store %p, %v, %false : !tt.ptr<f32>
        %w = tt.atomic_rmw fadd, acq_rel, gpu, %p, %v, %false : (!tt.ptr<f32>, f32, i1) -> f32
        """,
        "%p: !tt.ptr<f32>, %out: !tt.ptr<f32>",
    )
    out = np.full(1, 5, np.float32)
    launch(parse(text), 1, [None, out])
    assert out[0] == 0  # masked off, without `other`
    with pytest.raises(LaunchError, match="at address 0x0, which is in none of the arguments"):
        launch(parse(text.replace("constant false", "constant true")), 1, [None, out])


def test_other_fills_masked_lanes() -> None:
    text = function(
        """
        %r = tt.make_range {end = 4 : i32, start = 0 : i32} : tensor<4xi32>
        %c = arith.constant dense<2> : tensor<4xi32>
        %m = arith.cmpi slt, %r, %c : tensor<4xi32>
        %ps = tt.splat %p : !tt.ptr<i32> -> tensor<4x!tt.ptr<i32>>
        %q = tt.addptr %ps, %r : tensor<4x!tt.ptr<i32>>, tensor<4xi32>
        %v = tt.load %q, %m, %r : tensor<4x!tt.ptr<i32>>
        tt.store %q, %v : tensor<4x!tt.ptr<i32>>
        """,
        "%p: !tt.ptr<i32>",
    )
    data = np.array([9, 8, 7, 6], np.int32)
    launch(parse(text), 1, [data])
    assert data.tolist() == [9, 8, 2, 3]


def test_pointers_from_memory_may_point_into_any_argument() -> None:
    text = function(
        """
        %a = tt.load %table : !tt.ptr<i64>
        %p = tt.int_to_ptr %a : i64 -> !tt.ptr<f32>
        %v = tt.load %p : !tt.ptr<f32>
        tt.store %out, %v : !tt.ptr<f32>
        """,
        "%table: !tt.ptr<i64>, %out: !tt.ptr<f32>, %data: !tt.ptr<f32>",
    )
    data, out = np.arange(3, dtype=np.float32), np.zeros(1, np.float32)
    launch(parse(text), 1, [np.array([data.ctypes.data + 8]), out, data])
    assert out[0] == 2
    with pytest.raises(LaunchError, match="which is in none of the arguments"):
        launch(parse(text), 1, [np.array([data.ctypes.data + 12]), out, data])


def test_last_lane_of_a_store_wins() -> None:
    text = function(
        """
        %r = tt.make_range {end = 4 : i32, start = 0 : i32} : tensor<4xi32>
        %ps = tt.splat %p : !tt.ptr<i32> -> tensor<4x!tt.ptr<i32>>
        tt.store %ps, %r : tensor<4x!tt.ptr<i32>>
        """,
        "%p: !tt.ptr<i32>",
    )
    data = np.zeros(1, np.int32)
    launch(parse(text), 1, [data])
    assert data[0] == 3


@pytest.mark.parametrize(
    ("what", "kind", "start", "values", "after", "found"),
    [
        ("add", "i32", 5, [1, 2, 3, 4], 15, [5, 6, 8, 11]),
        ("fadd", "f32", 0.5, [1, 2, 3, 4], 10.5, [0.5, 1.5, 3.5, 6.5]),
        ("fadd", "f16", 2048, [1, 1, 1, 1], 2048, [2048, 2048, 2048, 2048]),
        ("max", "i32", 2, [1, 3, -9, 4], 4, [2, 2, 3, 3]),
        ("min", "i32", 2, [1, 3, -9, 4], -9, [2, 1, 1, -9]),
        ("umax", "i32", 2, [1, 3, -9, 4], -9, [2, 2, 3, -9]),
        ("umin", "i32", -1, [1, 3, -9, 0], 0, [-1, 1, 1, 1]),
        ("and", "i32", 15, [7, 3, 6, -1], 2, [15, 7, 3, 2]),
        ("or", "i32", 0, [1, 2, 4, 8], 15, [0, 1, 3, 7]),
        ("xor", "i32", 1, [1, 2, 4, 8], 14, [1, 0, 2, 6]),
        ("exch", "f32", 1, [2, 3, 4, 5], 5, [1, 2, 3, 4]),
    ],
)
def test_atomics_run_lane_by_lane(
    what: str, kind: str, start: float, values: list[float], after: float, found: list[float]
) -> None:
    text = function(
        f"""
        %r = tt.make_range {{end = 4 : i32, start = 0 : i32}} : tensor<4xi32>
        %vs = tt.splat %v : !tt.ptr<{kind}> -> tensor<4x!tt.ptr<{kind}>>
        %vp = tt.addptr %vs, %r : tensor<4x!tt.ptr<{kind}>>, tensor<4xi32>
        %x = tt.load %vp : tensor<4x!tt.ptr<{kind}>>
        %ps = tt.splat %p : !tt.ptr<{kind}> -> tensor<4x!tt.ptr<{kind}>>
        %old = tt.atomic_rmw {what}, acq_rel, gpu, %ps, %x : (tensor<4x!tt.ptr<{kind}>>, tensor<4x{kind}>) -> tensor<4x{kind}>
        tt.store %vp, %old : tensor<4x!tt.ptr<{kind}>>
        """,
        f"%p: !tt.ptr<{kind}>, %v: !tt.ptr<{kind}>",
    )
    dtype = {"i32": np.int32, "f32": np.float32, "f16": np.float16}[kind]
    memory, lanes = np.array([start], dtype), np.array(values, dtype)
    launch(parse(text), 1, [memory, lanes])
    assert memory[0] == after
    assert lanes.tolist() == found


# ---- arguments and grids ----


def test_grid_is_x_fastest_and_order_is_respected() -> None:
    text = function(
        """
        %one = arith.constant 1 : i32
        %at = tt.atomic_rmw add, acq_rel, gpu, %count, %one : (!tt.ptr<i32>, i32) -> i32
        %x = tt.get_program_id x : i32
        %y = tt.get_program_id y : i32
        %z = tt.get_program_id z : i32
        %nx = tt.get_num_programs x : i32
        %ny = tt.get_num_programs y : i32
        %a = arith.muli %z, %ny : i32
        %b = arith.addi %a, %y : i32
        %c = arith.muli %b, %nx : i32
        %d = arith.addi %c, %x : i32
        %p = tt.addptr %out, %at : !tt.ptr<i32>, i32
        tt.store %p, %d : !tt.ptr<i32>
        """,
        "%count: !tt.ptr<i32>, %out: !tt.ptr<i32>",
    )
    for order in (None, list(reversed(range(24)))):
        count, out = np.zeros(1, np.int32), np.full(24, -1, np.int32)
        launch(parse(text), (2, 3, 4), [count, out], order=order)
        assert out.tolist() == list(order or range(24))


def test_empty_grid_runs_nothing() -> None:
    launch(parse(ADD), (0, 5), [np.zeros(0, np.float32), np.zeros(0, np.float32), 19])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([np.zeros(1, np.float32)], "kernel takes 3 arguments, got 1"),
        ([np.zeros(1), np.zeros(1, np.float32), 1], "argument x holds float64, the kernel takes !tt.ptr<f32>"),
        ([torch.zeros(1, dtype=torch.int32), np.zeros(1, np.float32), 1], "argument x holds int32"),
        ([torch.zeros(1, device="meta"), np.zeros(1, np.float32), 1], "argument x is on meta"),
        ([[1.0], np.zeros(1, np.float32), 1], "argument x must be an array or a tensor for !tt.ptr<f32>, is list"),
        ([None, None, 1.5], "argument n must be a number for i32, is 1.5"),
        ([None, None, 1 << 40], "argument n must be a number for i32"),
        ([None, None, np.zeros(3)], "argument n must be a number for i32"),
    ],
)
def test_refuses_arguments_that_do_not_fit(arguments: list[object], message: str) -> None:
    with pytest.raises(LaunchError) as caught:
        launch(parse(ADD), 1, arguments)
    assert message in caught.value.message


def test_scalars_take_their_type() -> None:
    text = function(
        """
        tt.store %pf, %f : !tt.ptr<bf16>
        tt.store %pi, %i : !tt.ptr<i8>
        tt.store %pb, %b : !tt.ptr<i1>
        """,
        "%pf: !tt.ptr<bf16>, %pi: !tt.ptr<i8>, %pb: !tt.ptr<i1>, %f: bf16, %i: i8, %b: i1",
    )
    f, i, b = torch.zeros(1, dtype=torch.bfloat16), np.zeros(1, np.int8), np.zeros(1, np.bool_)
    launch(parse(text), 1, [f, i, b, 0.1, 255, True])
    assert f.item() == torch.tensor(0.1).bfloat16().item()
    assert i[0] == -1
    assert b[0]


@pytest.mark.parametrize("grid", [(), (1, 1, 1, 1), (-1,), -1])
def test_refuses_grids(grid: object) -> None:
    with pytest.raises(LaunchError, match="a grid has one to three extents"):
        launch(parse(function("")), grid, [])  # type: ignore[arg-type]


# ---- control flow ----


def run_ints(body: str, *arguments: int, size: int = 8) -> list[int]:
    """Runs a body that stores i32 through %out and returns what it wrote."""
    out = np.zeros(size, np.int32)
    names = ", ".join(f"%a{index}: i32" for index in range(len(arguments)))
    launch(parse(function(body, f"%out: !tt.ptr<i32>{', ' if names else ''}{names}")), 1, [out, *arguments])
    return out.tolist()


_SUM = """
%zero = arith.constant 0 : i32
%s, %n = scf.for %i = %a0 to %a1 step %a2 iter_args(%x = %zero, %y = %zero) -> (i32, i32)  : i32 {
  %x1 = arith.addi %x, %i : i32
  %one = arith.constant 1 : i32
  %y1 = arith.addi %y, %one : i32
  scf.yield %x1, %y1 : i32, i32
}
tt.store %out, %s : !tt.ptr<i32>
%one_ = arith.constant 1 : i32
%p = tt.addptr %out, %one_ : !tt.ptr<i32>, i32
tt.store %p, %n : !tt.ptr<i32>
"""


@pytest.mark.parametrize("bounds", [(0, 10, 3), (5, 5, 1), (7, 3, 1), (-4, 4, 2), (0x7FFFFFF0, 0x7FFFFFFF, 10)])
def test_for_counts_like_range(bounds: tuple[int, int, int]) -> None:
    total = (sum(range(*bounds)) + (1 << 31)) % (1 << 32) - (1 << 31)
    assert run_ints(_SUM, *bounds)[:2] == [total, len(range(*bounds))]


@pytest.mark.parametrize("step", [0, -1])
def test_for_refuses_steps_that_are_not_positive(step: int) -> None:
    with pytest.raises(LaunchError, match="the step of a loop must be positive"):
        run_ints(_SUM, 0, 10, step)


@pytest.mark.parametrize("value", [3, 30])
def test_if(value: int) -> None:
    body = """
    %ten = arith.constant 10 : i32
    %c = arith.cmpi slt, %a0, %ten : i32
    %r = scf.if %c -> (i32) {
      scf.yield %ten : i32
    } else {
      %d = arith.addi %a0, %ten : i32
      scf.yield %d : i32
    }
    scf.if %c {
      tt.store %out, %r : !tt.ptr<i32>
    }
    """
    assert run_ints(body, value)[0] == (10 if value < 10 else 0)


@pytest.mark.parametrize(("start", "expected"), [(1, [64, 6]), (50, [50, 0])])
def test_while(start: int, expected: list[int]) -> None:
    body = """
    %zero = arith.constant 0 : i32
    %one = arith.constant 1 : i32
    %limit = arith.constant 50 : i32
    %x, %n = scf.while (%v = %a0, %k = %zero) : (i32, i32) -> (i32, i32) {
      %c = arith.cmpi slt, %v, %limit : i32
      scf.condition(%c) %v, %k : i32, i32
    } do {
    ^bb0(%w: i32, %j: i32):
      %d = arith.addi %w, %w : i32
      %l = arith.addi %j, %one : i32
      scf.yield %d, %l : i32, i32
    }
    tt.store %out, %x : !tt.ptr<i32>
    %p = tt.addptr %out, %one : !tt.ptr<i32>, i32
    tt.store %p, %n : !tt.ptr<i32>
    """
    assert run_ints(body, start)[:2] == expected


def test_calls() -> None:
    text = """
    tt.func public @kernel(%out: !tt.ptr<i32>, %n: i32) {
      %a, %b = tt.call @both(%n) : (i32) -> (i32, i32)
      %c = arith.muli %a, %b : i32
      tt.store %out, %c : !tt.ptr<i32>
      tt.return
    }
    tt.func private @both(%n: i32) -> (i32, i32) {
      %one = arith.constant 1 : i32
      %m = arith.addi %n, %one : i32
      tt.return %n, %m : i32, i32
    }
    """
    out = np.zeros(1, np.int32)
    launch(parse(text), 1, [out, 6])
    assert out[0] == 42


# ---- tiles, reductions, products ----


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
    assert (got == oracle(a, axis=axis)).all()  # type: ignore[operator]


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
