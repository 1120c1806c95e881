"""The machine operations that kernels use, as intrinsics and as PTX, and what the emulator calls for each: one table a form.

A row's plan says which function of csrc/simt does it and what it is given: numbers pick arguments, a `Constant` is itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from kernelpack.errors import UnsupportedError
from kernelpack.simt.ptx import Atom, Instruction, Operand


@dataclass(frozen=True)
class Constant:
    value: int


@dataclass(frozen=True)
class CallPlan:
    """A call of `simt_<function>`. `inputs` None: every argument, then `constants`."""

    function: str
    inputs: tuple[int | Constant, ...] | None = None
    constants: tuple[int, ...] = ()


SHUFFLES = {"bfly": 0, "up": 1, "down": 2, "idx": 3}
VOTES = {"any": 0, "all": 1, "uni": 2, "ballot": 3}
FORMATS = {"bf16": 0, "f16": 1, "tf32": 2, "s8": 3, "e4m3": 4, "e5m2": 5}
AXES = {"x": 0, "y": 1, "z": 2}

Match = re.Match[str]


def _plan(function: str, *constants: int) -> Callable[[Match], CallPlan]:
    return lambda match: CallPlan(function, None, constants)


def _picked(function: str, *inputs: int | Constant) -> Callable[[Match], CallPlan]:
    return lambda match: CallPlan(function, inputs)


def _mma(match: Match) -> CallPlan:
    k, integer, kind = int(match[1]), 2 if match[2] else 1, match[3]
    if kind == "f16.f16":
        return CallPlan("mma8", None, (k, FORMATS["f16"], 0, 1))
    format_ = {"f32.f32": "f16", "f32.e4m3.e4m3.f32": "e4m3", "f32.e5m2.e5m2.f32": "e5m2"}.get(kind, kind)
    return CallPlan("mma10", None, (k, FORMATS[format_], integer if format_ == "s8" else 0, 0))


def _copy(match: Match) -> CallPlan:
    size = int(match[1])
    return CallPlan("cp_async", (0, 1, 2 if match[2] else Constant(size), Constant(size)))


INTRINSICS: list[tuple[str, Callable[[Match], CallPlan]]] = [
    # ---- where a thread is
    (r"read\.ptx\.sreg\.tid\.x", _plan("tid_x")),
    (r"read\.ptx\.sreg\.ctaid\.([xyz])", lambda match: CallPlan("ctaid", None, (AXES[match[1]],))),
    (r"read\.ptx\.sreg\.nctaid\.([xyz])", lambda match: CallPlan("nctaid", None, (AXES[match[1]],))),
    # ---- a warp
    (r"shfl\.sync\.(bfly|up|down|idx)\.i32", lambda match: CallPlan("shuffle", None, (SHUFFLES[match[1]],))),
    (r"bar\.warp\.sync", _plan("bar_warp")),
    (
        r"ldmatrix\.sync\.aligned\.m8n8\.x([124])(\.trans)?\.b16\.p3",
        lambda m: CallPlan("ldmatrix", None, (int(m[1]), int(bool(m[2])))),
    ),
    (
        r"stmatrix\.sync\.aligned\.m8n8\.x([124])(\.trans)?\.b16\.p3",
        lambda m: CallPlan(f"stmatrix{m[1]}", None, (int(m[1]), int(bool(m[2])))),
    ),
    (
        r"mma\.m16n8k(\d+)\.row\.col\.(satfinite\.)?(bf16|f32\.f32|f32\.e4m3\.e4m3\.f32|f32\.e5m2\.e5m2\.f32|f16\.f16|tf32|s8)",
        _mma,
    ),
    # ---- barriers
    (r"barrier\.cta\.sync\.aligned\.all", _picked("bar_sync", 0, Constant(0))),
    (r"barrier\.cta\.sync\.aligned\.count", _picked("bar_sync", 0, 1)),
    (r"barrier\.cta\.arrive\.aligned\.count", _picked("bar_arrive", 0, 1)),
    # ---- asynchronous copies
    (r"cp\.async\.c[ag]\.shared\.global\.(4|8|16)(\.s)?", _copy),
    (r"cp\.async\.commit\.group", _plan("cp_commit")),
    (r"cp\.async\.wait\.group", _plan("cp_wait")),
    # ---- warpgroups
    (r"setmaxnreg\..*", _plan("nothing")),
    # ---- numbers
    (r"(ex2|rcp|rsqrt)\.approx(\.ftz)?\.f", lambda m: CallPlan(m[1], None, (int(bool(m[2])),))),
    (r"div\.full", _plan("divide", 0)),
    (r"f2bf16\.rz", _plan("bfloat_rz")),
    (r"d2f\.rz", _plan("float_rz")),
    (r"ff\.to\.(e4m3|e5m2)x2\.rn", lambda match: CallPlan("narrow_pair", None, (FORMATS[match[1]],))),
    (r"(e4m3|e5m2)x2\.to\.f16x2\.rn", lambda match: CallPlan("widen_pair", None, (FORMATS[match[1]],))),
]
"""What the CUDA backend's lowerings call."""


