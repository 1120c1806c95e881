"""Where a launch from Python runs: on the device of its tensors, in torch's current stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch

from kernelpack.backends.cuda.device.open import open_image
from kernelpack.compiled import CompiledKernel
from kernelpack.compiler.stages import compile_ttir
from kernelpack.errors import LaunchError
from kernelpack.options import Options
from kernelpack.target import Target
from tests.ir.examples import ADD, parse

KERNEL: CompiledKernel = compile_ttir(parse(ADD), Target.parse("cpu:x86-64-v3"), Options())
"""Any kernel of x, y and n."""


@dataclass(frozen=True)
class Tensor:
    device: torch.device
    pinned: bool = False

    def is_pinned(self) -> bool:
        return self.pinned


FIRST, SECOND, HOST = Tensor(torch.device("cuda:0")), Tensor(torch.device("cuda:1")), Tensor(torch.device("cpu"))
PINNED = Tensor(torch.device("cpu"), True)


@pytest.fixture(autouse=True)
def streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda index: 1000 + index, raising=False)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)


def place(*values: Any) -> tuple[int, int]:
    opened = open_image(KERNEL)
    assert opened.code == KERNEL.image
    return opened.place(values)


def test_a_launch_runs_on_the_device_of_its_tensors() -> None:
    assert place(SECOND, SECOND, 7) == (1, 1001)


def test_a_launch_without_tensors_runs_on_the_current_device() -> None:
    assert place(1234, 5678, 7) == (3, 1003)


def test_pinned_memory_of_the_host_goes_with_any_device() -> None:
    assert place(FIRST, PINNED, 7) == (0, 1000)


@pytest.mark.parametrize(("other", "name"), [(SECOND, "cuda:1"), (HOST, "cpu")])
def test_tensors_of_two_devices_are_refused_by_name(other: Tensor, name: str) -> None:
    with pytest.raises(LaunchError, match=f"kernel: y is on {name}, x is on cuda:0") as raised:
        place(FIRST, other, 7)
    assert "move all tensors to one device" in str(raised.value)
