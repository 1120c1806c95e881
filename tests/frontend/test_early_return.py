"""Early returns become structured control flow: no statement is generated twice, values stay what they are."""

from __future__ import annotations

import numpy as np

from tests.frontend.compiling import body_of, compile_kernel, define, kernel, run


def test_rest_of_the_function_goes_into_the_other_branch() -> None:
    fn = kernel(
        """
        if n > 4:
            return
        tl.store(p, n)
        """,
        "p, n",
    )
    assert body_of(compile_kernel(fn, p="*i32", n="i32")) == (
        "%c4_i32 = arith.constant 4 : i32\n"
        "%0 = arith.cmpi sgt, %n, %c4_i32 : i32\n"
        "scf.if %0 {\n"
        "} else {\n"
        "  tt.store %p, %n : !tt.ptr<i32>\n"
        "}\n"
        "tt.return\n"
    )


NESTED = """
@kp.jit
def f(a, b):
    x = a
    if a > 0:
        if b > 0:
            return 1
        x = 10
    x = x + 5
    if b > 5:
        return x
    return x + b

@kp.jit
def kernel(out, a, b):
    tl.store(out, f(a, b))
"""


def test_partial_return_gives_a_flag_and_every_statement_is_generated_once() -> None:
    fn = define(NESTED)["kernel"]
    text = body_of(compile_kernel(fn, out="*i32", a="i32", b="i32"), "f__i32_i32")
    assert text.count("arith.addi") == 2  # x + 5, x + b
    assert "%x:2 = scf.if %0 -> (i32, i1) {" in text  # x, and whether it has returned (what: 1, known at compile time)
    for a, b, expected in ((1, 1, 1), (1, -1, 14), (0, 0, 5), (-1, 6, 4), (0, -3, 2)):
        out = np.zeros(1, np.int32)
        run(fn, 1, out=out, a=a, b=b)
        assert out[0] == expected


def test_many_partial_returns_do_not_multiply_the_code() -> None:
    step = "    if a > {0}:\n        if b > {0}:\n            return\n        tl.store(p, {0})\n    tl.store(p + 1, {0})\n"
    fn = define("@kp.jit\ndef kernel(p, a, b):\n" + "".join(step.format(n) for n in range(12)))["kernel"]
    assert body_of(compile_kernel(fn, p="*i32", a="i32", b="i32")).count("tt.store") == 24


def test_return_in_a_compile_time_branch_needs_no_flag() -> None:
    fn = kernel(
        """
        if CHECK:
            if n > 4:
                return
            n += 1
        tl.store(p, n)
        """,
        "p, n, CHECK: tl.constexpr",
    )
    text = body_of(compile_kernel(fn, p="*i32", n="i32", CHECK=True))
    assert "scf.if %0 {\n} else {\n" in text
    assert text.count("scf.if") == 1
    assert "scf.if" not in body_of(compile_kernel(fn, p="*i32", n="i32", CHECK=False))


def test_statements_after_a_return_are_dead() -> None:
    fn = kernel("tl.store(p, 1)\nreturn\ntl.store(p, 2)", "p")
    assert body_of(compile_kernel(fn, p="*i32")).count("tt.store") == 1


def test_both_branches_return() -> None:
    fn = define(
        """
        @kp.jit
        def sign(x):
            if x < 0:
                return -1
            elif x == 0:
                return 0
            else:
                return 1

        @kp.jit
        def kernel(out, x):
            tl.store(out, sign(x))
        """
    )["kernel"]
    for x in (-5, 0, 7):
        out = np.zeros(1, np.int32)
        run(fn, 1, out=out, x=x)
        assert out[0] == np.sign(x)


def test_returned_numbers_stay_compile_time_values_unless_paths_differ() -> None:
    names = define(
        """
        @kp.jit
        def size(x, BIG: tl.constexpr):
            if BIG:
                return 64
            return 16

        @kp.jit
        def same(x):
            if x > 0:
                return 8
            return 8

        @kp.jit
        def kernel(out, x):
            tl.static_assert(size(x, True) == 64)
            tl.static_assert(same(x) == 8)
            tl.store(out + tl.arange(0, size(x, False)), x)
        """
    )
    module = compile_kernel(names["kernel"], out="*i32", x="i32")
    assert "tensor<16x" in str(module)
    assert "tt.call" not in body_of(module)  # compile-time calls leave no trace
