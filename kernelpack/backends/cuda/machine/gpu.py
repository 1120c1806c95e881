"""What NVIDIA's GPUs answer to the passes that all GPUs share."""

from __future__ import annotations

from dataclasses import dataclass

from kernelpack.backends.cuda.machine import matrix
from kernelpack.backends.cuda.machine.features import LANES, Feature, Features
from kernelpack.backends.cuda.machine.shared_uses import SHARED_USES
from kernelpack.backends.gpu.machine import SharedUses
from kernelpack.ir.core import Operation
from kernelpack.layout.linear import LinearLayout


@dataclass(frozen=True)
class NvidiaGPU:
    """The Machine of one architecture."""

    features: Features

    @property
    def lanes(self) -> int:
        return LANES

    @property
    def shared_bytes(self) -> int:
        return self.features.shared_bytes

    @property
    def tile_registers(self) -> int:
        """A thread has 255. Addresses, masks, fragments on their way and the rounded second operand of a chained dot take the rest."""
        return 192

    @property
    def adds_neighbours(self) -> bool:
        return Feature.VECTOR_ATOMICS in self.features.has

    @property
    def shared_uses(self) -> SharedUses:
        return SHARED_USES

    def multiplies(self, dot: Operation) -> bool:
        return matrix.mma_instruction(dot) is not None

    def splits_operands(self, dot: Operation) -> bool:
        return matrix.splits_operands(dot)

    def accumulator_layout(self, dot: Operation, num_warps: int) -> LinearLayout:
        return matrix.accumulator_layout(dot, num_warps)

    def operand_layouts(self, dot: Operation, num_warps: int) -> tuple[LinearLayout | None, LinearLayout | None]:
        return matrix.operand_layouts(dot, num_warps)
