"""kernelpack.runtime.driver.active: which device kernels are launched on, and what host code asks about it."""

from __future__ import annotations

import functools

from kernelpack import knobs
from kernelpack.backends.devices import DriverBase
from kernelpack.backends.installed import drivers
from kernelpack.errors import OptionError, TargetError


class _Drivers:
    """`active` is the driver in use: the one that was set, or else the default, which is found when first asked for."""

    def __init__(self) -> None:
        self._default: DriverBase | None = None
        self._active: DriverBase | None = None

    @property
    def default(self) -> DriverBase:
        if self._default is None:
            self._default = _default_driver()
        return self._default

    @property
    def active(self) -> DriverBase:
        if self._active is None and knobs.runtime.interpret:
            return _interpreter()
        return self._active or self.default

    def set_active(self, driver: DriverBase) -> None:
        self._active = driver

    def reset_active(self) -> None:
        self._active = None

    def replace(self, driver: DriverBase | None) -> DriverBase | None:
        """Makes a driver the active one (None: the default), and returns the one that was set before."""
        before, self._active = self._active, driver
        return before


@functools.cache
def _interpreter() -> DriverBase:
    from kernelpack.runtime.interpreter import Interpreter  # late: it is a driver itself

    return Interpreter()


def _default_driver() -> DriverBase:
    if target := knobs.EMULATE.get():
        from kernelpack.simt.emulator import Emulator, emulated_targets  # late: it is a driver itself

        try:
            return Emulator(target)
        except TargetError as problem:
            known = ", ".join(emulated_targets())
            raise OptionError(
                f"{knobs.EMULATE.name}={target}: {problem.message}", cure=f"set it to one of {known}, or unset it"
            ) from None
    return next(driver for driver in drivers() if driver.is_active())()


driver = _Drivers()
