"""How far along k products have anything to add."""

from __future__ import annotations

import pytest

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.backends.cpu.facts.depth import depth_of
from kernelpack.compiler.stages import optimise_ttir
from kernelpack.frontend.ast_to_ttir import ast_to_ttir
from kernelpack.ir.core import entry_function

CASES = {
    "both": "ends at %n",
    "turned": "ends at %n",
    "compared the other way round": "ends at %n",
    "up to the last": "ends at %n + 1",
    "from an offset": "ends at %n - %first",
    "rows too": "ends at %n",
    "converted": "ends at %n",
    "one operand": None,
    "different ends": None,
    "another value": None,
    "each second": None,
    "from there on": None,
    "not all the same": None,
}


@kp.jit
def kernel(a, b, out, n, m, first, CASE: tl.constexpr):
    i, k = tl.arange(0, 16), tl.arange(0, 64)
    kept, other, value = k < n, k < n, 0.0
    if CASE == "compared the other way round":
        kept, other = n > k, n > k
    elif CASE == "up to the last":
        kept, other = k <= n, k <= n
    elif CASE == "from an offset":
        kept, other = first + k < n, first + k < n
    elif CASE == "different ends":
        other = k < m
    elif CASE == "another value":
        value = 1.0
    elif CASE == "each second":
        kept, other = 2 * k < n, 2 * k < n
    elif CASE == "from there on":
        kept, other = k >= n, k >= n
    rows = kept[None, :]
    if CASE == "rows too":
        rows = rows & (i < m)[:, None]
    elif CASE == "not all the same":
        rows = i[:, None] + k[None, :] < n
    x = tl.load(a + i[:, None] * 64 + k[None, :], mask=rows, other=value)
    if CASE == "turned":
        y = tl.trans(tl.load(b + i[:, None] * 64 + k[None, :], mask=other[None, :], other=value))
    elif CASE == "one operand":
        y = tl.load(b + k[:, None] * 16 + i[None, :])
    else:
        y = tl.load(b + k[:, None] * 16 + i[None, :], mask=other[:, None], other=value)
    if CASE == "converted":
        x, y = x.to(tl.float16), y.to(tl.float16)
    tl.store(out + i[:, None] * 16 + i[None, :], tl.dot(x, y))


def end_of(case: str) -> str | None:
    types = {"a": "*fp32", "b": "*fp32", "out": "*fp32", "n": "i32", "m": "i32", "first": "i32"}
    module = optimise_ttir(ast_to_ttir(kernel, types, {"CASE": case}))
    (dot,) = (op for op in module.walk() if op.name == "tt.dot")
    bound = depth_of(dot)
    if bound is None:
        return None
    names = {argument: f"%{argument.name}" for argument in entry_function(module).body.arguments}
    terms = "".join(f" {'-' if factor > 0 else '+'} {names[value]}" for value, factor in reversed(bound.terms))
    constant = f" + {bound.limit + 1}" if bound.limit != -1 else ""
    return "ends at " + terms.removeprefix(" + ") + constant


@pytest.mark.parametrize("case", CASES)
def test_a_product_ends_where_the_masks_of_both_operands_do(case: str) -> None:
    assert end_of(case) == CASES[case]
