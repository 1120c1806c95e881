"""Tiles: broadcasting, shapes, matrix products."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import kernelpack.language as tl
from kernelpack.errors import CompilationError
from tests.frontend.compiling import body_of, compile_kernel, kernel, run

# ---- broadcasting and shapes ----


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [("r", "1", "(8,)"), ("r[:, None]", "r[None, :]", "(8, 8)"), ("r[:, None]", "r", "(8, 8)"), ("r", "r[:, None, None]", "(8, 1, 8)"),
     ("n", "r", "(8,)"), ("n", "n", "()"), ("r[None]", "r", "(1, 8)"), ("n[None, None]", "r", "(1, 8)")],
)  # fmt: skip
def test_broadcasting(left: str, right: str, expected: str) -> None:
    fn = kernel(f"r = tl.arange(0, 8)\ntl.static_assert(({left} + {right}).shape == {expected})", "n")
    compile_kernel(fn, n="i32")


def test_broadcast_values() -> None:
    fn = kernel(
        "r = tl.arange(0, 4)\ntl.store(p + r[:, None] * 8 + tl.arange(0, 8), r[:, None] * 10 + tl.arange(0, 8)[None])", "p"
    )
    out = np.zeros((4, 8), np.int32)
    run(fn, 1, p=out)
    assert (out == np.arange(4)[:, None] * 10 + np.arange(8)).all()


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("x.reshape(4, 8)", "x.reshape(4, 8)"),
        ("tl.reshape(x, (2, 16))", "x.reshape(2, 16)"),
        ("tl.view(x, [32])", "x.reshape(32)"),
        ("x.T", "x.T"),
        ("tl.trans(x)", "x.T"),
        ("tl.trans(x.reshape(2, 4, 4))", "x.reshape(2, 4, 4).swapaxes(1, 2)"),
        ("tl.permute(x.reshape(2, 4, 4), (2, 0, 1))", "x.reshape(2, 4, 4).transpose(2, 0, 1)"),
        ("x.reshape(2, 4, 4).permute(1, -1, 0)", "x.reshape(2, 4, 4).transpose(1, 2, 0)"),
        ("tl.ravel(x)", "x.ravel()"),
        ("x[None, :, :, None]", "x[None, :, :, None]"),
        ("tl.expand_dims(x, (0, -1))", "x[None, ..., None]"),
        ("tl.broadcast_to(x[None], (4, 8, 4))", "np.broadcast_to(x, (4, 8, 4))"),
        ("tl.broadcast(x[:, None], tl.zeros((4, 1), tl.int32))[0]", "np.broadcast_to(x[:, None], (8, 4, 4))"),
        ("tl.join(x, x + 1)", "np.stack([x, x + 1], -1)"),
        ("tl.split(x.reshape(16, 2))[1]", "x.reshape(16, 2)[:, 1]"),
        ("tl.interleave(x, -x)", "np.stack([x, -x], -1).reshape(8, 8)"),
        ("tl.join(x.numel, len(x))", "np.array([32, 8])"),
        ("tl.zeros_like(x)", "np.zeros((8, 4))"),
        ("tl.full(x.shape, -2, x.dtype)", "np.full((8, 4), -2)"),
        ("tl.full([], 5, tl.int32)[None]", "np.array([5])"),
        ("x.sum(1)", "x.sum(1)"),
        ("x.sum(axis=-1, keep_dims=True)", "x.sum(1, keepdims=True)"),
        ("tl.sum(x, keep_dims=True)", "x.sum(keepdims=True)"),
        ("tl.max(x, 0)", "x.max(0)"),
        ("tl.min(x)[None]", "x.min()[None]"),
        ("tl.max(x, 0, return_indices=True)[1]", "x.argmax(0)"),
        ("tl.max(x % 5, 0, return_indices=True)[1]", "(x % 5).argmax(0)"),
        ("tl.argmin(x % 5, 1, keep_dims=True)", "(x % 5).argmin(1, keepdims=True)"),
        ("tl.min(-x, return_indices=True)[1][None]", "np.array([31])"),
        ("tl.cumsum(x, 0)", "x.cumsum(0)"),
        ("tl.cumsum(x, 1, reverse=True)", "x[:, ::-1].cumsum(1)[:, ::-1]"),
        ("tl.cumprod(x % 3 + 1, axis=1)", "(x % 3 + 1).cumprod(1)"),
        ("tl.reduce(x, 1, weird)", "x[:, 0] + x[:, 1] - 1 + x[:, 2] - 1 + x[:, 3] - 1"),
        ("tl.reduce((x, x * 2), 0, both)[1]", "(x * 2).max(0)"),
        ("tl.associative_scan((x, x * 2), 0, both)[0]", "x.cumsum(0)"),
        ("tl.softmax(x.to(tl.float32), 1).to(tl.int32)", "np.zeros((8, 4))"),
        ("tl.swizzle2d(x // 4, x % 4, 8, 4, 2)[0]", "np.array([[0, 1, 0, 1], [0, 1, 0, 1], [2, 3, 2, 3], [2, 3, 2, 3], [4, 5, 4, 5], [4, 5, 4, 5], [6, 7, 6, 7], [6, 7, 6, 7]])"),
    ],
)  # fmt: skip
def test_tiles(expression: str, expected: str) -> None:
    import kernelpack as kp

    @kp.jit
    def weird(a, b):
        return a + b - 1

    @kp.jit
    def both(a, b, c, d):
        return a + c, tl.maximum(b, d)

    x = np.arange(32, dtype=np.int32).reshape(8, 4)
    want = eval(expected, {"x": x, "np": np})
    fn = kernel(
        f"x = tl.reshape(tl.arange(0, 32), 8, 4)\nv = {expression}\n"
        "tl.static_assert(v.shape == SHAPE, f'{v.shape}')\ntl.store(out + tl.arange(0, SIZE), tl.reshape(v, SIZE))",
        "out, SHAPE: tl.constexpr, SIZE: tl.constexpr",
        weird=weird, both=both,
    )  # fmt: skip
    out = np.zeros(want.size, np.int32)
    run(fn, 1, out=out, SHAPE=want.shape, SIZE=want.size)
    assert (out == want.ravel()).all()


# ---- matrix products ----


@pytest.mark.parametrize(
    ("dtype", "result", "options"),
    [
        (torch.float16, torch.float32, ""),
        (torch.float16, torch.float16, ", out_dtype=tl.float16"),
        (torch.bfloat16, torch.float32, ""),
        (torch.bfloat16, torch.float32, ", out_dtype=tl.float16"),
        (torch.float32, torch.float32, ", out_dtype=tl.float64"),
        (torch.float32, torch.float32, ", input_precision='ieee'"),
        (torch.float64, torch.float64, ""),
        (torch.int8, torch.int32, ", out_dtype=tl.int32"),
        (torch.int8, torch.int32, ", out_dtype=tl.int8"),
    ],
)
def test_dot(dtype: torch.dtype, result: torch.dtype, options: str) -> None:
    fn = kernel(
        f"""
        m = tl.arange(0, 16)
        k = tl.arange(0, 32)
        n = tl.arange(0, 8)
        x = tl.load(x_ptr + m[:, None] * 32 + k)
        y = tl.load(y_ptr + k[:, None] * 8 + n)
        c = tl.dot(x, y{options})
        tl.store(out + m[:, None] * 8 + n, tl.dot(x, y, acc=c))
        """,
        "x_ptr, y_ptr, out",
    )
    x, y = (torch.randint(-3, 4, shape).to(dtype) for shape in ((16, 32), (32, 8)))
    out = torch.zeros(16, 8, dtype=result)
    run(fn, 1, x_ptr=x, y_ptr=y, out=out)
    assert torch.equal(out, (x.double() @ y.double() * 2).to(result))


@pytest.mark.parametrize(
    ("left", "right", "options", "message"),
    [
        (
            "tl.zeros((32, 4), tl.uint8)",
            "tl.zeros((16, 2), tl.uint8)",
            "",
            r"for 16 elements along K on the left and for 32 on the",
        ),
        ("tl.zeros((32, 1), tl.uint8)", "None", "", r"shape \[32, 1\] do not fit 32 rows of 64 elements"),
        ("None", "tl.zeros((8, 2), tl.uint8)", "", r"shape \[8, 2\] do not fit 16 rows"),
        ("None", "None", ", lhs_k_pack=False", r"k_pack=False is for e2m1"),
        ("tl.zeros((32, 2), tl.int32)", "None", "", r"a scale of tl.dot_scaled is a tile of uint8"),
    ],
)
def test_scales_that_do_not_fit_are_refused(left: str, right: str, options: str, message: str) -> None:
    x, y = "tl.zeros((32, 64), tl.float8e5)", "tl.zeros((64, 16), tl.float8e5)"
    fn = kernel(f'tl.dot_scaled({x}, {left}, "e5m2", {y}, {right}, "e5m2"{options})', "p")
    with pytest.raises(CompilationError, match=message):
        compile_kernel(fn, p="*fp32")


def test_batched_dot() -> None:
    fn = kernel(
        """
        r = tl.arange(0, 16)
        at = tl.arange(0, 2)[:, None, None] * 256 + r[:, None] * 16 + r
        tl.store(out + at, tl.dot(tl.load(x_ptr + at), tl.load(y_ptr + at), input_precision="ieee"))
        """,
        "x_ptr, y_ptr, out",
    )
    x, y, out = torch.randn(2, 16, 16), torch.randn(2, 16, 16), torch.zeros(2, 16, 16)
    run(fn, 1, x_ptr=x, y_ptr=y, out=out)
    torch.testing.assert_close(out, x @ y)


@pytest.mark.parametrize(
    ("options", "dtype", "precision"),
    [("", "fp32", "tf32"), (", allow_tf32=False", "fp32", None), (", allow_tf32=True", "fp32", "tf32"),
     (", input_precision='IEEE'", "fp32", None), (", input_precision='tf32x3'", "fp32", "tf32x3"), ("", "fp16", None)],
)  # fmt: skip
def test_dot_precision_matters_for_float32_only(options: str, dtype: str, precision: str | None) -> None:
    fn = kernel(f"x = tl.full((16, 16), 1.0, T)\ntl.dot(x, x{options})", "T")
    text = body_of(compile_kernel(fn, T=tl.dtype(dtype)))
    assert ("inputPrecision" in text) == (precision is not None)
    assert precision is None or f"inputPrecision = {precision}" in text
