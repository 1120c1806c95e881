"""Each pass over ttgir, before and after."""

from __future__ import annotations

from functools import partial

import pytest

from kernelpack.backends.cuda.machine.matrix import fma_accumulator
from kernelpack.backends.cuda.passes.decompose_products import decompose_dots, widen_small_floats
from kernelpack.backends.cuda.schedule.pointer_loops import schedule_pointer_loops
from kernelpack.backends.cuda.schedule.rewrite_loops import rewrite_loops
from kernelpack.backends.gpu.passes.assign_layouts import assign_layouts
from kernelpack.backends.gpu.passes.place_shared import place_shared
from kernelpack.backends.gpu.passes.reload_operands import reload_operands
from kernelpack.backends.gpu.passes.remove_conversions import remove_conversions
from kernelpack.backends.gpu.passes.split_reductions import split_reductions
from kernelpack.backends.gpu.passes.stage_shared import _rows, stage_shared
from kernelpack.errors import OutOfResources
from kernelpack.ir.core import Operation, entry_function
from kernelpack.ir.types import F32, TensorType
from kernelpack.ir.verify import verify
from kernelpack.layout.convert import best_shared
from kernelpack.layout.encoding import layout_of
from kernelpack.layout.families import Threads, mma_accumulator, mma_operand, spread, swizzled
from kernelpack.passes.dce import dce
from tests.analysis.ttgir import gpu
from tests.backends.gpu.ttgir import check, parse

ROWS = spread((16, 16), 1, (1, 0), Threads(1, 32))
COLUMNS = spread((16, 16), 1, (0, 1), Threads(1, 32))


# ---- decompose_dots ----


def test_bfloat16_accumulators_sum_in_float32() -> None:
    check(
        decompose_dots,
        "%a: tensor<16x16xbf16>, %b: tensor<16x16xbf16>, %c: tensor<16x16xbf16>",
        "%d = tt.dot %a, %b, %c : tensor<16x16xbf16> * tensor<16x16xbf16> -> tensor<16x16xbf16>",
        """
        %0 = arith.extf %c : tensor<16x16xbf16> to tensor<16x16xf32>
        %1 = tt.dot %a, %b, %0 : tensor<16x16xbf16> * tensor<16x16xbf16> -> tensor<16x16xf32>
        %d = arith.truncf %1 : tensor<16x16xf32> to tensor<16x16xbf16>
        """,
        {},
    )


@pytest.mark.parametrize("kind", ["f8E5M2", "f8E4M3B15"])
def test_eight_bit_floats_are_multiplied_as_halves(kind: str) -> None:
    check(
        lambda function: widen_small_floats(function, has_fp8_mma=False),
        f"%a: tensor<16x32x{kind}>, %b: tensor<32x16x{kind}>, %c: tensor<16x16xf32>",
        f"%d = tt.dot %a, %b, %c : tensor<16x32x{kind}> * tensor<32x16x{kind}> -> tensor<16x16xf32>",
        f"""
        %0 = tt.fp_to_fp %a : tensor<16x32x{kind}> -> tensor<16x32xf16>
        %1 = tt.fp_to_fp %b : tensor<32x16x{kind}> -> tensor<32x16xf16>
        %d = tt.dot %0, %1, %c : tensor<16x32xf16> * tensor<32x16xf16> -> tensor<16x16xf32>
        """,
        {},
    )


# ---- assign_layouts ----


def _assign_and_clean(function: Operation) -> None:
    """What is free to compute gets a copy for each layout; those that nobody uses go."""
    assign_layouts(function, 4, gpu())
    assert function.parent_op is not None
    dce(function.parent_op)


