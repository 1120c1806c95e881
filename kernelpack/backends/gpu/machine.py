"""What a GPU answers to the passes that serve all of them: its threads, its shared memory, its matrix units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from kernelpack.ir.core import Operation
from kernelpack.layout.linear import LinearLayout


@dataclass(frozen=True)
class SharedUse:
    """What an operation does to shared memory, where its effects do not say enough. Names are those of operands that are buffers."""

    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    late_writes: tuple[str, ...] = ()
    """Written later than the operation, in no order: whoever reads them waits for them first."""
    finishes: str = ""
    """The operation whose late writes are complete after this one; where that has none, whose reads are."""
    meets: bool = False
    """All threads wait for each other."""
    order: str = ""
    """Operations of one order follow each other without a barrier: one thread, or one warp, does them all."""
    scratch: int = 0
    """Bytes that lowering it takes for itself, at a multiple of `alignment`."""
    alignment: int = 1


SharedUses = Mapping[str, SharedUse]
"""By the names of operations."""


class Machine(Protocol):
    """One GPU."""

    @property
    def lanes(self) -> int:
        """The threads of a warp."""
        ...

    @property
    def shared_bytes(self) -> int:
        """The shared memory that one block may use."""
        ...

    @property
    def tile_registers(self) -> int:
        """The 32-bit registers of a thread that tiles may take, beside what else it holds, before operands of products leave them."""
        ...

    @property
    def adds_neighbours(self) -> bool:
        """Whether one atomic adds to several floats of 16 or 32 bits that lie beside each other, up to 16 bytes."""
        ...

    @property
    def shared_uses(self) -> SharedUses:
        """What the machine's own operations do to shared memory."""
        ...

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
