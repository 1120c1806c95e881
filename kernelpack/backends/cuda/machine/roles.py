"""Which warps run each role of a kernel, who has how many registers, what a whole kernel needs."""

from __future__ import annotations

from dataclasses import dataclass

from kernelpack.backends.cuda.machine.features import LANES, MAX_THREADS
from kernelpack.backends.gpu.facts.roles import roles
from kernelpack.errors import CompilationError
from kernelpack.ir.core import Operation
from kernelpack.ir.types import TensorType

WARPGROUP = 4
"""The warps of a warpgroup: setmaxnreg and wgmma are for all of them, so every role starts with one."""
REGISTERS = 65536
"""The 32-bit registers of a multiprocessor (CUDA C Programming Guide, "Technical Specifications per Compute Capability")."""


@dataclass(frozen=True)
class Place:
    """A role's first warp, its warps with the unused ones of its last warpgroup, and the barrier of its first copy."""

    op: Operation
    first: int
    width: int
    barrier: int

    @property
    def num_warps(self) -> int:
        return int(self.op.attributes["num_warps"])

    @property
    def copies(self) -> int:
        return int(self.op.attributes["copies"])

    @property
    def registers(self) -> int:
        return int(self.op.attributes["registers"])


def roles_of(function: Operation) -> list[Place]:
    """Returns the roles of a kernel in order; none where all warps run the same code."""
    places: list[Place] = []
    first, barrier = 0, 1  # barrier 0 is the whole block's
    for op in roles(function):
        warps = op.attributes["num_warps"] * op.attributes["copies"]
        width = -(-warps // WARPGROUP) * WARPGROUP
        places.append(Place(op, first, width, barrier))
        first, barrier = first + width, barrier + op.attributes["copies"]
    return places


def warps_of(function: Operation, num_warps: int) -> int:
    """Returns how many warps a kernel is launched with; `num_warps` is for kernels without roles."""
    return sum(place.width for place in roles_of(function)) or num_warps


def check_roles(function: Operation) -> None:
    """Raises CompilationError where roles are not the last statement, do not fit, or tiles in registers lie outside of them."""
    groups = [op for op in function.walk() if op.name == "ttg.warp_specialize"]
    if not groups:
        return
    group = groups[0]
    if len(groups) > 1 or group.parent is not function.body or group is not function.body.operations[-2]:
        raise CompilationError(
            "warp_specialize must be the last statement of a kernel, outside of branches and loops",
            location=groups[-1].location.source,
            cure="move what stands after it into a role",
        )
    for op in function.body.operations:
        if any(isinstance(value.type, TensorType) for value in (*op.operands, *op.results)):
            raise CompilationError(
                f"{op.name} works on a tile in registers outside of the roles, which hold all warps of this kernel",
                location=op.location.source,
                cure="move it into the function of a role",
            )
    places = roles_of(function)
    for place in places:
        if place.registers and (place.registers % 8 or not 24 <= place.registers <= 256):  # PTX ISA, setmaxnreg
            raise CompilationError(
                f"a role has {place.registers} registers a thread, which is no multiple of 8 from 24 to 256",
                location=place.op.location.source,
                cure="choose such a number, or 0 for as many as the kernel starts with",
            )
    used = sum(place.registers * place.width * LANES for place in places)
    if used > REGISTERS:
        raise CompilationError(
            f"the roles have {used} registers together, a multiprocessor has {REGISTERS}",
            location=group.location.source,
            cure="lower `registers` of a role, or have fewer copies",
        )
    warps = sum(place.width for place in places)
    if warps * LANES > MAX_THREADS:
        raise CompilationError(
            f"the roles have {warps} warps together, a block has at most {MAX_THREADS // LANES}", location=group.location.source
        )
