"""stage_shared: conversions between warps go through shared memory."""

from __future__ import annotations

from functools import partial

import pytest

from kernelpack.backends.cuda.machine.matrix import accumulator_layout, fma_accumulator
from kernelpack.backends.gpu.passes.stage_shared import _rows, stage_shared
from kernelpack.ir.core import entry_function
from kernelpack.ir.types import F32, TensorType
from kernelpack.ir.verify import verify
from kernelpack.layout.convert import best_shared
from kernelpack.layout.encoding import layout_of, tma_encoding
from kernelpack.layout.families import Threads, spread
from kernelpack.layout.transfer import permute_dims
from tests.analysis.ttgir import gpu
from tests.backends.gpu.ttgir import check, parse

ROWS = spread((16, 16), 1, (1, 0), Threads(1, 32))


def test_conversions_between_warps_go_through_a_buffer() -> None:
    one, other = spread((64, 64), 1, (1, 0), Threads(4, 32)), spread((64, 64), 1, (0, 1), Threads(4, 32))
    memory = best_shared((one,), (other,), 32)
    check(
        partial(stage_shared, machine=gpu()),
        "%x: tensor<64x64xf32, $one>",
        "%y = ttg.convert_layout %x : tensor<64x64xf32, $one> -> tensor<64x64xf32, $other>",
        """
        %0 = ttg.local_alloc %x : (tensor<64x64xf32, $one>) -> !ttg.memdesc<64x64xf32, $memory, #ttg.shared_memory>
        %y = ttg.local_load %0 : !ttg.memdesc<64x64xf32, $memory, #ttg.shared_memory> -> tensor<64x64xf32, $other>
        """,
        {"one": one, "other": other, "memory": memory},
    )


def test_a_tile_that_two_users_need_otherwise_is_written_once() -> None:
    one, other = spread((64, 64), 1, (1, 0), Threads(4, 32)), spread((64, 64), 1, (0, 1), Threads(4, 32))
    module = parse(
        """
        %y = ttg.convert_layout %x : tensor<64x64xf32, $one> -> tensor<64x64xf32, $other>
        %z = ttg.convert_layout %x : tensor<64x64xf32, $one> -> tensor<64x64xf32, $other>
        %s = arith.addf %y, %z : tensor<64x64xf32, $other>
        """,
        "%x: tensor<64x64xf32, $one>",
        {"one": one, "other": other},
    )
    stage_shared(entry_function(module), gpu())
    verify(module)
    names = [op.name for op in entry_function(module).body.operations]
    assert names[:-1] == ["ttg.local_alloc", "ttg.local_load", "ttg.local_load", "arith.addf"]


def test_what_is_loaded_next_is_on_its_way_before_a_tile_is_waited_for() -> None:
    one, other = spread((64, 64), 1, (1, 0), Threads(4, 32)), spread((64, 64), 1, (0, 1), Threads(4, 32))
    memory = best_shared((one,), (other,), 32)
    load = "tt.load %{} : tensor<64x64x!tt.ptr<f32>, $one>"
    check(
        partial(stage_shared, machine=gpu()),
        "%p: tensor<64x64x!tt.ptr<f32>, $one>, %q: tensor<64x64x!tt.ptr<f32>, $one>",
        f"""
        %x = {load.format("p")}
        %y = ttg.convert_layout %x : tensor<64x64xf32, $one> -> tensor<64x64xf32, $other>
        %z = {load.format("q")}
        %s = arith.negf %z : tensor<64x64xf32, $one>
        %t = arith.negf %y : tensor<64x64xf32, $other>
        """,
        f"""
        %x = {load.format("p")}
        %z = {load.format("q")}
        %0 = ttg.local_alloc %x : (tensor<64x64xf32, $one>) -> !ttg.memdesc<64x64xf32, $memory, #ttg.shared_memory>
        %y = ttg.local_load %0 : !ttg.memdesc<64x64xf32, $memory, #ttg.shared_memory> -> tensor<64x64xf32, $other>
        %s = arith.negf %z : tensor<64x64xf32, $one>
        %t = arith.negf %y : tensor<64x64xf32, $other>
        """,
        {"one": one, "other": other, "memory": memory},
    )


def test_a_branch_reads_a_tile_before_what_is_loaded_after_it() -> None:
    one, other = spread((64, 64), 1, (1, 0), Threads(4, 32)), spread((64, 64), 1, (0, 1), Threads(4, 32))
    text = """
        %x = tt.load %p : tensor<64x64x!tt.ptr<f32>, $one>
        %y = ttg.convert_layout %x : tensor<64x64xf32, $one> -> tensor<64x64xf32, $other>
        %r = scf.if %b -> (tensor<64x64xf32, $other>) {
          %n = arith.negf %y : tensor<64x64xf32, $other>
          scf.yield %n : tensor<64x64xf32, $other>
        } else {
          scf.yield %o : tensor<64x64xf32, $other>
        }
        %z = tt.load %q : tensor<64x64x!tt.ptr<f32>, $one>
        %s = arith.addf %y, %r : tensor<64x64xf32, $other>
    """
    arguments = (
        "%p: tensor<64x64x!tt.ptr<f32>, $one>, %q: tensor<64x64x!tt.ptr<f32>, $one>, %b: i1, %o: tensor<64x64xf32, $other>"
    )
    module = parse(text, arguments, {"one": one, "other": other})
    stage_shared(entry_function(module), gpu())
    verify(module)


