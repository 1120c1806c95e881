"""kp.optional: tensors that may be None share the kernels of those that are there, and no dispatch table tells them apart."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

import kernelpack
from kernelpack.errors import HostFunctionError
from kernelpack.opgen.build import build, plan_library

SOURCE = """
import kernelpack as kp
import kernelpack.language as tl


@kp.jit
def shifted(x, scale, shift, scaled, moved, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n).to(tl.float32)
    if scaled:
        value *= tl.load(scale)
    if moved:
        value += tl.load(shift)
    tl.store(out + at, value, mask=at < n)


@kp.op(
    "shift(Tensor x, Tensor? scale=None, *, Tensor? shift=None) -> Tensor",
    variants={"x": [tl.float32, tl.float16], "scale": kp.optional(tl.float32), "shift": kp.optional(tl.float32)},
    specialize=[],
)
def shift(x, scale, shift):
    out = kp.empty_like(x, dtype=tl.float32)
    shifted[(1,)](
        x, out if scale is None else scale, out if shift is None else shift, scale is not None, shift is not None, out, x.numel(),
        BLOCK=16,
    )
    return out
"""


def test_kernels_and_tables_are_those_of_the_other_arguments(tmp_path: Path) -> None:
    file = tmp_path / "shifting.py"
    file.write_text(SOURCE)
    plan = plan_library([file], namespace="shifting", targets=["cpu:native"])
    (launch,) = plan.op_plans[0].launches
    assert [(axis.name, axis.size) for axis in launch.axes] == [("x", 2)]
    assert math.prod(len(rows) for rows in next(iter(launch.points.values()))) == 1


def test_built_ops_take_them_or_none(tmp_path: Path) -> None:
    file = tmp_path / "shifting.py"
    file.write_text(SOURCE)
    build([file], namespace="shifting", targets=["cpu:native"], out=tmp_path / "out")
    kernelpack.load(tmp_path / "out")
    op = torch.ops.shifting.shift
    two, three = torch.tensor([2.0]), torch.tensor([3.0])
    for dtype in (torch.float32, torch.float16):
        x = torch.arange(9).to(dtype)
        assert torch.equal(op(x), x.float())
        assert torch.equal(op(x, two), x.float() * 2)
        assert torch.equal(op(x, shift=three), x.float() + 3)
        assert torch.equal(op(x, two, shift=three), x.float() * 2 + 3)
    with pytest.raises(RuntimeError, match=r"shift has dtype float16, built are: None, float32"):
        op(x, shift=three.half())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ('"x": kp.optional(tl.float32)', "'x' lists None but is not optional"),
        ('"scales": kp.optional(tl.float32)', r"'scales' is kp.optional, but .* no Tensor argument of that name"),
        ('"scale": kp.optional(3)', "'scale' lists 3, which is no dtype"),
    ],
)
def test_what_does_not_fit_is_refused(given: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "shifting.py"
    file.write_text(SOURCE.replace('"x": [tl.float32, tl.float16], "scale": kp.optional(tl.float32)', given))
    with pytest.raises(HostFunctionError, match=said):
        plan_library([file], namespace="shifting", targets=["cpu:native"])
