"""Errors show the user's line, what is wrong, what to do, and through which calls control came there."""

from __future__ import annotations

import pickle

import pytest

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.errors import CompilationError, SourceLocation
from kernelpack.facts import Fact
from kernelpack.frontend.ast_to_ttir import ast_to_ttir
from tests.frontend.compiling import compile_kernel, define, kernel


def error_of(fn: kp.JITFunction, **arguments: object) -> CompilationError:
    with pytest.raises(CompilationError) as caught:
        compile_kernel(fn, **arguments)
    return caught.value


def test_message_location_excerpt_and_cure() -> None:
    error = error_of(kernel("x = tl.arange(0, 8)\nif x is None or x[0]:  # never\n    pass", "p"), p="*i32")
    location = error.location
    assert location is not None
    assert str(error) == (
        f"{location.file}:4:21: unsupported tensor index: tiles are indexed with `:` and None only, not 0\n"
        "  in kernel, at 3:20:\n"
        "        if x is None or x[0]:  # never\n"
        "                        ^\n"
        "  to fix: compute with masks (tl.where, tl.sum), or load what is needed through pointers"
    )


def test_the_innermost_expression_is_shown() -> None:
    error = error_of(kernel("y = tl.load(p) + tl.exp(tl.load(p + n)) + 1", "p, n"), p="*i32", n="i32")
    assert (error.location.line, error.location.column) == (3, 22)


def test_columns_count_characters() -> None:
    error = error_of(kernel("tl.static_assert('é€' == 'é€' and undefined)", "n"), n="i32")
    assert error.location.column == 5 + len("tl.static_assert('é€' == 'é€' and ")
    line, caret = error.location.excerpt().split("\n")[-2:]
    assert caret.index("^") == line.index("undefined")


def test_multi_line_statements_show_their_own_line() -> None:
    error = error_of(kernel("x = (\n    n\n    + missing\n)", "n"), n="i32")
    assert error.location.line == 5


CHAIN = """
@kp.jit
def inner(x):
    return x.nothing

@kp.jit
def outer(x):
    y = x + 1
    return inner(y)

@kp.jit
def kernel(p, n):
    tl.store(p, outer(n))
"""


def test_errors_inside_called_functions_show_the_chain_of_calls() -> None:
    error = error_of(define(CHAIN)["kernel"], p="*i32", n="i32")
    assert error.location.line == 4
    assert [site.line for site in error.call_sites] == [9, 13]
    shown = str(error).split("\n")
    assert shown[0].endswith(":4:12: run-time values have no attribute 'nothing'")
    assert shown[1] == "  in inner, at 2:11:"
    assert shown[4].startswith("  called from ")
    assert shown[4].endswith(":9:12")
    assert shown[5] == "  in outer, at 3:11:"
    assert shown[6].strip() == "return inner(y)"
    assert shown[8].endswith(":13:17")


def test_errors_travel_between_processes_whole() -> None:
    error = error_of(define(CHAIN)["kernel"], p="*i32", n="i32")
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error)
    assert again.call_sites == error.call_sites


def test_errors_inside_the_languages_own_functions_are_the_callers() -> None:
    error = error_of(kernel("x = tl.softmax(tl.arange(0, 8))", "n"), n="i32")
    assert error.location.line == 3
    assert error.location.column == 9
    assert error.call_sites == ()
    assert "tl.exp takes fp32 or fp64, not int32" in error.message


def test_errors_inside_combine_functions_show_the_reduction() -> None:
    names = define(
        "@kp.jit\ndef f(a, b):\n    return a.nothing\n\n@kp.jit\ndef kernel(n):\n    tl.reduce(tl.arange(0, 8), 0, f)\n"
    )
    error = error_of(names["kernel"], n="i32")
    assert error.location.line == 4 - 1
    assert [site.line for site in error.call_sites] == [7]


def test_combine_functions_must_give_what_they_take() -> None:
    names = define(
        "@kp.jit\ndef f(a, b):\n    return a * 1.5\n\n@kp.jit\ndef kernel(n):\n    tl.reduce(tl.arange(0, 8), 0, f)\n"
    )
    assert error_of(names["kernel"], n="i32").message == "the combine function must give (int32), gives (fp32)"


@kp.jit
def two_arguments(p, N: tl.constexpr):
    tl.store(p, N)


@pytest.mark.parametrize(
    ("signature", "constexprs", "message"),
    [
        ({"p": "*fp32"}, {}, "argument N of two_arguments is missing"),
        ({}, {"N": 1}, "argument p of two_arguments is missing"),
        ({"p": "*fp32", "N": "i32"}, {}, "argument N of two_arguments is tl.constexpr: it needs a value"),
        ({"p": "*fp31"}, {"N": 1}, "argument p of two_arguments: 'fp31' is not a type"),
        ({"p": "*fp32", "q": "i32"}, {"N": 1}, "two_arguments has no argument q"),
    ],
)
def test_signatures_that_do_not_fit(signature: dict[str, str], constexprs: dict[str, object], message: str) -> None:
    with pytest.raises(CompilationError, match=message) as caught:
        ast_to_ttir(two_arguments, signature, constexprs)
    assert caught.value.location == SourceLocation(__file__, two_arguments.location.line)


def test_facts_become_attributes_of_arguments() -> None:
    module = ast_to_ttir(
        two_arguments, {"p": "*fp32"}, {"N": 1}, [Fact("p", "tt.divisibility", 16), Fact("p", "tt.pointer_range", 32)]
    )
    assert "%p: !tt.ptr<f32> {tt.divisibility = 16 : i32, tt.pointer_range = 32 : i32}" in str(module)
    with pytest.raises(CompilationError, match=r"the fact N:tt.divisibility=16 is about 'N', which is no run-time argument"):
        ast_to_ttir(two_arguments, {"p": "*fp32"}, {"N": 16}, [Fact("N", "tt.divisibility", 16)])


def test_operations_know_where_they_come_from() -> None:
    names = define(
        "@kp.jit\ndef add(a, b):\n    return a + b\n\n"
        "@kp.jit\ndef kernel(p):\n    tl.store(p,\n             tl.reduce(tl.load(p + tl.arange(0, 4)), 0, add))\n"
    )
    module = compile_kernel(names["kernel"], p="*i32")
    at = {op.name: op.location for op in module.walk()}
    file = at["tt.load"].source.file
    assert at["tt.make_range"].source == SourceLocation(file, 8, 36)
    assert at["tt.store"].source == SourceLocation(file, 7, 5)
    assert at["arith.addi"].source == SourceLocation(file, 3, 12)
    assert at["arith.addi"].callsite.source == SourceLocation(file, 8, 14)
    assert file not in str(module)
