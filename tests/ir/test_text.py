"""IR text: every operation prints and parses, names are stable, Triton's own spellings are read."""

from __future__ import annotations

import pytest

from kernelpack.errors import SourceLocation
from kernelpack.ir import dialects
from kernelpack.ir.core import Builder, Operation, module
from kernelpack.ir.dialect import Dialect
from kernelpack.ir.printer import print_op
from kernelpack.ir.text import parse_module
from kernelpack.ir.types import F32
from tests.ir.examples import EXAMPLES, function, parse


@pytest.mark.parametrize("name", EXAMPLES)
def test_prints_what_it_parsed(name: str) -> None:
    assert str(parse(EXAMPLES[name])) == EXAMPLES[name]


def test_every_table_row_has_an_example() -> None:
    modules = [getattr(dialects, name) for name in dialects.__all__]
    tables = [table for module in modules for table in vars(module).values() if isinstance(table, Dialect)]
    assert len(tables) == len(modules)
    rows = {name for table in tables for name in table.rows}
    shown = {op.name for text in EXAMPLES.values() for op in parse_module(text).walk()}
    assert rows - shown == set()


@pytest.mark.parametrize("name", EXAMPLES)
def test_locations_survive(name: str) -> None:
    parsed = parse_module(EXAMPLES[name])
    for line, op in enumerate(parsed.walk(), 1):
        op.location = type(op.location)(SourceLocation("kernel.py", line, 3))
    text = print_op(parsed, locations=True)
    assert print_op(parse_module(text), locations=True) == text


def test_clone_prints_the_same() -> None:
    for text in EXAMPLES.values():
        assert str(parse_module(text).clone()) == text


def test_call_site_locations_survive() -> None:
    text = function(
        '%0 = arith.addi %a, %a : i32 loc(callsite("lib.py":4:2 at callsite("mid.py":5:0 at "kernel.py":9:1)))', "%a: i32"
    )
    op = parse_module(text).body.operations[0].body.operations[0]
    assert str(op.location.source) == "lib.py:4:2"
    assert op.location.callsite is not None
    assert str(op.location.callsite.source) == "mid.py:5"
    assert op.location.callsite.callsite is not None
    assert str(op.location.callsite.callsite.source) == "kernel.py:9:1"
    assert 'loc(callsite("lib.py":4:2 at callsite("mid.py":5:0 at "kernel.py":9:1)))' in print_op(op, locations=True)


def test_reads_triton_dump() -> None:
    dump = """
    #loc = loc("/k.py":10:0)
    module {
      tt.func public @add(%x: !tt.ptr<f32> {tt.divisibility = 16 : i32} loc("/k.py":10:0), %n: i32 loc("/k.py":10:0)) attributes {noinline = false} {
        %cst = arith.constant dense<0.000000e+00> : tensor<8xf32> loc(#loc1)
        %0 = tt.make_range {end = 8 : i32, start = 0 : i32} : tensor<8xi32> loc(#loc1)
        %1 = tt.splat %x : !tt.ptr<f32> -> tensor<8x!tt.ptr<f32>> loc(#loc1)
        %2 = tt.addptr %1, %0 : tensor<8x!tt.ptr<f32>>, tensor<8xi32> loc(#loc1)
        %3 = tt.splat %n : i32 -> tensor<8xi32> loc(#loc1)
        %4 = arith.cmpi slt, %0, %3 : tensor<8xi32> loc(#loc1)
        %5 = tt.load %2, %4, %cst evictionPolicy = evict_last {isVolatile = true} : tensor<8x!tt.ptr<f32>> loc(#loc2)
        %6 = "tt.reduce"(%5) <{axis = 0 : i32}> ({
        ^bb0(%arg2: f32 loc(callsite(#loc1 at #loc2)), %arg3: f32 loc(callsite(#loc1 at #loc2))):
          %7 = arith.addf %arg2, %arg3 : f32 loc(#loc3)
          tt.reduce.return %7 : f32 loc(#loc3)
        }) : (tensor<8xf32>) -> f32 loc(#loc3)
        tt.store %x, %6 {cache = 1 : i32, evict = 1 : i32} : !tt.ptr<f32> loc(#loc2)
        tt.return loc(#loc)
      } loc(#loc)
    } loc(#loc)
    #loc1 = loc("/k.py":11:4)
    #loc2 = loc("sum"(#loc1))
    #loc3 = loc(callsite(#loc1 at #loc2))
    """
    text = str(parse(dump))
    assert "tt.load %2, %4, %cst evictionPolicy = evict_last {is_volatile = true} : tensor<8x!tt.ptr<f32>>" in text
    assert "tt.store %x, %6 : !tt.ptr<f32>" in text
    assert str(parse(text)) == text


def test_names_are_made_unique_and_stay() -> None:
    block = module().body
    build = Builder(block)
    for _ in range(3):
        build.constant(1.0, F32)
    for name in ("x", "x", "x_0", "a b", "3d"):
        op = build.create("arith.negf", [block.operations[0].result])
        op.result.name = name
    names = [line.split(" = ")[0].strip() for line in str(block.parent.parent).split("\n")[1:-2]]
    assert names == ["%cst", "%cst_0", "%cst_1", "%x", "%x_0", "%x_0_0", "%a_b", "%0"]


def test_user_names_that_look_like_ours_stay() -> None:
    text = function(
        """
        %0 = scf.for %arg1_scale = %arg1 to %arg1 step %arg1 iter_args(%arg7 = %arg1) -> (i32)  : i32 {
          %c0_i32 = arith.addi %arg1_scale, %arg7 : i32
          scf.yield %c0_i32 : i32
        }
        """,
        "%arg1: i32",
    )
    assert str(parse(text)) == text


def test_fragment_prints() -> None:
    op = parse_module(EXAMPLES["for"]).body.operations[0].body.operations[1]
    assert str(op).startswith("%0:2 = scf.for %j = %a to %b step %b iter_args(%x = %v, %y = %t)")


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_operation_keeps_attributes_of_other_dialects(name: str) -> None:
    parsed = parse_module(EXAMPLES[name])
    for number, op in enumerate(parsed.walk()):
        op.attributes["tt.divisibility"] = (16, number)
    again = parse_module(str(parsed))
    assert [op.attributes["tt.divisibility"] for op in again.walk()] == [(16, number) for number in range(number + 1)]
    assert str(again) == str(parsed)


def test_attributes_of_every_kind_survive() -> None:
    values: dict[str, object] = {
        "t.flag": True,
        "t.off": False,
        "t.int": -3,
        "t.long": 1 << 40,
        "t.float": 0.1,
        "t.string": 'say "hi" \\ there',
        "t.ints": (1, 2, 3),
        "t.bools": (True, False),
        "t.nested": {"a-b": (1.5, "x"), "k": {"deep": 1}},
        "t.type": F32,
        "t.odd-name": 1,
    }
    op = Operation("builtin.module", attributes=values, regions=module().clone().regions)
    read = parse_module(str(op)).attributes
    assert read == values
    assert [type(value) for value in read.values()] == [type(values[key]) for key in read]
