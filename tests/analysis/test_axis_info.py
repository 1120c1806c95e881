"""AxisInfo: what is contiguous, divisible and constant, and how wide an access may therefore be."""

from __future__ import annotations

import pytest

from kernelpack.analysis.axis_info import AxisInfo, AxisInfoAnalysis
from kernelpack.ir.core import Value, entry_function, find_function
from kernelpack.ir.text import parse_module
from kernelpack.ir.verify import verify

ARGUMENTS = "%p: !tt.ptr<f16> {tt.divisibility = 16 : i32}, %n: i32 {tt.divisibility = 16 : i32}, %m: i32, %q: !tt.ptr<f16>"


def analyse(body: str) -> tuple[AxisInfoAnalysis, dict[str, Value]]:
    module = parse_module(f"tt.func public @f({ARGUMENTS}) {{\n{body}\ntt.return\n}}")
    verify(module)
    function = entry_function(module)
    named = {argument.name: argument for argument in function.body.arguments}
    for op in function.walk():
        named |= {value.name: value for value in op.results if value.name}
        for region in op.regions:
            named |= {argument.name: argument for block in region.blocks for argument in block.arguments if argument.name}
    return AxisInfoAnalysis(function), named


def info(body: str, name: str = "x") -> AxisInfo:
    facts, named = analyse(body)
    return facts[named[name]]


def width(body: str, pointer: str = "ptr", mask: str | None = None, axis: int = 0) -> int:
    facts, named = analyse(body)
    return facts.access_width(named[pointer], axis, named[mask] if mask is not None else None)


RANGE = "%r = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32>\n"
SPLAT = "%s = tt.splat %p : !tt.ptr<f16> -> tensor<64x!tt.ptr<f16>>\n"
ADD = "%ptr = tt.addptr %s, %x : tensor<64x!tt.ptr<f16>>, tensor<64xi32>\n"


def scalar(expression: str) -> str:
    """`%x` becomes the range plus a scalar."""
    return f"{RANGE}{expression}\n%b = tt.splat %a : i32 -> tensor<64xi32>\n%x = arith.addi %b, %r : tensor<64xi32>\n"


def test_range() -> None:
    found = info("%x = tt.make_range {end = 64 : i32, start = 32 : i32} : tensor<32xi32>")
    assert (found.contiguity, found.divisibility, found.constancy, found.nonnegative) == ((32,), (32,), (1,), True)


@pytest.mark.parametrize(
    ("a", "expected"),
    [
        ("%a = arith.muli %n, %m : i32", 8),  # 16 bytes of pointer, 16 elements of offset
        ("%a = arith.addi %n, %n : i32", 8),
        ("%a = arith.addi %m, %n : i32", 1),
        ("%c = arith.constant 4 : i32\n%a = arith.muli %m, %c : i32", 4),
        ("%c = arith.constant 3 : i32\n%a = arith.shli %m, %c : i32", 8),
        ("%c = arith.constant 6 : i32\n%a = arith.addi %n, %c : i32", 2),
        ("%c = arith.constant 2 : i32\n%a = arith.divsi %n, %c : i32", 8),
        ("%c = arith.constant 3 : i32\n%a = arith.divsi %n, %c : i32", 1),
        ("%c = arith.constant 24 : i32\n%a = arith.remsi %n, %c : i32", 8),
    ],
)
def test_width_follows_what_is_added(a: str, expected: int) -> None:
    assert width(SPLAT + scalar(a) + ADD) == expected


def test_an_unaligned_pointer_is_read_element_by_element() -> None:
    assert width((SPLAT + scalar("%a = arith.addi %n, %n : i32") + ADD).replace("%p :", "%q :")) == 1


def test_masks_narrow() -> None:
    body = SPLAT + RANGE + "%ptr = tt.addptr %s, %r : tensor<64x!tt.ptr<f16>>, tensor<64xi32>\n"
    aligned = "%l = tt.splat %n : i32 -> tensor<64xi32>\n%mask = arith.cmpi slt, %r, %l : tensor<64xi32>"
    assert width(body + aligned, mask="mask") == 8
    assert width(body + aligned.replace("%n", "%m"), mask="mask") == 1
    # r <= n changes between n and n + 1, inside a group
    assert width(body + aligned.replace("slt", "sle"), mask="mask") == 1
    assert width(body + aligned.replace("slt, %r, %l", "sgt, %l, %r"), mask="mask") == 8


def test_remainder_keeps_groups_that_it_does_not_split() -> None:
    wrapped = RANGE + "%l = tt.splat %n : i32 -> tensor<64xi32>\n%x = arith.remui %r, %l : tensor<64xi32>"
    assert info(wrapped).contiguity == (16,)
    assert info(wrapped.replace("%n", "%m")).contiguity == (1,)
    # also where nobody knows the sign: remainders are of indices
    negative = scalar("%z = arith.constant 0 : i32\n%a = arith.subi %z, %n : i32").replace("%x =", "%y =")
    signed = negative + "%l = tt.splat %n : i32 -> tensor<64xi32>\n%x = arith.remsi %y, %l : tensor<64xi32>"
    assert info(signed).contiguity == (16,)
    assert not info(signed).nonnegative