def intrinsic(name: str) -> CallPlan:
    """Returns what does the intrinsic `llvm.nvvm.<name>`. Raises UnsupportedError where nothing does."""
    for pattern, plan in INTRINSICS:
        if match := re.fullmatch(pattern, name):
            return plan(match)
    raise UnsupportedError(f"the emulator does not know the machine operation llvm.nvvm.{name}", cure=_CURE)


_CURE = "add a row to kernelpack/simt/machine.py"


# ---- PTX ----


@dataclass(frozen=True)
class AssemblyPlan:
    """A call of `simt_<function>` with atoms of the template; `_` among the outputs is dropped."""

    function: str
    inputs: Sequence[Atom]
    outputs: Sequence[Atom] = ()


Form = Callable[[Match, Instruction], AssemblyPlan]


def _atoms(operands: Iterable[Operand]) -> list[Atom]:
    return [atom for operand in operands for atom in operand.atoms]


def _effect(function: str, *constants: int) -> Form:
    return lambda match, at: AssemblyPlan(function, [*_atoms(at.operands), *constants])


def _value(function: str, *constants: int) -> Form:
    return lambda match, at: AssemblyPlan(function, [*_atoms(at.sources), *constants], at.target.atoms)


def _arrive(match: Match, at: Instruction) -> AssemblyPlan:
    """`mbarrier.arrive{.expect_tx} state, [address]{, count or bytes};`"""
    state, place, *more = at.operands
    rest = _atoms(more)
    if match[1]:
        return AssemblyPlan("mbarrier_arrive", [place.atom, 1, rest[0]], state.atoms)
    return AssemblyPlan("mbarrier_arrive", [place.atom, rest[0] if rest else 1, 0], state.atoms)


def _tensor_load(match: Match, at: Instruction) -> AssemblyPlan:
    target, source, barrier, *_ = at.operands
    return AssemblyPlan(f"tma_load{match[1]}", [target.atom, source.atoms[0], barrier.atom, *source.atoms[1:]])


def _tensor_store(match: Match, at: Instruction) -> AssemblyPlan:
    target, source, *_ = at.operands
    return AssemblyPlan(f"tma_store{match[1]}", [target.atoms[0], source.atom, *target.atoms[1:]])


FIELDS = (
    "global_address", "rank", "global_dim", "box_dim", "element_stride", "global_stride", "elemtype", "interleave_layout",
    "swizzle_mode", "fill_mode",
)  # fmt: skip
"""Of tensor maps; their numbers are those of csrc/simt/tensor_map.cpp."""


def _replace(match: Match, at: Instruction) -> AssemblyPlan:
    """`tensormap.replace.tile.global_dim... [address], axis, value;`, without an axis for fields that there are once."""
    address, *axis, value = at.operands
    return AssemblyPlan("tensormap_replace", [address.atom, FIELDS.index(match[1]), axis[0].atom if axis else 0, value.atom])


def _wgmma(match: Match, at: Instruction) -> AssemblyPlan:
    """`d, a, b, scale-d {, scale-a, scale-b {, transpose-a}{, transpose-b}}`; a is a descriptor or four registers."""
    n, k, kind, a_format, b_format = int(match[1]), int(match[2]), match[3], match[4], match[5]
    d, a, b, scale_d, *more = at.operands
    rest = _atoms(more)
    in_registers = len(a.atoms) == 4
    scales: list[Atom] = [1, 1] if kind == "s32" else rest[:2]
    transposes = rest[len(rest) if kind == "s32" else 2 :]
    trans_a: Atom = 0 if in_registers or not transposes else transposes[0]
    trans_b: Atom = transposes[-1] if transposes else 0
    shape = [n, k, FORMATS[a_format], FORMATS[b_format], {"f32": 0, "f16": 1, "s32": 2}[kind], int(in_registers)]
    return AssemblyPlan("wgmma", [*shape, trans_a, trans_b, *scales, scale_d.atom, b.atom, *a.atoms, *d.atoms], d.atoms)


def _nothing(match: Match, at: Instruction) -> AssemblyPlan:
    return AssemblyPlan("nothing", [])


def _wait(match: Match, at: Instruction) -> AssemblyPlan:
    """`mbarrier.try_wait.parity done, [address], parity{, nanoseconds};`"""
    return AssemblyPlan("mbarrier_wait", _atoms(at.sources)[:2], at.target.atoms)


def _shuffle(match: Match, at: Instruction) -> AssemblyPlan:
    """`shfl.sync.bfly.b32 d, a, lane, clamp, mask;`"""
    *given, mask = at.sources
    return AssemblyPlan("shuffle", [mask.atom, *_atoms(given), SHUFFLES[match[1]]], at.target.atoms)


def _vote(match: Match, at: Instruction) -> AssemblyPlan:
    """`vote.sync.any.pred d, p, mask;`"""
    predicate, mask = at.sources
    return AssemblyPlan("vote", [mask.atom, predicate.atom, VOTES[match[1]]], at.target.atoms)


