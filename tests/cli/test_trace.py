"""kernelpack trace: a recorded run is counted by variant, compared with a library, and what was refused is kept."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kernelpack.cli import main

MODEL = """
import os, sys, threading, torch
torch.ops.load_library(sys.argv[1])
threshold = torch.ops.clitest.threshold

def model(times):
    for _ in range(times):
        threshold(torch.ones(8, 128), 0.5)

threads = [threading.Thread(target=model, args=(10,)) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
for _ in range(7):
    threshold(torch.ones(3, dtype=torch.float16), 0.5)
threshold(torch.ones(0), 0.5)
for x in (torch.ones(3, dtype=torch.float64), torch.ones(2, 3).t()):
    try:
        threshold(x, 0.5)
    except RuntimeError:
        pass
if os.fork() == 0:
    threshold(torch.ones(5), 0.5)
    sys.exit()
os.wait()
"""


@pytest.fixture(scope="module")
def trace(built: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a process recorded of its calls: 40 of one shape in 4 threads, 7 of another dtype, an empty one, which needs no variant, refused and forked ones."""
    file = tmp_path_factory.mktemp("trace") / "model.trace"
    command = [sys.executable, "-c", MODEL, built["library"]]
    for _ in range(2):  # two processes share the file
        subprocess.run(command, env={**os.environ, "KERNELPACK_TRACE": str(file)}, check=True)
    return file


def test_calls_are_counted_by_variant_and_shape(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", str(trace), "--json"]) == 1
    record = json.loads(capsys.readouterr().out)
    assert record["calls"] == {"clitest::threshold": 2 * (40 + 7 + 1 + 2 + 1)}
    variants = {variant["name"]: variant for variant in record["variants"]}
    assert list(variants) == ["threshold_kernel-f32.any", "threshold_kernel-f16.any"]
    assert variants["threshold_kernel-f32.any"]["shapes"] == {
        "x float32[8, 128]": 80,
        "x float32[5]": 2,
    }
    assert [(refusal["calls"], refusal["shapes"]) for refusal in record["refusals"]] == [
        (2, {"x float64[3]": 2}),
        (2, {"x float32[3, 2] strides [1, 3]": 2}),
    ]
    assert "x must be contiguous:\tits strides" in record["refusals"][1]["message"]
    assert (record["library"], record["missed"]) == (None, 4)


LOGGED = """
import sys, torch
torch.ops.load_library(sys.argv[1])
torch.ops.clitest.threshold(torch.ones(8, 128), 0.5)
torch.ops.clitest.threshold(torch.ones(0), 0.5)
torch.ops.clitest.threshold(torch.ones(3, dtype=torch.float16), 0.5)
"""


def test_launches_are_told_as_they_happen(built: dict[str, Any]) -> None:
    def said(what: str) -> list[str]:
        command, environment = [sys.executable, "-c", LOGGED, built["library"]], {**os.environ, "KERNELPACK_LOG": what}
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stderr.splitlines()

    target = built["targets"][0]
    assert said("launch") == [
        f"kernelpack: clitest::threshold(x float32[8, 128]): threshold_kernel-f32.any for {target}",
        f"kernelpack: clitest::threshold(x float16[3]): threshold_kernel-f16.any for {target}",
    ]
    assert said("everything") == ['kernelpack: KERNELPACK_LOG is "everything"', "  to fix: set it to launch, or unset it"]
    assert said("") == []


def test_a_library_that_lacks_variants_is_told_apart(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [line for line in trace.read_text().splitlines() if "refused" not in line]
    (tmp_path / "whole.trace").write_text("\n".join(lines).replace("f16.any", "f16.aligned") + "\n")
    target = json.loads(lines[0])["launches"][0]["target"].replace(":", "_").replace("-", "_").replace("+", "_")
    packs = tmp_path / "library" / "packs"
    packs.mkdir(parents=True)
    (packs / f"threshold_kernel-f16.any.{target}.kpack").touch()
    command = ["trace", str(tmp_path / "whole.trace"), "--library", str(tmp_path / "library")]
    assert main(command) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[0] == f"98 calls of 1 op: 82 calls missed by {tmp_path / 'library'}"
    assert said[3].split()[0::6] == ["threshold_kernel-f32.any", "missing"]
    assert said[4].endswith(".any instead")
    (packs / f"threshold_kernel-f32.any.{target}.kpack").touch()
    assert main([*command, "--shapes"]) == 0
    said = capsys.readouterr().out
    assert "all covered" in said
    assert "    80 calls: x float32[8, 128]\n" in said


def test_other_files_are_refused_with_their_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("hello\n")
    assert main(["trace", str(file)]) == 1
    assert f"{file}:1: this is no line that KERNELPACK_TRACE wrote: 'hello'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"my::f"', "[]", "op: expected a text, found []"),
        ('"calls": 1', '"calls": 0', "calls: expected a whole number from 1 to 9223372036854775807, found 0"),
        ('"calls": 1', '"call": 1', "all of it: 'calls' is missing"),
        ('"name": "x"', '"x": "x"', "tensors[0]: 'name' is missing"),
        ("[8, 2]", "[8]", "x has 1 sizes and 2 strides"),
        ("[8, 2]", "[8, null]", "tensors[0].shape[1]: expected a whole number of 64 bits, found null"),
        ('"k.any"', "null", "launches[0].variant: expected a text, found null"),
        ('"cpu:x86-64-v3"', '"cpu"', "target 'cpu' does not have the form"),
        ("[]}]", "3}]", "launches[0].facts: expected a list, found 3"),
        ("{", "[" * 100_000, "it is nested too deep"),
        ("{", "\udcff{", "'utf-8' codec"),
    ],
)
def test_lines_that_no_library_wrote_are_refused_with_the_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, message: str
) -> None:
    line = '{"op": "my::f", "tensors": [{"name": "x", "dtype": "float32", "shape": [8, 2], "strides": [2, 1]}], "launches": '
    line += '[{"kernel": "k", "target": "cpu:x86-64-v3", "variant": "k.any", "facts": []}], "calls": 1}'
    file = tmp_path / "a.trace"
    file.write_text(f"{line}\n{line}\n")
    assert main(["trace", str(file)]) == 0
    assert old in line
    file.write_bytes(f"{line}\n{line.replace(old, new, 1)}\n".encode(errors="surrogateescape"))
    capsys.readouterr()
    assert main(["trace", str(file)]) == 1
    error = capsys.readouterr().err
    assert f"{file}:2: this is no line that KERNELPACK_TRACE wrote: " in error
    assert message in error


