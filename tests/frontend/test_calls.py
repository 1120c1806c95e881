"""Calls of @jit functions: binding, specialisation, symbols, tuples, recursion, constants from outside."""

from __future__ import annotations

import math
from enum import Enum
from types import ModuleType

import numpy as np
import pytest

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.errors import CompilationError
from kernelpack.ir.core import functions
from tests.frontend.compiling import body_of, compile_kernel, define, kernel, run

ANSWER = tl.constexpr(42)
TWICE = tl.constexpr(ANSWER * 2)
SHAPE = tl.constexpr([4, 8])
plain_number = 17
plain_list = [1, 2]


class Colour(Enum):
    RED = 1


@kp.jit
def scaled(x, factor=2, *, offset: tl.constexpr = 0):
    """Has defaults and a keyword."""
    return x * factor + offset


@kp.jit
def stats(x):
    return tl.sum(x, 0), (tl.max(x, 0), tl.min(x, 0))


@kp.jit
def halves(x):
    """Recursion over shapes, down to one element."""
    if x.shape[0] == 1:
        return tl.reshape(x, [])
    left, right = tl.split(tl.reshape(x, (x.shape[0] // 2, 2)))
    return halves(left) * 3 + halves(right)


@kp.constexpr_function
def log2(n):
    return n.bit_length() - 1


def symbols(module: object) -> list[str]:
    return [op.attributes["sym_name"] for op in functions(module)]


@pytest.mark.parametrize(
    ("call", "expected"),
    [("scaled(n)", 10), ("scaled(n, 3)", 15), ("scaled(factor=4, x=n)", 20), ("scaled(n, offset=7)", 17), ("scaled(n, n)", 25),
     ("scaled(x=2, factor=3)", 6), ("scaled(scaled(n))", 20), ("scaled(*(n, 3))", 15)],
)  # fmt: skip
def test_arguments_bind_as_in_python(call: str, expected: int) -> None:
    fn = kernel(f"tl.store(p, {call})", "p, n", scaled=scaled)
    out = np.zeros(1, np.int32)
    run(fn, 1, p=out, n=5)
    assert out[0] == expected


def test_functions_are_compiled_once_for_each_combination_of_types_and_constants() -> None:
    fn = kernel(
        "tl.store(p, scaled(n) + scaled(n + 1) + scaled(n, 3) + scaled(n, 3.0).to(tl.int32) + scaled(n, 1) + scaled(n, True))",
        "p, n",
        scaled=scaled,
    )
    module = compile_kernel(fn, p="*i32", n="i32")
    assert symbols(module) == [
        "kernel",
        "scaled__i32_c2_c0",
        "scaled__i32_c3_c0",
        "scaled__i32_c3_0_c0",
        "scaled__i32_c1_c0",
        "scaled__i32_cTrue_c0",
    ]
    assert body_of(module).count("tt.call @scaled__i32_c2_c0") == 2


def test_signs_are_told_apart() -> None:
    fn = kernel("tl.store(p, tl.cdiv(n, 2) + tl.cdiv(u, 2).to(tl.int32))", "p, n, u")
    text = str(compile_kernel(fn, p="*i32", n="i32", u="u32"))
    assert "arith.divsi" in text
    assert "arith.divui" in text


def test_functions_of_one_name_get_different_symbols() -> None:
    names = define("@kp.jit\ndef f(x):\n    return x + 1\n\ng = f\n\n@kp.jit\ndef f(x):\n    return x + 2\n")
    fn = kernel("tl.store(p, f(n) * g(n))", "p, n", f=names["f"], g=names["g"])
    assert symbols(compile_kernel(fn, p="*i32", n="i32")) == ["kernel", "f__i32", "f__i32_1"]
    out = np.zeros(1, np.int32)
    run(fn, 1, p=out, n=5)
    assert out[0] == 6 * 7


def test_long_symbols_are_cut_and_stay_distinct() -> None:
    fn = kernel(
        "tl.store(p, f(n, 'a' * 200) + f(n, 'a' * 201))", "p, n", f=define("@kp.jit\ndef f(x, s):\n    return x + len(s)")["f"]
    )
    _, first, second = symbols(compile_kernel(fn, p="*i32", n="i32"))
    assert len(first) <= 100
    assert first != second


def test_nested_tuples_are_returned_and_passed() -> None:
    fn = kernel(
        """
        total, extremes = stats(tl.load(p + tl.arange(0, 8)))
        low = extremes[-1]
        tl.store(p, total * 100 + extremes[0] * 10 + low)
        tl.store(p + 1, first((total, (low,))))
        """,
        "p",
        stats=stats,
        first=define("@kp.jit\ndef first(pair):\n    a, (b,) = pair\n    return a - b")["first"],
    )
    x = np.array([3, 1, 4, 1, 5, 9, 2, 6], np.int32)
    run(fn, 1, p=x)
    assert list(x[:2]) == [31 * 100 + 90 + 1, 30]


def test_recursion_over_shapes() -> None:
    fn = kernel("tl.store(p, halves(tl.load(p + tl.arange(0, 4))))", "p", halves=halves)
    x = np.array([1, 10, 100, 1000], np.int32)
    run(fn, 1, p=x)
    assert x[0] == (1 * 3 + 100) * 3 + (10 * 3 + 1000)


def test_functions_are_values_at_compile_time() -> None:
    fn = kernel(
        "op = scaled if BIG else tl.abs\ntl.store(p, apply(op, n))",
        "p, n, BIG: tl.constexpr",
        scaled=scaled,
        apply=define("@kp.jit\ndef apply(f: tl.constexpr, x):\n    return f(x)")["apply"],
    )
    for big, expected in ((True, -10), (False, 5)):
        out = np.zeros(1, np.int32)
        run(fn, 1, p=out, n=-5, BIG=big)
        assert out[0] == expected


def test_noinline_is_carried() -> None:
    names = define("@kp.jit(noinline=True)\ndef f(x):\n    return x + 1")
    fn = kernel("tl.store(p, f(n))", "p, n", f=names["f"])
    assert "tt.func private @f__i32(%x: i32) -> i32 attributes {noinline = true}" in str(compile_kernel(fn, p="*i32", n="i32"))


def test_constants_from_outside() -> None:
    local = tl.constexpr(3)
    factor_of_two = scaled

    @kp.jit
    def fn(p, F: tl.constexpr = ANSWER, C: tl.constexpr = Colour.RED):
        tl.static_assert(TWICE == 84 and F == 42 and local + 1 == 4)
        tl.static_assert(SHAPE == [4, 8] and math.pi > 3 and math.log2(8) == 3.0 and log2(64) == 6)
        tl.static_assert(C == Colour.RED and C.value == 1)
        tl.static_assert(tl.constexpr(5).value == 5 and ANSWER.value == 42)
        tl.store(p, factor_of_two(tl.load(p), local))

    x = np.array([5], np.int32)
    run(fn, 1, p=x)
    assert x[0] == 15


def test_an_argument_left_out_takes_its_default() -> None:
    fn = kernel("tl.static_assert(b == 3 and c is None)\ntl.store(p, b)", "p, b=3, c=None")
    assert "arith.constant 3 : i32" in body_of(compile_kernel(fn, p="*i32"))


def test_numbers_known_at_compile_time_answer_as_tensors_would() -> None:
    fn = kernel("tl.static_assert(n.dtype == tl.int32)\ntl.store(p, n.to(tl.int64) + f(n.value))", "p, n", f=scaled)
    assert "arith.extsi %c1_i32 : i32 to i64" in body_of(compile_kernel(fn, p="*i64", n=1))


def test_a_run_time_value_for_a_constexpr_parameter_of_a_called_function_stays_one() -> None:
    """As in Triton, where the annotation binds kernels only: called functions take what comes."""
    fn = kernel("tl.store(p, scaled(n, offset=n))\ntl.store(p + 1, scaled(n, offset=3))", "p, n", scaled=scaled)
    body = body_of(compile_kernel(fn, p="*i32", n="i32"))
    assert body.count("tt.call") == 2
    x = np.zeros(2, dtype=np.int32)
    run(fn, 1, p=x, n=5)
    assert x.tolist() == [15, 13]


def test_bodies_that_are_inlined_into_reductions() -> None:
    fn = kernel(
        "tl.store(p, tl.reduce(tl.load(p + tl.arange(0, 4)), 0, f))",
        "p",
        f=define("@kp.jit\ndef f(a, b):\n    return a * 2 + b")["f"],
    )
    assert "tt.call" not in body_of(compile_kernel(fn, p="*i32"))


def test_plain_functions_of_modules_are_called_while_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def nothing(*args: object, **kwargs: object) -> None:
        calls.append((args, kwargs))

    host = ModuleType("host")
    host.nothing, host.second, host.size = nothing, lambda x, y: y, lambda n: [n, n + 1]
    monkeypatch.setattr(tl, "debug_barrier", nothing)
    fn = define(
        """
        @kp.jit
        def kernel(p, n):
            tl.debug_barrier()
            host.nothing(4, key=tl.float32)
            tl.store(p, host.second(1, n) + host.size(10)[1])
        """,
        host=host,
    )["kernel"]
    out = np.zeros(1, np.int32)
    run(fn, 1, p=out, n=5)
    assert out[0] == 16
    assert calls == [((), {}), ((4,), {"key": tl.float32})]


def test_a_plain_function_cannot_compute_with_run_time_values() -> None:
    host = ModuleType("host")
    exec("def twice(x):\n    return x * 2", vars(host))
    fn = define("@kp.jit\ndef kernel(p, n):\n    tl.store(p, host.twice(n))", host=host)["kernel"]
    with pytest.raises(CompilationError, match=r"`host.twice\(n\)` is called while compiling and fails: TypeError") as caught:
        compile_kernel(fn, p="*i32", n="i32")
    assert caught.value.cure == "decorate twice with @kernelpack.jit if it computes with run-time values"


def test_keys_cover_plain_functions_of_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    host = ModuleType("host")
    keys = set()
    given = define("def one():\n    return 1\n\ndef other():\n    return 2")
    for function in (given["one"], given["other"], lambda: 1, lambda: 2):
        host.size = function
        fn = define("@kp.jit\ndef kernel(p):\n    tl.store(p, host.size())", host=host)["kernel"]
        keys.add(fn.cache_key)
    assert len(keys) == 4


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("scaled()", r"scaled\(\): missing a required argument: 'x'"),
        ("scaled(n, 1, 2)", r"too many positional arguments"),
        ("scaled(n, y=1)", r"unexpected keyword argument 'y'"),
        ("scaled(**n)", r"\*\* is not part of the kernel language"),
        ("scaled(*n)", r"\* spreads tuples, not int32"),
        ("forever(n)", r"forever calls itself with the same types"),
        ("plain(n)", r"plain is a plain Python function, which kernels cannot call"),
        ("n(1)", r"`n` is int32, which cannot be called"),
        ("x = 1\nx(2)", r"which cannot be called"),
        ("number + 1", r"Cannot access global variable number .* plain Python global \(int\)"),
        ("Sizes.fromkeys", r"Cannot access global variable Sizes .* plain Python global \(type\)"),
        ("numbers[0]", r"Cannot access global variable numbers"),
        ("nothing", r"nothing is not defined"),
        ("tl.nothing", r"kernelpack.language has no 'nothing'"),
        ("tl.sort(n)", r"a tile is needed, not a scalar"),
        ("n.nothing", r"run-time values have no attribute 'nothing'"),
        ("(1).nothing", r"the number 1 has no attribute 'nothing'"),
        ("scaled.fn", r"kernels cannot look into scaled"),
        ("tl.float32.element_ty", r"fails at compile time: AttributeError"),
        ("getattr(n, 'x')", r"run-time values have no attribute 'x'"),
        ("getattr(n, 1)", r"getattr\(\) takes a value and a compile-time name"),
        ("lg(n)", r"needs compile-time values, got int32"),
        ("lg('a')", r"fails at compile time: AttributeError"),
        ("1 // 0", r"fails at compile time: ZeroDivisionError"),
        ("a, b = n", r"int32 cannot be unpacked into 2 variables"),
        ("a, b = (1,)", r"1 values cannot be unpacked into 2 variables"),
        ("p[0] = 1", r"elements cannot be assigned to"),
        ("p[0] += 1", r"only variables can be assigned to"),
        ("p.x = 1", r"`p.x` cannot be assigned to"),
        ("(1, 2)[n]", r"a tuple is indexed with a compile-time integer"),
        ("(1, 2)[5]", r"tuple index out of range"),
        ("table[n]", r"a dict is indexed with a compile-time key"),
        ("table[7]", r"`table\[7\]`: 7"),
        ("x = None\nx[0]", r"None cannot be indexed"),
        ("f'{n}'", r"an f-string cannot hold `n`, which has a value at run time only"),
        ("assert 1 == 2, f'{1 + 1} is wrong'", r"assertion failed: 2 is wrong"),
        ("tl.static_assert(1 == 2)", r"assertion failed: 1 == 2"),
        ("tl.static_assert(False, msg='text')", r"assertion failed: text"),
        ("tl.static_assert(n > 1, 'text')", r"must be known at compile time"),
        ("tl.static_assert()", r"takes a condition and a message"),
        ("tl.static_print(n, oops=1)", r"unexpected keyword"),
        ("(lambda a, b: a)(1)", r"lambda\(\): missing a required argument: 'b'"),
        ("def f(**more):\n    pass", r"\*\* is not part of the kernel language"),
        ("[x for x in n]", r"a comprehension runs over tuples and compile-time ranges, not int32"),
        ("[x for x in (1, 2) if n > x]", r"the conditions of a comprehension are compile-time values"),
        ("(x for x in (1, 2))", r"a generator is not part"),
        ("a, *b = ()", r"0 values cannot be unpacked into 2 variables"),
        ("t = (1, 2)\nt[0] = 3", r"elements cannot be assigned to"),
        ("tl.device_print('\u00e9', n)", r"use ASCII characters only"),
        ("tl.device_assert(n > 0, n)", r"message of device_assert is a compile-time string"),
        ("{1: 2}", r"a dict is not part"),
        ("try:\n    pass\nfinally:\n    pass", r"try is not part"),
        ("with n:\n    pass", r"with is not part"),
        ("raise ValueError('x')", r"the kernel raises `ValueError\('x'\)`"),
        ("import os", r"import is not part"),
        ("global m", r"global is not part"),
        ("del n", r"del is not part"),
        ("(y := z)", r"z is not defined"),
        ("x = 1j", r"constants of type complex"),
        ("x = b'x'", r"constants of type bytes"),
        ("x = ...", r"constants of type ellipsis"),
    ],
)
def test_refused(body: str, message: str) -> None:
    names = define("@kp.jit\ndef forever(x):\n    return forever(x) + 1\n\ndef plain(x):\n    return x\n")
    fn = kernel(
        body, "p, n", scaled=scaled, forever=names["forever"], plain=names["plain"], number=plain_number, numbers=plain_list, Sizes=dict, lg=log2, table=tl.constexpr({0: 1}),
    )  # fmt: skip
    with pytest.raises(CompilationError, match=message) as caught:
        compile_kernel(fn, p="*i32", n="i32")
    assert caught.value.location is not None


def test_static_print_shows_compile_time_values_and_types(capsys: pytest.CaptureFixture[str]) -> None:
    fn = kernel("tl.static_print('n is', n, N, tl.arange(0, 4), sep='|')", "n, N: tl.constexpr")
    compile_kernel(fn, n="i32", N=5)
    assert capsys.readouterr().out == "n is|tensor[int32]|5|tensor[<[4], int32>]\n"


def test_variables_declared_before_they_are_assigned_stay_compile_time_values() -> None:
    fn = kernel(
        "d0: tl.constexpr\nd1: tl.constexpr\n(d0, d1) = SHAPE\ntl.store(p + tl.arange(0, d0 * d1), 1)", "p, SHAPE: tl.constexpr"
    )
    x = np.zeros(8, np.int32)
    run(fn, 1, p=x, SHAPE=(2, 4))
    assert x.sum() == 8


@pytest.mark.parametrize(
    "body", ["d: tl.constexpr = n * 2", "d: tl.constexpr\nd = n * 2", "c: tl.constexpr\nd: tl.constexpr\nc, d = 1, n * 2"]
)
def test_run_time_values_that_are_annotated_as_constexpr_are_warned_of(body: str) -> None:
    fn = kernel(f"{body}\ntl.store(p, d + 1)", "p, n")
    x = np.zeros(1, np.int32)
    with pytest.warns(UserWarning, match=r"`d: constexpr` is int32, which only running tells"):
        run(fn, 1, p=x, n=5)
    assert x[0] == 11


def test_a_constexpr_of_a_run_time_value_is_that_value_and_warned_of() -> None:
    fn = kernel(
        "d = tl.constexpr(n * tl.arange(0, 4) - 1)\nfor i in range(2):\n    tl.store(p + tl.arange(0, 4), d >= i)", "p, n"
    )
    x = np.zeros(4, np.int32)
    with pytest.warns(
        UserWarning, match=r"`tl.constexpr\(n \* tl.arange\(0, 4\) - 1\)` is <\[4\], int32>, which only running tells"
    ):
        run(fn, 1, p=x, n=1)
    assert x.tolist() == [0, 0, 1, 1]


def test_values_that_have_no_name_are_dropped_and_warned_of() -> None:
    fn = kernel("a, b = n, 2, 3\ntl.store(p, a + b)", "p, n")
    x = np.zeros(1, np.int32)
    with pytest.warns(UserWarning, match=r"3 values cannot be unpacked into 2 variables: the last ones are dropped"):
        run(fn, 1, p=x, n=5)
    assert x[0] == 7


def test_a_dict_known_at_compile_time_is_indexed_with_its_keys() -> None:
    table = tl.constexpr({0: tl.float32, "low": (tl.int8, 3)})
    fn = kernel("kind, number = table['low']\ntl.store(p, (n + number).to(kind).to(table[0]) * 1.5)", "p, n", table=table)
    x = np.zeros(1, np.float32)
    run(fn, 1, p=x, n=255)
    assert x[0] == 3.0


@tl.constexpr
def widened(kind):
    return tl.float32 if kind.is_fp16() else kind


def test_constexprs_of_functions_are_called_at_compile_time() -> None:
    fn = kernel("kind: tl.constexpr = widened(p.dtype.element_ty)\ntl.store(q, kind == tl.float32)", "p, q", widened=widened)
    assert widened(tl.float16) == tl.float32
    q = np.zeros(1, np.int32)
    run(fn, 1, p=np.zeros(1, np.float16), q=q)
    assert q[0] == 1


def test_truth_of_tiles() -> None:
    fn = kernel("r = tl.arange(0, 4)\ntl.store(p + r, (r & 1).logical_and(r & 2) | (r == 0).logical_or(r == 9))", "p")
    x = np.zeros(4, np.int32)
    run(fn, 1, p=x)
    assert x.tolist() == [1, 0, 0, 1]


def test_operators_have_names() -> None:
    fn = kernel("tl.store(p, tl.add(tl.mul(2, n), tl.core.sub(n, 1, sanitize_overflow=False)))", "p, n")
    x = np.zeros(1, np.int32)
    run(fn, 1, p=x, n=5)
    assert x[0] == 14


def test_getattr_is_an_attribute_by_its_name() -> None:
    fn = kernel("tl.store(p, getattr(tl, 'max' + 'imum')(n, 3).to(getattr(n, 'dtype')))", "p, n")
    x = np.zeros(1, np.int32)
    run(fn, 1, p=x, n=-2)
    assert x[0] == 3


def test_docstrings_and_annotations_mean_nothing() -> None:
    fn = kernel('"""Text."""\nx: "a tile" = tl.arange(0, 4)\n"more"\n...\npass\ntl.store(p + x, x)', "p")
    assert body_of(compile_kernel(fn, p="*i32")).count(" = tt.") == 3
