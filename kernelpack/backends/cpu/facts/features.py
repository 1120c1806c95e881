"""Instruction-set levels: what each CPU target means to LLVM and to the tile loops, and which of them this machine runs."""

from __future__ import annotations

import ctypes
import functools
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kernelpack import knobs
from kernelpack.errors import OptionError, TargetError
from kernelpack.llvm.codegen import Machine
from kernelpack.target import Target

AHEAD = 8192
"""How many bytes ahead of a stream its memory is asked for: what a fast one reads while DRAM answers (measured: 6 to 32 KB alike, 2 KB as slow
as none where several vectors are read at a time)."""


@dataclass(frozen=True)
class Level:
    """One instruction-set level.

    `vector_bits` is the width of a register, `rows` x `vectors` is the block of accumulators that a matrix product holds in registers
    (docs/decisions.md says how it was chosen), `bf16_dot` says whether products take the instruction `vdpbf16ps` or ARM's `bfdot`, `tiles`
    whether they take AMX's tiles. `int8_pack` neighbours along k are multiplied and added at a time in products of int8: 4 by `vpdpbusd` of
    VNNI or ARM's `sdot`, 2 by `vpmaddwd`.
    """

    machine: Machine
    vector_bits: int
    rows: int
    vectors: int
    bf16_dot: bool
    tiles: bool = False
    int8_pack: int = 1

    @property
    def converts_bf16(self) -> bool:
        """Whether an instruction rounds to bfloat16."""
        return self.bf16_dot or self.tiles

    @property
    def is_arm(self) -> bool:
        """Whether it is one of ARM's, whose products of int8 take signed factors as they are. On x86 one factor is unsigned."""
        return self.machine.triple == _LINUX_ARM

    @property
    def intrinsics(self) -> frozenset[str]:
        """The instruction sets that lowering may use by intrinsic."""
        if self.is_arm:
            return frozenset({"neon", "sve2"} if "+sve2" in self.machine.features else {"neon"})
        return frozenset({"avx2", "avx512"} if self.vector_bits == 512 else {"avx2"})

    def lanes(self, bits: int) -> int:
        """Returns how many elements of `bits` bits a register holds."""
        return self.vector_bits // bits


_LINUX_X86, _LINUX_ARM = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"
_AMX = {"amx_tile", "amx_bf16", "amx_int8", "avx512_bf16", "avx512_vnni"}
"""What Linux calls the parts of the level with tiles, beyond x86-64-v4."""
_V3_VNNI, _V4_VNNI = Target("cpu", "x86-64-v3", ("avxvnni",)), Target("cpu", "x86-64-v4", ("avx512vnni",))
_V4_BF16, _TILED = Target("cpu", "x86-64-v4", ("avx512bf16",)), Target("cpu", "x86-64-v4", ("amx",))
_ARM_BF16, _SVE2 = Target("cpu", "aarch64", ("bf16",)), Target("cpu", "aarch64", ("sve2",))

_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18
"""Linux's arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) on x86-64."""

_HWCAP, _HWCAP2 = 16, 26
"""Which values of Linux's auxiliary vector name what an ARM CPU has."""
_ATOMICS, _DOTPROD = 1 << 8, 1 << 20
_SVE2_PRESENT, _I8MM, _BF16 = 1 << 1, 1 << 13, 1 << 14
"""Linux's HWCAP_ATOMICS, HWCAP_ASIMDDP; HWCAP2_SVE2, HWCAP2_I8MM, HWCAP2_BF16 (csrc/kernels/cpu.cpp asks for the same)."""