def test_loads_decide_and_stores_follow() -> None:
    wide = spread((512,), 4, (0,), Threads(4, 32))
    check(
        _assign_and_clean,
        "%p: !tt.ptr<f32> {tt.divisibility = 16 : i32}",
        """
        %r = tt.make_range {end = 512 : i32, start = 0 : i32} : tensor<512xi32>
        %s = tt.splat %p : !tt.ptr<f32> -> tensor<512x!tt.ptr<f32>>
        %q = tt.addptr %s, %r : tensor<512x!tt.ptr<f32>>, tensor<512xi32>
        %x = tt.load %q : tensor<512x!tt.ptr<f32>>
        %y = arith.addf %x, %x : tensor<512xf32>
        tt.store %q, %y : tensor<512x!tt.ptr<f32>>
        """,
        """
        %r = tt.make_range {end = 512 : i32, start = 0 : i32} : tensor<512xi32, $wide>
        %s = tt.splat %p : !tt.ptr<f32> -> tensor<512x!tt.ptr<f32>, $wide>
        %q = tt.addptr %s, %r : tensor<512x!tt.ptr<f32>, $wide>, tensor<512xi32, $wide>
        %x = tt.load %q : tensor<512x!tt.ptr<f32>, $wide>
        %y = arith.addf %x, %x : tensor<512xf32, $wide>
        tt.store %q, %y : tensor<512x!tt.ptr<f32>, $wide>
        """,
        {"wide": wide},
    )


def test_neighbouring_lanes_read_neighbours_also_where_no_alignment_is_known() -> None:
    module = parse(
        """
        %r = tt.make_range {end = 32 : i32, start = 0 : i32} : tensor<32xi32>
        %k = tt.expand_dims %r {axis = 1 : i32} : tensor<32xi32> -> tensor<32x1xi32>
        %n = tt.expand_dims %r {axis = 0 : i32} : tensor<32xi32> -> tensor<1x32xi32>
        %s = tt.splat %stride : i32 -> tensor<1x32xi32>
        %m = arith.muli %n, %s : tensor<1x32xi32>
        %x = tt.broadcast %k : tensor<32x1xi32> -> tensor<32x32xi32>
        %y = tt.broadcast %m : tensor<1x32xi32> -> tensor<32x32xi32>
        %z = arith.addi %x, %y : tensor<32x32xi32>
        %q = tt.splat %p : !tt.ptr<f32> -> tensor<32x32x!tt.ptr<f32>>
        %a = tt.addptr %q, %z : tensor<32x32x!tt.ptr<f32>>, tensor<32x32xi32>
        %v = tt.load %a : tensor<32x32x!tt.ptr<f32>>
        """,
        "%p: !tt.ptr<f32>, %stride: i32",
        {},
    )
    assign_layouts(entry_function(module), 4, gpu())
    load = next(op for op in module.walk() if op.name == "tt.load")
    assert layout_of(load.result).images("lane")[:3] == [(0, 0), (1, 0), (2, 0)]


def test_what_a_while_loop_gives_is_in_the_layout_that_its_body_sees() -> None:
    """The body has the tile as its reduction wants it, the store after the loop another: a conversion stands between."""
    module = parse(
        """
        %c0 = arith.constant 0 : i32
        %r = tt.make_range {end = 8 : i32, start = 0 : i32} : tensor<8xi32>
        %rows = tt.expand_dims %r {axis = 1 : i32} : tensor<8xi32> -> tensor<8x1xi32>
        %places = tt.broadcast %rows : tensor<8x1xi32> -> tensor<8x4xi32>
        %s = tt.splat %p : !tt.ptr<i8> -> tensor<8x4x!tt.ptr<i8>>
        %a = tt.addptr %s, %places : tensor<8x4x!tt.ptr<i8>>, tensor<8x4xi32>
        %x = tt.load %a : tensor<8x4x!tt.ptr<i8>>
        %index = tt.broadcast %rows : tensor<8x1xi32> -> tensor<8x2xi32>
        %g = tt.gather %x[%index] {axis = 1 : i32} : (tensor<8x4xi8>, tensor<8x2xi32>) -> tensor<8x2xi8>
        %wide = arith.extsi %g : tensor<8x2xi8> to tensor<8x2xi32>
        %v = "tt.reduce"(%wide) <{axis = 1 : i32}> ({
        ^bb0(%l: i32, %m: i32):
          %n = arith.addi %l, %m : i32
          tt.reduce.return %n : i32
        }) : (tensor<8x2xi32>) -> tensor<8xi32>
        %w = scf.while (%v0 = %v) : (tensor<8xi32>) -> (tensor<8xi32>) {
          %top = "tt.reduce"(%v0) <{axis = 0 : i32}> ({
          ^bb0(%l: i32, %m: i32):
            %n = arith.maxsi %l, %m : i32
            tt.reduce.return %n : i32
          }) : (tensor<8xi32>) -> i32
          %go = arith.cmpi sgt, %top, %c0 : i32
          scf.condition(%go) %v0 : tensor<8xi32>
        } do {
        ^bb0(%v1: tensor<8xi32>):
          %v2 = arith.shrsi %v1, %r : tensor<8xi32>
          scf.yield %v2 : tensor<8xi32>
        }
        %o = arith.extsi %w : tensor<8xi32> to tensor<8xi64>
        %d = tt.splat %q : !tt.ptr<i64> -> tensor<8x!tt.ptr<i64>>
        %e = tt.addptr %d, %r : tensor<8x!tt.ptr<i64>>, tensor<8xi32>
        tt.store %e, %o : tensor<8x!tt.ptr<i64>>
        """,
        "%p: !tt.ptr<i8>, %q: !tt.ptr<i64>",
        {},
    )
    assign_layouts(entry_function(module), 1, gpu())
    verify(module)
    (loop,) = [op for op in module.walk() if op.name == "scf.while"]
    given = loop.regions[0].block.terminator.operands[1]
    assert layout_of(loop.regions[1].block.arguments[0]) == layout_of(loop.results[0]) == layout_of(given)


