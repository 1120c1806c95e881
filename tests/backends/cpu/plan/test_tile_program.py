"""A tile program reads as text under the names of its ttir, and its statements can be walked."""

from __future__ import annotations

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.backends.cpu.plan.tile_program import Dot, For, If, Nest, Scalar, While, naming, walk
from kernelpack.backends.cpu.plan.ttir_to_tiles import ttir_to_tiles
from kernelpack.ir.core import entry_function
from tests.backends.cpu.plan.plans import V3, plan, same_text, ttir


@kp.jit
def everything(x, out, n, S: tl.constexpr):
    i = tl.arange(0, S)
    a = tl.load(x + i)
    first = tl.load(x)
    for k in range(n):
        a = a * first
        if k > 2:
            tl.store(out, first)
        else:
            a = a + 1.5
    k = n
    while k > 0:
        k -= 1
    target = out + k + i
    tl.store(target, a, mask=i < 7)


def test_the_text_has_the_names_of_the_ttir_and_constants_as_they_are() -> None:
    module = ttir(everything, S=32, n="i32")
    text = str(ttir_to_tiles(module, V3))
    assert text.startswith("kernel everything(%x: !tt.ptr<f32>, %out: !tt.ptr<f32>, %n: i32)\n")
    same_text(
        plan(everything, S=32, n="i32"),
        """
        buffer a: 32xf32, lanes 0, holds %a_0, %a_1, %a_3, %a_4
        %first <- tt.load %x
        nest 32, lanes 0
          a <- %a
        for %k carrying a
          %3 <- arith.cmpi sgt, %k, 2
          if %3 giving a
            tt.store %out, %first
            nest 32, lanes 0
              a <- %a_2
          else
            nest 32, lanes 0
              a <- %a_4
        while
          %4 <- arith.cmpi sgt, %k_1, 0
        do
          %k_3 <- arith.addi %k_2, -1
        %5 <- tt.addptr %out, %k_0
        nest 32, lanes 0
          store %a_0 to %target where %7
        """,
    )
    lines = {line.strip() for line in str(module).splitlines()}
    assert any(line.startswith("%target = tt.addptr ") for line in lines)
    assert any(line.startswith("%7 = arith.cmpi slt") for line in lines)


def test_walking_yields_nested_statements_after_those_around_them() -> None:
    program = ttir_to_tiles(ttir(everything, S=32, n="i32"), V3)
    kinds = [type(statement) for statement in walk(program.statements) if not isinstance(statement, Scalar)]
    assert kinds == [Nest, For, If, Nest, Nest, While, Nest]
    loop = next(statement for statement in program.statements if isinstance(statement, While))
    assert [len(part) for part in loop.parts()] == [len(loop.before), len(loop.body)]


def test_unnamed_values_have_the_numbers_of_the_ttir() -> None:
    module = ttir(everything, S=32, n="i32")
    function = entry_function(module)
    name = naming(function)
    named = [name(op.results[0]) for op in function.walk() if op.name == "arith.cmpi"]
    assert all(f"{value} = arith.cmpi" in str(module) for value in named)
    constants = {name(op.results[0]) for op in function.walk() if op.name == "arith.constant"}
    assert {"1.5", "7", "-1"} <= constants


@kp.jit
def products(a, b, c, M: tl.constexpr, K: tl.constexpr):
    m, k = tl.arange(0, M), tl.arange(0, K)
    x = tl.load(a + m[:, None] * K + k[None, :])
    y = tl.load(b + k[:, None] + tl.arange(0, 32)[None, :] * K)
    z = tl.dot(x, y, input_precision="ieee")
    tl.store(c + m[:, None] * 32 + tl.arange(0, 32)[None, :], z)


def test_a_product_knows_what_is_in_its_lanes() -> None:
    for rows, along_k in ((4, True), (64, False)):
        program = ttir_to_tiles(ttir(products, M=rows, K=256), V3)
        (dot,) = (statement for statement in program.statements if isinstance(statement, Dot))
        assert (dot.along_k, dot.lane_axis) == (along_k, 1)
