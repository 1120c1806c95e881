"""Instruction-set levels: their names, what this machine runs, and what is refused."""

from __future__ import annotations

from collections.abc import Set

import pytest

from kernelpack.backends.cpu.facts import features
from kernelpack.backends.cpu.facts.features import level_of, level_of_llir, resolve, target_for, targets
from kernelpack.errors import TargetError
from kernelpack.target import Target

AVX2 = {"avx2", "fma", "bmi2", "f16c"}
AVX512 = AVX2 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}


def runnable(monkeypatch: pytest.MonkeyPatch, have: Set[str], vendor: str = "", machine: str = "x86_64") -> list[str]:
    """What a machine with these features and this processor runs, the best first."""
    monkeypatch.setattr(features.platform, "machine", lambda: machine)
    monkeypatch.setattr(features, "host", lambda: {"flags": " ".join(sorted(have)), "vendor_id": vendor})
    features.runnable.cache_clear()
    try:
        return [str(target) for target in features.runnable()]
    finally:
        features.runnable.cache_clear()


V3, V4, BF16, AMX = "cpu:x86-64-v3", "cpu:x86-64-v4", "cpu:x86-64-v4+avx512bf16", "cpu:x86-64-v4+amx"
V3_VNNI, V4_VNNI = "cpu:x86-64-v3+avxvnni", "cpu:x86-64-v4+avx512vnni"


@pytest.mark.parametrize("missing", sorted(AVX2))
def test_a_machine_needs_all_of_a_level(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    assert runnable(monkeypatch, AVX2) == [V3]
    assert runnable(monkeypatch, AVX2 - {missing}) == []


def test_a_higher_level_comes_first_and_lower_ones_run_too(monkeypatch: pytest.MonkeyPatch) -> None:
    assert runnable(monkeypatch, AVX512) == [V4, V3]
    assert runnable(monkeypatch, AVX512 - {"avx512vl"}) == [V3]


def test_the_instruction_for_bfloat16_is_preferred_where_it_is_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    both = AVX512 | {"avx512_bf16", "avx512_vnni"}
    assert runnable(monkeypatch, both, "AuthenticAMD") == [BF16, V4_VNNI, V4, V3]
    assert runnable(monkeypatch, both, "GenuineIntel") == [V4_VNNI, BF16, V4, V3]
    assert runnable(monkeypatch, both - {"avx512_vnni"}, "AuthenticAMD") == [V4, V3]


def test_products_of_bytes_have_levels_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert runnable(monkeypatch, AVX2 | {"avx_vnni"}) == [V3_VNNI, V3]
    assert runnable(monkeypatch, AVX512 | {"avx512_vnni", "avx_vnni"}) == [V4_VNNI, V4, V3_VNNI, V3]


PARTS = AVX512 | {"avx512_bf16", "avx512_vnni", "amx_tile", "amx_bf16", "amx_int8"}


def test_tiles_are_preferred_where_linux_grants_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "tiles_granted", lambda: True)
    others = [V4_VNNI, BF16, V4, V3]
    assert runnable(monkeypatch, PARTS, "GenuineIntel") == [AMX, *others]
    assert runnable(monkeypatch, PARTS - {"amx_int8"}, "GenuineIntel") == others
    monkeypatch.setattr(features, "tiles_granted", lambda: False)
    assert runnable(monkeypatch, PARTS, "GenuineIntel") == others


def test_linux_is_asked_for_tiles_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, ...]] = []

    class Library:
        def __init__(self, name: str | None) -> None:
            assert name is None

        def syscall(self, *numbers: int) -> int:
            asked.append(numbers)
            return 0

    monkeypatch.setattr(features.ctypes, "CDLL", Library)
    features.tiles_granted.cache_clear()
    try:
        assert features.tiles_granted()
        assert features.tiles_granted()
        assert asked == [(158, 0x1023, 18)]  # arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)
    finally:
        features.tiles_granted.cache_clear()


ARM, ARM_BF16, SVE2 = "cpu:aarch64", "cpu:aarch64+bf16", "cpu:aarch64+sve2"
ATOMICS, DOT = 1 << 8, 1 << 20
HAS_SVE2, I8MM, HAS_BF16 = 1 << 1, 1 << 13, 1 << 14