def test_dots_ask_for_fragments() -> None:
    module = parse(
        "%d = tt.dot %a, %b, %c : tensor<32x16xf16> * tensor<16x16xf16> -> tensor<32x16xf32>",
        "%a: tensor<32x16xf16>, %b: tensor<16x16xf16>, %c: tensor<32x16xf32>",
        {},
    )
    assign_layouts(entry_function(module), 2, gpu())
    dot = next(op for op in module.walk() if op.name == "tt.dot")
    expected = [mma_operand((32, 16), 0, 16, (2, 1)), mma_operand((16, 16), 1, 16, (2, 1)), mma_accumulator((32, 16), (2, 1))]
    assert [layout_of(value) for value in (*dot.operands[:2], dot.result)] == expected


# ---- remove_conversions ----


def test_a_store_takes_the_layout_at_hand_where_that_is_cheaper() -> None:
    arguments = "%p: !tt.ptr<i64>, %x: tensor<16x16xi64, $there>"
    before = """
        %s = tt.splat %p : !tt.ptr<i64> -> tensor<16x16x!tt.ptr<i64>, $here>
        %y = ttg.convert_layout %x : tensor<16x16xi64, $there> -> tensor<16x16xi64, $here>
        tt.store %s, %y : tensor<16x16x!tt.ptr<i64>, $here>
    """
    after = """
        %s = tt.splat %p : !tt.ptr<i64> -> tensor<16x16x!tt.ptr<i64>, $here>
        %s_0 = tt.splat %p : !tt.ptr<i64> -> tensor<16x16x!tt.ptr<i64>, $there>
        %y = ttg.convert_layout %x : tensor<16x16xi64, $there> -> tensor<16x16xi64, $here>
        tt.store %s_0, %x : tensor<16x16x!tt.ptr<i64>, $there>
    """
    there = ROWS.with_bases("lane", ROWS.bases("lane")[::-1])
    check(remove_conversions, arguments, before, after, {"here": ROWS, "there": there})
    stays = {"here": ROWS, "there": COLUMNS}  # rows of 16 elements, column by column: a conversion costs less
    check(remove_conversions, arguments, before, before, stays)


def test_what_one_user_needs_is_computed_where_it_is_needed() -> None:
    arguments = "%n: f32, %x: tensor<16x16xf32, $there>"
    before = """
        %s = tt.splat %n : f32 -> tensor<16x16xf32, $here>
        %y = math.absf %s : tensor<16x16xf32, $here>
        %z = ttg.convert_layout %y : tensor<16x16xf32, $here> -> tensor<16x16xf32, $there>
        %w = arith.addf %z, %x : tensor<16x16xf32, $there>
    """
    module = parse(before, arguments, {"here": ROWS, "there": COLUMNS})
    remove_conversions(entry_function(module))
    add = next(op for op in module.walk() if op.name == "arith.addf")
    assert add.operands[0].defining_op is not None
    assert add.operands[0].defining_op.name == "math.absf"


