"""Functions and loops that stand inside kernels: lambdas, nested functions, comprehensions, loops over tuples, unpacking."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.errors import CompilationError, LaunchError
from kernelpack.options import Options
from kernelpack.runtime.interpreter import Interpreter
from tests.frontend.compiling import compile_kernel, define, kernel, run


@kp.jit
def locals_of_all_kinds(p, n, combine: tl.constexpr):
    def scaled(a, by=3, *more):
        if a > 100:
            return a
        return a * by + n + len(more)

    x = tl.arange(0, 8)
    offset = 1
    plus = lambda a, b=offset: a + b
    tl.store(p, tl.reduce(x, 0, lambda a, b: a + b))
    tl.store(p + 1, scaled(plus(2)))
    tl.store(p + 2, scaled(1000, 5, 6, 7))
    tl.store(p + 3, tl.reduce(x, 0, combine))
    tl.store(p + 4, twice(lambda v: v * 10, n))
    n = n + 1  # what a nested function sees is the variable, not its value from before
    tl.store(p + 5, scaled(1, 2, 0, 0, 0))


@kp.jit
def twice(f: tl.constexpr, x):
    return f(f(x))


@kp.jit
def largest(a, b):
    return tl.maximum(a, b)


def test_lambdas_and_nested_functions() -> None:
    out = np.zeros(8, np.int32)
    run(locals_of_all_kinds, 1, p=out, n=7, combine=largest)
    assert list(out[:6]) == [28, 3 * 3 + 7, 1000, 7, 700, 2 + 8 + 3]


def test_a_function_that_left_its_kernel_cannot_see_run_time_values() -> None:
    fn = kernel("tl.store(p, outer(lambda v: v + n, n))", "p, n", outer=twice)
    with pytest.raises(CompilationError, match="n is a run-time value of another function") as caught:
        compile_kernel(fn, p="*i32", n="i32")
    assert "hand it over as an argument" in str(caught.value)


def test_comprehensions_loops_over_tuples_and_starred_targets() -> None:
    fn = kernel(
        """
        squares = [i * i + n for i in range(4) if i != 2]
        pairs = ((0, (1, 2)), (1, (3, 4)))
        total = 0
        for k, (a, b) in pairs:
            total += a * b + k
        first, *middle, last = squares
        tl.static_assert(len(middle) == 1)
        for v in middle + [y for x in pairs for y in x[1]]:
            total += v
        tl.store(p, total)
        tl.store(p + 1, first)
        tl.store(p + 2, last)
        if (size := tl.constexpr(3)) == 3 and (twice := n * 2) > 4:
            tl.store(p + 3, twice)
        """,
        "p, n",
    )
    out = np.zeros(4, np.int32)
    run(fn, 1, p=out, n=10)
    assert list(out) == [2 + 13 + 11 + 10, 10, 19, 20]


def test_only_annotated_variables_of_an_unpacking_stay_compile_time_values() -> None:
    fn = kernel(
        """
        shape: tl.constexpr
        rows: tl.constexpr
        (rows, x), shape = (4, 5), (2, 2)
        tl.static_assert(x.type == tl.int32 and rows.type == tl.constexpr_type(4))
        tl.static_assert(shape.type == ((2, 2)).type)
        tl.store(p + tl.arange(0, rows), tl.full(shape, x, tl.int32).reshape(rows))
        """,
        "p",
    )
    out = np.zeros(4, np.int32)
    run(fn, 1, p=out)
    assert list(out) == [5] * 4


def test_constants_of_nested_functions_count_for_the_cache_key() -> None:
    text = "LIMIT = tl.constexpr({})\n@kp.jit\ndef kernel(p):\n    f = lambda a, LIMIT=LIMIT: a + LIMIT\n    tl.store(p, f(1))"
    keys = {define(text.format(limit))["kernel"].cache_key for limit in (1, 2)}
    assert len(keys) == 2


def test_assertions_are_compiled_for_debugging_only() -> None:
    from kernelpack.frontend.ast_to_ttir import ast_to_ttir

    fn = kernel(
        "assert n > 0, f'{2 + 3} rows'\ntl.device_assert(n < 9, mask=n > 1)\nprint('n is', n)\ntl.device_print('', n, hex=True)",
        "n",
    )
    plain, debug = (str(ast_to_ttir(fn, {"n": "i32"}, {}, options=Options(debug=debug))) for debug in (False, True))
    assert "tt.assert" not in plain
    assert debug.count('"tt.assert"') == 2
    assert 'message = "5 rows"' in debug
    assert '"tt.print"(%n) <{is_signed = array<i32: 1>, prefix = "n is "}>' in plain
    assert "hex = true" in plain


def test_what_is_expected_to_be_zero_is_checked_for_debugging_only() -> None:
    from kernelpack.frontend.ast_to_ttir import ast_to_ttir

    fn = kernel("i = tl.arange(0, 8)\ntl.store(p + i, tl.expect_zero(tl.load(p + i), i < 4))", "p")
    plain, debug = (str(ast_to_ttir(fn, {"p": "*fp32"}, {}, options=Options(debug=debug))) for debug in (False, True))
    assert "tt.assert" not in plain
    assert "arith.select" not in debug
    assert debug.count('"tt.assert"') == 1
    launch = define(
        "@kp.jit\ndef check(p):\n    i = tl.arange(0, 8)\n    tl.store(p + i, tl.expect_zero(tl.load(p + i), i < 4))\n"
    )["check"]
    fits = torch.tensor([0.0, 0, 0, 0, 1, 2, 3, 4])
    with Interpreter():
        launch[(1,)](fits, debug=True)
        with pytest.raises(LaunchError, match="x is zero where mask is true"):
            launch[(1,)](fits + 1, debug=True)


def test_results_that_must_be_used() -> None:
    @kp.language.must_use_result("It is dear.")
    @kp.jit
    def cube(x):
        return x * x * x

    compile_kernel(kernel("y = cube(n)", "n", cube=cube), n="i32")
    with pytest.raises(CompilationError, match=r"The result of cube is not being used\. It is dear\."):
        compile_kernel(kernel("cube(n)", "n", cube=cube), n="i32")
