"""Tensor descriptors: what their accesses mean, how they travel through a program, and what is refused."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch

from kernelpack.errors import CompilationError
from kernelpack.ir.interpret import launch
from tests.frontend.compiling import body_of, compile_kernel, define, kernel, run

TAKE = kernel(
    """
    d = tl.make_tensor_descriptor(p, [m, n], [s, 1], [4, 8], padding_option=PAD)
    rows, columns = tl.arange(0, 4), tl.arange(0, 8)
    tl.store(q + rows[:, None] * 8 + columns[None, :], d.load([i, j]))
    """,
    "p, q, m, n, s, i, j, PAD: tl.constexpr",
)


def block(x: torch.Tensor, i: int, j: int, padding: float) -> torch.Tensor:
    """Returns rows i .. i + 3, columns j .. j + 7 of a matrix, and `padding` outside of it."""
    big = torch.full((x.shape[0] + 40, x.shape[1] + 40), padding, dtype=x.dtype)
    big[20 : 20 + x.shape[0], 20 : 20 + x.shape[1]] = x
    return big[20 + i : 24 + i, 20 + j : 28 + j]


@pytest.mark.parametrize(("i", "j"), [(0, 0), (1, 2), (-2, -5), (3, 9), (-4, 0), (5, 0), (0, 11), (-9, -9)])
@pytest.mark.parametrize(("padding", "filling"), [("zero", 0.0), ("nan", float("nan"))])
def test_what_lies_outside_reads_as_padding(i: int, j: int, padding: str, filling: float) -> None:
    x = torch.randn(5, 16)[:, :11]
    out = torch.full((4, 8), 7.0)
    run(TAKE, 1, p=x, q=out, m=5, n=11, s=16, i=i, j=j, PAD=padding)
    torch.testing.assert_close(out, block(x, i, j, filling), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(("i", "j"), [(0, 0), (-2, 3), (3, -3), (5, 0), (0, 11)])
def test_what_lies_outside_is_not_written(i: int, j: int) -> None:
    fn = kernel(
        "d = tl.make_tensor_descriptor(p, [5, 11], [16, 1], [4, 8])\n"
        "tl.store_tensor_descriptor(d, [i, j], tl.arange(0, 4)[:, None] * 8 + tl.arange(0, 8)[None, :] + 1)",
        "p, i, j",
    )
    memory = torch.zeros(5, 16, dtype=torch.bfloat16)
    run(fn, 1, p=memory, i=i, j=j)
    expected = torch.zeros(5, 16, dtype=torch.bfloat16)
    for r in range(4):
        for c in range(8):
            if 0 <= i + r < 5 and 0 <= j + c < 11:
                expected[i + r, j + c] = r * 8 + c + 1
    torch.testing.assert_close(memory, expected, rtol=0, atol=0)


def test_one_to_five_axes() -> None:
    fn = kernel(
        """
        d = tl.make_tensor_descriptor(p, [3, 2, 3, 2, 8], [96, 48, 16, 8, 1], [1, 2, 2, 1, 8])
        e = tl.make_tensor_descriptor(q, [200], [1], [32])
        e.store([3], tl.reshape(d.load([1, 0, 2, 1, 0]), [32]))
        """,
        "p, q",
    )
    x, out = torch.randn(3, 2, 3, 2, 8), torch.zeros(40)
    run(fn, 1, p=x, q=out)
    expected = torch.zeros(2, 2, 8)
    expected[:, :1] = x[1, :, 2:3, 1]
    torch.testing.assert_close(out[3:35], expected.reshape(32), rtol=0, atol=0)


def test_rows_are_gathered_and_scattered() -> None:
    fn = kernel(
        """
        rows = tl.load(r + tl.arange(0, 8))
        source = tl.make_tensor_descriptor(p, [6, 16], [16, 1], [1, 8])
        target = tl.make_tensor_descriptor(q, [6, 16], [16, 1], [1, 8])
        target.scatter(source.gather(rows, 12), rows, 4)
        """,
        "p, q, r",
    )
    x, out, rows = torch.randn(6, 16), torch.zeros(6, 16), torch.tensor([5, 0, -1, 3, 6, 100, 2, 1], dtype=torch.int32)
    run(fn, 1, p=x, q=out, r=rows)
    expected = torch.zeros(6, 16)
    for row in (5, 0, 3, 2, 1):
        expected[row, 4:8] = x[row, 12:]
    torch.testing.assert_close(out, expected, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("what", "dtype", "combine"),
    [
        ("add", torch.float32, torch.add),
        ("add", torch.int32, torch.add),
        ("min", torch.int32, torch.minimum),
        ("max", torch.int64, torch.maximum),
        ("max", torch.float16, torch.maximum),
        ("min", torch.bfloat16, torch.minimum),
        ("and", torch.int32, torch.bitwise_and),
        ("or", torch.int32, torch.bitwise_or),
        ("xor", torch.int32, torch.bitwise_xor),
    ],
)
def test_blocks_are_combined_with_memory(what: str, dtype: torch.dtype, combine: Any) -> None:
    fn = kernel(
        f"""
        d = tl.make_tensor_descriptor(p, [6, 8], [8, 1], [4, 8])
        d.atomic_{what}([4, 2], tl.arange(0, 4)[:, None] - tl.arange(0, 8)[None, :])
        """,
        "p",
    )
    memory = (torch.arange(48).reshape(6, 8) - 20).to(dtype)
    expected = memory.clone()
    added = torch.arange(4)[:, None] - torch.arange(8)[None, :]
    expected[4:, 2:] = combine(expected[4:, 2:], added[:2, :6].to(dtype))
    run(fn, 1, p=memory)
    torch.testing.assert_close(memory, expected, rtol=0, atol=0)


def test_unsigned_elements_have_their_own_least_and_largest() -> None:
    fn = kernel(
        "d = tl.make_tensor_descriptor(p, [8], [1], [4])\n"
        "d.atomic_min([0], tl.full([4], 7, tl.uint32))\nd.atomic_max([4], tl.full([4], 7, tl.uint32))",
        "p",
    )
    memory = np.array([0, 1 << 31, 0xFFFFFFFF, 9] * 2, np.uint32)
    run(fn, 1, p=memory)
    assert list(memory) == [0, 7, 7, 7, 7, 1 << 31, 0xFFFFFFFF, 9]


PARTS = """
@kp.jit
def first(d, i):
    return d.load([i, 0])

