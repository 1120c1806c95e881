"""What host code asks of the current CUDA device is what torch says of it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from kernelpack.backends.cuda.device.host_driver import CUDADriver


@pytest.fixture
def second(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The current device of torch, the second of two GPUs of sm_90, as a list of one number that may be changed."""
    current = [1]
    figures = SimpleNamespace(
        multi_processor_count=132, shared_memory_per_block_optin=232448, regs_per_multiprocessor=65536, warp_size=32
    )
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: current[0])
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: current.__setitem__(0, device))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (9, 0) if device in (None, 1) else (8, 0))
    monkeypatch.setattr(
        torch.cuda,
        "current_stream",
        lambda device=None: SimpleNamespace(cuda_stream=70 + (current[0] if device is None else device)),
    )
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: figures)
    return current


@pytest.mark.usefixtures("second")
def test_kernels_are_compiled_for_the_current_device() -> None:
    driver = CUDADriver()
    assert driver.is_active()
    target = driver.get_current_target()
    assert (target.backend, target.arch, target.warp_size) == ("cuda", 90, 32)
    assert driver.get_device_capability(0) == (8, 0)
    assert driver.get_active_torch_device() == torch.device("cuda", 1)


def test_the_current_device_and_its_stream(second: list[int]) -> None:
    driver = CUDADriver()
    assert (driver.get_current_device(), driver.get_current_stream(), driver.get_current_stream(0)) == (1, 71, 70)
    driver.set_current_device(0)
    assert second == [0]


@pytest.mark.usefixtures("second")
def test_figures_have_triton_s_names() -> None:
    assert CUDADriver().get_device_properties(1) == {
        "multiprocessor_count": 132,
        "max_shared_mem": 232448,
        "max_num_regs": 65536,
        "warpSize": 32,
    }


def test_without_a_gpu_it_is_not_active(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert not CUDADriver.is_active()
