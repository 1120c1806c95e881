"""kernelpack coverage says which calls no variant covers, which variants no call reaches, and which fit the same calls."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import kernelpack.opgen.build
from kernelpack.cli import main
from kernelpack.facts import DIVISIBLE_BY, EQUAL_TO, Fact
from kernelpack.opgen.build import build, plan_library
from kernelpack.opgen.variants.coverage import LaunchCoverage, coverage
from kernelpack.opgen.variants.dispatch import implies, is_contradiction, ordered

OPS = """
import kernelpack as kp
import kernelpack.language as tl


@kp.jit
def copy(x, bias, out, n, step, BLOCK: tl.constexpr, FLIP: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at * step, mask=at < n), mask=at < n)


def config(point):
    declined = DECLINED
    return None if declined else kp.Config({})


@kp.op(
    "head(Tensor x, Tensor? bias=None, bool flip=False) -> Tensor",
    variants={"x": [tl.float32, tl.float16], "bias": [None, kp.same_as("x")], "BLOCK": [32, 64, 128], "FLIP": [False, True]},
    configs={"": config},
    specialize=[SPECIALIZE],
)
def head(x, bias, flip):
    kp.check(not flip or bias is None, "flipped heads have no bias")
    n = x.shape[-1]
    out = kp.empty_like(x)
    copy[(1,)](x, bias, out, n, x.stride(0), BLOCK=max(kp.next_power_of_2(n), 64) if x.is_cuda else 64, FLIP=flip)
    return out
