"""Kernels of an op file with a product in a loop, compiled with all their stages: for a GPU and for a CPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelpack.opgen.build import plan_library
from kernelpack.opgen.workers.compile import compile_stages
from kernelpack.report.stages import Staged, stages_of

SOURCE = '''"""A product of a transposed and b: </script><script>alert("source")</script>"""

import kernelpack as kp
import kernelpack.language as tl


@kp.jit
def scaled(value, factor):
    return value * tl.exp2(factor)


@kp.jit
def multiply_kernel(a, b, out, size, factor, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK, BLOCK], tl.float32)
    for start in range(0, size, BLOCK):
        places = start + columns
        left = tl.load(a + columns[:, None] + places[None, :] * BLOCK)
        right = tl.load(b + places[:, None] * BLOCK + columns[None, :])
        total = tl.dot(left, right, total)
    total = scaled(total, factor)
    tl.store(out + columns[:, None] * BLOCK + columns[None, :], total.to(tl.float16))


@kp.op("multiply(Tensor a, Tensor b, float factor) -> Tensor", variants={"a": [tl.float16], "b": [tl.float16]})
def multiply(a, b, factor):
    kp.check(a.is_contiguous() and b.is_contiguous(), "a and b must be contiguous")
    kp.check(a.shape == b.shape and a.shape[1] == 64, "a and b must be [k, 64]")
    out = kp.empty((64, 64), a.dtype, a.device)
    multiply_kernel[(1,)](a, b, out, a.shape[0], factor, BLOCK=64)
    return out
'''


FILE = "package/my_ops.py"


def line_of(text: str) -> int:
    """Returns the number of the only line of the source that holds a text."""
    (found,) = (number for number, line in enumerate(SOURCE.splitlines(), 1) if text in line)
    return found


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The op file, in a package: its name in line information has the folder."""
    file = tmp_path_factory.mktemp("report") / "package" / "my_ops.py"
    file.parent.mkdir()
    (file.parent / "__init__.py").touch()
    file.write_text(SOURCE)
    return file


@pytest.fixture(scope="session")
def staged(source: Path) -> dict[str, Staged]:
    """Its kernels by target: the one for a GPU that assumes something, the one for a CPU."""
    targets = ("cuda:sm_90a", "cpu:x86-64-v3")
    variants = plan_library([source], namespace="report", targets=targets).variants
    chosen = {str(variant.target): variant for variant in sorted(variants, key=lambda one: one.plain is not None)}
    kernels = compile_stages([*chosen.values()], jobs=1)
    return {target: stages_of(variant, kernels[variant.entry]) for target, variant in chosen.items()}
