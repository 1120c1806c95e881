"""The emulator computes what a GPU does: to the bit where numbers are moved, converted, or rounded once; within stated bounds where
the hardware approximates or adds in an order of its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kernelpack.ir.formats import decode
from kernelpack.ir.types import BF16, Type
from tests.backends.cuda.elementwise import KINDS, Elementwise, differs
from tests.gpu.emulated import Emulated, emulate, names
from tests.gpu.launcher import LoadedCubin
from tests.ops.layouts import bits


def _made(name: str, packs: Path | None) -> Emulated:
    if packs is None:
        return emulate(name)
    return Emulated(**torch.load(packs / f"{name}.pt", weights_only=False))


def _on_gpu(made: Emulated) -> list[torch.Tensor]:
    """Returns the tensors after a launch on the GPU."""
    values = [_moved(value) if isinstance(value, torch.Tensor) else value for value in made.values]
    LoadedCubin(made).launch((*made.grid, 1, 1)[:3], values)
    torch.cuda.synchronize()
    return [value.cpu() for value in values if isinstance(value, torch.Tensor)]


def _moved(tensor: torch.Tensor) -> torch.Tensor:
    size = 1 + sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.as_strided((size,), (1,)).cuda().as_strided(tensor.shape, tensor.stride())


@pytest.mark.parametrize("name", [name for name in names() if not name.startswith("elementwise-")])
def test_launches_agree_with_the_gpu(name: str, packs: Path | None) -> None:
    made = _made(name, packs)
    for index, (got, wanted) in enumerate(zip(_on_gpu(made), made.after, strict=True)):
        if made.bounds is None:
            assert torch.equal(bits(got), bits(wanted)), f"tensor {index}"
            continue
        if got.is_floating_point():
            got, wanted = got.double(), wanted.double()
        same = (got == wanted) | (got.isnan() & wanted.isnan())
        off = torch.where(same, 0.0, (got.double() - wanted.double()).abs())
        bound = made.bounds[index].double()
        assert bool((off <= bound).all()), f"tensor {index}: {float((off / bound.clamp(min=1e-300)).max()):.3g} times the bound"


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_every_elementwise_operation_agrees_with_the_gpu(kind: Type, packs: Path | None) -> None:
    table = next(Elementwise(known) for known in KINDS if known == kind)
    made = _made(f"elementwise-{kind}", packs)
    wrong = []
    for row, got, emulated in zip(table.rows, _on_gpu(made)[5:], made.after[5:], strict=True):
        if kind == BF16 and row.name == "math.fma":  # the emulator's host has no such instruction, and rounds twice
            continue
        one, other = (decode(tensor.numpy(), row.result) for tensor in (got, emulated))
        problems = differs(one, other, replace(row, ulp=2 * row.ulp))  # both approximate, each by so much
        if row.name in ("arith.divsi", "arith.divui", "arith.remsi", "arith.remui"):
            problems &= table.inputs[1] != 0
        if problems.any():
            at = int(problems.argmax())
            wrong.append(f"{row.name} {row.attributes}: {one[at]!r}, emulated {other[at]!r} ({problems.sum()} differ)")
    assert not wrong, "\n".join(wrong)