def test_what_an_op_said_may_be_empty_or_hold_any_line_break(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = [
        {"op": "my::f", "tensors": [], "launches": [], "refused": text, "calls": 1} for text in ("", "a\u2028b\x85c\td\x01e")
    ]
    file = tmp_path / "a.trace"
    file.write_text("".join(f"{json.dumps(record, ensure_ascii=False)}\n" for record in records))
    assert main(["trace", str(file)]) == 1
    assert "2 calls of 1 op: 2 calls missed" in capsys.readouterr().out


@pytest.mark.parametrize("linked", [False, True])
def test_calls_are_written_to_no_file_of_others(built: dict[str, Any], tmp_path: Path, linked: bool) -> None:
    file, notes = tmp_path / "model.trace", tmp_path / "notes.txt"
    notes.write_text("hello\n")
    if linked:
        file.symlink_to(notes)
    else:
        notes.rename(file)
    code = "import sys, torch; torch.ops.load_library(sys.argv[1]); torch.ops.clitest.threshold(torch.ones(3), 0.5)"
    command = [sys.executable, "-c", code, built["library"]]
    environment = {**os.environ, "KERNELPACK_TRACE": str(file)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert f"calls cannot be written to KERNELPACK_TRACE={file}" in done.stderr
    assert file.read_text() == "hello\n"


def test_a_library_of_what_a_trace_needs(
    source: Path, trace: Path, built: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Calls that were recorded are served, others say what was not built."""
    whole = [line for line in trace.read_text().splitlines() if "refused" not in line and "float32" in line]
    (tmp_path / "float32.trace").write_text("\n".join(whole) + "\n")
    options = ["--namespace", "small", "--target", "cpu:native", "--trace", str(tmp_path / "float32.trace")]
    assert main(["build", str(source), *options, "--out", str(tmp_path / "small"), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["kernels"], record["warnings"]) == (1, [])
    assert [pack.name.partition(".")[0] for pack in (tmp_path / "small" / "packs").iterdir()] == ["threshold_kernel-f32"]
    model = MODEL[: MODEL.index("for _ in range(7)")].replace("clitest", "small")
    model += (
        "try:\n    threshold(torch.ones(3, dtype=torch.float16), 0.5)\nexcept RuntimeError as refused:\n    print(refused)\n"
    )
    done = subprocess.run([sys.executable, "-c", model, record["library"]], capture_output=True, text=True, check=True)
    assert "threshold_kernel" in done.stdout
    assert "to fix: " in done.stdout
    assert main(["verify", str(source), *options, "--out", str(tmp_path / "small")]) == 0
    capsys.readouterr()
    assert main(["build", str(source), *options, "--target", "cuda:sm_80"]) == 1
    said = capsys.readouterr().err
    assert (
        "the trace has no launch for cuda, only for cpu: nothing would be built for cuda:sm_80\n  to fix: record calls" in said
    )