def test_conversions_in_a_row_are_one() -> None:
    """Where the first one's result is needed, too, and makes every thread hold the whole tile."""
    short, four = spread((64,), 2, (0,), Threads(1, 32)), spread((64,), 4, (0,), Threads(1, 32))
    whole = short.with_bases("register", [(1 << bit,) for bit in range(6)]).with_bases("lane", [(0,)] * 5)
    check(
        remove_conversions,
        "%x: tensor<64xbf16, $short>",
        """
        %y = ttg.convert_layout %x : tensor<64xbf16, $short> -> tensor<64xbf16, $whole>
        %z = ttg.convert_layout %y : tensor<64xbf16, $whole> -> tensor<64xbf16, $four>
        %b = ttg.convert_layout %z : tensor<64xbf16, $four> -> tensor<64xbf16, $short>
        %s = arith.addf %x, %b : tensor<64xbf16, $short>
        %t = arith.addf %y, %y : tensor<64xbf16, $whole>
        """,
        """
        %y = ttg.convert_layout %x : tensor<64xbf16, $short> -> tensor<64xbf16, $whole>
        %z = ttg.convert_layout %x : tensor<64xbf16, $short> -> tensor<64xbf16, $four>
        %s = arith.addf %x, %x : tensor<64xbf16, $short>
        %t = arith.addf %y, %y : tensor<64xbf16, $whole>
        """,
        {"short": short, "whole": whole, "four": four},
    )


# ---- split_reductions ----


def test_reductions_over_warps_become_two() -> None:
    layout = spread((256,), 1, (0,), Threads(4, 32))
    module = parse(
        """
        %s = "tt.reduce"(%x) <{axis = 0 : i32}> ({
        ^bb0(%a: f32, %b: f32):
          %c = arith.addf %a, %b : f32
          tt.reduce.return %c : f32
        }) : (tensor<256xf32, $x>) -> f32
        """,
        "%x: tensor<256xf32, $x>",
        {"x": layout},
    )
    split_reductions(entry_function(module))
    reductions = [op for op in module.walk() if op.name == "tt.reduce"]
    shapes = [(op.operands[0].type.shape, op.attributes["axis"]) for op in reductions]
    assert shapes == [((4, 64), 1), ((4,), 0)]
    assert [op.name for op in module.walk()].count("ttg.convert_layout") == 1


def test_lanes_share_the_parts_of_a_reduction_of_tuples() -> None:
    """16 parts, one a warp: each thread reads one of them, and all three tiles after one barrier."""
    layout = spread((2048,), 1, (0,), Threads(16, 32))
    module = parse(
        """
        %s:2 = "tt.reduce"(%x, %y) <{axis = 0 : i32}> ({
        ^bb0(%a: f32, %b: f32, %c: f32, %d: f32):
          %e = arith.addf %a, %c : f32
          %f = arith.mulf %b, %d : f32
          tt.reduce.return %e, %f : f32, f32
        }) : (tensor<2048xf32, $x>, tensor<2048xf32, $x>) -> (f32, f32)
        """,
        "%x: tensor<2048xf32, $x>, %y: tensor<2048xf32, $x>",
        {"x": layout},
    )
    split_reductions(entry_function(module))
    stage_shared(entry_function(module), gpu())
    place_shared(module, gpu())
    last = [op for op in module.walk() if op.name == "tt.reduce"][-1]
    assert layout_of(last.operands[0]).in_size("register") == 1
    order = [op.name for op in module.walk() if op.name in ("ttg.local_alloc", "gpu.barrier", "ttg.local_load")]
    assert order == ["ttg.local_alloc"] * 2 + ["gpu.barrier"] + ["ttg.local_load"] * 2


