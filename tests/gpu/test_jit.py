"""kernel[grid](...) on a GPU: compiled for it on first use, launched on torch's current stream."""

from __future__ import annotations

import importlib.util

import pytest
import torch

from tests.frontend.kernels import vector_add

pytestmark = pytest.mark.skipif(importlib.util.find_spec("kernelpack._C") is None, reason="kernelpack._C is not built")


@pytest.mark.parametrize("n", [1024, 1000, 1])
def test_kernels_launch_from_python(n: int) -> None:
    x, y = torch.randn(n, device="cuda"), torch.randn(n, device="cuda")
    out = torch.full((n + 1,), 7.0, device="cuda")
    vector_add[(-(-n // 256),)](x, y, out, n, BLOCK=256)
    torch.testing.assert_close(out[:n], x + y, rtol=0, atol=0)
    assert out[n] == 7


def test_launches_follow_the_current_stream() -> None:
    stream, n = torch.cuda.Stream(), 1 << 20
    x, out = torch.randn(n, device="cuda"), torch.empty(n, device="cuda")
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        y = x * 2
        vector_add[(n // 1024,)](x, y, out, n, BLOCK=1024)
    stream.synchronize()
    torch.testing.assert_close(out, x + y, rtol=0, atol=0)
