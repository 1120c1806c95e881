"""Regions of reductions, scans and maps: whole vectors where every operation is elementwise, else lane by lane."""

from __future__ import annotations

from kernelpack.backends.cpu.emit.regions import Regions, runs_on_vectors, scalar_statements
from kernelpack.backends.cpu.plan.tile_program import For, If, Scalar, Statement, While
from kernelpack.ir.core import Block, Operation, Value
from kernelpack.llvm.text import Val
from tests.backends.cpu.emit.llir import lowering, written
from tests.backends.fragments import in_order
from tests.ir.examples import function, parse


def reduction(body: str, arguments: str = "") -> Operation:
    text = function(
        f"""
        %r = "tt.reduce"(%t) <{{axis = 0 : i32}}> ({{
        ^bb0(%x: f32, %y: f32):
        {body}
        }}) : (tensor<8xf32>) -> f32
        """,
        f"%t: tensor<8xf32>{arguments}",
    )
    return next(op for op in parse(text).walk() if op.name == "tt.reduce")


SUM = "%c = arith.constant 2.000000e+00 : f32\n%s = arith.mulf %y, %c : f32\n%z = arith.addf %x, %s : f32\ntt.reduce.return %z : f32"
BRANCH = """
%b = arith.cmpf olt, %x, %y : f32
%z = scf.if %b -> (f32) {
  scf.yield %x : f32
} else {
  scf.yield %y : f32
}
tt.reduce.return %z : f32
"""


def regions(run: list[list[Statement]], scalars: dict[Value, Val] | None = None) -> Regions:
    return Regions(lowering(), {} if scalars is None else scalars, run.append)


def test_elementwise_operations_run_on_whole_vectors() -> None:
    body = reduction(SUM).body
    assert runs_on_vectors(body)
    made = regions([])
    (value,) = made.apply(body, [Val("<8 x float>", "%a"), Val("<8 x float>", "%b")])
    in_order(
        written(made.em),
        """
        %M = fmul contract <8 x float> %b, splat (float 0x4000000000000000)
        %S = fadd contract <8 x float> %a, %M
        """,
    )
    assert value == Val("<8 x float>", made.em.lines[-1].split()[0])


def test_scalars_from_outside_are_spread_over_the_lanes() -> None:
    op = reduction("%z = arith.addf %x, %f : f32\ntt.reduce.return %z : f32", ", %f: f32")
    outside = next(value for o in op.body.operations for value in o.operands if value.name == "f")
    made = regions([], {outside: Val("float", "%f")})
    made.apply(op.body, [Val("<4 x float>", "%a"), Val("<4 x float>", "%b")])
    in_order(
        written(made.em),
        """
        %I = insertelement <4 x float> poison, float %f, i64 0
        %F = shufflevector <4 x float> %I, <4 x float> poison, <4 x i32> zeroinitializer
        %S = fadd contract <4 x float> %a, %F
        """,
    )


def test_a_result_may_be_what_comes_from_outside() -> None:
    op = reduction("tt.reduce.return %f : f32", ", %f: f32")
    made = regions([], {op.body.terminator.operands[0]: Val("float", "%f")})
    (value,) = made.apply(op.body, [Val("float", "%a"), Val("float", "%b")])
    assert value == Val("float", "%f")


def test_branches_run_lane_by_lane() -> None:
    body = reduction(BRANCH).body
    assert not runs_on_vectors(body)
    result = body.terminator.operands[0]
    scalars: dict[Value, Val] = {}
    seen: list[Val] = []

    def run(statements: list[Statement]) -> None:
        assert [type(statement) for statement in statements] == [Scalar, If]
        seen.append(scalars[body.arguments[0]])
        scalars[result] = Val("float", f"%r{len(seen)}")

    made = Regions(lowering(), scalars, run)
    (value,) = made.apply(body, [Val("<2 x float>", "%a"), Val("<2 x float>", "%b")])
    in_order(
        written(made.em),
        """
        %A = extractelement <2 x float> %a, i64 0
        %B = extractelement <2 x float> %b, i64 0
        %C = extractelement <2 x float> %a, i64 1
        %D = extractelement <2 x float> %b, i64 1
        %V = insertelement <2 x float> poison, float %r1, i64 0
        %W = insertelement <2 x float> %V, float %r2, i64 1
        """,
    )
    assert (value.type, len(seen)) == ("<2 x float>", 2)


def test_one_element_is_taken_as_it_is() -> None:
    body = reduction(BRANCH).body
    scalars: dict[Value, Val] = {}
    made = Regions(lowering(), scalars, lambda statements: scalars.update({body.terminator.operands[0]: Val("float", "%r")}))
    assert made.apply(body, [Val("float", "%a"), Val("float", "%b")]) == [Val("float", "%r")]
    assert made.em.lines == []


def test_loops_of_a_region_are_statements_without_tiles() -> None:
    op = reduction(
        """
        %i0 = arith.constant 0 : i32
        %i1 = arith.constant 1 : i32
        %z = scf.for %i = %i0 to %i1 step %i1 iter_args(%q = %x) -> (f32)  : i32 {
          %p = arith.addf %q, %y : f32
          scf.yield %p : f32
        }
        %w = scf.while (%v = %z) : (f32) -> f32 {
          %more = arith.cmpf olt, %v, %y : f32
          scf.condition(%more) %v : f32
        } do {
        ^bb0(%v: f32):
          scf.yield %v : f32
        }
        tt.reduce.return %w : f32
        """
    )
    statements = scalar_statements(op.body)
    assert [type(statement) for statement in statements] == [Scalar, Scalar, For, While]
    loop, other = statements[2:]
    assert isinstance(loop, For)
    assert isinstance(other, While)
    assert (loop.carried, [len(part) for part in loop.parts()]) == ([None], [1])
    assert (other.carried, other.passed, [len(part) for part in other.parts()]) == ([None], [None], [1, 0])


def test_a_block_without_operations_has_no_statements() -> None:
    block: Block = reduction("tt.reduce.return %x : f32").body
    assert scalar_statements(block) == []
    assert runs_on_vectors(block)