def test_reductions_within_warps_stay() -> None:
    before = """
        %s = "tt.reduce"(%x) <{axis = 1 : i32}> ({
        ^bb0(%a: f32, %b: f32):
          %c = arith.addf %a, %b : f32
          tt.reduce.return %c : f32
        }) : (tensor<16x16xf32, $x>) -> tensor<16xf32, #ttg.linear<{register = [[2], [4], [8]], lane = [[0], [0], [0], [0], [1]]}>>
    """
    check(split_reductions, "%x: tensor<16x16xf32, $x>", before, before, {"x": ROWS})


# ---- stage_shared ----


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


# ---- reload_operands ----

_LOOP = """
    %q = ttg.local_alloc %x : (tensor<{m}x{k}xbf16, $x>) -> !ttg.memdesc<{m}x{k}xbf16, $memory, #ttg.shared_memory>
    %a = ttg.local_load %q : !ttg.memdesc<{m}x{k}xbf16, $memory, #ttg.shared_memory> -> tensor<{m}x{k}xbf16, $a>
    %zero = arith.constant 0 : i32
    scf.for %i = %zero to %n step %n  : i32 {{
      %d = tt.dot %a, %b, %c : tensor<{m}x{k}xbf16, $a> * tensor<{k}x64xbf16, $b> -> tensor<{m}x64xf32, $acc>
    }}
"""


