"""Loops whose loads run ahead of the products that need them."""

from __future__ import annotations

import pytest

from kernelpack.backends.cuda.schedule.pointer_loops import schedule_pointer_loops
from kernelpack.backends.cuda.schedule.rewrite_loops import rewrite_loops
from kernelpack.backends.gpu.passes.place_shared import place_shared
from kernelpack.ir.core import entry_function
from kernelpack.layout.families import Threads, spread, swizzled
from tests.analysis.ttgir import gpu
from tests.backends.gpu.ttgir import parse

ROWS = spread((16, 16), 1, (1, 0), Threads(1, 32))


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
        (_PIPELINED, 8192, 2),  # a product on ordinary cores
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
        assert order[:2] == ["async_wait", "barrier"]
        assert order[-2:] == ["barrier", "async_copy_global_to_local"]


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
