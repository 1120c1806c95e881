"""What a GPU's vendor answers about matrix products, for passes that serve all of them."""

from __future__ import annotations

from typing import Protocol

from kernelpack.ir.core import Operation
from kernelpack.layout.linear import LinearLayout


class Machine(Protocol):
    """The matrix units of a GPU."""

    def multiplies(self, dot: Operation) -> bool:
        """Whether matrix units compute a tt.dot; ordinary arithmetic does it otherwise."""
        ...

    def splits_operands(self, dot: Operation) -> bool:
        """Whether each operand is multiplied as the sum of two numbers, which takes registers twice."""
        ...

    def accumulator_layout(self, dot: Operation, num_warps: int) -> LinearLayout:
        """Returns the layout of a product's result."""
        ...

    def operand_layouts(self, dot: Operation, num_warps: int) -> tuple[LinearLayout | None, LinearLayout | None]:
        """Returns the layouts of operands a and b in registers; None where they are read from shared memory."""
        ...
