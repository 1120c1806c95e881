"""Which backend serves a type of torch's devices, and which driver host code asks: by what backends say, not by their names."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

from kernelpack.backends import installed
from kernelpack.backends.cpu import CPUBackend
from kernelpack.backends.cpu.device.driver import CPUDriver
from kernelpack.backends.devices import DriverBase
from kernelpack.backends.installed import backend_for_device, backends, drivers
from kernelpack.errors import BuildError, LaunchError
from kernelpack.opgen.build import BuildPlan, machine_of
from kernelpack.runtime.driver import _default_driver
from kernelpack.runtime.launchers import with_launcher
from kernelpack.target import Target


class OtherDriver(DriverBase):
    device_type = "privateuseone"

    @classmethod
    def is_active(cls) -> bool:
        return True


class OtherBackend(CPUBackend):
    """One whose devices are its own, and which nothing here launches."""

    name = "other"
    launcher = None

    def driver(self) -> type[DriverBase]:
        return OtherDriver


class Silent(CPUBackend):
    """One that serves CPU tensors where a launch names it."""

    name = "silent"

    def driver(self) -> None:
        return None


OTHERS: dict[str, type[CPUBackend]] = {"silent": Silent, "other": OtherBackend}


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"silent": Silent(), **backends(), "other": OtherBackend()}
    monkeypatch.setattr(installed, "backends", lambda: known)
    entries = [EntryPoint(name, f"{__name__}:{kind.__name__}", installed.GROUP) for name, kind in OTHERS.items()]
    monkeypatch.setattr(installed, "entry_points", lambda group: entries)


def test_devices_are_served_by_the_backend_whose_driver_is_theirs(others: None) -> None:
    served = {kind: backend_for_device(kind) for kind in ("cpu", "cuda", "privateuseone", "meta")}
    assert {kind: found and found.name for kind, found in served.items()} == {
        "cpu": "cpu", "cuda": "cuda", "privateuseone": "other", "meta": None,
    }  # fmt: skip


def test_drivers_are_those_of_the_backends() -> None:
    assert drivers() == [driver for backend in backends().values() if (driver := backend.driver()) is not None]


def test_the_driver_of_the_devices_that_there_are_is_the_default(others: None) -> None:
    assert OtherDriver in drivers()
    assert not CPUDriver.is_active()
    assert _default_driver().device_type in ("cuda", "privateuseone")


def test_a_backend_without_a_launcher_only_compiles(others: None) -> None:
    with pytest.raises(LaunchError, match="kernels for other are compiled, and nothing launches them"):
        with_launcher(OtherBackend())
    plan = BuildPlan("nothing", (), (), ((Target("other", "one"), OtherBackend()),), (), (), "")
    with pytest.raises(BuildError, match="kernels for other:one are compiled, and nothing launches them"):
        machine_of(plan)