"""


def covered(folder: Path, declined: str = "False", specialize: str = "") -> dict[str, LaunchCoverage]:
    """Returns the coverage of the op above for both targets."""
    file = folder / "head.py"
    file.write_text(OPS.replace("DECLINED", declined).replace("SPECIALIZE", specialize))
    plan = plan_library([file], namespace="some", targets=["cpu:x86-64-v3", "cuda:sm_80"])
    (op,) = plan.op_plans
    return {one.target.backend: one for one in coverage(op, plan.targets)}


def test_what_a_host_function_never_asks_for_is_not_a_hole(tmp_path: Path) -> None:
    found = covered(tmp_path, 'point["BLOCK"] == 32')
    assert {name: (one.points, one.reached, one.uncovered) for name, one in found.items()} == {
        "cpu": (24, 6, ()),  # block 64 alone; a bias never with FLIP
        "cuda": (24, 12, ()),  # blocks of 64 and 128
    }


def test_constexprs_are_followed_through_branches(tmp_path: Path) -> None:
    chosen = """    block = 32 if n <= 32 else 128
    if x.is_cuda and x.element_size() == 2:
        block = 64
    copy[(1,)]"""
    text = OPS.replace("    copy[(1,)]", chosen).replace(
        "BLOCK=max(kp.next_power_of_2(n), 64) if x.is_cuda else 64", "BLOCK=block"
    )
    (tmp_path / "head.py").write_text(text.replace("DECLINED", "False").replace("SPECIALIZE", ""))
    plan = plan_library([tmp_path / "head.py"], namespace="some", targets=["cpu:x86-64-v3", "cuda:sm_80"])
    cpu, cuda = coverage(plan.op_plans[0], plan.targets)
    assert cpu.reached == 2 * 2 * 3  # dtypes, blocks of 32 and 128, and no bias with FLIP
    assert cuda.reached == 2 * 3 + 1 * 3  # float16 has blocks of 64 alone, float32 never
    reached = {variant.name for variant in plan.variants if variant.target.backend == "cuda"} - {*cuda.unreachable}
    assert all(("f16" in name) == ("BLOCK64" in name) for name in reached)


def test_a_region_that_configs_decline_is_a_hole(tmp_path: Path) -> None:
    found = covered(tmp_path, 'point.kernel == "copy" and point["BLOCK"] == 64 and point["x"].name == "fp16"')
    assert found["cuda"].uncovered == (
        {"dtype of x": ("float16",), "dtype of bias": ("None",), "BLOCK": ("64",)},
        {"dtype of x": ("float16",), "dtype of bias": ("that of x",), "BLOCK": ("64",), "FLIP": ("False",)},
    )


def test_variants_for_values_that_no_call_has_are_unreachable(tmp_path: Path) -> None:
    found = covered(tmp_path)["cpu"]
    assert set(found.unreachable.values()) == {"no call has these dtypes and constexprs"}
    assert {name for name in found.unreachable if "BLOCK64" in name} == {
        "copy-f32-f32-BLOCK64-FLIP1.any",
        "copy-f16-f16-BLOCK64-FLIP1.any",
    }


def test_specialised_variants_that_cross_overlap(tmp_path: Path) -> None:
    crossing = covered(tmp_path, specialize='kp.aligned("x", inner=0), kp.aligned("x", pointer=0)')
    pairs = {(pair.first.rpartition(".")[2], pair.second.rpartition(".")[2]) for pair in crossing["cuda"].overlapping}
    assert pairs == {("aligned", "aligned2")}
    nested = covered(tmp_path, specialize='kp.aligned("x"), kp.aligned("x", pointer=0)')
    assert nested["cuda"].overlapping == ()


def test_the_stronger_assumption_is_asked_first() -> None:
    tests = {"equal_to": EQUAL_TO, "tt.divisibility": DIVISIBLE_BY}
    by_16, by_8, one = (Fact("n", "tt.divisibility", 16),), (Fact("n", "tt.divisibility", 8),), (Fact("n", "equal_to", 1),)
    both = (Fact("m", "tt.divisibility", 16), *by_8)
    assert ordered([(), by_8, by_16, both], tests).index(by_16) < ordered([(), by_8, by_16, both], tests).index(by_8)
    assert ordered([(), by_8, by_16, both], tests)[-1] == ()
    assert implies(by_16, by_8, tests)
    assert not implies(by_8, by_16, tests)
    assert implies((Fact("n", "equal_to", 32),), by_16, tests)
    assert is_contradiction((*one, *by_16), tests)
    assert not is_contradiction((*one, Fact("m", "tt.divisibility", 16)), tests)


def test_a_build_warns_of_holes_and_the_verb_lists_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    covered(tmp_path, 'point["FLIP"] or point["BLOCK"] != 64')
    monkeypatch.setattr(kernelpack.opgen.build, "_link", lambda built, *_: built.library.touch())  # nothing of it is run
    built = build([tmp_path / "head.py"], namespace="some", targets=["cpu:x86-64-v3"], out=tmp_path / "some", jobs=2)
    assert built.warnings == (
        "head: no variant of copy (line 27) covers dtype of bias None; BLOCK 64; FLIP True on cpu:x86-64-v3",
    )
    emitting = ["build", str(tmp_path / "head.py"), "--namespace", "some", "--target", "cpu:x86-64-v3"]
    assert main([*emitting, "--emit-source", str(tmp_path / "source"), "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["warnings"] == list(built.warnings)
    assert said.err == f"kernelpack build: warning: {built.warnings[0]}\n"
    arguments = ["coverage", str(tmp_path / "head.py"), "--target", "cpu:x86-64-v3"]
    assert main([*arguments, "--json"]) == 0
    (record,) = json.loads(capsys.readouterr().out)
    assert record["uncovered"] == [{"dtype of bias": ["None"], "BLOCK": ["64"], "FLIP": ["True"]}]
    assert record["unreachable"] == []
    assert main(arguments) == 0
    text = capsys.readouterr().out
    assert "copy on cpu:x86-64-v3: dtype of bias None; BLOCK 64; FLIP True" in text
    assert "\x1b" not in text
    assert main([*arguments, "--op", "haed"]) == 1
    assert "there is no op 'haed'; did you mean 'head'?" in capsys.readouterr().err
