"""Products by cuBLAS, where programs that were written for Triton look for them."""

from __future__ import annotations

import pytest
import torch

from kernelpack.errors import LaunchError
from kernelpack.runtime.cublas import CublasLt

BLAS = CublasLt(torch.empty(1024, dtype=torch.uint8))


def test_it_is_found_where_triton_has_it() -> None:
    from kernelpack.triton._C.libtriton import nvidia

    assert nvidia.cublas.CublasLt is CublasLt


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float8_e4m3fn], ids=str)
def test_products_with_a_transposed_matrix(dtype: torch.dtype) -> None:
    a, b = (torch.randint(-2, 3, shape).to(dtype) for shape in ((32, 16), (48, 16)))
    c = torch.empty(32, 48, dtype=dtype)
    BLAS.matmul(a, b, c)
    torch.testing.assert_close(c.double(), (a.double() @ b.double().T).to(dtype).double(), rtol=0, atol=0)


def test_a_product_is_added() -> None:
    a, b, c = torch.randn(8, 4), torch.randn(6, 4), torch.randn(8, 6)
    d = torch.empty(8, 6)
    BLAS.gemm(a, b, c, d, 2.0, 0.5)
    torch.testing.assert_close(d, 2 * a @ b.T + 0.5 * c)


def test_what_does_not_fit_is_named() -> None:
    with pytest.raises(LaunchError, match=r"a is \[2, 3\], b \[3, 4\], c \[2, 4\]"):
        BLAS.matmul(torch.ones(2, 3), torch.ones(3, 4), torch.ones(2, 4))
    with pytest.raises(LaunchError, match=r"c torch.float32"):
        BLAS.matmul(torch.ones(2, 3).half(), torch.ones(4, 3).half(), torch.ones(2, 4))