def _elect(match: Match, at: Instruction) -> AssemblyPlan:
    """`elect.sync lane|p, mask;`"""
    target, mask = at.operands
    return AssemblyPlan("elect", [mask.atom], target.atoms)


def _approximate(match: Match, at: Instruction) -> AssemblyPlan:
    """The function's name, and whether subnormal numbers count as zero."""
    return AssemblyPlan(match[1], [*_atoms(at.sources), int(bool(match[2]))], at.target.atoms)


def _divide(match: Match, at: Instruction) -> AssemblyPlan:
    return AssemblyPlan("divide", [*_atoms(at.sources), int(bool(match[1]))], at.target.atoms)


def _product(match: Match, at: Instruction) -> AssemblyPlan:
    """`mul.hi.s32 d, a, b;`, `mul.wide.u16 d, a, b;`: the operands, their bits, whether signed, whether all of it is wanted."""
    constants = [int(match[3]), int(match[2] == "s"), int(match[1] == "wide")]
    return AssemblyPlan("product", [*_atoms(at.sources), *constants], at.target.atoms)


ASSEMBLY: list[tuple[str, Form]] = [
    # ---- a warp
    (r"shfl\.sync\.(bfly|up|down|idx)\.b32", _shuffle),
    (r"vote\.sync\.(any|all|uni|ballot)\.(?:pred|b32)", _vote),
    (r"elect\.sync", _elect),
    # ---- barriers and fences
    (r"fence\.proxy\.async\.shared::cta|fence\.mbarrier_init\.release\.cluster", _effect("fence_proxy")),
    (r"mbarrier\.init\.shared::cta\.b64", _effect("mbarrier_init")),
    (r"mbarrier\.inval\.shared::cta\.b64", _effect("mbarrier_inval")),
    (r"mbarrier\.arrive(\.expect_tx)?\.shared::cta\.b64", _arrive),
    (r"mbarrier\.try_wait\.parity\.shared::cta\.b64", _wait),
    # ---- asynchronous copies
    (r"cp\.async\.bulk\.tensor\.([1-5])d\.shared::cluster\.global\.mbarrier::complete_tx::bytes", _tensor_load),
    (r"cp\.async\.bulk\.tensor\.([1-5])d\.global\.shared::cta\.bulk_group", _tensor_store),
    (r"cp\.async\.bulk\.commit_group", _effect("bulk_commit")),
    (r"cp\.async\.bulk\.wait_group\.read", _effect("bulk_wait")),
    # ---- tensor maps that the kernel makes
    (rf"tensormap\.replace\.tile\.({'|'.join(FIELDS)})\.shared::cta\.b1024\.b(?:32|64)", _replace),
    (
        r"tensormap\.cp_fenceproxy\.global\.shared::cta\.tensormap::generic\.release\.gpu\.sync\.aligned",
        _effect("tensormap_publish"),
    ),
    (r"fence\.proxy\.tensormap::generic\.acquire\.gpu", _effect("tensormap_acquire")),
    # ---- warpgroups
    (r"wgmma\.fence\.sync\.aligned", _effect("wgmma_fence")),
    (r"wgmma\.commit_group\.sync\.aligned", _effect("wgmma_commit")),
    (r"wgmma\.wait_group\.sync\.aligned", _effect("wgmma_wait")),
    (r"wgmma\.mma_async\.sync\.aligned\.m64n(\d+)k(\d+)\.(f32|f16|s32)\.(\w+)\.(\w+)", _wgmma),
    (r"prefetch\..*|griddepcontrol\..*", _nothing),
    # ---- numbers
    (r"cvt\.rna\.tf32\.f32", _value("tf32_rna")),
    (r"cvt\.rz\.f16\.f32", _value("half_rz")),
    (r"cvt\.rz\.bf16\.f32", _value("bfloat_rz")),
    (r"cvt\.rn\.bf16x2\.f32", _value("bfloat_pair")),
    (r"cvt\.rn\.f16x2\.f32", _value("half_pair")),
    (r"(ex2|lg2|rcp|rsqrt|sin|cos|tanh)\.approx(\.ftz)?\.f32", _approximate),
    (r"div\.(?:approx|full)(\.ftz)?\.f32", _divide),
    (r"mul\.(hi|wide)\.([us])(16|32|64)", _product),
    (r"lop3\.b32", _value("lop3")),
    (r"prmt\.b32", _value("prmt")),
]
"""What the lowerings write, and what the authors of kernels may: warps and numbers."""


def assembly(instruction: Instruction) -> AssemblyPlan:
    """Returns what does an instruction of inline assembly. Raises UnsupportedError where nothing does."""
    for pattern, form in ASSEMBLY:
        if match := re.fullmatch(pattern, instruction.opcode):
            return form(match, instruction)
    raise UnsupportedError(f"the emulator does not know the machine operation {instruction.opcode}", cure=_CURE)
