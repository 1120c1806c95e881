"""`python -m tests.inductor.package FOLDER`: makes an AOTInductor package, model.pt2, of a model that launches a kernel."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

import kernelpack as kp
import kernelpack.language as tl
from kernelpack import as_triton


@kp.jit
def axpy(x, y, out, n, slope, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * slope + tl.load(y + at, mask=at < n), mask=at < n)


class Model(torch.nn.Module):
    """relu(1.5 x + y), by a kernel and an op."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        axpy[(4,)](x, y, out, x.numel(), 1.5, BLOCK=256)
        return out.relu()


def main(folder: Path) -> None:
    as_triton.install()  # before Inductor looks for Triton
    x, y = torch.randn(1000), torch.randn(1000)
    with torch.no_grad():
        exported = torch.export.export(Model(), (x, y), strict=True)
        made = torch._inductor.aoti_compile_and_package(exported, package_path=str(folder / "model.pt2"))
    torch.testing.assert_close(torch._inductor.aoti_load_package(made)(x, y), (1.5 * x + y).relu())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