def test_division_makes_constant_groups() -> None:
    divided = RANGE + "%c = arith.constant dense<8> : tensor<64xi32>\n%x = arith.divsi %r, %c : tensor<64xi32>"
    assert info(divided).constancy == (8,)
    by_argument = RANGE + "%l = tt.splat %n : i32 -> tensor<64xi32>\n%x = arith.divsi %r, %l : tensor<64xi32>"
    assert info(by_argument).constancy == (16,)
    assert info(by_argument.replace("%n", "%m")).constancy == (1,)
    assert info(by_argument.replace("divsi %r, %l", "divsi %l, %r")).constancy == (1,)
    assert info(by_argument.replace("divsi", "shrsi")).constancy == (1,)  # by how many bits is no divisor
    below_zero = scalar("%a = arith.subi %n, %m : i32").replace("%x =", "%y =").replace("%m", "%n")
    assert info(
        below_zero + "%l = tt.splat %n : i32 -> tensor<64xi32>\n%x = arith.divsi %y, %l : tensor<64xi32>"
    ).constancy == (1,)


def test_rows_and_columns() -> None:
    body = """
        %r = tt.make_range {end = 16 : i32, start = 0 : i32} : tensor<16xi32>
        %c = tt.make_range {end = 32 : i32, start = 0 : i32} : tensor<32xi32>
        %re = tt.expand_dims %r {axis = 1 : i32} : tensor<16xi32> -> tensor<16x1xi32>
        %ce = tt.expand_dims %c {axis = 0 : i32} : tensor<32xi32> -> tensor<1x32xi32>
        %ns = tt.splat %n : i32 -> tensor<16x1xi32>
        %ro = arith.muli %re, %ns : tensor<16x1xi32>
        %rb = tt.broadcast %ro : tensor<16x1xi32> -> tensor<16x32xi32>
        %cb = tt.broadcast %ce : tensor<1x32xi32> -> tensor<16x32xi32>
        %x = arith.addi %rb, %cb : tensor<16x32xi32>
        %s = tt.splat %p : !tt.ptr<f16> -> tensor<16x32x!tt.ptr<f16>>
        %ptr = tt.addptr %s, %x : tensor<16x32x!tt.ptr<f16>>, tensor<16x32xi32>
    """
    assert width(body, axis=1) == 8
    assert width(body, axis=0) == 1
    assert width(body.replace("splat %n", "splat %m"), axis=1) == 1  # rows may start anywhere


def test_loops_keep_what_every_iteration_keeps() -> None:
    loop = f"""
        {SPLAT}{RANGE}
        %start = tt.addptr %s, %r : tensor<64x!tt.ptr<f16>>, tensor<64xi32>
        %zero = arith.constant 0 : i32
        %step = arith.constant STEP : i32
        %by = tt.splat %step : i32 -> tensor<64xi32>
        %end = scf.for %i = %zero to %n step %step iter_args(%ptr = %start) -> (tensor<64x!tt.ptr<f16>>)  : i32 {{
          %next = tt.addptr %ptr, %by : tensor<64x!tt.ptr<f16>>, tensor<64xi32>
          scf.yield %next : tensor<64x!tt.ptr<f16>>
        }}
    """
    assert width(loop.replace("STEP", "64")) == 8
    assert width(loop.replace("STEP", "4")) == 4
    assert width(loop.replace("STEP", "1")) == 1
    assert info(loop.replace("STEP", "48"), "i").divisibility == (16,)


def test_narrowing_may_wrap() -> None:
    body = (
        scalar("%c = arith.constant 2 : i32\n%a = arith.muli %m, %c : i32").replace("%x =", "%y =")
        + "%x = arith.trunci %y : tensor<64xi32> to tensor<64xi8>"
    )
    assert info(body).contiguity == (2,)


def test_promises_are_believed() -> None:
    body = scalar("%a = arith.addi %m, %m {tt.divisibility = 32 : i32} : i32")
    assert width(SPLAT + body + ADD) == 8


# ---- across calls ----

