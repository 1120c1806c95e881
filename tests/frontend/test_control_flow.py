"""Branches and loops become structured control flow with the meaning that they have in Python."""

from __future__ import annotations

import re

import numpy as np
import pytest

import kernelpack.language as tl
from kernelpack.analysis.axis_info import AxisInfoAnalysis
from kernelpack.errors import CompilationError
from kernelpack.ir.core import entry_function
from kernelpack.kernel.jit import JITFunction
from tests.frontend.compiling import body_of, compile_kernel, define, kernel, run

# ---- if ----


def test_if_yields_changed_and_new_variables() -> None:
    fn = kernel(
        """
        x = 1
        if n > 4:
            x = n
            fresh = n * 2
        else:
            fresh = n * 3
        tl.store(p, x + fresh)
        """,
        "p, n",
    )
    text = body_of(compile_kernel(fn, p="*i32", n="i32"))
    assert "%x:2 = scf.if %0 -> (i32, i32) {" in text
    for n, expected in ((5, 15), (2, 7)):
        out = np.zeros(1, np.int32)
        run(fn, 1, p=out, n=n)
        assert out[0] == expected


def test_if_without_changes_yields_nothing() -> None:
    fn = kernel("y = n\nif n > 4:\n    z = n\n    tl.store(p, z + y)", "p, n")
    assert "scf.if %0 {" in body_of(compile_kernel(fn, p="*i32", n="i32"))


def test_tuples_pointers_and_tiles_go_through_if_and_loops() -> None:
    fn = kernel(
        """
        pair = (n, 2.5)
        q = p
        tile = tl.zeros((4,), tl.int32)
        for i in range(3):
            if i == n:
                pair = (i + 10, pair[1] * 2)
                q = p + 4
            tile += i
        tl.store(q + tl.arange(0, 4), tile + pair[0] + pair[1].to(tl.int32))
        """,
        "p, n",
    )
    out = np.zeros(8, np.int32)
    run(fn, 1, p=out, n=1)
    assert list(out) == [0, 0, 0, 0, 19, 19, 19, 19]
    run(fn, 1, p=out, n=7)
    assert list(out[:4]) == [12] * 4


def test_a_scalar_tile_is_a_condition() -> None:
    fn = kernel("x = tl.full((1, 1), n, tl.int32)\nif x > 3:\n    tl.store(p, 1)", "p, n")
    assert "tt.unsplat" in body_of(compile_kernel(fn, p="*i32", n="i32"))


@pytest.mark.parametrize(
    ("condition", "taken"),
    [
        ("A is None", True),
        ("A is not None", False),
        ("B == 'relu'", True),
        ("B != 'relu' or C", True),
        ("C and not D", True),
        ("A is not None and A.shape", False),
        ("C if A is None else D", True),
        ("N // 3 == 5 and N % 4", True),
        ("B in ('relu', 'gelu')", True),
        ("N not in (1, 2)", True),
        ("T == tl.float16", True),
        ("T.is_floating() and T.primitive_bitwidth < 32", True),
        ("-N < 0", True),
        ("~N == -18 and N << 1 == 34 and N >> 1 == 8", True),
        ("len((1, 2)) == 2 and max(3, N, 4) == 17 and min(1, 2) == 1 and abs(-2) == 2", True),
        ("float('inf') > 1 and int(2.5) == 2 and bool(1) and N / 2 == 8.5", True),
        ("isinstance(N, int) and not isinstance(N, tl.tensor) and hasattr(T, 'name')", True),
        ("f'{N:04d} {B!r}' == \"0017 'relu'\"", True),
        ("(1, 2) + (3,) == [1, 2, 3] and (0,) * 2 == (0, 0) and [*(1, 2), 3][1:] == (2, 3)", True),
        ("2 ** 5 == 32", True),
        ("kp.next_power_of_2(N) == 32 and kp.cdiv(N, 4) == 5", True),
    ],
)
def test_compile_time_conditions_leave_no_trace(condition: str, taken: bool) -> None:
    fn = kernel(f"if {condition}:\n    tl.store(p, 1)", "p, A: tl.constexpr, B: tl.constexpr, C, D, N, T")
    text = body_of(compile_kernel(fn, p="*i32", A=None, B="relu", C=True, D=False, N=17, T=tl.float16))
    assert "scf.if" not in text
    assert ("tt.store" in text) == taken


def test_run_time_conditions_combine_without_short_circuit() -> None:
    fn = kernel("if n > 1 and m or not n:\n    tl.store(p, 1)\nelse:\n    tl.store(p, 0)", "p, n, m")
    for n, m in ((0, 0), (2, 0), (2, 3), (1, 1)):
        out = np.full(1, -1, np.int32)
        run(fn, 1, p=out, n=n, m=m)
        assert out[0] == int(bool((n > 1 and m) or not n))


def test_run_time_ternary_is_evaluated_on_one_side() -> None:
    fn = kernel("x = tl.load(p + n) if n < 4 else -1\ntl.store(p, x)", "p, n")
    out = np.array([9, 8, 7, 6], np.int32)
    run(fn, 1, p=out, n=2)
    assert out[0] == 7
    run(fn, 1, p=out, n=1000)  # the load would be outside
    assert out[0] == -1


