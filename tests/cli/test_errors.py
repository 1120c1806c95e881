"""Whatever goes wrong, a person reads one block that says where and what to do; never a traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernelpack.cli import VERBS, main

BUILD = ["--namespace", "broken", "--target", "cpu:x86-64-v3"]


def errors(capsys: pytest.CaptureFixture[str], words: list[str]) -> str:
    """Runs a command that must fail, and returns what it says."""
    assert main(words) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err
    return captured.err


@pytest.mark.parametrize(
    ("target", "nearest", "cure"),
    [
        ("cdua:sm_90a", "cuda:sm_90a", "use one of amdgpu, cpu, cuda"),
        ("cuda:sm_90b", "cuda:sm_90", "use one of cuda:sm_80"),
        ("cpu:natve", "cpu:native", "use one of cpu:native"),
        ("cpu:x86-64-v5", "cpu:x86-64-v", "use one of cpu:native"),
        ("cpu:x86-64-v4+avx512bf61", "cpu:x86-64-v4+avx512bf16", "use one of cpu:native"),
        ("sm_80", "cuda:sm_80", "write for example"),
    ],
)
def test_unknown_target_names_the_nearest(
    capsys: pytest.CaptureFixture[str], source: Path, target: str, nearest: str, cure: str
) -> None:
    said = errors(capsys, ["build", str(source), "--namespace", "my", "--target", target])
    assert said.startswith("kernelpack build: error: ")
    assert f"did you mean '{nearest}" in said
    assert f"\n  to fix: {cure}" in said


def test_namespaces_of_torch_are_refused(capsys: pytest.CaptureFixture[str], source: Path) -> None:
    """An op there would hide torch's, or be hidden by what torch.ops has of that name."""
    for name in ("aten", "prim", "quantized", "higher_order", "load_library"):
        said = errors(capsys, ["build", str(source), "--namespace", name, "--target", "cpu:native"])
        assert f"torch.ops.{name} is torch's own\n  to fix: write --namespace" in said


def test_unknown_verb_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_code:
        main(["biuld"])
    assert exit_code.value.code == 2
    assert "there is no verb 'biuld'; did you mean 'build'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["build", "x.py"], ["build", "--namespace", "a"], ["build", "x.py", "--namespace", "a", "-j", "0"], []]
)
def test_wrong_usage_exits_with_2_and_shows_where_help_is(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    with pytest.raises(SystemExit) as exit_code:
        main([*words, "--target", "cpu:native"] if words else [])
    assert exit_code.value.code == 2
    assert "--help" in capsys.readouterr().err


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(capsys: pytest.CaptureFixture[str], verb: str) -> None:
    with pytest.raises(SystemExit) as exit_code:
        main([verb, "--help"])
    assert exit_code.value.code == 0
    assert "--json" in capsys.readouterr().out


def test_missing_source(capsys: pytest.CaptureFixture[str]) -> None:
    said = errors(capsys, ["build", "nowhere.py", *BUILD])
    assert "nowhere.py does not exist" in said
    assert "to fix: name a file with @kp.op functions" in said


def test_no_words_at_all_get_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([])
    said = capsys.readouterr().err
    assert all(verb in said for verb in VERBS)


def test_places_that_cannot_be_written(
    capsys: pytest.CaptureFixture[str], source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cache is done without, a library is not."""
    monkeypatch.setenv("KERNELPACK_CACHE_DIR", str(source / "cache"))
    said = errors(capsys, ["build", str(source), *BUILD, "--out", str(source)])
    assert said.startswith(f"kernelpack build: error: {source}")


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("x = 1\nimport no_such_module_anywhere\n", "broken.py:2: ", "No module named 'no_such_module_anywhere'"),
        ("x = 1\n\nvalue = x / 0\n", "broken.py:3: ", "ZeroDivisionError: division by zero\n    value = x / 0"),
        ("x = 1\nimport sys\nsys.exit(3)\n", "broken.py:3: ", "SystemExit: 3\n    sys.exit(3)"),
        ("def f(:\n    pass\n", "broken.py:1:7: ", "invalid syntax"),
        ("x = 1\n", "", "no ops in "),
    ],
)
def test_op_file_that_does_not_import_names_its_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, place: str, message: str
) -> None:
    file = tmp_path / "broken.py"
    file.write_text(text)
    said = errors(capsys, ["build", str(file), *BUILD])
    assert place in said
    assert message in said


def test_kernel_outside_the_language_shows_the_line_with_a_caret(capsys: pytest.CaptureFixture[str], source: Path) -> None:
    source.write_text(source.read_text().replace("tl.where(value > level, value, 0.0)", "tl.wear(value)"))
    said = errors(capsys, ["build", str(source), *BUILD])
    line = "    tl.store(out + offsets, tl.wear(value), mask=mask)"
    assert "my_ops.py:12:" in said
    assert said.splitlines()[1].strip().endswith(", at 5:28:")
    assert said.splitlines()[2] == f"    {line}"
    assert said.splitlines()[3].strip() == "^"


def test_json_errors_have_kind_place_and_cure(capsys: pytest.CaptureFixture[str], source: Path) -> None:
    source.write_text(source.read_text().replace("level) -> Tensor", "level) -> Tenser"))
    assert main(["build", str(source), *BUILD, "--json"]) == 1
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["kind"] == "SchemaError"
    assert error["location"]["file"] == str(source)
    assert error["location"]["line"] == 15
    assert "Tenser" in error["message"]


def test_a_pack_that_is_no_text_is_refused_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.kpack").write_bytes(b"\xff")
    assert main(["inspect", str(tmp_path / "x.kpack")]) == 1
    assert "x.kpack" in capsys.readouterr().err


def test_names_of_files_that_are_no_text_are_shown_escaped(tmp_path: Path) -> None:
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
    done = subprocess.run(
        [sys.executable, "-m", "kernelpack", "doctor", folder],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
    )
    assert b"Traceback" not in done.stderr
    assert b"\\udcff" in done.stdout + done.stderr
