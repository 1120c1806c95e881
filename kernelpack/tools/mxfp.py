"""Tensors in microscaling formats (OCP Microscaling Formats v1.0), for tests and benchmarks of tl.dot_scaled: numbers of four bits
(e2m1), and scales that are powers of two (e8m0)."""

from __future__ import annotations

import abc
from collections.abc import Sequence

import torch

_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""The magnitudes of e2m1 in order of their bits."""
_BIAS, _NAN = 127, 255


class _ByteTensor(abc.ABC):
    """Numbers that are stored one in each uint8 of `data`."""

    def __init__(
        self,
        data: torch.Tensor | None = None,
        size: Sequence[int] | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        """Stores numbers, as `_stored` says. With `size` they are yet to be made."""
        self.device = data.device if data is not None and device is None else device
        if data is not None:
            self.data = self._stored(data.to(self.device))
            self.size = tuple(data.shape)
        elif size is not None:
            self.size = tuple(size)
            self.data = torch.zeros(self.size, dtype=torch.uint8, device=self.device)
        else:
            raise ValueError(f"{type(self).__name__} takes data or a size")

    @staticmethod
    @abc.abstractmethod
    def _stored(values: torch.Tensor) -> torch.Tensor:
        """Returns the bytes of numbers."""


class MXFP4Tensor(_ByteTensor):
    """Numbers of four bits: a sign, two bits of exponent, one of mantissa. Floats are rounded to nearest, ties to even; what is
    too large becomes 6."""

    @staticmethod
    def _stored(values: torch.Tensor) -> torch.Tensor:
        assert torch.is_floating_point(values) or values.dtype in (torch.int32, torch.int64), f"numbers, not {values.dtype}"
        exact = values.to(torch.float32)
        table = torch.tensor(_VALUES, device=exact.device)
        ties = (table[:-1] + table[1:]) / 2
        magnitude = exact.abs().contiguous()
        up, down = torch.bucketize(magnitude, ties, right=True), torch.bucketize(magnitude, ties, right=False)
        nearest = torch.where(up % 2 == 0, up, down)  # they differ on ties only: the even one of the two
        return (nearest | (torch.signbit(exact).to(torch.int64) << 3)).to(torch.uint8)

    def random(self) -> MXFP4Tensor:
        """Fills the tensor with random numbers and returns it."""
        self.data = torch.randint(0, 16, self.size, dtype=torch.uint8, device=self.device)
        return self

    def to(self, dtype: torch.dtype) -> torch.Tensor:
        """Returns the numbers as float32."""
        assert dtype == torch.float32, f"MXFP4Tensor becomes float32, not {dtype}"
        table = torch.tensor((*_VALUES, *(-value for value in _VALUES)), device=self.data.device)
        return table[self.data.to(torch.int64)]

    def to_packed_tensor(self, dim: int) -> torch.Tensor:
        """Returns bytes that hold two neighbours along `dim`, the first in the lower half; an odd last one has a zero beside it."""
        data = self.data
        assert 0 <= dim < data.ndim, f"dim is {dim}, the tensor has {data.ndim} axes"
        if data.shape[dim] % 2:
            shape = list(data.shape)
            shape[dim] = 1
            data = torch.cat([data, data.new_zeros(shape)], dim)
        pairs = data.reshape(*data.shape[:dim], -1, 2, *data.shape[dim + 1 :])
        return pairs.select(dim + 1, 0) | (pairs.select(dim + 1, 1) << 4)

    def unpack_packed_tensor(self, packed_tensor: torch.Tensor, dim: int, original_shape: Sequence[int]) -> torch.Tensor:
        """Returns what `to_packed_tensor` was made of: one number in each uint8."""
        pairs = torch.stack([packed_tensor & 15, packed_tensor >> 4], dim + 1)
        return pairs.flatten(dim, dim + 1).narrow(dim, 0, original_shape[dim]).contiguous()


class MXScaleTensor(_ByteTensor):
    """Powers of two: the biased exponent of a float32 in each uint8, 255 for NaN. Of each number the power of two at or below it is
    taken; what is not positive and finite becomes NaN."""

    @staticmethod
    def _stored(values: torch.Tensor) -> torch.Tensor:
        exact = values.to(torch.float32)
        exponent = torch.floor(torch.log2(exact)) + _BIAS
        known = torch.isfinite(exact) & (exact > 0)
        return torch.where(known, exponent.clamp(0, _NAN - 1), torch.full_like(exponent, _NAN)).to(torch.uint8)

    def random(self, low: float | None = None, high: float | None = None) -> MXScaleTensor:
        """Fills the tensor with random powers of two from `low` to `high` and returns it."""
        least = 0 if low is None else max(0, int(torch.log2(torch.tensor(low))) + _BIAS)
        most = _NAN - 1 if high is None else min(_NAN - 1, max(0, int(torch.log2(torch.tensor(high))) + _BIAS))
        self.data = torch.randint(least, most + 1, self.size, dtype=torch.uint8, device=self.device)
        return self

    def to(self, dtype: torch.dtype) -> torch.Tensor:
        """Returns the scales as float32."""
        assert dtype == torch.float32, f"MXScaleTensor becomes float32, not {dtype}"
        bits = self.data.to(torch.int32)
        values = torch.exp2((bits - _BIAS).to(torch.float32))
        return torch.where(bits == _NAN, torch.full_like(values, float("nan")), values)
