"""The GPU architectures that code is generated for, and what each offers."""

from __future__ import annotations

from dataclasses import dataclass

from kernelpack.errors import TargetError
from kernelpack.target import Target

MAX_THREADS = 1024
"""The threads that a block may have on every architecture (CUDA C Programming Guide, "Technical Specifications")."""


@dataclass(frozen=True)
class Architecture:
    """One GPU architecture.

    `features` pins the PTX ISA version that LLVM emits: the lowest that knows the architecture's instructions, so that older
    drivers accept it. `shared_bytes` is what one block may use (CUDA C Programming Guide, "Technical Specifications per
    Compute Capability").
    """

    name: str
    capability: int
    features: str
    shared_bytes: int

    @property
    def has_stmatrix(self) -> bool:
        """Whether a warp writes 8 x 8 matrices to shared memory at a time (PTX ISA, stmatrix: sm_90)."""
        return self.capability >= 90

    @property
    def has_bf16_atomics(self) -> bool:
        """Whether the hardware adds to a bfloat16 in memory (PTX ISA, atom: sm_90)."""
        return self.capability >= 90

    @property
    def has_vector_atomics(self) -> bool:
        """Whether one instruction adds to up to 16 bytes of floats in memory (PTX ISA, atom: sm_90, from version 8.1 on)."""
        return self.capability >= 90

    @property
    def has_clusters(self) -> bool:
        """Whether blocks run in clusters (PTX ISA, .reqnctapercluster: sm_90)."""
        return self.capability >= 90

    @property
    def has_fp8_conversions(self) -> bool:
        """Whether the hardware converts 8-bit floats (PTX ISA, cvt: sm_89, from version 8.1 on)."""
        return self.capability >= 89

    @property
    def has_fp8_mma(self) -> bool:
        """Whether mma.sync multiplies 8-bit floats as they are (PTX ISA, mma: sm_89, from version 8.4 on). Hopper's wgmma does."""
        return self.name == "sm_89"

    @property
    def has_wgmma(self) -> bool:
        """Whether warpgroups multiply tiles of shared memory (PTX ISA, wgmma: sm_90a alone)."""
        return self.name == "sm_90a"

    @property
    def has_tma(self) -> bool:
        """Whether blocks of tensors are copied by TMA; its code generation is for the architecture that has wgmma too."""
        return self.has_wgmma


ARCHITECTURES = {
    row.name: row
    for row in (
        Architecture("sm_80", 80, "+ptx80", 163 * 1024),
        Architecture("sm_86", 86, "+ptx80", 99 * 1024),
        Architecture("sm_87", 87, "+ptx80", 163 * 1024),
        Architecture("sm_89", 89, "+ptx84", 99 * 1024),
        Architecture("sm_90", 90, "+ptx81", 227 * 1024),
        Architecture("sm_90a", 90, "+ptx86", 227 * 1024),
    )
}


def architecture_of(target: Target) -> Architecture:
    """Returns the architecture of a resolved target. Raises TargetError for one that is not built for."""
    found = ARCHITECTURES.get(target.arch)
    if found is None:
        raise TargetError(
            f"target {target}: architecture {target.arch!r} is not supported",
            cure=f"use one of {', '.join('cuda:' + name for name in ARCHITECTURES)}, or cuda:native",
        )
    return found


def runnable(capability: tuple[int, int]) -> tuple[Architecture, ...]:
    """Returns the architectures whose code a GPU runs, the best first: its own, then older ones of its major version.

    (CUDA C Programming Guide, "Binary Compatibility"; architectures that end in `a` run on exactly that GPU.)
    """
    number = capability[0] * 10 + capability[1]
    fits = [
        row
        for row in ARCHITECTURES.values()
        if row.capability == number
        or (row.name[-1] != "a" and row.capability // 10 == capability[0] and row.capability < number)
    ]
    return tuple(sorted(fits, key=lambda row: (row.capability, row.name[-1] == "a"), reverse=True))
