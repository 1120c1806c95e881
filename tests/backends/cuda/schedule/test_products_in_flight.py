"""Waits for products that are in flight: at the end of an iteration, after a loop, and where a loop has no iteration."""

from __future__ import annotations

from kernelpack.backends.cuda.schedule.products_in_flight import (
    await_products,
    branch_if_iterates,
    keep_in_flight,
    where_it_iterates,
)
from kernelpack.ir.core import Builder, Operation
from kernelpack.layout.encoding import tma_encoding
from kernelpack.layout.families import warpgroup_accumulator
from tests.backends.gpu.lowering.llir import parse
from tests.passes.before_after import body_of

A = f"!ttg.memdesc<64x64xf16, {tma_encoding((64, 64), 16)}, #ttg.shared_memory>"
SUM = "tensor<64x64xf32, $C>"
LAYOUTS = {"C": warpgroup_accumulator((64, 64), (4, 1))}
LOOP = f"""
%r:2 = scf.for %i = %z to %n step %z iter_args(%s = %c, %k = %n) -> ({SUM}, i32)  : i32 {{
  %p = ttng.warp_group_dot %a, %a, %s : {A} * {A} -> {SUM}
  %j = arith.addi %k, %k : i32
  scf.yield %p, %j : {SUM}, i32
}}
tt.return %r#0 : {SUM}
"""
ARGUMENTS = f"%a: {A}, %c: {SUM}, %z: i32, %n: i32"


def module() -> tuple[Operation, Operation, Operation]:
    """A module, its loop, and the product that the loop sums up."""
    made = parse(LOOP, ARGUMENTS, LAYOUTS)
    return made, *(next(op for op in made.walk() if op.name == name) for name in ("scf.for", "ttng.warp_group_dot"))


def lines(made: Operation) -> list[str]:
    """The lines of a function without the types."""
    return [line.partition(" : ")[0].strip() for line in body_of(made).splitlines()]


def test_products_run_on_and_those_of_the_iteration_before_are_done() -> None:
    made, loop, product = module()
    keep_in_flight(Builder.before(loop.body.terminator), {product.result: product.result}, [product])
    text = lines(made)
    assert "%p = ttng.warp_group_dot %a, %a, %s {isAsync = true}" in text
    assert text[text.index("%j = arith.addi %k, %k") + 1] == "ttng.warp_group_dot_wait {pendings = 1"


def test_without_products_there_is_nothing_to_wait_for() -> None:
    made, loop, _ = module()
    before = str(made)
    keep_in_flight(Builder.before(loop.body.terminator), {}, [])
    assert str(made) == before


def test_after_a_loop_its_sums_are_awaited_and_its_other_results_stay() -> None:
    made, loop, product = module()
    values = await_products(Builder.after(loop), loop.results, [product])
    assert values[1] is loop.results[1]
    wait = values[0].defining_op
    assert wait is not None
    assert (wait.name, wait.attributes["pendings"], wait.operands) == ("ttng.warp_group_dot_wait", 0, [loop.results[0]])
    assert any(line.startswith("%0 = ttng.warp_group_dot_wait {pendings = 0") for line in lines(made))


def test_a_loop_is_put_into_a_branch_that_is_taken_where_it_has_an_iteration() -> None:
    made, loop, _ = module()
    then = where_it_iterates(loop)
    Builder(then).create("scf.yield", loop.results)
    text = lines(made)
    assert text[0] == "%0 = arith.cmpi slt, %z, %n"
    assert text[1].startswith("%r:2 = scf.if %0 -> (")
    assert text[2].startswith("%r_0:2 = scf.for %i = %z to %n step %z")
    assert text[-5:] == ["scf.yield %r_0#0, %r_0#1", "} else {", "scf.yield %c, %n", "}", "tt.return %r#0"]


def test_the_branch_s_results_are_those_of_no_iteration_elsewhere() -> None:
    made, loop, _ = module()
    whole, then = branch_if_iterates(Builder.before(loop), loop.operands, loop.location)
    condition = whole.operands[0].defining_op
    assert condition is not None
    assert (condition.name, condition.attributes["predicate"]) == ("arith.cmpi", "slt")
    assert condition.operands == loop.operands[:2]
    other = whole.regions[1].block.terminator
    assert (other.name, other.operands) == ("scf.yield", loop.operands[3:])
    assert then.operations == []
    assert made is not None
