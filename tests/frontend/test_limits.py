"""What copies code without an end that anybody would wait for is refused at its line, at once; what is long alone compiles."""

from __future__ import annotations

import pytest

from kernelpack.compiler.stages import optimise_ttir
from kernelpack.errors import CompilationError
from kernelpack.frontend.ast_to_ttir import ast_to_ttir
from kernelpack.ir.core import Operation
from kernelpack.options import Options
from kernelpack.runtime.compile import compile_kernel
from kernelpack.runtime.specialization import Specialization
from kernelpack.target import Target
from tests.frontend.compiling import define, kernel

HELPERS = define("""
@kp.jit
def fib(x, m: tl.constexpr):
    if m < 2:
        return x
    return fib(x, m - 1) + fib(x, m - 2)
""")


def made(body: str) -> Operation:
    """Returns the optimised ttir of a kernel with a body given as text."""
    fn = kernel(body, "p, n", fib=HELPERS["fib"])
    return optimise_ttir(ast_to_ttir(fn, {"p": "*i32", "n": "i32"}, {}))


# statements, the line of them that is named, what the message says, what the cure says
ENDLESS = [
    ('tl.static_assert(f"{1:1000000000}" != "")', 1, "asks for 100000 characters or more", None),
    (
        "for i in tl.static_range(100000):\n    n += i",
        1,
        "would be copied 100000 times, at most 10000",
        "use range or tl.range",
    ),
    ("for i in tl.static_range(0, -10**30, -1):\n    pass", 1, f"would be copied {10**30} times", "use range or tl.range"),
    ("for i in tl.static_range(300):\n    for j in tl.static_range(300):\n        n += j", 2, "copied 90000 times", "tl.range"),
    ("for i in (1, 2) * 10000:\n    n += i", 1, "would be copied 20000 times", "use range or tl.range"),
    ("xs = [i for i in tl.static_range(10**12)]", 1, "would be copied 1000000000000 times", "tl.range"),
    ("xs = [i for i in range(10**12)]", 1, "would be copied 1000000000000 times", "tl.range"),
    ("xs = [i * j for i in range(1000) for j in range(1000)]", 1, "would be copied 1000000 times", "tl.range"),
    (
        "for i in tl.range(n, loop_unroll_factor=1000000):\n    tl.store(p + i, i)",
        1,
        "unrolled 1000000 times, this loop has",
        "less",
    ),
    (
        "for i in tl.range(n, loop_unroll_factor=999):\n    for j in tl.range(i, loop_unroll_factor=999):\n        tl.store(p, j)",
        1,
        "unrolled 999 times, this loop has",
        "unroll loops less",
    ),
    ("tl.store(p, fib(n, 40))", 1, "operations, at most 100000 are compiled", "instead of calls"),
    ("f = lambda m: f(m - 1) + f(m - 2) if m > 1 else n\ntl.store(p, f(40))", 2, "more than 250000 names", "sooner"),
    ("x = (0,) * 10**10", 1, "the result would have 10000000000 entries", "tl.full"),
    ("x = 10**10 * 'ab'", 1, "the result would have 20000000000 entries", "tl.full"),
    ("x: tl.constexpr = 10 ** (10**12)", 1, "the integer would have 4000000000000 bits, at most 4096", None),
    ("x: tl.constexpr = 3 << 10**12", 1, "the integer would have 1000000000002 bits", None),
    (
        "f = lambda x: f(x) + 1\ntl.store(p, f(n))",
        2,
        "lambda is called inside too many other calls",
        "must shrink a compile-time value",
    ),
    ("def f(x):\n    return f(x) + 1\ntl.store(p, f(n))", 3, "f is called inside too many other calls", "must shrink"),
    (
        "def f(x):\n    return g(x)\ndef g(x):\n    return f(x) + 1\ntl.store(p, f(n))",
        5,
        "is called inside too many",
        "must shrink",
    ),
]


@pytest.mark.parametrize(("body", "line", "message", "cure"), ENDLESS, ids=[row[0].replace("\n", ";") for row in ENDLESS])
def test_what_does_not_end_is_refused_at_its_line(body: str, line: int, message: str, cure: str | None) -> None:
    with pytest.raises(CompilationError) as caught:
        made(body)
    error = caught.value
    assert message in error.message
    assert (cure in (error.cure or "")) if cure else error.cure is None
    place = error.call_sites[-1] if error.call_sites else error.location
    assert place is not None
    if "fib" not in body:
        assert place.line == 2 + line


def test_nested_functions_may_call_themselves_with_less() -> None:
    made("def f(x, m: tl.constexpr):\n    return x if m == 0 else f(x, m - 1) * 3\ntl.store(p, f(n, 300))")


def test_thousands_of_iterations_are_unrolled() -> None:
    found = made("for i in tl.static_range(3000):\n    n = n * 3 ^ i + 1\ntl.store(p, n)")
    assert sum(op.name == "arith.muli" for op in found.walk()) == 3000


@pytest.mark.parametrize("target", ["cpu:x86-64-v3", "cuda:sm_80"])
def test_branches_nested_too_deep_are_refused_by_name(target: str) -> None:
    """Where that is, Python's recursion limit decides."""

    def compiled(branches: int) -> None:
        others = "".join(f"elif n == {number}:\n    tl.store(p, {number})\n" for number in range(branches))
        special = Specialization((("p", "*i32"), ("n", "i32")), (), ())
        compile_kernel(kernel(f"if n < 0:\n    pass\n{others}", "p, n"), special, Target.parse(target), Options())

    compiled(300)
    with pytest.raises(CompilationError, match="this kernel is nested too deep to compile") as caught:
        compiled(2500)
    assert caught.value.location is not None
    assert "write fewer branches within branches" in str(caught.value)