@pytest.mark.parametrize(
    ("basic", "more", "levels"),
    [
        (0, 0, []),
        (ATOMICS, 0, [ARM]),
        (ATOMICS | DOT, I8MM | HAS_BF16, [ARM_BF16, ARM]),
        (ATOMICS | DOT, I8MM | HAS_BF16 | HAS_SVE2, [SVE2, ARM_BF16, ARM]),
        (ATOMICS | DOT, I8MM | HAS_SVE2, [ARM]),
        (ATOMICS, I8MM | HAS_BF16, [ARM]),
    ],
)
def test_arm_runs_what_linux_says_that_it_has(
    monkeypatch: pytest.MonkeyPatch, basic: int, more: int, levels: list[str]
) -> None:
    monkeypatch.setattr(features, "auxiliary", {16: basic, 26: more}.__getitem__)
    assert runnable(monkeypatch, set(), machine="aarch64") == levels


def test_an_arm_that_is_too_old_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "runnable", tuple)
    monkeypatch.setattr(features.platform, "machine", lambda: "aarch64")
    with pytest.raises(TargetError, match=r"older than ARMv8\.2"):
        resolve(Target.parse("cpu:native"))


@pytest.mark.parametrize(
    ("target", "text", "level"),
    [
        (ARM_BF16, "call <4 x i32> @llvm.aarch64.neon.usdot.v4i32.v16i8(", ARM_BF16),
        (ARM_BF16, "call <4 x i32> @llvm.aarch64.neon.smmla.v4i32.v16i8(", ARM_BF16),
        (ARM_BF16, "fptrunc <4 x float> %x to <4 x bfloat>", ARM_BF16),
        (ARM_BF16, "fadd <4 x float> %x, %y", ARM),
        (SVE2, "fadd <4 x float> %x, %y", SVE2),
        (V4_VNNI, "call <16 x i32> @llvm.x86.avx512.vpdpbusd.512(", V4_VNNI),
        (V4_VNNI, "fadd <16 x float> %x, %y", V4),
    ],
)
def test_llvm_ir_tells_its_level(target: str, text: str, level: str) -> None:
    assert level_of_llir(Target.parse(target), text) == level_of(Target.parse(level))


def test_native_is_the_best_level_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "runnable", lambda: (Target.parse(V4), Target.parse(V3)))
    assert str(resolve(Target.parse("cpu:native"))) == V4
    monkeypatch.setattr(features, "runnable", tuple)
    with pytest.raises(TargetError, match="neither AVX2 nor AVX-512"):
        resolve(Target.parse("cpu:native"))


def test_targets_that_do_not_exist_are_refused_with_those_that_do() -> None:
    with pytest.raises(TargetError, match="cpu:pentium is not a CPU target") as raised:
        resolve(Target.parse("cpu:pentium"))
    assert all(str(target) in str(raised.value) for target in targets())
    with pytest.raises(TargetError, match="native takes no features"):
        resolve(Target.parse("cpu:native+avx512bf16"))


@pytest.mark.parametrize(
    ("target", "lanes", "accumulators", "pairs"),
    [
        (V3, 8, 8, False),
        (V4, 16, 24, False),
        (BF16, 16, 16, True),
        ("cpu:aarch64", 4, 16, False),
        ("cpu:aarch64+bf16", 4, 16, True),
    ],
)
def test_accumulators_leave_registers_for_operands(target: str, lanes: int, accumulators: int, pairs: bool) -> None:
    """AVX2 has 16 registers, AVX-512 and NEON have 32."""
    level = level_of(resolve(Target.parse(target)))
    assert (level.lanes(32), level.rows * level.vectors, level.bf16_dot) == (lanes, accumulators, pairs)
    assert level.lanes(16) == 2 * lanes
    assert accumulators < (16 if target == V3 else 32)


@pytest.mark.parametrize(
    ("target", "holds", "level"),
    [
        (AMX, "tiles bf16", AMX),
        (AMX, "tiles int8", AMX),
        (AMX, "bf16", BF16),
        (AMX, "int8", V4_VNNI),
        (AMX, "", V4),
        (BF16, "bf16 int8", BF16),
        (BF16, "tiles int8", V4_VNNI),
        (BF16, "", V4),
        (V4_VNNI, "bf16 int8", V4_VNNI),
        (V4_VNNI, "tiles bf16", V4),
        (V4, "tiles bf16 int8", V4),
        (V3_VNNI, "int8", V3_VNNI),
        (V3_VNNI, "bf16", V3),
        (ARM_BF16, "bf16", ARM_BF16),
        (ARM_BF16, "int8", ARM_BF16),
        (ARM_BF16, "", ARM),
        (SVE2, "", SVE2),
    ],
)
def test_kernels_are_compiled_for_the_instructions_that_they_gain_from(target: str, holds: str, level: str) -> None:
    made = target_for(Target.parse(target), bf16="bf16" in holds, tiles="tiles" in holds, int8="int8" in holds)
    assert made == Target.parse(level)
