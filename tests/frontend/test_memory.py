"""Loads, stores and atomics: masks, `other`, converted values, booleans in memory, options, pointer arithmetic."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from kernelpack.errors import CompilationError
from tests.frontend.compiling import body_of, compile_kernel, kernel, run


def test_masked_load_and_store() -> None:
    fn = kernel(
        "r = tl.arange(0, 8)\nx = tl.load(p + r, mask=r < n, other=-7)\ntl.store(q + r, x, mask=r > 1)",
        "p, q, n",
    )
    x, out = np.arange(5, dtype=np.float32), np.full(8, 99, np.float32)
    run(fn, 1, p=x, q=out, n=5)
    assert list(out) == [99, 99, 2, 3, 4, -7, -7, -7]


def test_other_is_a_constant_of_the_elements_type() -> None:
    fn = kernel("r = tl.arange(0, 4)\ntl.load(p + r, r < 2, 0.0)", "p")
    assert "arith.constant dense<0> : tensor<4xi8>" in body_of(compile_kernel(fn, p="*i8"))
    assert "arith.constant dense<0.000000e+00> : tensor<4xbf16>" in body_of(compile_kernel(fn, p="*bf16"))


def test_masks_and_pointers_broadcast_in_loads() -> None:
    fn = kernel(
        """
        r = tl.arange(0, 4)
        x = tl.load(p + r[:, None], mask=(r < 2)[None, :], other=r)
        tl.store(q + r[:, None] * 4 + r[None, :], x)
        """,
        "p, q",
    )
    x, out = np.arange(10, 14, dtype=np.int32), np.zeros((4, 4), np.int32)
    run(fn, 1, p=x, q=out)
    assert (out == np.where(np.arange(4) < 2, x[:, None], np.arange(4))).all()


def test_scalars() -> None:
    fn = kernel("tl.store(q, tl.load(p + 3, mask=n > 0, other=5) + tl.load(p), mask=n != 7)", "p, q, n")
    x = np.arange(10, 14, dtype=np.int64)
    for n, expected in ((1, 23), (0, 15), (7, -1)):
        out = np.full(1, -1, np.int64)
        run(fn, 1, p=x, q=out, n=n)
        assert out[0] == expected


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [("2.75", torch.int32, 2), ("-2.75", torch.int8, -2), ("300", torch.int8, 44), ("-1", torch.uint8, 255), ("3", torch.bool, True),
     ("0.25", torch.bool, True), ("True", torch.float16, 1), ("1 << 40", torch.int64, 1 << 40), ("0.1", torch.bfloat16, 0.1001),
     ("n", torch.float16, 3), ("n > 5", torch.bool, False), ("n * 0.5", torch.int32, 1)],
)  # fmt: skip
def test_stored_values_are_converted(value: str, dtype: torch.dtype, expected: float) -> None:
    fn = kernel(f"tl.store(p, {value})\ntl.store(p + 1 + tl.arange(0, 4), {value})", "p, n")
    out = torch.zeros(5, dtype=dtype)
    run(fn, 1, p=out, n=3)
    torch.testing.assert_close(out, torch.tensor([expected] * 5, dtype=dtype))


def test_booleans_are_bytes_in_memory() -> None:
    fn = kernel("r = tl.arange(0, 4)\nx = tl.load(p + r)\ntl.static_assert(x.dtype == tl.int1)\ntl.store(q + r, ~x)", "p, q")
    x, out = torch.tensor([True, False, True, False]), torch.ones(4, dtype=torch.bool)
    run(fn, 1, p=x, q=out)
    assert torch.equal(out, ~x)


def test_options_become_attributes() -> None:
    fn = kernel(
        """
        r = tl.arange(0, 4)
        x = tl.load(p + r, cache_modifier=".cg", eviction_policy="evict_first", volatile=True)
        tl.store(p + r, x, cache_modifier=".cs", eviction_policy="evict_last")
        tl.atomic_add(p + r, x, sem="relaxed", scope="cta")
        tl.store(p, tl.load(p, cache_modifier=None, eviction_policy=None), cache_modifier=None, eviction_policy=None)
        """,
        "p",
    )
    text = body_of(compile_kernel(fn, p="*fp32"))
    assert "tt.load %1 cacheModifier = cg evictionPolicy = evict_first {is_volatile = true}" in text
    assert "cacheModifier = cs evictionPolicy = evict_last : " in text
    assert "tt.atomic_rmw fadd, relaxed, cta, " in text


def test_atomic_add() -> None:
    fn = kernel(
        "r = tl.arange(0, 8)\nold = tl.atomic_add(p + r % 2, r, mask=r < 6)\ntl.store(q + r, old)\ntl.atomic_add(p + 1, 0.5)",
        "p, q",
    )
    out, old = np.zeros(2, np.float32), np.zeros(8, np.float32)
    run(fn, 1, p=out, q=old)
    assert list(out) == [6, 9.5]
    assert list(old[:6]) == [0, 0, 0, 1, 2, 4]
    counter = np.zeros(2, np.int32)
    run(fn, 3, p=counter, q=old)
    assert list(counter) == [18, 27]


@pytest.mark.parametrize(
    ("kind", "offset"), [("i8", "i32"), ("i32", "i32"), ("i64", "i64"), ("u32", "i64"), ("u8", "i64"), ("u64", "i64")]
)
def test_offsets_keep_their_sign_when_they_widen(kind: str, offset: str) -> None:
    fn = kernel("tl.store(p + n, 1)\ntl.store(n + p, 1)\ntl.store(p - n, 1)", "p, n")
    assert body_of(compile_kernel(fn, p="*i32", n=kind)).count(f": !tt.ptr<i32>, {offset}\n") == 3


def test_negative_offsets_and_augmented_pointers() -> None:
    fn = kernel("p += 4\np -= n\ntl.store(p, 1)\ntl.store(p + -n.to(tl.int8), 2)", "p, n")
    out = np.zeros(4, np.int32)
    run(fn, 1, p=out, n=2)
    assert list(out) == [2, 0, 1, 0]


def test_pointers_through_integers() -> None:
    fn = kernel(
        "q = tl.load(table + n).to(tl.pointer_type(tl.float32))\ntl.store(q + tl.arange(0, 4), 1.5)\n"
        "tl.store(p.to(tl.int64).to(tl.pointer_type(tl.int32), bitcast=True), 7)",
        "table, target, p, n",
    )
    text = body_of(compile_kernel(fn, table="*i64", target="*fp32", p="*fp32", n="i32"))
    assert "tt.int_to_ptr" in text
    assert "tt.ptr_to_int" in text
    target, bits = torch.zeros(4), torch.zeros(1)
    run(fn, 1, table=torch.tensor([0, target.data_ptr()]), target=target, p=bits, n=1)
    assert target.tolist() == [1.5] * 4
    assert bits.view(torch.int32).item() == 7


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("tl.load(n)", r"tl.load needs a pointer or a tile of pointers, got a run-time value of type int32"),
        ("tl.load(None)", r"got None\n(.|\n)*guard the access with `if ptr is not None:`"),
        ("tl.load(p, other=0)", r"tl.load with other= needs a mask"),
        ("tl.load(p, r < 2)", r"through a scalar pointer takes a scalar mask, not a tile of shape \[8\]"),
        ("tl.load(p + r, n)", r"the mask of tl.load must be int1, is int32"),
        ("tl.load(p + r, tl.arange(0, 4) < 2)", r"do not broadcast"),
        ("tl.load(p + r, boundary_check=(0,))", r"for block pointers only"),
        ("tl.load(p, cache_modifier='.wt')", r"cache_modifier cannot be '.wt'"),
        ("tl.load(p, eviction_policy='x')", r"eviction_policy cannot be 'x'"),
        ("tl.load(p, masc=None)", r"load\(\): got an unexpected keyword argument 'masc'"),
        ("tl.load()", r"missing a required argument: 'pointer'"),
        ("tl.store(p, r)", r"takes a scalar value, not a tile"),
        (
            "tl.store(p + r, r[:, None])",
            r"the value of tl.store has shape \[8, 1\], which does not fit pointers of shape \[8\]",
        ),
        ("tl.store(p + r, 1, r[:, None] < 2)", r"the mask of tl.store has shape"),
        ("tl.store(p + r, 1, r)", r"the mask of tl.store must be int1"),
        ("tl.store(c, 1)", r"Cannot store to a constant pointer"),
        ("tl.store(p, None)", r"None is used where a value is expected"),
        ("tl.store(p, 'x')", r"'x' is not a run-time value or a number"),
        ("tl.store(p, p)", r"cannot cast pointer<fp32> to fp32"),
        ("tl.atomic_add(h, 1)", r"tl.atomic_add does not work on int16 in memory"),
        ("tl.atomic_add(c, 1)", r"Cannot store to a constant pointer"),
        ("tl.atomic_add(p, 1, sem='strong')", r"sem cannot be 'strong'"),
        ("tl.make_block_ptr(p)", r"missing a required argument: 'shape'"),
        ("p[0]", r"pointers are not indexed"),
    ],
)
def test_refused(body: str, message: str) -> None:
    fn = kernel(f"r = tl.arange(0, 8)\n{body}", "p, c, h, n")
    with pytest.raises(CompilationError) as caught:
        compile_kernel(fn, p="*fp32", c="*kfp32", h="*i16", n="i32")
    assert re.search(message, str(caught.value)), str(caught.value)
    assert caught.value.location is not None
    assert caught.value.location.line == 4
