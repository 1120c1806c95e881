"""kernelpack opt runs passes over text, shows what each makes and how long it takes, and refuses what it does not know by name."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest

from kernelpack.cli import main

COPY = """
tt.func public @copy(%p: !tt.ptr<f32>, %n: i32) {
  %zero = arith.constant 0 : i32
  %m = arith.addi %n, %zero : i32
  %i = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32>
  %ps = tt.splat %p : !tt.ptr<f32> -> tensor<64x!tt.ptr<f32>>
  %at = tt.addptr %ps, %i : tensor<64x!tt.ptr<f32>>, tensor<64xi32>
  %x = tt.load %at : tensor<64x!tt.ptr<f32>>
  tt.store %at, %x : tensor<64x!tt.ptr<f32>>
  tt.return
}
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "copy.ttir"
    path.write_text(COPY)
    return str(path)


def opt(*words: str) -> int:
    return main(["opt", *words])


def test_passes_run_in_the_order_given(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert opt(file, "--passes", "canonicalize") == 0
    assert "arith.addi" not in capsys.readouterr().out
    assert opt(file, "--passes", "cse") == 0
    assert "arith.addi" in capsys.readouterr().out


def test_its_output_is_its_input(file: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert opt(file, "--target", "cuda:sm_80", "--passes", "ttir,assign_layouts", "--option", "num_warps=2") == 0
    text = capsys.readouterr().out
    assert "#ttg.linear" in text
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    assert (
        opt("-", "--target", "cuda:sm_80", "--passes", "clean,remove_conversions,place_shared", "--option", "num_warps=2") == 0
    )
    assert '"ttg.num-warps" = 2' in capsys.readouterr().out


def test_all_pipelines_of_a_target_run_where_none_is_named(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert opt(file, "--target", "cuda:sm_90a") == 0
    assert 'ttg.target = "cuda:sm_90a"' in capsys.readouterr().out
    assert opt(file, "--target", "cpu:x86-64-v3") == 0
    assert "ttg" not in capsys.readouterr().out


def test_what_each_pass_is_given_and_makes_is_printed(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert opt(file, "--passes", "canonicalize,dce", "--print-before-all", "--print-after-all", "--time") == 0
    shown = capsys.readouterr().err
    assert re.findall(r"// (\w+ \w+)", shown) == ["before canonicalize", "after canonicalize", "before dce", "after dce"]
    given, made = shown.split("// ")[1:3]
    assert "arith.addi" in given
    assert "arith.addi" not in made
    assert re.findall(r"\d+\.\d{3} ms  (\w+)", shown) == ["canonicalize", "dce"]


def test_json_holds_module_and_times(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert opt(file, "--passes", "dce", "--json") == 0
    record = json.loads(capsys.readouterr().out)
    assert record["module"].startswith("module {")
    assert [name for name, _ in record["milliseconds"]] == ["dce"]


def test_the_list_says_what_passes_need(capsys: pytest.CaptureFixture[str]) -> None:
    assert opt("--list", "--target", "cuda:sm_90a", "--json") == 0
    known = json.loads(capsys.readouterr().out)
    assert list(known) == ["ttir", "ttgir"]
    assert known["ttgir"]["rewrite_roles"] == ["schedule", "rewrite_loops"]
    assert opt("--list", "--target", "cpu:x86-64-v3") == 0
    assert re.search(r"version_masks +after carry_scalars", capsys.readouterr().out)


@pytest.mark.parametrize("target", ["cpu:x86-64-v3", "cuda:sm_90a", "amdgpu:gfx942"])
def test_the_list_has_columns_as_wide_as_their_longest_name(capsys: pytest.CaptureFixture[str], target: str) -> None:
    assert opt("--list", "--target", target) == 0
    pipelines = re.split(r"^(?=\w)", capsys.readouterr().out, flags=re.MULTILINE)[1:]
    assert len(pipelines) > 1
    for rows in (pipeline.splitlines()[1:] for pipeline in pipelines):
        column = 4 + max(len(row.split()[0]) for row in rows)
        assert [row for row in rows if len(row.split()) > 1 and row[column - 2 :].find("after ") != 2] == []


def test_what_lacks_a_file_is_told_to_name_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert opt("--passes", "cse") == 1
    assert "no FILE is given\n  to fix: name a file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--passes", "canonicalise"], "there is no pass 'canonicalise'; did you mean 'canonicalize'?"),
        (["--passes", "assign_layouts", "--target", "cpu:x86-64-v3"], "there is no pass 'assign_layouts'"),
        (["--option", "num_warp=4"], "there is no option 'num_warp'; did you mean 'num_warps'?"),
        (["--option", "num_warps=many"], "--option num_warps=many: expected a number"),
        (["--option", "num_warps"], "--option num_warps: expected a number"),
        (["--target", "cuda:sm_80,cuda:sm_90a"], "passes run for one target at a time"),
    ],
)
def test_what_it_does_not_know_is_refused_by_name(
    file: str, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert opt(file, *words) == 1
    assert message in capsys.readouterr().err


SUMS = """
tt.func public @sums(%x: tensor<64x64xf32>) {
  %s = "tt.reduce"(%x) <{axis = 1 : i32}> ({
  ^bb0(%a: f32, %b: f32):
    %c = arith.addf %a, %b : f32
    tt.reduce.return %c : f32
  }) : (tensor<64x64xf32>) -> tensor<64xf32>
  tt.return
}
"""


def test_a_pass_that_lacks_what_others_make_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "sums.ttir"
    path.write_text(SUMS)
    assert opt(str(path), "--target", "cuda:sm_80", "--passes", "split_reductions") == 1
    shown = capsys.readouterr().err
    assert "pass split_reductions cannot take this module: TypeError: tensor<64x64xf32> has no layout" in shown
    assert "run those before it" in shown


def test_a_file_that_is_no_module_is_refused_with_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.ttir"
    path.write_text("tt.func public @x\n")
    assert opt(str(path)) == 1
    assert "x.ttir:2:1: expected '('" in capsys.readouterr().err
    assert opt(str(tmp_path / "none")) == 1
    assert "cannot be read" in capsys.readouterr().err