@pytest.mark.parametrize(("rows", "depth", "moves"), [(64, 128, False), (128, 512, True)])
def test_an_operand_is_read_again_only_where_registers_are_short(rows: int, depth: int, moves: bool) -> None:
    x = spread((rows, depth), 8, (1, 0), Threads(4, 32))
    a, b = mma_operand((rows, depth), 0, 16, (4, 1)), mma_operand((depth, 64), 1, 16, (4, 1))
    acc = mma_accumulator((rows, 64), (4, 1))
    assert (a.in_size("register") // 2 + acc.in_size("register") + b.in_size("register") // 2 > gpu().tile_registers) == moves
    layouts = {"x": x, "acc": acc, "memory": best_shared((x,), (a,), 16), "a": a, "b": b}
    arguments = (
        f"%x: tensor<{rows}x{depth}xbf16, $x>, %b: tensor<{depth}x64xbf16, $b>, %c: tensor<{rows}x64xf32, $acc>, %n: i32"
    )
    module = parse(_LOOP.format(m=rows, k=depth), arguments, layouts)
    reload_operands(entry_function(module), gpu())
    loop = next(op for op in module.walk() if op.name == "scf.for")
    assert [op.name for op in loop.body.operations[:-1]] == ["ttg.local_load"] * moves + ["tt.dot"]


# ---- pipeline_loops ----

_PIPELINED = """
    %zero = arith.constant 0 : i32
    %step = arith.constant 16 : i32
    %r = tt.make_range {end = 16 : i32, start = 0 : i32} : tensor<16xi32, #ttg.linear<{register = [], lane = [[1], [2], [4], [8], [0]]}>>
    %re = tt.expand_dims %r {axis = 0 : i32} : tensor<16xi32, #ttg.linear<{register = [], lane = [[1], [2], [4], [8], [0]]}>> -> tensor<1x16xi32, #ttg.linear<{register = [], lane = [[0, 1], [0, 2], [0, 4], [0, 8], [0, 0]]}>>
    %rb = tt.broadcast %re : tensor<1x16xi32, #ttg.linear<{register = [], lane = [[0, 1], [0, 2], [0, 4], [0, 8], [0, 0]]}>> -> tensor<16x16xi32, $x>
    %s = tt.splat %p : !tt.ptr<f32> -> tensor<16x16x!tt.ptr<f32>, $x>
    %start = tt.addptr %s, %rb : tensor<16x16x!tt.ptr<f32>, $x>, tensor<16x16xi32, $x>
    %by = tt.splat %step : i32 -> tensor<16x16xi32, $x>
    %r0:2 = scf.for %i = %zero to %n step %step iter_args(%at = %start, %sum = %c) -> (tensor<16x16x!tt.ptr<f32>, $x>, tensor<16x16xf32, $x>)  : i32 {
      %v = tt.load %at : tensor<16x16x!tt.ptr<f32>, $x>
      %m = ttg.local_alloc %v : (tensor<16x16xf32, $x>) -> !ttg.memdesc<16x16xf32, $memory, #ttg.shared_memory>
      %t = ttg.fma_dot %m, %m, %sum : !ttg.memdesc<16x16xf32, $memory, #ttg.shared_memory> * !ttg.memdesc<16x16xf32, $memory, #ttg.shared_memory> -> tensor<16x16xf32, $x>
      %next = tt.addptr %at, %by : tensor<16x16x!tt.ptr<f32>, $x>, tensor<16x16xi32, $x>
      scf.yield %next, %t : tensor<16x16x!tt.ptr<f32>, $x>, tensor<16x16xf32, $x>
    }
"""
_LAYOUTS = {"x": ROWS, "memory": swizzled((16, 16), (1, 0))}
_ARGUMENTS = "%p: !tt.ptr<f32> {tt.divisibility = 16 : i32}, %n: i32, %c: tensor<16x16xf32, $x>"


@pytest.mark.parametrize("stages", [2, 4])
def test_loads_for_dots_run_ahead(stages: int) -> None:
    module = parse(_PIPELINED, _ARGUMENTS, _LAYOUTS)
    rewrite_loops(schedule_pointer_loops(entry_function(module), stages, {}))
    loop = next(op for op in module.walk() if op.name == "scf.for")
    copies = [op for op in module.walk() if op.name == "ttg.async_copy_global_to_local"]
    inside = [op for op in copies if op.parent is loop.body]
    assert (len(copies) - len(inside), len(inside)) == (stages - 1, 1)
    assert all(len(op.operands) == 3 for op in copies)  # masked: nothing after the last iteration is read
    names = [op.name for op in loop.body.operations]
    assert "tt.load" not in names
    assert "ttg.local_alloc" not in names
    assert loop.body.operations[0].attributes["num"] == stages - 2
    buffer = next(op for op in module.walk() if op.name == "ttg.local_alloc")
    assert buffer.result.type.shape == (stages, 16, 16)


_IN_REGISTERS = _PIPELINED.replace(
    "%t = ttg.fma_dot %m, %m, %sum : !ttg.memdesc<16x16xf32, $memory, #ttg.shared_memory> * "
    "!ttg.memdesc<16x16xf32, $memory, #ttg.shared_memory> -> ",
    "%f = ttg.local_load %m : !ttg.memdesc<16x16xf32, $memory, #ttg.shared_memory> -> tensor<16x16xf32, $x>\n"
    "      %t = tt.dot %f, %f, %sum : tensor<16x16xf32, $x> * tensor<16x16xf32, $x> -> ",
)


@pytest.mark.parametrize(
    ("text", "shared", "slots"),
    [
        (_IN_REGISTERS, 8192, 1),  # four blocks of one tile fit on a multiprocessor, two of two
        (_IN_REGISTERS, 1 << 20, 2),  # as many fit by their registers
        (_PIPELINED, 8192, 2),  # the product reads the buffer itself
    ],
)
def test_buffers_are_filled_again_where_more_blocks_fit_then(text: str, shared: int, slots: int) -> None:
    module = parse(text, _ARGUMENTS, _LAYOUTS)
    rewrite_loops(schedule_pointer_loops(entry_function(module), 2, {}, shared))
    buffer = next(op for op in module.walk() if op.name == "ttg.local_alloc")
    assert buffer.result.type.shape == (slots, 16, 16)
    if slots == 1:
        place_shared(module, gpu(shared))
        loop = next(op for op in module.walk() if op.name == "scf.for")
        shown = ("ttg.async_wait", "gpu.barrier", "ttg.local_load", "tt.dot", "ttg.async_copy_global_to_local")
        order = [op.name.split(".")[-1] for op in loop.body.operations if op.name in shown]
        assert order == ["async_wait", "barrier", "local_load", "dot", "barrier", "async_copy_global_to_local"]


def storing(line: str) -> str:
    """Returns the loop with a line that writes, in front of its product; %to are addresses in another argument, %q."""
    text = _PIPELINED.replace("%t = ttg.fma_dot", f"{line}\n      %t = ttg.fma_dot")
    to = "%to = tt.splat %q : !tt.ptr<f32> -> tensor<16x16x!tt.ptr<f32>, $x>\n"
    return to + "    %flag = tt.load %flags : !tt.ptr<!tt.ptr<f32>>\n" + text


_TILE = "tensor<16x16xf32, $x>"
_ADDRESSES = "tensor<16x16x!tt.ptr<f32>, $x>"
_TWO_TENSORS = f"{_ARGUMENTS}, %q: !tt.ptr<f32>, %flags: !tt.ptr<!tt.ptr<f32>>, %more: i1"
_ADD = f"%old = tt.atomic_rmw fadd, relaxed, gpu, %to, %v : ({_ADDRESSES}, {_TILE}) -> {_TILE}"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (_PIPELINED.replace("tt.load %at :", "tt.load %at {isVolatile = true} :"), "volatile"),
        (storing(f"tt.store %at, %v : {_ADDRESSES}"), "may read what it writes"),
        (
            storing("tt.store %flag, %one : !tt.ptr<f32>").replace(
                "%zero =", "%one = arith.constant 1.0 : f32\n    %zero =", 1
            ),
            "where?",
        ),
        (storing(f"{_ADD}\n      tt.store %to, %old : {_ADDRESSES}"), "may be a lock"),
        (storing(f"tt.store %to, %v : {_ADDRESSES}\n      gpu.barrier"), "threads wait for each other"),
        (storing(f"%w = tt.load %to {{isVolatile = true}} : {_ADDRESSES}"), "may wait for somebody"),
        (
            storing(f"scf.for %j = %zero to %n step %step  : i32 {{\n        tt.store %to, %v : {_ADDRESSES}\n      }}"),
            "stores belong to the loop itself",
        ),
    ],
)
def test_loads_that_may_not_run_ahead_stay(text: str, why: str) -> None:
    module = parse(text, _TWO_TENSORS, _LAYOUTS)
    before = str(module)
    rewrite_loops(schedule_pointer_loops(entry_function(module), 3, {}))
    assert str(module) == before, why


