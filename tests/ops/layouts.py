"""How tensors of the accuracy grid lie in memory: views of one shape whose last dimension is contiguous, and their conversion."""

from __future__ import annotations

from collections.abc import Callable

import torch


def convert(x: torch.Tensor, dtype: torch.dtype, device: str = "cpu") -> torch.Tensor:
    """Converts floats to a dtype and moves a tensor."""
    return in_place(x, lambda flat: flat.to(device=device, dtype=dtype if x.is_floating_point() else x.dtype))


def times(x: torch.Tensor, factor: float) -> torch.Tensor:
    return in_place(x, lambda flat: flat * factor)


def copied(x: torch.Tensor) -> torch.Tensor:
    """Returns a tensor of the same values and strides."""
    return in_place(x, lambda flat: flat.clone())


def in_place(x: torch.Tensor, function: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """Applies a function to all elements of a tensor and between them: strides stay, also those of expanded and sliced ones."""
    size = 1 + sum((extent - 1) * stride for extent, stride in zip(x.shape, x.stride(), strict=True)) if x.numel() else 0
    return function(x.as_strided((size,), (1,))).as_strided(x.shape, x.stride())


def bits(x: torch.Tensor) -> torch.Tensor:
    """Returns the bits of a tensor's elements as integers."""
    return x.contiguous().view({1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()])


def steps_apart(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Returns how many numbers of their dtype, which has 8 bits, elements lie apart; NaN lies at NaN."""
    places = []
    for x in (one, other):
        place = x.contiguous().view(torch.int8).int()
        if x.is_floating_point():
            place = torch.where(place < 0, -(place & 127), place)  # sign and magnitude
        places.append(place)
    both = (one.float().isnan() & other.float().isnan()) if one.is_floating_point() else torch.zeros_like(one, dtype=torch.bool)
    return torch.where(both, 0, (places[0] - places[1]).abs())


def contiguous(*shape: int) -> torch.Tensor:
    return torch.randn(shape)


def padded(*shape: int) -> torch.Tensor:
    """Rows apart: a slice of wider rows that begins after their start."""
    return torch.randn(*shape[:-1], shape[-1] + 5)[..., 3 : 3 + shape[-1]]


def gaps(*shape: int) -> torch.Tensor:
    """Rows with gaps between them that begin at multiples of 16 elements, so that wide accesses and TMA are possible."""
    return torch.randn(*shape[:-1], shape[-1] // 16 * 16 + 32)[..., : shape[-1]]


def swapped(*shape: int) -> torch.Tensor:
    """[B, H, S, D] out of [B, S, H, D], as projections leave it."""
    order = (*range(len(shape) - 3), len(shape) - 2, len(shape) - 3, len(shape) - 1)
    return torch.randn([shape[axis] for axis in order]).permute(order)


def reversed_rows(*shape: int) -> torch.Tensor:
    """All dimensions but the last in opposite order, every second one of the first left out: nothing merges."""
    lead = len(shape) - 1
    order = (*reversed(range(lead)), lead)
    x = torch.randn([shape[axis] * (2 if axis == 0 else 1) for axis in order])
    return x.permute(order)[::2]


def repeated(*shape: int) -> torch.Tensor:
    """One row, read for all."""
    return torch.randn(shape[-1]).expand(shape)


ROWS: list[tuple[Callable[..., torch.Tensor], tuple[int, ...]]] = [
    *((contiguous, (3, columns)) for columns in (1, 2, 7, 16, 31, 63, 64, 65, 100, 127, 129, 768, 1000, 4097)),
    (contiguous, (5,)),
    (contiguous, (1, 70001)),
    (contiguous, (2, 131072)),
    (contiguous, (300, 24)),
    (contiguous, (2, 3, 4, 40)),
    (contiguous, (0, 8)),
    (contiguous, (4, 0)),
    (padded, (7, 130)),
    (padded, (1, 33)),
    (swapped, (2, 3, 5, 48)),
    (swapped, (4, 3, 1, 200)),
    (reversed_rows, (3, 4, 5, 72)),
    (reversed_rows, (6, 77)),
    (repeated, (4, 6, 90)),
]


def layout_name(make: Callable[..., torch.Tensor], shape: tuple[int, ...]) -> str:
    return f"{make.__name__} {'x'.join(map(str, shape))}"
