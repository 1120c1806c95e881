"""Tensors of probes: whose memory they have, how they lie in it, and what their elements are."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable
from dataclasses import dataclass

import numpy
import torch

from tests.probes.draw import Draw

Shape = tuple[int, ...]
Strides = tuple[int, ...]
_EDGE = 64
"""Bytes around a tensor that nobody may change."""


@dataclass(frozen=True)
class Placed:
    """A tensor, and all bytes of the memory that it lies in. `is_pages`: they are whole pages, nobody else's."""

    tensor: torch.Tensor
    whole: torch.Tensor
    is_pages: bool = False

    def outside(self) -> torch.Tensor:
        """Returns a copy of the bytes that belong to no element."""
        x = self.tensor
        first = x.data_ptr() - self.whole.data_ptr() if x.numel() else 0
        size = x.element_size()
        mine = torch.zeros_like(self.whole, dtype=torch.bool)
        if x.numel():
            mine.as_strided((*x.shape, size), (*(step * size for step in x.stride()), 1), first).fill_(True)
        return self.whole[~mine]


# -- how a tensor lies in memory: strides for a shape ---------------------------------------------------------------------------


def dense(shape: Shape, order: tuple[int, ...], gap: int = 0) -> Strides:
    """Strides of a tensor whose dimensions lie in `order`, outermost first, rows of the innermost `gap` elements apart."""
    strides = [0] * len(shape)
    step = 1
    for place, axis in enumerate(reversed(order)):
        strides[axis] = step
        step = step * max(shape[axis], 1) + (gap if place == 0 else 0)
    return tuple(strides)


def _forward(shape: Shape) -> tuple[int, ...]:
    return tuple(range(len(shape)))


def _contiguous(draw: Draw, shape: Shape) -> Strides:
    return dense(shape, _forward(shape))


def _gaps(draw: Draw, shape: Shape) -> Strides:
    return dense(shape, _forward(shape), gap=draw.any([1, 3, 16]))


def _steps(draw: Draw, shape: Shape) -> Strides:
    return tuple(step * (2 if axis == 0 and len(shape) > 1 else 1) for axis, step in enumerate(_contiguous(draw, shape)))


def _permuted(draw: Draw, shape: Shape) -> Strides:
    order = list(range(len(shape) - 1))
    draw.random.shuffle(order)
    return dense(shape, (*order, len(shape) - 1) if shape else ())


def _repeated(draw: Draw, shape: Shape) -> Strides:
    strides = list(_contiguous(draw, shape))
    if len(shape) > 1:
        strides[draw.number(0, len(shape) - 2)] = 0
    return tuple(strides)


def _overlapping(draw: Draw, shape: Shape) -> Strides:
    return tuple(step if axis == len(shape) - 1 else max(1, step // 2) for axis, step in enumerate(_contiguous(draw, shape)))


def _reversed(draw: Draw, shape: Shape) -> Strides:
    return dense(shape, tuple(reversed(_forward(shape))))


def _channels_last(draw: Draw, shape: Shape) -> Strides:
    return dense(shape, (0, 2, 3, 1)) if len(shape) == 4 else _reversed(draw, shape)


def _columns(draw: Draw, shape: Shape) -> Strides:
    return tuple(step * draw.any([2, 3]) for step in _contiguous(draw, shape))


def _one_value(draw: Draw, shape: Shape) -> Strides:
    return (0,) * len(shape)


def _scattered(draw: Draw, shape: Shape) -> Strides:
    """Gaps after every dimension: nothing merges."""
    strides = [0] * len(shape)
    step = 1
    for axis in reversed(range(len(shape))):
        strides[axis] = step
        step = step * max(shape[axis], 1) + 1
    return tuple(strides)


Layout = Callable[[Draw, Shape], Strides]

ROW_LAYOUTS: dict[str, Layout] = {
    "contiguous": _contiguous,
    "gaps": _gaps,
    "steps": _steps,
    "permuted": _permuted,
    "repeated": _repeated,
    "overlapping": _overlapping,
    "scattered": _scattered,
}
"""The last dimension is contiguous."""

LAYOUTS: dict[str, Layout] = {
    **ROW_LAYOUTS,
    "reversed": _reversed,
    "channels_last": _channels_last,
    "columns": _columns,
    "one value": _one_value,
}

# -- whose memory it is ------------------------------------------------------------------------------------------------------------

_LIBC = ctypes.CDLL(None, use_errno=True)


def _of_torch(size: int) -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8)


def _of_numpy(size: int) -> torch.Tensor:
    return torch.from_numpy(numpy.empty(size, dtype=numpy.uint8))


def _shared(size: int) -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8).share_memory_()


