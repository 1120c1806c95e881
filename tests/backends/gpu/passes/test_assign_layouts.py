"""assign_layouts: which thread holds which element of each tile."""

from __future__ import annotations

from kernelpack.backends.gpu.passes.assign_layouts import assign_layouts
from kernelpack.ir.core import Operation, entry_function
from kernelpack.ir.verify import verify
from kernelpack.layout.encoding import layout_of
from kernelpack.layout.families import Threads, mma_accumulator, mma_operand, spread
from kernelpack.passes.dce import dce
from tests.analysis.ttgir import gpu
from tests.backends.gpu.ttgir import check, parse


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
