"""Where products end: along k, and along their rows and columns."""

from __future__ import annotations

import pytest

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.backends.cpu.facts.ends import depth_of, ends_of
from kernelpack.compiler.stages import optimise_ttir
from kernelpack.frontend.ast_to_ttir import ast_to_ttir
from kernelpack.ir.core import Operation, entry_function
from kernelpack.kernel.jit import JITFunction

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


def compiled(tested: JITFunction, **case: str) -> Operation:
    """The ttir of a kernel whose pointers are a, b and out, and whose other arguments are lengths."""
    lengths = [name for name in tested.arg_names if name not in ("a", "b", "out", *case)]
    types = dict.fromkeys(("a", "b", "out"), "*fp32") | dict.fromkeys(lengths, "i32")
    return optimise_ttir(ast_to_ttir(tested, types, case))


def end_of(case: str) -> str | None:
    module = compiled(kernel, CASE=case)
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


KEPT = {
    "stored": "01",
    "all stored": "",
    "rows stored": "0",
    "another mask": "1",
    "rows are not masked": "1",
    "scaled": "01",
    "summed along rows": "0",
    "summed along columns": "1",
    "factor": "0",
    "turned": "01",
    "carried": "01",
    "chosen": "01",
    "printed": "",
    "divided": "",
}


@kp.jit
def edges(a, b, out, n, m, first, CASE: tl.constexpr):
    i = tl.program_id(0) * 16 + tl.arange(0, 16)
    down, along, k = i[:, None], tl.arange(0, 16)[None, :], tl.arange(0, 16)
    rows = down < n
    if CASE == "rows are not masked":
        x = tl.load(a + down * 16 + k[None, :])
    else:
        x = tl.load(a + down * 16 + k[None, :], mask=rows, other=0.0)
    y = tl.load(b + k[:, None] * 16 + along, mask=along < m, other=0.0)
    z = tl.dot(x, y)
    kept = rows & (along < m)
    target = out + down * 16 + along
    if CASE == "all stored":
        tl.store(target, z)
    elif CASE == "rows stored":
        tl.store(target, z, mask=rows)
    elif CASE == "another mask":
        tl.store(target, z, mask=(down < first) & (along < m))
    elif CASE == "scaled":
        tl.store(target, tl.exp(z * 2.0).to(tl.float16).to(tl.float32), mask=kept)
    elif CASE == "summed along rows":
        tl.store(out + i, tl.sum(z, 1), mask=i < n)
    elif CASE == "summed along columns":
        tl.store(out + tl.arange(0, 16), tl.sum(z, 0), mask=tl.arange(0, 16) < m)
    elif CASE == "factor":
        tl.store(target, tl.dot(z, tl.load(b + down * 16 + along)), mask=kept)
    elif CASE == "turned":
        tl.store(out + along + down * 16, tl.trans(tl.trans(z)), mask=kept)
    elif CASE == "carried":
        for _ in range(first):
            z = tl.dot(x, y, z)
        tl.store(target, z, mask=kept)
    elif CASE == "chosen":
        tl.store(target, z if first > 1 else z * 2.0, mask=kept)
    elif CASE == "printed":
        tl.device_print("z", z)
        tl.store(target, z, mask=kept)
    elif CASE == "divided":
        tl.store(target, (7 // z.to(tl.int32)).to(tl.float32), mask=kept)
    else:
        tl.store(target, z, mask=kept)


@pytest.mark.parametrize("case", KEPT)
def test_nothing_is_computed_where_it_is_not_stored(case: str) -> None:
    first, *_ = (op for op in compiled(edges, CASE=case).walk() if op.name == "tt.dot")
    assert "".join(map(str, ends_of(first))) == KEPT[case]


@kp.jit
def in_turns(a, b, out, n, m):
    k = tl.arange(0, 16)
    for part in range(m):
        i = part * 16 + tl.arange(0, 16)[:, None]
        x = tl.load(a + i * 16 + k[None, :], mask=i < n, other=0.0)
        tl.store(out + i * 16 + k[None, :], tl.dot(x, tl.load(b + k[:, None] * 16 + k[None, :])), mask=i < n)


def test_scalars_that_change_in_the_kernel_decide_nothing() -> None:
    (dot,) = (op for op in compiled(in_turns).walk() if op.name == "tt.dot")
    assert ends_of(dot) == {}