# ---- loops ----


@pytest.mark.parametrize("bounds", ["5", "2, 9", "2, 9, 3", "9, 2, -3", "n, 0, -1", "n, n * 3, n", "0, n, 4", "5, 5", "7, 2"])
def test_range_counts_as_in_python(bounds: str) -> None:
    fn = kernel(f"k = 0\nfor i in range({bounds}):\n    tl.store(p + k, i)\n    k += 1\ntl.store(p + 20, k)", "p, n")
    out = np.full(21, -1, np.int32)
    run(fn, 1, p=out, n=6)
    expected = list(eval(f"range({bounds})", {"n": 6}))
    assert list(out[: len(expected)]) == expected
    assert out[20] == len(expected)


@pytest.mark.parametrize(("kind", "counts_in"), [("i32", "i32"), ("i64", "i64"), ("u32", "i64"), ("i8", "i32")])
def test_loops_count_in_the_common_type_of_their_bounds(kind: str, counts_in: str) -> None:
    fn = kernel("for i in range(0, n):\n    tl.store(p, i)", "p, n")
    assert re.search(rf"scf\.for .* : {counts_in} {{", body_of(compile_kernel(fn, p="*i64", n=kind)))


def test_unchanged_variables_are_not_carried() -> None:
    fn = kernel(
        """
        x = n + 1
        y = n + 2
        for i in range(n):
            if FLAG:
                x = x + 1
            y = y + x
        tl.store(p, x + y)
        """,
        "p, n, FLAG: tl.constexpr",
    )
    assert "iter_args(%y_1 = %y) -> (i32)" in body_of(compile_kernel(fn, p="*i32", n="i32", FLAG=False))
    assert "-> (i32, i32)" in body_of(compile_kernel(fn, p="*i32", n="i32", FLAG=True))


def test_attributes_of_loops_are_kept() -> None:
    fn = kernel("for i in tl.range(0, n, 1, num_stages=3, loop_unroll_factor=2, flatten=True):\n    tl.store(p, i)", "p, n")
    text = body_of(compile_kernel(fn, p="*i32", n="i32"))
    assert "{tt.flatten = true, tt.loop_unroll_factor = 2 : i32, tt.num_stages = 3 : i32}" in text


@pytest.mark.parametrize("number", ["-3", "2.5", "True", "n"])
def test_attributes_of_a_loop_are_numbers_from_0_on(number: str) -> None:
    fn = kernel(f"for i in tl.range(0, n, 1, num_stages={number}):\n    tl.store(p, i)", "p, n")
    with pytest.raises(CompilationError, match="num_stages must be a compile-time integer from 0 on, is"):
        compile_kernel(fn, p="*i32", n="i32")


def test_loop_variable_may_be_changed_in_the_body() -> None:
    fn = kernel("for i in range(3):\n    i += 10\n    tl.store(p + i - 10, i)", "p")
    out = np.zeros(3, np.int32)
    run(fn, 1, p=out)
    assert list(out) == [10, 11, 12]


def test_swapped_variables_are_carried_crosswise() -> None:
    fn = kernel("a = 0\nb = 1\nfor i in range(n):\n    a, b = b, a + b\ntl.store(p, a)", "p, n")
    out = np.zeros(1, np.int32)
    run(fn, 1, p=out, n=10)
    assert out[0] == 55


def test_while_carries_what_the_condition_reads() -> None:
    fn = kernel(
        """
        i = 0
        total = 0
        while (i < n) & (total < 20):
            j = 0
            while j < i:
                total += j
                j += 1
            i += 1
        tl.store(p, i)
        tl.store(p + 1, total)
        """,
        "p, n",
    )
    out = np.zeros(2, np.int32)
    run(fn, 1, p=out, n=100)
    assert list(out) == [6, 20]
    run(fn, 1, p=out, n=3)
    assert list(out) == [3, 1]


def test_static_range_is_unrolled_with_compile_time_indices() -> None:
    fn = kernel(
        """
        total = 0
        for i in tl.static_range(6, 0, -2):
            STEP: tl.constexpr = i * 2
            total += tl.sum(tl.arange(0, kp.next_power_of_2(i))) + STEP
            for j in tl.static_range(i // 4):
                total += 100
        tl.store(p, total)
        """,
        "p",
    )
    out = np.zeros(1, np.int32)
    run(fn, 1, p=out)
    assert out[0] == sum(range(8)) + sum(range(4)) + sum(range(2)) + 2 * (6 + 4 + 2) + 200
    assert "scf.for" not in body_of(compile_kernel(fn, p="*i32"))