# 512-bit registers are preferred explicitly: LLVM's default for several CPUs is 256
_LEVELS: dict[tuple[str, tuple[str, ...]], Level] = {
    ("x86-64-v3", ()): Level(Machine(_LINUX_X86, "x86-64-v3"), 256, 4, 2, False, int8_pack=2),
    ("x86-64-v3", ("avxvnni",)): Level(Machine(_LINUX_X86, "x86-64-v3", "+avxvnni"), 256, 4, 2, False, int8_pack=4),
    ("x86-64-v4", ()): Level(Machine(_LINUX_X86, "x86-64-v4", "-prefer-256-bit"), 512, 6, 4, False, int8_pack=2),
    ("x86-64-v4", ("avx512vnni",)): Level(
        Machine(_LINUX_X86, "x86-64-v4", "+avx512vnni,-prefer-256-bit"), 512, 6, 4, False, int8_pack=4
    ),
    ("x86-64-v4", ("avx512bf16",)): Level(
        Machine(_LINUX_X86, "x86-64-v4", "+avx512bf16,+avx512vnni,-prefer-256-bit"), 512, 4, 4, True, int8_pack=4
    ),
    (_TILED.arch, _TILED.features): Level(
        Machine(_LINUX_X86, "x86-64-v4", "+amx-tile,+amx-bf16,+amx-int8,+avx512bf16,+avx512vnni,-prefer-256-bit"),
        512,
        6,
        4,
        False,
        True,
        4,
    ),
    ("aarch64", ()): Level(Machine(_LINUX_ARM, "generic", "+neon,+v8.2a"), 128, 4, 4, False),
    ("aarch64", ("bf16",)): Level(
        Machine(_LINUX_ARM, "generic", "+neon,+v8.2a,+bf16,+i8mm,+dotprod"), 128, 4, 4, True, int8_pack=4
    ),
    ("aarch64", ("sve2",)): Level(
        Machine(_LINUX_ARM, "generic", "+neon,+v8.5a,+sve2,+bf16,+i8mm,+dotprod"), 128, 4, 4, True, int8_pack=4
    ),
}

_GAINS: dict[Target, tuple[frozenset[str], Target]] = {
    _TILED: (frozenset({"tiles"}), _V4_BF16),
    _V4_BF16: (frozenset({"bf16"}), _V4_VNNI),
    _V4_VNNI: (frozenset({"int8"}), Target("cpu", "x86-64-v4")),
    _V3_VNNI: (frozenset({"int8"}), Target("cpu", "x86-64-v3")),
    _ARM_BF16: (frozenset({"bf16", "int8"}), Target("cpu", "aarch64")),
}
"""Which kernels gain from a level, by what they hold, and the level that the others are compiled for. All kernels gain from the rest."""


_BYTE_PRODUCT = re.compile(r"@llvm\.(x86\.avx512\.vpdpbusd|aarch64\.neon\.(smmla|(s|u|us)dot))\.")


def level_of(target: Target) -> Level:
    """Returns the level of a resolved target. Raises TargetError for one that does not exist."""
    level = _LEVELS.get((target.arch, target.features))
    if level is None:
        known = ", ".join(["cpu:native", *map(str, targets())])
        raise TargetError(f"{target} is not a CPU target", cure=f"use one of {known}")
    return level


def target_for(target: Target, *, bf16: bool, tiles: bool, int8: bool) -> Target:
    """Returns the target whose level a kernel is compiled for. Only kernels with products in tiles gain from AMX, only those that hold bfloat16 from
    its instructions, and only those with products of int8 from theirs: others have the code of a level without them, and a library holds
    it once."""
    level_of(target)
    holds = {name for name, held in (("bf16", bf16), ("tiles", tiles), ("int8", int8)) if held}
    while target in _GAINS and not _GAINS[target][0] & holds:
        target = _GAINS[target][1]
    return target


def level_of_llir(target: Target, llir: str) -> Level:
    """Returns the level whose instructions a kernel's LLVM IR is for."""
    int8 = _BYTE_PRODUCT.search(llir) is not None
    return level_of(target_for(target, bf16="bfloat" in llir, tiles="@llvm.x86.ldtilecfg" in llir, int8=int8))


def resolve(target: Target) -> Target:
    """Returns `target`, with `native` replaced by the best level that this machine has. Raises TargetError."""
    if target.arch != "native":
        level_of(target)
        return target
    if target.features:
        raise TargetError(f"{target}: native takes no features", cure="write cpu:native alone")
    return _native()


