"""The AMD architectures that code is generated for, and what they answer to the passes that all GPUs share.

Numbers are from "AMD Instinct MI300 Instruction Set Architecture" and LLVM's "User Guide for AMDGPU Backend". None of this was run on hardware.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kernelpack.backends.gpu.machine import SharedUse
from kernelpack.errors import TargetError
from kernelpack.ir.core import Operation
from kernelpack.layout.linear import LinearLayout
from kernelpack.llvm.codegen import Machine as CodeMachine
from kernelpack.target import Target

TRIPLE = "amdgcn-amd-amdhsa"
CODE_OBJECT = 500
"""Version 5 of code objects: its hidden arguments say how many workgroups there are (LLVM's user guide, "Code Object V5 Metadata")."""
MAX_THREADS = 1024
"""The work-items that a workgroup may have."""


@dataclass(frozen=True)
class AMDGPU:
    """One architecture. A warp is a wavefront of `lanes` work-items, a block a workgroup, shared memory the local data share (LDS)."""

    name: str
    lanes: int
    shared_bytes: int
    tile_registers: int = 192
    """Of 256: nothing asks, as matrix products are refused."""
    adds_neighbours: bool = False
    """Packed atomics of two halves are left to LLVM."""
    shared_uses: Mapping[str, SharedUse] = field(default_factory=dict)
    """It has no operations of its own."""

    @property
    def code(self) -> CodeMachine:
        """What LLVM generates code for."""
        return CodeMachine(TRIPLE, self.name)

    def multiplies(self, dot: Operation) -> bool:
        return False

    def splits_operands(self, dot: Operation) -> bool:
        return False

    def accumulator_layout(self, dot: Operation, num_warps: int) -> LinearLayout:
        raise AssertionError("matrix products are refused before")

    def operand_layouts(self, dot: Operation, num_warps: int) -> tuple[LinearLayout | None, LinearLayout | None]:
        raise AssertionError("matrix products are refused before")


ARCHITECTURES = {row.name: row for row in (AMDGPU("gfx942", 64, 64 * 1024),)}


def machine_of(target: Target) -> AMDGPU:
    """Returns the machine of a target. Raises TargetError for one that is not built for."""
    found = ARCHITECTURES.get(target.arch)
    if found is None or target.features:
        raise TargetError(
            f"target {target}: no such AMD GPU is supported",
            cure=f"use {' or '.join(f'{target.backend}:{name}' for name in ARCHITECTURES)}",
        )
    return found
