"""What stands for a tensor: nothing but a dtype where code is only compiled, or another dtype for the same memory."""

from __future__ import annotations

from typing import Any

from kernelpack.dtypes import LANGUAGE_NAMES
from kernelpack.kernel.signatures import parse_type
from kernelpack.kernel.types import dtype as language_type
from kernelpack.runtime.driver import driver


class MockTensor:
    """A tensor of a dtype that is never launched with: `kernel.warmup(torch.float32, ...)`. Its memory is aligned."""

    def __init__(self, dtype: Any, shape: Any = None) -> None:
        self.dtype = dtype
        self.shape = [1] if shape is None else list(shape)

    @staticmethod
    def wrap_dtype(value: Any) -> Any:
        """Returns a MockTensor for a torch dtype, and anything else as it is."""
        import torch

        return MockTensor(value) if isinstance(value, torch.dtype) else value

    @property
    def device(self) -> Any:
        return driver.active.get_active_torch_device()

    def stride(self) -> tuple[int, ...]:
        strides = [1]
        for size in reversed(self.shape[1:]):
            strides.insert(0, strides[0] * size)
        return tuple(strides)

    @staticmethod
    def data_ptr() -> int:
        return 0

    @staticmethod
    def ptr_range() -> int:
        return 0


class TensorWrapper:
    """A tensor whose memory kernels see as elements of `dtype`, a type of the language. `base` is the tensor."""

    def __init__(self, base: Any, dtype: language_type) -> None:
        self.base = base
        self.dtype = dtype
        self.data = base.data
        self.device = base.device
        self.shape = base.shape
        self.is_cuda = base.is_cuda

    def data_ptr(self) -> int:
        return int(self.base.data_ptr())

    def stride(self, *axis: int) -> Any:
        return self.base.stride(*axis)

    def element_size(self) -> int:
        return int(self.base.element_size())

    def cpu(self) -> TensorWrapper:
        return TensorWrapper(self.base.cpu(), self.dtype)

    def clone(self) -> TensorWrapper:
        return TensorWrapper(self.base.clone(), self.dtype)

    def to(self, device: Any) -> TensorWrapper:
        return TensorWrapper(self.base.to(device), self.dtype)

    def copy_(self, other: TensorWrapper) -> None:
        self.base.copy_(other.base)

    def __str__(self) -> str:
        return f"TensorWrapper[{self.dtype}]({self.base})"


def reinterpret(tensor: Any, dtype: language_type) -> Any:
    """Returns a tensor as kernels see it with another element type of the same size. Raises TypeError for anything else."""
    if isinstance(tensor, TensorWrapper):
        return reinterpret(tensor.base, dtype)
    if not hasattr(tensor, "data_ptr"):
        raise TypeError(f"Cannot reinterpret a {type(tensor)}.")
    if dtype == signature_of(tensor):
        return tensor
    return TensorWrapper(tensor, dtype)


def signature_of(tensor: Any) -> language_type | None:
    """Returns the language's type of a tensor's elements."""
    name = LANGUAGE_NAMES.get(str(tensor.dtype).removeprefix("torch."))
    return None if name is None else parse_type(name)
