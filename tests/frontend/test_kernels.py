"""Kernels as people write them compile to verified ttir and compute what torch does."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from tests.frontend import kernels
from tests.frontend.compiling import run

torch.manual_seed(0)


def test_vector_add() -> None:
    x, y = torch.randn(300), torch.randn(300).to(torch.bfloat16)
    out = torch.full((300,), torch.nan)
    run(kernels.vector_add, 3, x_ptr=x, y_ptr=y, out_ptr=out, n=300, BLOCK=128)
    torch.testing.assert_close(out, x + y)


def test_softmax_rows() -> None:
    x, out = torch.randn(7, 50), torch.full((7, 50), torch.nan)
    run(
        kernels.softmax_rows, 3, out_ptr=out, in_ptr=x, in_stride=50, out_stride=50, n_rows=7, n_cols=50, BLOCK=64, num_stages=2
    )
    torch.testing.assert_close(out, torch.softmax(x, 1))


@pytest.mark.parametrize("weighted", [True, False])
def test_layer_norm(weighted: bool) -> None:
    x, dy = torch.randn(4, 50, requires_grad=True), torch.randn(4, 50)
    w, b = (torch.randn(50, requires_grad=True), torch.randn(50)) if weighted else (None, None)
    y, mean, rstd = torch.empty(4, 50), torch.empty(4), torch.empty(4)
    data = {"w_ptr": None if w is None else w.detach(), "b_ptr": b}
    shared = {"x_ptr": x.detach(), "mean_ptr": mean, "rstd_ptr": rstd, "stride": 50, "N": 50}
    run(kernels.layer_norm_forward, 4, y_ptr=y, eps=1e-5, BLOCK=16, **shared, **data)
    expected = F.layer_norm(x, (50,), w, b, 1e-5)
    torch.testing.assert_close(y, expected.detach())
    if w is None:
        return
    expected.backward(dy)
    dx, dw = torch.empty(4, 50), torch.zeros(50)
    run(kernels.layer_norm_backward, 4, dx_ptr=dx, dy_ptr=dy, dw_ptr=dw, w_ptr=w.detach(), BLOCK=64, **shared)
    torch.testing.assert_close(dx, x.grad)
    torch.testing.assert_close(dw, w.grad)


@pytest.mark.parametrize("activation", ["", "leaky_relu"])
def test_matmul_grouped(activation: str) -> None:
    m, n, k = 70, 50, 40
    a, b, c = torch.randn(m, k).half(), torch.randn(n, k).half().T, torch.full((m, n), torch.nan).half()
    strides = dict(zip(["am", "ak", "bk", "bn", "cm", "cn"], [*a.stride(), *b.stride(), *c.stride()], strict=True))
    run(
        kernels.matmul_grouped, 3 * 4, a_ptr=a, b_ptr=b, c_ptr=c, M=m, N=n, K=k,
        **{f"stride_{name}": stride for name, stride in strides.items()},
        BLOCK_M=32, BLOCK_N=16, BLOCK_K=16, GROUP_M=2, ACTIVATION=activation,
    )  # fmt: skip
    expected = a.float() @ b.float()
    torch.testing.assert_close(c, (F.leaky_relu(expected) if activation else expected).half(), atol=2e-2, rtol=2e-2)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_forward(causal: bool) -> None:
    q, k, v = (torch.randn(2, 50, 32) for _ in range(3))
    out, lse = torch.full_like(q, torch.nan), torch.full((2, 50), torch.nan)
    run(
        kernels.attention_forward, (4, 2), q_ptr=q, k_ptr=k, v_ptr=v, out_ptr=out, lse_ptr=lse, sm_scale=32**-0.5,
        stride_bh=50 * 32, stride_n=32, seqlen=50, HEAD_DIM=32, BLOCK_M=16, BLOCK_N=16, STAGE=3 if causal else 1,
    )  # fmt: skip
    torch.testing.assert_close(out, F.scaled_dot_product_attention(q, k, v, is_causal=causal))


@pytest.mark.parametrize("backward", [False, True])
def test_rope(backward: bool) -> None:
    q, angle = torch.randn(6, 5, 16), torch.randn(6, 8)
    expected1 = q[..., :8] * angle.cos()[:, None] - q[..., 8:] * angle.sin()[:, None] * (-1 if backward else 1)
    expected2 = q[..., 8:] * angle.cos()[:, None] + q[..., :8] * angle.sin()[:, None] * (-1 if backward else 1)
    run(
        kernels.rope, (6, 2), q_ptr=q, q_row_stride=80, cos_ptr=angle.cos(), sin_ptr=angle.sin(), cs_row_stride=8, seqlen=6,
        n_heads=5, HEAD_DIM=16, BACKWARD=backward,
    )  # fmt: skip
    torch.testing.assert_close(q, torch.cat([expected1, expected2], -1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_swiglu(dtype: torch.dtype) -> None:
    a, b = torch.randn(3, 20).to(dtype), torch.randn(3, 20).to(dtype)
    c = torch.full_like(a, torch.nan)
    run(kernels.swiglu, 3, a_ptr=a, b_ptr=b, c_ptr=c, stride=20, n_cols=20, BLOCK=32)
    torch.testing.assert_close(c, F.silu(a.float()).to(dtype) * b)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy(smoothing: float) -> None:
    x = torch.randn(4, 50, requires_grad=True)
    y = torch.tensor([3, -100, 49, 0])
    logits, loss = x.detach().clone(), torch.full((4,), torch.nan)
    run(
        kernels.cross_entropy, 4, x_ptr=logits, x_stride=50, y_ptr=y, loss_ptr=loss, n_cols=50, ignore_index=-100,
        label_smoothing=smoothing, BLOCK=16,
    )  # fmt: skip
    expected = F.cross_entropy(x, y, ignore_index=-100, label_smoothing=smoothing, reduction="none")
    expected.sum().backward()
    torch.testing.assert_close(loss, expected.detach())
    torch.testing.assert_close(logits, x.grad)
