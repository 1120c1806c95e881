"""The GPU architectures that code is generated for, and the features of each: one table, for Python and C++."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from kernelpack.errors import TargetError
from kernelpack.target import Target

LANES = 32
"""The threads of a warp, on every architecture (CUDA C Programming Guide, "Technical Specifications")."""
MAX_THREADS = 1024
"""The threads that a block may have, on every architecture."""
PTX_FEATURE = "ptx"
"""`cuda:sm_80+ptx`: the image is PTX of a low ISA version, which drivers compile for sm_80 and everything newer."""


class Feature(enum.Enum):
    """What an architecture can do that others cannot."""

    BF16_ATOMICS = "the hardware adds to a bfloat16 in memory (PTX ISA, atom: sm_90)"
    CLUSTERS = "blocks run in clusters (PTX ISA, .reqnctapercluster: sm_90)"
    DEPENDENT_LAUNCH = "a launch begins before the one before it has ended (PTX ISA, griddepcontrol: sm_90)"
    FP8_CONVERSIONS = "the hardware converts 8-bit floats (PTX ISA, cvt: sm_89, from version 8.1 on)"
    FP8_MMA = "mma.sync multiplies 8-bit floats as they are (PTX ISA, mma: sm_89, from version 8.4 on); Hopper's wgmma does"
    STMATRIX = "a warp writes 8 x 8 matrices to shared memory at a time (PTX ISA, stmatrix: sm_90)"
    TMA = "blocks of tensors are copied by TMA; its code generation is for the architecture that has wgmma too"
    VECTOR_ATOMICS = "one instruction adds to up to 16 bytes of floats in memory (PTX ISA, atom: sm_90, from version 8.1 on)"
    WGMMA = "warpgroups multiply tiles of shared memory (PTX ISA, wgmma: sm_90a alone)"


@dataclass(frozen=True)
class Features:
    """One GPU architecture.

    `number` is its compute capability, 90 for 9.0. `ptx` pins the PTX ISA version that LLVM emits, 80 for 8.0: the lowest that knows
    the architecture's instructions, so that older drivers accept it. `shared_bytes` is what one block may use (CUDA C Programming
    Guide, "Technical Specifications per Compute Capability").
    """

    name: str
    number: int
    ptx: int
    shared_bytes: int
    has: frozenset[Feature]

    @property
    def is_alone(self) -> bool:
        """Whether its code runs on that architecture alone, and on no newer one (PTX ISA, .target: names that end in `a`)."""
        return self.name.endswith("a")

    @property
    def driver(self) -> int:
        """The version of CUDA whose driver compiles its PTX, 12040 for CUDA 12.4 (PTX ISA, "Release Notes")."""
        return {80: 12000, 81: 12010, 84: 12040, 86: 12070}[self.ptx]


_ADA = frozenset({Feature.FP8_CONVERSIONS})
_HOPPER = _ADA | {
    Feature.BF16_ATOMICS,
    Feature.CLUSTERS,
    Feature.DEPENDENT_LAUNCH,
    Feature.STMATRIX,
    Feature.VECTOR_ATOMICS,
}
ARCHITECTURES = {
    row.name: row
    for row in (
        Features("sm_80", 80, 80, 163 * 1024, frozenset()),
        Features("sm_86", 86, 80, 99 * 1024, frozenset()),
        Features("sm_87", 87, 80, 163 * 1024, frozenset()),
        Features("sm_89", 89, 84, 99 * 1024, _ADA | {Feature.FP8_MMA}),
        Features("sm_90", 90, 81, 227 * 1024, _HOPPER),
        Features("sm_90a", 90, 86, 227 * 1024, _HOPPER | {Feature.TMA, Feature.WGMMA}),
    )
}


def features_of(target: Target) -> Features:
    """Returns what a resolved target can do. Raises TargetError for one that is not built for."""
    found = ARCHITECTURES.get(target.arch)
    if found is None:
        raise TargetError(
            f"target {target}: architecture {target.arch!r} is not supported",
            cure=f"use one of {', '.join('cuda:' + name for name in ARCHITECTURES)}, or cuda:native",
        )
    return found


def having(feature: Feature) -> list[str]:
    """Returns the names of the architectures that have a feature."""
    return [row.name for row in ARCHITECTURES.values() if feature in row.has]


def runnable(capability: tuple[int, int]) -> tuple[Features, ...]:
    """Returns the architectures whose code a GPU runs, the best first: its own, then older ones of its major version.

    (CUDA C Programming Guide, "Binary Compatibility"; architectures that end in `a` run on exactly that GPU.)
    """
    number = capability[0] * 10 + capability[1]
    fits = [
        row
        for row in ARCHITECTURES.values()
        if row.number == number or (not row.is_alone and row.number // 10 == capability[0] and row.number < number)
    ]
    return tuple(sorted(fits, key=lambda row: (row.number, row.is_alone), reverse=True))


def cpp_header() -> str:
    """Returns csrc/kernels/cuda_features.h: what launchers ask of the table."""
    rows = ", ".join(f"{{{row.number}, {row.driver}}}" for row in ARCHITECTURES.values() if not row.is_alone)
    return f"""\
// The architectures whose PTX is packed: written by `make docs` from backends/cuda/machine/features.py.
#pragma once

namespace kernelpack::cuda {{

// A compute capability, 90 for 9.0, and the version of CUDA whose driver compiles the PTX for it, 12040 for CUDA 12.4.
struct Features {{
  int architecture;
  int ptx_driver;
}};

constexpr Features kFeatures[] = {{{rows}}};

}}  // namespace kernelpack::cuda
"""