@kp.jit
def longer(d, e, flag):
    if flag > 0:
        return e
    return d

@kp.jit
def kernel(p, q, n, flag):
    d = tl.make_tensor_descriptor(p, [n, 8], [8, 1], [2, 8])
    e = tl.make_tensor_descriptor(p + 16, [n - 2, 8], [8, 1], [2, 8])
    out = tl.make_tensor_descriptor(q, [4, 8], [8, 1], [2, 8])
    chosen = longer(d, e, flag)
    total = tl.zeros([2, 8], tl.float32)
    for i in range(0, n, 2):
        total += first(chosen, i)
        if i == 2:
            chosen = d
    out.store([0, 0], total)
    out.store([2, 0], first(d, 1) * chosen.shape[1] + chosen.strides[0] + chosen.strides[1] + chosen.block_shape[1])
"""


@pytest.mark.parametrize("flag", [0, 1])
def test_descriptors_go_through_calls_branches_and_loops(flag: int) -> None:
    x, out = torch.randn(6, 8), torch.zeros(4, 8)
    run(define(PARTS)["kernel"], 1, p=x, q=out, n=6, flag=flag)
    start = 2 if flag else 0
    expected = x[start : start + 2] + x[start + 2 : start + 4] + x[4:6]
    torch.testing.assert_close(out, torch.cat([expected, x[1:3] * 8 + 17]))


def test_a_parameter_can_be_a_descriptor() -> None:
    fn = kernel("x = d.load([1, 2])\nd.store([0, 0], x + d.dtype.primitive_bitwidth)", "d")
    module = compile_kernel(fn, d="tensordesc<fp16[2, 8], nan>")
    made = 'tt.make_tensor_descriptor %d_base, [%d_shape_0, %d_shape_1], [%d_stride_0, %c1_i64] {padding = "nan"}'
    assert made in body_of(module)
    memory = torch.arange(40, dtype=torch.float16).reshape(4, 10)
    launch(module, 1, [memory, np.int32(4), np.int32(9), np.int64(10)])
    assert memory[0, :7].tolist() == [28, 29, 30, 31, 32, 33, 34]
    assert torch.isnan(memory[0, 7])
    assert memory[0, 8:].tolist() == [8, 9]


@pytest.mark.parametrize(
    ("body", "message", "cure"),
    [
        ("tl.make_tensor_descriptor(n, [n], [1], [8])", "needs a scalar pointer", ""),
        ("tl.make_tensor_descriptor(p + tl.arange(0, 2), [n], [1], [8])", "needs a scalar pointer", ""),
        ("tl.make_tensor_descriptor(p, n, [1], [8])", "shape is a list with an entry for each axis", ""),
        ("tl.make_tensor_descriptor(p, [n, n], [1], [8, 8])", "strides has 1 entries, shape has 2", "one for each axis"),
        ("tl.make_tensor_descriptor(p, [n] * 6, [n] * 6, [1] * 6)", "1 to 5 axes, not 6", ""),
        ("tl.make_tensor_descriptor(p, [], [], [])", "1 to 5 axes, not 0", ""),
        ("tl.make_tensor_descriptor(p, [n], [1], [12])", "must be powers of two", "next_power_of_2"),
        ("tl.make_tensor_descriptor(p, [n], [1], [n])", "must be a compile-time integer", ""),
        ("tl.make_tensor_descriptor(p, [n, n], [n, 1], [8, 2])", "at least 16 bytes in its last axis, 2 elements of fp32 are 8", "make it 4 or more"),
        ("tl.make_tensor_descriptor(p, [n, n], [1, n], [8, 8])", "last stride .* must be the compile-time integer 1", "axes swapped"),
        ("tl.make_tensor_descriptor(p, [n, n], [n, 2], [8, 8])", "last stride .* must be the compile-time integer 1", ""),
        ("tl.make_tensor_descriptor(p, [1.5, n], [n, 1], [8, 8])", "shape takes integer scalars", ""),
        ("tl.make_tensor_descriptor(p, [n], [1], [8], 'one')", "padding_option cannot be 'one'", "'zero', 'nan'"),
        ("tl.make_tensor_descriptor(q, [n], [1], [8], 'nan')", "padding_option='nan' needs floats", ""),
        ("D = tl.make_tensor_descriptor(p, [n], [1], [8]).load([0, 0])", "load got 2 coordinates, the descriptor has 1 axes", ""),
        ("D = tl.make_tensor_descriptor(p, [n], [1], [8]).load([n.to(tl.int64)])", "int32 scalars", r"x\.to\(tl\.int32\)"),
        ("tl.make_tensor_descriptor(p, [n], [1], [8]).store([0], tl.arange(0, 4))", r"tile of shape \[8\], got \[4\]", ""),
        ("tl.make_tensor_descriptor(p, [n], [1], [8]).atomic_max([0], 1.0)", "atomic_max does not work on a descriptor of fp32", ""),
        ("tl.make_tensor_descriptor(p, [n], [1], [8]).gather(tl.arange(0, 8), 0)", "whose block is one row", r"\[1, COLUMNS\]"),
        ("tl.make_tensor_descriptor(p, [n, n], [n, 1], [1, 8]).gather(tl.arange(0, 4), 0)", "at least 8 rows and 8 columns", ""),
        ("tl.make_tensor_descriptor(p, [n], [1], [8]).stride", "tensor_descriptor has no attribute 'stride'", "strides"),
        ("tl.load_tensor_descriptor(p, [0])", "load needs a tensor descriptor", "make_tensor_descriptor"),
    ],
)  # fmt: skip
def test_mistakes(body: str, message: str, cure: str) -> None:
    with pytest.raises(CompilationError, match=message) as caught:
        compile_kernel(kernel(body, "p, q, n"), p="*fp32", q="*i32", n="i32")
    assert caught.value.location is not None
    assert re.search(cure, str(caught.value))
