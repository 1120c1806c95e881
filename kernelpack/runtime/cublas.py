"""cuBLAS as Triton's programs know it (`triton._C.libtriton.nvidia.cublas`): what they compare their kernels with. torch calls it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelpack.errors import LaunchError

if TYPE_CHECKING:
    import torch


class CublasLt:
    """Products of matrices, of which the second lies transposed. torch brings its own workspace: `workspace` is not used."""

    def __init__(self, workspace: torch.Tensor) -> None:
        pass

    def matmul(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
        """Writes a b^T into c. a is [M, K], b [N, K], c [M, N], all float16, bfloat16, float32 or float8_e4m3fn.

        float32 is multiplied as torch.backends.cuda.matmul says. Raises LaunchError for other shapes and dtypes.
        """
        import torch

        _check(a, b, c)
        if a.dtype == torch.float8_e4m3fn:
            one = torch.ones((), device=a.device)
            torch._scaled_mm(a, b.T, one, one, out_dtype=c.dtype, use_fast_accum=True, out=c)
        else:
            torch.mm(a, b.T, out=c)

    def gemm(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor, alpha: float, beta: float) -> None:
        """Writes alpha a b^T + beta c into d, which has the shape and dtype of c. a, b and c are as for `matmul`, without float8_e4m3fn."""
        import torch

        _check(a, b, c)
        torch.addmm(c, a, b.T, alpha=alpha, beta=beta, out=d)


def _check(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    shapes = [list(x.shape) for x in (a, b, c)]
    if any(len(shape) != 2 for shape in shapes) or a.shape[1] != b.shape[1] or shapes[2] != [a.shape[0], b.shape[0]]:
        raise LaunchError(
            f"CublasLt: a is {shapes[0]}, b {shapes[1]}, c {shapes[2]}",
            cure="give a [M, K], b [N, K], which lies transposed, and c [M, N]",
        )
    if not a.dtype == b.dtype == c.dtype:
        raise LaunchError(f"CublasLt: a is {a.dtype}, b {b.dtype}, c {c.dtype}", cure="give all three one dtype")
