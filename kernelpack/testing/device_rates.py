"""What a GPU can do at most: host code asks for it that predicts how fast a config is."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import Any

from kernelpack.errors import LaunchError

_TENSOR_CORES = {80: 2048, 86: 1024, 89: 1024, 90: 4096}
"""By compute capability: operations per clock of a multiprocessor's tensor cores on 16-bit numbers, without sparsity; a multiplication
with its addition counts as two (NVIDIA's whitepapers of the architectures)."""
_LANES = {80: (128, 512), 86: (256, 256), 89: (256, 256), 90: (256, 512)}
"""The same outside of tensor cores: of float32, and of 16-bit numbers."""


def nvsmi(attributes: Sequence[str]) -> list[int]:
    """Returns what nvidia-smi answers for attributes of the first GPU, such as "clocks.max.sm" (MHz)."""
    command = ["nvidia-smi", "-i", "0", f"--query-gpu={','.join(attributes)}", "--format=csv,noheader,nounits"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [int(field) for field in answer.split(",")]


def get_dram_gbps(device: Any = None) -> float:
    """Returns the bandwidth of a GPU's memory, in GB/s."""
    found = _properties(device)
    return float(found.memory_clock_rate * 2 * found.memory_bus_width / 8 / 1e6)  # kHz, two transfers a clock, bits


def get_max_tensorcore_tflops(dtype: Any, clock_rate: float, device: Any = None) -> float:
    """Returns TFLOP/s of products of a torch dtype on tensor cores, at a clock in kHz."""
    found = _properties(device)
    of_16_bits = _of(_TENSOR_CORES, found)
    return float(found.multi_processor_count * of_16_bits * 2 // dtype.itemsize * clock_rate * 1e-9)


def get_max_simd_tflops(dtype: Any, clock_rate: float, device: Any = None) -> float:
    """Returns TFLOP/s of float32 or 16-bit arithmetic outside of tensor cores, at a clock in kHz."""
    if dtype.itemsize not in (2, 4):
        raise LaunchError(f"get_max_simd_tflops knows float32 and 16-bit floats, not {dtype}")
    found = _properties(device)
    wide, narrow = _of(_LANES, found)
    return float(found.multi_processor_count * (wide if dtype.itemsize == 4 else narrow) * clock_rate * 1e-9)


def _properties(device: Any) -> Any:
    import torch

    if not torch.cuda.is_available():
        raise LaunchError("rates are known of CUDA devices only, and this machine has none")
    return torch.cuda.get_device_properties(device)


def _of(table: dict[int, Any], found: Any) -> Any:
    """Returns the entry of a device's capability, or of the nearest one below."""
    capability = found.major * 10 + found.minor
    return table[max((known for known in table if known <= capability), default=min(table))]
