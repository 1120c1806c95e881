"""What the CUDA driver says about this machine, without CUDA libraries: libcuda is looked for at run time."""

from __future__ import annotations

import ctypes
import functools

_MAJOR, _MINOR = 75, 76
"""CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR (cuda.h)."""


@functools.cache
def device_capability() -> tuple[int, int] | None:
    """Returns the compute capability of the first GPU, or None where there is no driver or no GPU."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    device, number = ctypes.c_int(), ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), 0):
        return None
    found = []
    for attribute in (_MAJOR, _MINOR):
        if driver.cuDeviceGetAttribute(ctypes.byref(number), attribute, device):
            return None
        found.append(number.value)
    return found[0], found[1]
