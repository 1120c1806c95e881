"""What vLLM's modules ask about the device while they choose between Triton kernels and those of the platform."""

from __future__ import annotations

import sys
from types import ModuleType

import torch


def take_triton_kernels() -> None:
    """Lets vLLM's modules keep their Triton kernels, which they replace on CPUs when they are imported."""
    from vllm.platforms import current_platform

    type(current_platform).is_cpu = lambda self: False
    torch.cuda.get_device_capability = lambda device=None: (9, 0)
    rocm = ModuleType("vllm.platforms.rocm")  # importing it asks for a GPU of AMD
    vars(rocm)["use_rocm_custom_paged_attention"] = lambda *args, **kwargs: False
    sys.modules[rocm.__name__] = rocm
