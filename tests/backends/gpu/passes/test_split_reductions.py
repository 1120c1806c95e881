"""split_reductions: reductions over several warps become two."""

from __future__ import annotations

from kernelpack.backends.gpu.passes.place_shared import place_shared
from kernelpack.backends.gpu.passes.split_reductions import split_reductions
from kernelpack.backends.gpu.passes.stage_shared import stage_shared
from kernelpack.ir.core import entry_function
from kernelpack.layout.encoding import layout_of
from kernelpack.layout.families import Threads, spread
from tests.analysis.ttgir import gpu
from tests.backends.gpu.ttgir import check, parse

ROWS = spread((16, 16), 1, (1, 0), Threads(1, 32))


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