def targets() -> tuple[Target, ...]:
    """Returns the target of every level."""
    return tuple(Target("cpu", arch, features) for arch, features in _LEVELS)


def host() -> Mapping[str, str]:
    """Returns what Linux says of the first CPU of this machine, by name: `flags`, `vendor_id`, ..."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.is_file() else []
    rows = (line.partition(":") for line in reversed(lines))  # the first one counts
    return {name.strip(): value.strip() for name, _, value in rows}


def has_amx() -> bool:
    """Whether this machine's CPU has what the level with tiles takes."""
    return _AMX.issubset(host().get("flags", "").split())


@functools.cache
def tiles_granted() -> bool:
    """Whether Linux lets this process use AMX's tiles, which it has to be asked for once (csrc/kernels/cpu.cpp does the same)."""
    refused: int = ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA)
    return refused == 0


@functools.cache
def runnable() -> tuple[Target, ...]:
    """Returns the targets whose code this machine runs, the best first."""
    if _is_on_arm():
        return _runnable_on_arm()
    cpu = host()
    have = cpu.get("flags", "").split()
    found: list[Target] = []
    if {"avx2", "fma", "bmi2", "f16c"}.issubset(have):
        found.append(Target("cpu", "x86-64-v3"))
        if "avx_vnni" in have:
            found.insert(0, Target("cpu", "x86-64-v3", ("avxvnni",)))
    if found and {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}.issubset(have):
        found.insert(0, Target("cpu", "x86-64-v4"))
        if "avx512_vnni" in have:
            found.insert(0, Target("cpu", "x86-64-v4", ("avx512vnni",)))
        if {"avx512_vnni", "avx512_bf16"}.issubset(have):
            # dpbf16ps runs at full rate on AMD alone; on Intel it is slower than converting to fp32 (csrc/kernels/cpu.cpp agrees)
            pays = cpu.get("vendor_id") == "AuthenticAMD"
            found.insert(0 if pays else 1, Target("cpu", "x86-64-v4", ("avx512bf16",)))
        if has_amx() and tiles_granted():
            found.insert(0, _TILED)
    return tuple(found)


def _is_on_arm() -> bool:
    return platform.machine() in ("aarch64", "arm64")


def _runnable_on_arm() -> tuple[Target, ...]:
    """Returns what `runnable` does, by what Linux says of an ARM CPU."""
    basic, more = auxiliary(_HWCAP), auxiliary(_HWCAP2)
    if not basic & _ATOMICS:
        return ()
    found = [Target("cpu", "aarch64")]
    if basic & _DOTPROD and more & _I8MM and more & _BF16:
        found.insert(0, _ARM_BF16)
        if more & _SVE2_PRESENT:
            found.insert(0, _SVE2)
    return tuple(found)


def auxiliary(kind: int) -> int:
    """Returns a value of Linux's auxiliary vector, by which it tells a process what the CPU has."""
    getauxval = ctypes.CDLL(None).getauxval
    getauxval.argtypes, getauxval.restype = [ctypes.c_ulong], ctypes.c_ulong
    return int(getauxval(kind))


def native_target() -> Target:
    """Returns the target that this CPU runs best, or the one that KERNELPACK_CPU_TARGET asks for. Raises OptionError where this CPU does
    not run that."""
    forced = knobs.CPU_TARGET.get()
    levels = {str(target): target for target in runnable()}
    if forced and forced not in levels:
        refused = ": Linux does not let this process use the tiles of AMX" if forced == str(_TILED) and has_amx() else ""
        raise OptionError(
            f"{knobs.CPU_TARGET.name}={forced} is no target that this CPU runs{refused}",
            cure=f"set it to one of {', '.join(levels)}, or unset it",
        )
    return levels[forced] if forced else _native()


def _native() -> Target:
    if not runnable():
        missing = "is older than ARMv8.2" if _is_on_arm() else "has neither AVX2 nor AVX-512"
        raise TargetError(f"this machine's CPU {missing}", cure="build for another machine by naming its target")
    return runnable()[0]
