"""Tensor descriptors: which addresses a block's elements have, and which of them lie inside the tensor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelpack.ir.core import Operation
from kernelpack.ir.dialect import attribute
from kernelpack.ir.formats import Array, carrier
from kernelpack.ir.interpret.elementwise import bytes_of
from kernelpack.ir.types import TensorType, Type


def padding_of(op: Operation) -> float:
    """Returns what elements outside of a descriptor's tensor read as."""
    return float("nan") if attribute(op, "padding") == "nan" else 0


@dataclass(frozen=True)
class Descriptor:
    """A tensor of run-time sizes and strides (in elements), accessed by blocks."""

    block: TensorType
    base: Any
    shape: Sequence[Any]
    strides: Sequence[Any]
    filling: float

    @property
    def element(self) -> Type:
        return self.block.element

    @property
    def padding(self) -> Array:
        return np.asarray(self.filling, carrier(self.element))

    def block_at(self, indices: Sequence[Any]) -> tuple[Array, Array]:
        """Returns the pointers to the block whose first element has these coordinates, and which are inside the tensor."""
        extents = self.block.shape
        return self._at([np.int64(index) + np.arange(extent) for index, extent in zip(indices, extents, strict=True)])

    def rows_at(self, rows: Array, column: Any) -> tuple[Array, Array]:
        """Returns the same for rows of a tensor of two axes, from a column on."""
        return self._at([np.asarray(rows, np.int64), np.int64(column) + np.arange(self.block.shape[1])])

    def _at(self, coordinates: Sequence[Array]) -> tuple[Array, Array]:
        width = bytes_of(self.element)
        pointers: Array = np.asarray(self.base, np.int64)
        inside: Array = np.asarray(True)
        for places, extent, stride in zip(np.ix_(*coordinates), self.shape, self.strides, strict=True):
            pointers = pointers + places * np.int64(stride) * width
            inside = inside & (places >= 0) & (places < extent)
        return pointers, np.broadcast_to(inside, pointers.shape)