@pytest.mark.parametrize("line", [f"tt.store %to, %v : {_ADDRESSES}", _ADD])
def test_loads_run_ahead_of_stores_through_other_arguments(line: str) -> None:
    module = parse(storing(line), _TWO_TENSORS, _LAYOUTS)
    rewrite_loops(schedule_pointer_loops(entry_function(module), 3, {}))
    loop = next(op for op in module.walk() if op.name == "scf.for")
    names = [op.name for op in loop.body.operations]
    assert "ttg.async_copy_global_to_local" in names
    assert line.split()[0] in names or "tt.atomic_rmw" in names


def test_one_stage_loads_nothing_ahead() -> None:
    module = parse(_PIPELINED, _ARGUMENTS, _LAYOUTS)
    before = str(module)
    rewrite_loops(schedule_pointer_loops(entry_function(module), 1, {}))
    assert str(module) == before


# ---- place_shared ----


def test_buffers_get_offsets_and_barriers() -> None:
    layouts = {"x": ROWS, "memory": swizzled((16, 16), (1, 0))}
    memdesc = "!ttg.memdesc<16x16xf32, $memory, #ttg.shared_memory>"
    check(
        lambda function: place_shared(next(function.ancestors()), gpu(1 << 16)),
        "%x: tensor<16x16xf32, $x>",
        f"""
        %a = ttg.local_alloc %x : (tensor<16x16xf32, $x>) -> {memdesc}
        %y = ttg.local_load %a : {memdesc} -> tensor<16x16xf32, $x>
        """,
        f"""
        %a = ttg.local_alloc %x {{allocation.offset = 0 : i32}} : (tensor<16x16xf32, $x>) -> {memdesc}
        gpu.barrier
        %y = ttg.local_load %a : {memdesc} -> tensor<16x16xf32, $x>
        """,
        layouts,
    )
    with pytest.raises(OutOfResources, match="needs 1024 bytes of shared memory, the target has 1000"):
        place_shared(
            parse(f"%a = ttg.local_alloc %x : (tensor<16x16xf32, $x>) -> {memdesc}", "%x: tensor<16x16xf32, $x>", layouts),
            gpu(1000),
        )
