"""Which target kernels are compiled for, as compile-time questions inside kernels: `if target_info.is_cuda():`.

They speak of the active driver's target; what is built offline for another one should ask by a constexpr of its config.
"""

from __future__ import annotations

from kernelpack.kernel.jit import constexpr_function
from kernelpack.target import GPUTarget

__all__ = [
    "cuda_capability_geq",
    "current_target",
    "is_cpu",
    "is_cuda",
    "is_hip",
    "is_hip_cdna3",
    "is_hip_cdna4",
    "is_hip_gfx1250",
]


def current_target() -> GPUTarget:
    """Returns the active driver's target."""
    from kernelpack.runtime.driver import driver  # late: the language knows no devices

    return driver.active.get_current_target()


@constexpr_function
def is_cuda() -> bool:
    """Whether kernels run on NVIDIA GPUs."""
    return current_target().backend == "cuda"


@constexpr_function
def is_cpu() -> bool:
    """Whether kernels run on this machine's CPU."""
    return current_target().backend == "cpu"


@constexpr_function
def is_hip() -> bool:
    """Whether kernels run on AMD GPUs: there is no backend for them."""
    return False


is_hip_cdna3 = is_hip_cdna4 = is_hip_gfx1250 = is_hip  # none of their GPUs is one of these


@constexpr_function
def cuda_capability_geq(major: int, minor: int = 0) -> bool:
    """Whether kernels run on an NVIDIA GPU of at least this compute capability."""
    target = current_target()
    return target.backend == "cuda" and int(target.arch) >= major * 10 + minor
