"""What the driver says of this machine's GPUs, and what is said where it says nothing."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import pytest

from kernelpack.backends.cuda.device import driver
from kernelpack.backends.cuda.device.driver import GPU, device_capability, gpus


class Driver:
    """A driver of two GPUs; `fails` names the function that returns an error."""

    def __init__(self, fails: str = "", count: int = 2) -> None:
        self.fails = fails
        self.count = count

    def _answer(self, name: str) -> int:
        return 999 if name == self.fails else 0

    def cuInit(self, flags: int) -> int:
        assert flags == 0
        return self._answer("cuInit")

    def cuDeviceGetCount(self, count: Any) -> int:
        count._obj.value = self.count
        return self._answer("cuDeviceGetCount")

    def cuDeviceGet(self, device: Any, ordinal: int) -> int:
        device._obj.value = ordinal + 100
        return self._answer("cuDeviceGet")

    def cuDeviceGetName(self, name: Any, size: int, device: ctypes.c_int) -> int:
        assert size == len(name)
        name.value = f"GPU {device.value}".encode()
        return self._answer("cuDeviceGetName")

    def cuDeviceGetAttribute(self, number: Any, attribute: int, device: ctypes.c_int) -> int:
        number._obj.value = {75: 9, 76: device.value - 100}[attribute]
        return self._answer("cuDeviceGetAttribute")


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    gpus.cache_clear()
    yield
    gpus.cache_clear()


def use(monkeypatch: pytest.MonkeyPatch, made: Driver | None) -> None:
    def load(name: str) -> Driver:
        if made is None:
            raise OSError(name)
        return made

    monkeypatch.setattr(driver.ctypes, "CDLL", load)


def test_gpus_come_in_the_driver_s_order(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Driver())
    assert gpus() == (GPU("GPU 100", (9, 0)), GPU("GPU 101", (9, 1)))
    assert device_capability() == (9, 0)


@pytest.mark.parametrize("made", [None, Driver("cuInit"), Driver("cuDeviceGetCount"), Driver(count=0)])
def test_without_a_driver_or_a_gpu_there_is_none(monkeypatch: pytest.MonkeyPatch, made: Driver | None) -> None:
    use(monkeypatch, made)
    assert gpus() == ()
    assert device_capability() is None


@pytest.mark.parametrize("fails", ["cuDeviceGet", "cuDeviceGetName", "cuDeviceGetAttribute"])
def test_a_gpu_that_the_driver_knows_nothing_of_is_left_out(monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
    use(monkeypatch, Driver(fails))
    assert gpus() == ()