def test_variables_of_the_body_may_change_type_if_they_are_set_before_they_are_read() -> None:
    fn = kernel(
        """
        x = tl.arange(0, 8)
        for i in range(n):
            x = tl.arange(0, 4) + i
            tl.store(p + x, x)
        """,
        "p, n",
    )
    assert "iter_args" not in body_of(compile_kernel(fn, p="*i32", n="i32"))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("x = 0\nfor i in range(n):\n    x += 1.5", r"cannot carry x .* int32 before the loop and fp32 at its end"),
        ("x = None\nfor i in range(n):\n    if x is None:\n        x = 1", r"cannot carry x .* compile-time value None"),
        (
            "for i in range(n):\n    y = i\ntl.store(p, y)",
            r"y has no value here: it is assigned only inside the loop in line 3",
        ),
        ("for i in range(n):\n    pass\ntl.store(p, i)", r"i has no value here: it counts the loop in line 3"),
        (
            "if n > 1:\n    y = 1\ntl.store(p, y)",
            r"y has no value here: .* only where the condition of the `if` in line 3 holds",
        ),
        ("if n > 1:\n    pass\nelse:\n    y = 1\ntl.store(p, y)", r"y has no value .* line 3 does not hold"),
        ("if n > 1:\n    y = 1\nelse:\n    y = 1.0\ntl.store(p, y)", r"after the `if` in line 3 it is int32 or fp32"),
        ("while n:\n    return", r"Cannot have `return` statements inside `while` or `for`"),
        ("for i in range(3):\n    break", r"break is not part of the kernel language"),
        ("for i in range(3):\n    if n:\n        continue", r"continue is not part"),
        ("for i in range(3):\n    pass\nelse:\n    pass", r"a loop has no else"),
        ("for i in n:\n    pass", r"a loop cannot run over int32"),
        ("for i, j in range(3):\n    pass", r"a loop over a range has one variable"),
        ("for i in range(0, 3, 0):\n    pass", r"the step of a loop is 0"),
        ("for i in range(n * 1.0):\n    pass", r"bounds of a loop are integers, got fp32"),
        ("for i in range(n.to(tl.uint64)):\n    pass", r"cannot count in uint64"),
        ("for i in range(end=3):\n    pass", r"range\(\): "),
        ("for i in tl.static_range(n):\n    pass", r"tl.static_range takes compile-time integers"),
        ("while True:\n    n += 1", r"this loop never ends"),
        ("if tl.arange(0, 4) > 2:\n    pass", r"a condition must be a scalar, this is a tile of shape \[4\]"),
        ("if tl.float32:\n    pass", r"is not a condition"),
        ("x = 1 if n else 2.0", r"inconsistent types: its values are the compile-time value 1 and the compile-time value 2.0"),
        ("return n", r"a kernel returns nothing"),
        ("if 1 < n < 3:\n    pass", r"chained comparisons"),
    ],
)
def test_refused(body: str, message: str) -> None:
    fn = kernel(body, "p, n")
    with pytest.raises(CompilationError, match=message) as caught:
        compile_kernel(fn, p="*i32", n="i32")
    assert caught.value.location is not None
    assert caught.value.cure or "fix" not in str(caught.value)


def test_paths_that_return_different_types_are_refused() -> None:
    for last, message in (
        ("return 1.0", "returns int32 on one path and the compile-time value 1.0"),
        ("return None", "compile-time value None"),
    ):
        fn = define(
            f"@kp.jit\ndef f(x):\n    if x > 0:\n        return x\n    {last}\n\n"
            "@kp.jit\ndef kernel(p, x):\n    tl.store(p, f(x))"
        )["kernel"]
        assert isinstance(fn, JITFunction)
        with pytest.raises(CompilationError, match=message):
            compile_kernel(fn, p="*i32", x="i32")


def test_a_path_that_ends_without_a_value_takes_any() -> None:
    fn = kernel(
        """
        while tl.condition(n < 5, disable_licm=True):
            n += 1
        tl.store(p, maybe(n, True))
        tl.store(p + 1, (tl.full([1], n, tl.int32) * 2).item())
        """,
        "p, n",
        maybe=define("@kp.jit\ndef maybe(x, flag):\n    wanted = flag\n    if wanted:\n        return x + 1")["maybe"],
    )
    out = np.zeros(2, np.int32)
    run(fn, 1, p=out, n=3)
    assert list(out) == [6, 10]


def test_what_is_promised_of_a_loops_variable_holds_for_what_it_starts_with_and_becomes() -> None:
    fn = kernel(
        "x = tl.load(p).to(tl.pointer_type(tl.float16)) + tl.arange(0, 64)\n"
        "y = tl.load(p + 1).to(tl.pointer_type(tl.float16)) + tl.arange(0, 64)\n"
        "for _ in range(n):\n"
        "    tl.multiple_of(x, 16)\n"
        "    tl.store(y, tl.load(x))\n"
        "    x += m\n",
        "p, n, m",
    )
    module = compile_kernel(fn, p="*i64", n="i32", m="i32")
    (loop,) = (op for op in module.walk() if op.name == "scf.for")
    facts = AxisInfoAnalysis(entry_function(module))
    widths = {
        op.name: facts.access_width(op.operands[0], 0) for op in loop.body.operations if op.name.endswith(("load", "store"))
    }
    assert widths == {"tt.load": 8, "tt.store": 1}, "16 bytes, and nothing promised"
