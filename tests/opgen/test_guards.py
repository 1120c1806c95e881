"""What a variant's code assumes stands in its pack, and the guard in C++ is made of that alone."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from kernelpack.compiled import Parameter
from kernelpack.facts import Fact
from kernelpack.kernel.signatures import ttir_type
from kernelpack.opgen.build import BuildPlan, library_plan, plan_library
from kernelpack.opgen.emit.cpp_library import op_file
from kernelpack.opgen.emit.perfect_hash import perfect_hash
from kernelpack.opgen.variants.plan import KernelVariant
from kernelpack.pack.format import KernelPack, parse_pack

OPS = """
import kernelpack as kp
import kernelpack.language as tl


@kp.jit
def copy(x, out, n, step, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at * step, mask=at < n), mask=at < n)


@kp.op("head(Tensor x) -> Tensor", variants={"x": [tl.float32]}, configs={"": kp.Config({"BLOCK": 16})},
       specialize=[kp.aligned("x", ones=("step",)), kp.aligned("x")])
def head(x):
    out = kp.empty_like(x)
    copy[(1,)](x, out, x.numel(), x.stride(-1))
    return out
"""


@pytest.fixture
def plan(tmp_path: Path) -> BuildPlan:
    (tmp_path / "head.py").write_text(OPS)
    return plan_library([tmp_path / "head.py"], namespace="some", targets=["cuda:sm_80"])


def pack_of(variant: KernelVariant) -> KernelPack:
    """Returns a pack as compiling the variant would make it, but for the image."""
    parameters = tuple(Parameter(name, ttir_type(kind)) for name, kind in variant.signature.items())
    return parse_pack(
        str(
            KernelPack(
                variant.ops, variant.name, variant.target, "cubin", variant.entry, parameters, {}, variant.options, variant.assumed,
                {}, {}, b"code",
            )
        )
    )  # fmt: skip


def guards(plan: BuildPlan, packs: dict[str, KernelPack]) -> tuple[list[str], str]:
    """Returns the conditions that the generated functor tests, and how it makes the launch's assumptions of them."""
    (op,) = library_plan(plan, packs).ops
    text = op_file(library_plan(plan, packs), op)
    found = re.findall(r"(?:const bool facts\d+ =|&&) (.*?);?  // (\w+): ", text)
    choice = re.search(r"call\.choose\(kLaunch0, point, (.*)\);", text)
    assert choice is not None
    return sorted(condition for condition, _ in found), choice[1]


def test_guards_are_made_of_what_packs_say(plan: BuildPlan) -> None:
    packs = {variant.entry: pack_of(variant) for variant in plan.variants}
    x, out, n, one = ("kp::address(x) % 16 == 0", "kp::address(out) % 16 == 0", "x.numel() % 16 == 0", "x.stride(-1) == 1")
    assert guards(plan, packs) == (sorted([x, out, n, one]), "kp::bits(facts0 && facts1, facts0, true)")
    assert {pack.variant: len(pack.facts) for pack in packs.values()} == {"copy.any": 0, "copy.aligned": 4, "copy.aligned2": 3}

    def changed(*facts: Fact) -> tuple[list[str], str]:
        return guards(
            plan, {entry: replace(p, facts=facts) if p.variant == "copy.aligned2" else p for entry, p in packs.items()}
        )

    assert changed() == (sorted([x, out, n, one]), "kp::bits(facts0, true)")  # no different from the one that assumes nothing
    assert changed(Fact("step", "tt.divisibility", 4)) == (
        sorted([x, out, n, one, "x.stride(-1) % 4 == 0"]),
        "kp::bits(facts0, facts1, true)",
    )
    assert "x.numel() % 8 == 0" in changed(Fact("n", "tt.divisibility", 8))[0]
    assert "kp::reach(x) >> (32 - 1) == 0" in changed(Fact("x", "tt.pointer_range", 32))[0]


def test_ranges_are_assumed_where_an_author_says_so(tmp_path: Path) -> None:
    (tmp_path / "head.py").write_text(OPS.replace('kp.aligned("x")]', 'kp.aligned("x", reach=32)]'))
    found = plan_library([tmp_path / "head.py"], namespace="some", targets=["cuda:sm_80", "cpu:x86-64-v3"]).variants
    ranges = {
        (variant.name, variant.target.backend): [str(f) for f in variant.facts if "range" in f.property] for variant in found
    }
    assert ranges == {
        ("copy.any", "cuda"): [],
        ("copy.aligned", "cuda"): [],
        ("copy.aligned2", "cuda"): ["out:tt.pointer_range=32", "x:tt.pointer_range=32"],
        ("copy.any", "cpu"): [],
        ("copy.aligned", "cpu"): [],  # where a stride of 1 is a constant
    }


@pytest.mark.parametrize(
    "values", [[7], [0, 1], [16, 64], [0, 1024, 4096, 8192, 32768], list(range(-3, 400)), [1 << i for i in range(63)]]
)
def test_every_listed_value_has_its_place_and_no_other(values: list[int]) -> None:
    found = perfect_hash(values)
    assert [found.place(value) for value in values] == list(range(len(values)))
    for other in set(range(-10, 500)) - set(values):
        assert values[found.place(other)] != other


def test_a_tensor_of_two_is_aligned_where_both_are(tmp_path: Path) -> None:
    (tmp_path / "either.py").write_text(
        OPS.replace("head(Tensor x)", "either(Tensor x, Tensor y)")
        .replace("def head(x)", "def either(x, y)")
        .replace("copy[(1,)](x,", "copy[(1,)](x if x.numel() > y.numel() else y,")
        .replace('"x": [tl.float32]', '"x": [tl.float32], "y": [tl.float32]')
        .replace('kp.aligned("x", ones=("step",)), kp.aligned("x")', 'kp.aligned("x", "y"), kp.aligned("x")')
    )
    plan = plan_library([tmp_path / "either.py"], namespace="some", targets=["cuda:sm_80"])
    assumed = {variant.name: {fact.parameter for fact in variant.assumed} for variant in plan.variants}
    assert "x" in assumed["copy.aligned"]
    assert "x" not in assumed["copy.aligned2"]