def test_conversions_within_a_thread_stay() -> None:
    reordered = ROWS.with_bases("register", ROWS.bases("register")[::-1])
    text = "%y = ttg.convert_layout %x : tensor<16x16xf32, $one> -> tensor<16x16xf32, $other>"
    check(
        partial(stage_shared, machine=gpu()),
        "%x: tensor<16x16xf32, $one>",
        text,
        text,
        {"one": ROWS, "other": reordered},
    )


@pytest.mark.parametrize("depth", [16, 32])
@pytest.mark.parametrize("transposed", [False, True])
def test_sixteen_lanes_read_what_ordinary_products_need_in_one_pass(depth: int, transposed: bool) -> None:
    """They do so if neighbours, or every second lane, read the same 16 bytes, and others do not share banks."""
    result = fma_accumulator((128, 64), 4, False)
    order = (0, 1) if transposed else (1, 0)
    sides = [(0, _rows(TensorType((128, depth), F32), (1, 0))), (1, _rows(TensorType((depth, 64), F32), order))]
    for axis, memory in sides:
        places = [result(lane=lane)[axis] for lane in range(16)]
        offsets = [memory.invert()(**{f"dim{axis}": place, f"dim{1 - axis}": 0})[0] * 4 for place in places]
        assert any(all(offsets[lane] == offsets[lane ^ other] for lane in range(16)) for other in (1, 2))
        assert len({offset // 16 % 8 for offset in offsets}) == len(set(offsets))


OWN = {
    "a": tma_encoding((64, 32), 32).layout,
    "b": tma_encoding((32, 64), 32).layout,
    "c": fma_accumulator((64, 64), 4, False),
    "x": spread((64, 32), 4, (1, 0), Threads(4, 32)),
    "y": spread((32, 64), 4, (1, 0), Threads(4, 32)),
}
A, B = ("!ttg.memdesc<64x32xf32, $a, #ttg.shared_memory, mutable>", "!ttg.memdesc<32x64xf32, $b, #ttg.shared_memory, mutable>")
LOADS = f"""
%x = ttg.local_load %a : {A} -> tensor<64x32xf32, $x>
%y = ttg.local_load %b : {B} -> tensor<32x64xf32, $y>
"""
DOT = (
    '%r = tt.dot %x, %y, %c {inputPrecision = "ieee"} : tensor<64x32xf32, $x> * tensor<32x64xf32, $y> -> tensor<64x64xf32, $c>'
)


def test_tiles_that_a_kernel_loads_from_its_own_buffers_are_read_there() -> None:
    check(
        partial(stage_shared, machine=gpu()),
        f"%a: {A}, %b: {B}, %c: tensor<64x64xf32, $c>",
        LOADS + DOT,
        LOADS + f"%r = ttg.fma_dot %a, %b, %c {{straight = true}} : {A} * {B} -> tensor<64x64xf32, $c>",
        OWN,
    )


@pytest.mark.parametrize(
    "between", ["gpu.barrier", f"ttg.local_store %x, %a : tensor<64x32xf32, $x> -> {A}"], ids=["wait", "write"]
)
def test_they_are_not_where_others_may_write_to_the_buffers_before_the_product(between: str) -> None:
    module = parse(LOADS + between + "\n" + DOT, f"%a: {A}, %b: {B}, %c: tensor<64x64xf32, $c>", OWN)
    function = entry_function(module)
    stage_shared(function, gpu())
    (dot,) = (op for op in function.walk() if op.name == "ttg.fma_dot")
    assert [value.defining_op.name for value in dot.operands[:2] if value.defining_op] == ["ttg.local_alloc"] * 2
    assert not dot.attributes["straight"]


@pytest.mark.parametrize("transposed", [False, True])
def test_sixteen_lanes_read_tiles_of_tma_in_one_pass(transposed: bool) -> None:
    """The same as above, of buffers whose rows TMA spreads over the banks."""
    b = "!ttg.memdesc<64x32xf32, $t, #ttg.shared_memory, mutable>" if transposed else B
    turn = f"%v = ttg.memdesc_trans %b {{order = array<i32: 1, 0>}} : {b} -> {B}" if transposed else ""
    encodings = {**OWN, "t": OWN["a"], "b": permute_dims(OWN["a"], (1, 0)) if transposed else OWN["b"]}
    loads = LOADS.replace("%b", "%v") if transposed else LOADS
    module = parse(f"{turn}\n{loads}\n{DOT}", f"%a: {A}, %b: {b}, %c: tensor<64x64xf32, $c>", encodings)
    (dot,) = (op for op in module.walk() if op.name == "tt.dot")
    result = accumulator_layout(dot, 4)
    for axis, operand in enumerate(dot.operands[:2]):
        assert operand.defining_op is not None
        memory = layout_of(operand.defining_op.operands[0])
        places = [result(lane=lane)[axis] for lane in range(16)]
        offsets = [memory.invert()(**{f"dim{axis}": place, f"dim{1 - axis}": 0})[0] * 4 for place in places]
        assert any(all(offsets[lane] == offsets[lane ^ other] for lane in range(16)) for other in (1, 2))
        assert len({offset // 16 % 8 for offset in offsets}) == len(set(offsets))
