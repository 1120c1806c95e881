"""What kernelpack.testing says of GPUs is what their makers say."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from kernelpack import testing
from kernelpack.errors import LaunchError


@pytest.fixture
def h100(monkeypatch: pytest.MonkeyPatch) -> None:
    found = SimpleNamespace(major=9, minor=0, multi_processor_count=132, memory_clock_rate=2619000, memory_bus_width=5120)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: found)


@pytest.mark.usefixtures("h100")
def test_rates_of_an_h100() -> None:
    """Its data sheet: 3.35 TB/s; at 1830 MHz 989 TFLOP/s of bfloat16, 1979 of 8 bits, 495 of TF32, 67 of float32, 134 of float16."""
    assert testing.get_dram_gbps() == pytest.approx(3352, rel=1e-3)
    products = [testing.get_max_tensorcore_tflops(kind, 1830e3) for kind in (torch.bfloat16, torch.int8, torch.float32)]
    assert products == pytest.approx([989, 1979, 495], rel=1e-3)
    elsewhere = [testing.get_max_simd_tflops(kind, 1980e3) for kind in (torch.float32, torch.float16)]
    assert elsewhere == pytest.approx([67, 134], rel=1e-2)
    with pytest.raises(LaunchError, match=r"not torch\.float64"):
        testing.get_max_simd_tflops(torch.float64, 1e6)


def test_cpus_have_no_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(LaunchError, match="this machine has none"):
        testing.get_dram_gbps()
