"""Memory as the interpreter has it: every access is checked, and errors name line, argument and lane."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kernelpack.errors import LaunchError, SourceLocation
from kernelpack.ir.core import Location
from kernelpack.ir.interpret import launch
from tests.ir.examples import ADD, function, parse


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


def test_tensors_reach_all_of_their_storage() -> None:
    whole, out = torch.arange(32, dtype=torch.float32), torch.zeros(8)
    launch(parse(copy("f32")), 1, [whole[16:20], out, -4, 0])
    assert torch.equal(out, whole[12:20])
    with pytest.raises(LaunchError, match=r"at byte -68 of argument x, whose memory has bytes -64 to 63 \(1 lanes"):
        launch(parse(copy("f32")), 1, [whole[16:20], out, -17, 0])


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