CALLS = """
tt.func public @f(%p: !tt.ptr<f16> {tt.divisibility = 16 : i32}, %q: !tt.ptr<f16>, %n: i32 {tt.divisibility = 16 : i32}) {
  %c8 = arith.constant 8 : i32
  %r = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32>
  %s = tt.splat %c8 : i32 -> tensor<64xi32>
  %t = arith.addi %r, %s : tensor<64xi32>
  %u = arith.muli %r, %s : tensor<64xi32>
  tt.call @g(%p, %n, %t) : (!tt.ptr<f16>, i32, tensor<64xi32>) -> ()
  SECOND
  tt.return
}
tt.func private @g(%gp: !tt.ptr<f16>, %gn: i32, %gt: tensor<64xi32>) attributes {noinline = true} {
  tt.call @h(%gn) : (i32) -> ()
  tt.return
}
tt.func private @h(%hn: i32) attributes {noinline = true} {
  %r = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32>
  %b = tt.splat %hn : i32 -> tensor<64xi32>
  %hx = arith.addi %b, %r : tensor<64xi32>
  tt.return
}
"""


def across_calls(second: str) -> dict[str, AxisInfo]:
    """Returns the facts of the called functions' values, by name, where the kernel has a second call."""
    module = parse_module(CALLS.replace("SECOND", second))
    verify(module)
    found: dict[str, AxisInfo] = {}
    for name in ("g", "h"):
        function = find_function(module, name)
        facts = AxisInfoAnalysis(function)
        found |= {argument.name: facts[argument] for argument in function.body.arguments}
        found |= {value.name: facts[value] for op in function.walk() for value in op.results if value.name}
    return found


def test_one_call_passes_all_that_is_known() -> None:
    found = across_calls("")
    assert found["gp"].divisibility == (16,)
    assert found["gn"].divisibility == found["hn"].divisibility == (16,)
    assert (found["gt"].contiguity, found["gt"].divisibility) == ((64,), (8,))
    assert found["hx"].divisibility == (16,)  # through two calls


@pytest.mark.parametrize(
    ("arguments", "pointer", "number", "contiguity"),
    [
        ("%q, %n, %t", 1, 16, 64),
        ("%p, %c8, %t", 16, 8, 64),
        ("%p, %n, %u", 16, 16, 1),
        ("%p, %n, %t", 16, 16, 64),
    ],
)
def test_arguments_get_what_holds_at_all_calls(arguments: str, pointer: int, number: int, contiguity: int) -> None:
    found = across_calls(f"tt.call @g({arguments}) : (!tt.ptr<f16>, i32, tensor<64xi32>) -> ()")
    assert found["gp"].divisibility == (pointer,)
    assert found["gn"].divisibility == found["hn"].divisibility == (number,)
    assert found["gt"].contiguity == (contiguity,)


def test_a_function_that_nobody_calls_knows_nothing_of_its_tiles() -> None:
    module = parse_module("tt.func private @g(%t: tensor<64xi32>, %n: i32) {\n  tt.return\n}")
    facts = AxisInfoAnalysis(module.body.operations[0])
    tile, number = (facts[argument] for argument in module.body.operations[0].body.arguments)
    assert (tile.contiguity, tile.divisibility, tile.constancy) == ((1,), (1,), (1,))
    assert number.divisibility == (1,)


def test_results_have_what_holds_whatever_the_arguments_are() -> None:
    module = parse_module(
        """
        tt.func public @f(%n: i32 {tt.divisibility = 16 : i32}) {
          %a, %b = tt.call @g(%n) : (i32) -> (tensor<64xi32>, i32)
          tt.return
        }
        tt.func private @g(%n: i32) -> (tensor<64xi32>, i32) attributes {noinline = true} {
          %c = arith.constant 32 : i32
          %r = tt.make_range {end = 128 : i32, start = 64 : i32} : tensor<64xi32>
          %m = arith.muli %n, %c : i32
          tt.return %r, %m : tensor<64xi32>, i32
        }
        """
    )
    function = entry_function(module)
    facts = AxisInfoAnalysis(function)
    tile, number = (facts[result] for result in function.body.operations[0].results)
    assert (tile.contiguity, tile.divisibility) == ((64,), (64,))
    assert number.divisibility == (32,)  # not 512: other calls may pass anything


def test_addresses_loaded_from_memory_keep_what_is_promised_of_them() -> None:
    load = "%a = tt.load %t {tt.divisibility = 16 : i32} : !tt.ptr<i64>\n%u = tt.int_to_ptr %a : i64 -> !tt.ptr<f16>\n"
    table = "%m64 = arith.extsi %m : i32 to i64\n%t = tt.int_to_ptr %m64 : i64 -> !tt.ptr<i64>\n"
    rows = f"{RANGE}%s = tt.splat %u : !tt.ptr<f16> -> tensor<64x!tt.ptr<f16>>\n%ptr = tt.addptr %s, %r : tensor<64x!tt.ptr<f16>>, tensor<64xi32>\n"
    assert width(table + load + rows) == 8
    assert width(table + load.replace(" {tt.divisibility = 16 : i32}", "") + rows) == 1
    back = "%i = tt.ptr_to_int %p : !tt.ptr<f16> -> i64\n%u = tt.int_to_ptr %i : i64 -> !tt.ptr<f16>\n"
    assert width(back + rows) == 8
