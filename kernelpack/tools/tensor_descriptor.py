"""TensorDescriptor: a tensor descriptor made outside, as an argument of a kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kernelpack.errors import BlockShapeError, DescriptorError
from kernelpack.ir.dialects.descriptors import MAX_RANK, PADDINGS

ALIGNMENT = 16
"""What addresses and strides are multiples of, in bytes."""


@dataclass
class TensorDescriptor:
    """The tensor at `base` with these sizes and strides (in elements, the last 1), as blocks of `block_shape`.

    Kernels take it as a parameter and use it as what tl.make_tensor_descriptor gives. `padding` is what lies outside: "zero" or
    "nan". The block's shape may be set until the launch. Raises DescriptorError for a tensor that cannot be described, and
    BlockShapeError for extents of a block that are no powers of two.
    """

    base: Any
    shape: Sequence[int]
    strides: Sequence[int]
    block_shape: Sequence[int]
    padding: str = "zero"

    def __post_init__(self) -> None:
        rank = len(self.shape)
        if not 1 <= rank <= MAX_RANK or len(self.strides) != rank or len(self.block_shape) != rank:
            raise DescriptorError(
                f"a tensor descriptor has 1 to {MAX_RANK} axes, with a size, a stride and a block's extent each; "
                f"these are {len(self.shape)}, {len(self.strides)} and {len(self.block_shape)}"
            )
        self.check_block()
        if self.strides[-1] != 1:
            raise DescriptorError(
                f"the last stride of a tensor descriptor is 1, not {self.strides[-1]}",
                cure="describe the tensor's transpose, or copy it with .contiguous()",
            )
        width = self.base.element_size()
        steps = [stride for stride, size in zip(self.strides[:-1], self.shape[:-1], strict=True) if size > 1]
        if self.base.data_ptr() % ALIGNMENT or any(stride * width % ALIGNMENT for stride in steps):
            raise DescriptorError(
                f"a tensor descriptor needs an address and strides that are multiples of {ALIGNMENT} bytes; "
                f"the address is {self.base.data_ptr():#x}, the strides are {list(self.strides)} elements of {width} bytes",
                cure="pad the rows, or copy the tensor",
            )
        if self.padding not in PADDINGS:
            raise DescriptorError(f"padding is {self.padding!r}", cure=f"use one of {', '.join(map(repr, PADDINGS))}")

    def check_block(self, owner: str = "a tensor descriptor") -> None:
        """Raises BlockShapeError where an extent of the block is no power of two."""
        for axis, extent in enumerate(self.block_shape):
            if extent < 1 or extent & (extent - 1):
                raise BlockShapeError(
                    f"Shape element {axis} must be a power of 2: {owner} has blocks of shape {list(self.block_shape)}",
                    cure="round it up; what lies outside of the tensor reads as zero, and is not written",
                )

    @staticmethod
    def from_tensor(tensor: Any, block_shape: Sequence[int], padding: str = "zero") -> TensorDescriptor:
        """Describes a torch tensor as it is."""
        return TensorDescriptor(tensor, list(tensor.shape), list(tensor.stride()), block_shape, padding)

    @property
    def device(self) -> Any:
        return self.base.device

    def parts(self) -> dict[str, Any]:
        """Returns the values of the kernel's parameters that the descriptor becomes, by what their names end in."""
        sizes = {f"shape_{axis}": size for axis, size in enumerate(self.shape)}
        return {"base": self.base, **sizes, **{f"stride_{axis}": step for axis, step in enumerate(self.strides[:-1])}}
