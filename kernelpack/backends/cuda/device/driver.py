"""What the CUDA driver says about this machine, without CUDA libraries: libcuda is looked for at run time."""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass

from kernelpack.knobs import LIBCUDA

_MAJOR, _MINOR = 75, 76
"""CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR (cuda.h)."""
_NAME_BYTES = 256


@dataclass(frozen=True)
class GPU:
    """A GPU of this machine, e.g. `NVIDIA H100 80GB HBM3` of compute capability (9, 0)."""

    name: str
    capability: tuple[int, int]


@functools.cache
def is_installed() -> bool:
    """Returns whether this machine has a CUDA driver. It is not started: processes that are forked later may still use it."""
    try:
        ctypes.CDLL(LIBCUDA.get())
    except OSError:
        return False
    return True


@functools.cache
def gpus() -> tuple[GPU, ...]:
    """Returns the GPUs in the driver's order; none where there is no driver."""
    try:
        driver = ctypes.CDLL(LIBCUDA.get())
    except OSError:
        return ()
    count = ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return ()
    return tuple(found for found in (_gpu(driver, ordinal) for ordinal in range(count.value)) if found is not None)


def _gpu(driver: ctypes.CDLL, ordinal: int) -> GPU | None:
    device, number, name = ctypes.c_int(), ctypes.c_int(), ctypes.create_string_buffer(_NAME_BYTES)
    if driver.cuDeviceGet(ctypes.byref(device), ordinal) or driver.cuDeviceGetName(name, _NAME_BYTES, device):
        return None
    numbers = []
    for attribute in (_MAJOR, _MINOR):
        if driver.cuDeviceGetAttribute(ctypes.byref(number), attribute, device):
            return None
        numbers.append(number.value)
    return GPU(name.value.decode(errors="replace"), (numbers[0], numbers[1]))


def device_capability() -> tuple[int, int] | None:
    """Returns the compute capability of the first GPU, or None where there is no driver or no GPU."""
    return gpus()[0].capability if gpus() else None