def _pages(size: int) -> torch.Tensor:
    return torch.frombuffer(mmap.mmap(-1, size), dtype=torch.uint8)


def protect(placed: Placed) -> None:
    """Forbids writing to the pages of a tensor in read-only memory: a write ends the process."""
    whole = placed.whole
    if (
        placed.is_pages
        and _LIBC.mprotect(ctypes.c_void_p(whole.data_ptr()), ctypes.c_size_t(whole.numel()), mmap.PROT_READ) != 0
    ):
        raise OSError(ctypes.get_errno(), "mprotect")


MEMORY: dict[str, Callable[[int], torch.Tensor]] = {
    "torch": _of_torch,
    "odd offset": _of_torch,
    "unaligned": _of_numpy,
    "numpy": _of_numpy,
    "shared": _shared,
    "read-only": _pages,
}


def reach(x: torch.Tensor) -> int:
    """Returns how many elements lie from a tensor's first to its last."""
    return 1 + sum((extent - 1) * step for extent, step in zip(x.shape, x.stride(), strict=True)) if x.numel() else 0


def place(
    draw: Draw,
    shape: Shape,
    dtype: torch.dtype,
    *,
    layout: str = "contiguous",
    strides: Strides | None = None,
    memory: str = "torch",
    values: torch.Tensor | None = None,
    largest: float | None = None,
) -> Placed:
    """Returns a tensor of random numbers, no larger than `largest`, or of values, in a layout or with strides. What lies between its
    elements is NaN."""
    strides = LAYOUTS[layout](draw, shape) if strides is None else strides
    count = 1 + sum((extent - 1) * step for extent, step in zip(shape, strides, strict=True)) if 0 not in shape else 0
    size = dtype.itemsize
    shift = {"odd offset": size * draw.any([1, 3, 5]), "unaligned": draw.any([1, 2, 3])}.get(memory, 0)
    if memory == "read-only":
        length = -(-(count * size + 2 * _EDGE) // mmap.PAGESIZE) * mmap.PAGESIZE
    else:
        length = _EDGE + shift + -(-(count * size) // 8) * 8 + _EDGE
    whole = MEMORY[memory](length)
    whole.copy_(torch.randint(0, 256, (length,), dtype=torch.uint8))
    flat = _elements(whole, _EDGE + shift, count, dtype)
    if dtype.is_floating_point:
        flat.copy_(torch.full((count,), float("nan")))
    x = flat.as_strided(shape, strides)
    if values is None:
        mine = torch.zeros(count, dtype=torch.bool)
        mine.as_strided(shape, strides).fill_(True)
        random = random_values(count, dtype)
        if largest is not None:
            random = random.clamp(-largest, largest)
        flat.copy_(torch.where(mine, random, flat) if dtype.itemsize > 1 else random)
    else:
        x.copy_(values.to(dtype))
    return Placed(x, whole, is_pages=memory == "read-only")


def _elements(whole: torch.Tensor, start: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    """Returns elements that begin at byte `start`, at whatever address that is."""
    if count == 0:
        return torch.empty(0, dtype=dtype)
    size = dtype.itemsize
    if start % size == 0:
        return whole[start : start + count * size].view(dtype)
    return torch.frombuffer(whole.numpy(), dtype=dtype, count=count, offset=start)


def random_values(count: int, dtype: torch.dtype) -> torch.Tensor:
    """Normal numbers for floats, else small integers or bools, all of them representable."""
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(count, dtype=torch.float64).to(dtype)
    return torch.randint(0, 2 if dtype == torch.bool else 100, (count,)).to(dtype)
