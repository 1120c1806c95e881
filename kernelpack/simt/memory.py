"""Where tensors lie while the emulator runs: at addresses of their own, or where kernels that find their addresses look."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch

from kernelpack.errors import EmulationError

GLOBAL_WINDOW = 1 << 44
"""Where tensors lie, SPACING apart: csrc/simt/simt.h. A wrong address then meets nothing, not another tensor."""
SPACING = 1 << 36
_HEADROOM = 4096


class Memory:
    """What tensors of one storage, by their names, span in memory. Only their elements may be accessed.

    It is copied to an address of its own, as far from an alignment of 64 bytes as it is; where `number`, which says to which, is
    None, kernels find its own address in memory, and it stays where it is.
    """

    def __init__(self, runtime: ctypes.CDLL, tensors: Sequence[tuple[str, torch.Tensor]], number: int | None) -> None:
        self.runtime = runtime
        spans = [(tensor.data_ptr(), tensor.data_ptr() + span_of(tensor)) for _, tensor in tensors]
        self.low = min(low for low, _ in spans)
        self.bytes = max(high for _, high in spans) - self.low
        self.address = self.low
        if number is not None:
            window = GLOBAL_WINDOW + number * SPACING
            self.start = window - _HEADROOM
            self.mapped = (_HEADROOM + 64 + self.bytes + 8191) & ~4095
            if not runtime.simt_map(ctypes.c_uint64(self.start), ctypes.c_uint64(self.mapped)):
                raise EmulationError(f"no memory at address {self.start:#x}", kind="memory")
            self.address = window + self.low % 64
            ctypes.memmove(self.address, self.low, self.bytes)
        self.name = ctypes.create_string_buffer(" and ".join(name for name, _ in tensors).encode())
        self.inside = None
        if all(self.bytes > tensor.numel() * tensor.element_size() for _, tensor in tensors):
            self.inside = torch.zeros(self.bytes, dtype=torch.uint8)
            for _, tensor in tensors:
                item = tensor.element_size()
                strides = [stride * item for stride in tensor.stride()]
                self.inside.as_strided((*tensor.shape, item), (*strides, 1), tensor.data_ptr() - self.low).fill_(1)
        inside = ctypes.c_void_p(self.inside.data_ptr() if self.inside is not None else None)
        runtime.simt_region(ctypes.c_uint64(self.address), ctypes.c_uint64(self.bytes), self.name, inside, 0)

    def address_of(self, tensor: torch.Tensor) -> int:
        return self.address + tensor.data_ptr() - self.low

    def copy_back(self) -> None:
        ctypes.memmove(self.low, self.address, self.bytes)

    def free(self) -> None:
        if self.address != self.low:
            self.runtime.simt_unmap(ctypes.c_uint64(self.start), ctypes.c_uint64(self.mapped))


def storage_of(tensor: torch.Tensor) -> int:
    """Returns what tensors that share memory have in common. An empty one shares none."""
    return tensor.untyped_storage().data_ptr() if tensor.numel() else -id(tensor)


def span_of(tensor: torch.Tensor) -> int:
    """Returns how many bytes lie from a tensor's first element to the end of its last."""
    if not tensor.numel():
        return 0
    return (1 + sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride(), strict=True))) * tensor.element_size()
