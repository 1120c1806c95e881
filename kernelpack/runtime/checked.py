"""Launches of kernels that check their accesses (KERNELPACK_CHECKED=1): where each tensor's storage lies, and what is said of an access
outside of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernelpack.compiled import BOUNDS, CompiledKernel
from kernelpack.errors import MemoryAccessError
from kernelpack.runtime.stand_ins import TensorWrapper

_ANYWHERE = (0, 2**63 - 1)


def with_bounds(kernel: CompiledKernel, values: Sequence[Any]) -> list[Any]:
    """Returns the arguments of a launch, followed by the bounds of the storages that the kernel asks for."""
    places = {parameter.name: place for place, parameter in enumerate(kernel.parameters)}
    asked = [parameter.name.rpartition(".") for parameter in kernel.parameters[len(values) :]]
    return [*values, *(_storage(values[places[name]])[BOUNDS.index(bound)] for name, _, bound in asked)]


def described(outside: MemoryAccessError, kernel: CompiledKernel, values: Sequence[Any]) -> MemoryAccessError:
    """Returns the error of an access outside of a tensor, with what people ask of it: argument, offset, shape."""
    assert outside.parameter is not None
    assert outside.address is not None
    name, tensor = kernel.parameters[outside.parameter].name, _tensor(values[outside.parameter])
    if tensor is None:
        return outside
    size, first = tensor.element_size(), tensor.data_ptr()
    begin, end = _storage(tensor)
    element, rest = divmod(outside.address - first, size)
    elements = f"elements {(begin - first) // size} to {(end - first) // size - 1}" if end > begin else "no elements"
    found = MemoryAccessError(
        f"{outside.message}: element {element}{f' and {rest} bytes' if rest else ''} of {name} is outside of its storage, which holds "
        f"{elements} (shape {list(tensor.shape)}, strides {list(tensor.stride())})",
        cure="check the argument before the launch, or mask the access",
    )
    found.address, found.parameter = outside.address, outside.parameter
    return found


def _tensor(value: Any) -> Any:
    value = value.base if isinstance(value, TensorWrapper) else value
    return value if hasattr(value, "untyped_storage") else None


def _storage(value: Any) -> tuple[int, int]:
    """Returns where the storage of an argument begins and ends. A bare address may lead anywhere."""
    tensor = _tensor(value)
    if tensor is None:
        return _ANYWHERE
    storage = tensor.untyped_storage()
    return storage.data_ptr(), storage.data_ptr() + storage.nbytes()
