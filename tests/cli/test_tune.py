"""kernelpack tune: races what is not known yet, survives interruption, and shows what builds will decide."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernelpack.cli import main
from kernelpack.opgen.tune import race

OPS = Path(__file__).parents[1] / "opgen" / "tuned_ops.py"


@pytest.fixture
def ops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The op file in a folder of its own; every launch takes the milliseconds that `timed` finds in what it wrote."""
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copy(OPS, tmp_path / "my_ops.py"))


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[int], float]], None]:
    """Returns a function that replaces time: it is given what a block of a kernel takes."""

    def install(milliseconds: Callable[[int], float]) -> None:
        launches: list[Any] = []
        make = race._call

        def call(pack: Any, variant: Any, launch: Any) -> Callable[[], None]:
            run = make(pack, variant, launch)

            def launched() -> None:
                run()
                launches.append(int(launch.arguments["out"][0]))

            return launched

        def times(fn: Callable[[], None], count: int, device: str) -> list[float]:
            fn()
            return [milliseconds(launches[-1])]

        monkeypatch.setattr(race, "_call", call)
        monkeypatch.setattr(race, "times_of", times)

    return install


def tune(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["tune", "my_ops.py", "--target", "cpu:native", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_an_interrupted_run_goes_on_where_it_was(
    ops: Path, timed: Callable[..., None], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 0

    def milliseconds(block: int) -> float:
        nonlocal count
        count += 1
        if count == 3 * (1 + race._ROUNDS) + 1:
            raise KeyboardInterrupt
        return {16: 1.0, 64: 0.5, 1024: 0.7}[block]

    timed(milliseconds)
    assert tune(capsys, "--op", "probe")[0] == 130
    (file,) = ops.parent.glob("tuned/probe.cpu_*.json")
    assert list(json.loads(file.read_text())["kernels"]["probe_kernel-f32"]["microseconds"].values()) == [
        {"BLOCK: 16": 1000.0, "BLOCK: 64": 500.0, "BLOCK: 1024": 700.0}
    ]
    code, out, _ = tune(capsys, "--op", "probe", "--json")
    record = json.loads(out)
    assert (code, record["raced"], record["known"], record["files"]) == (0, 7, 1, [str(file)])
    assert [point["configs"] for point in record["points"]] == [{"1": "BLOCK: 64"}] * 2
    assert json.loads(tune(capsys, "--op", "probe", "--json")[1])["raced"] == 0
    assert json.loads(tune(capsys, "--op", "probe", "--json", "--again")[1])["raced"] == 8
    ops.write_text(ops.read_text().replace("tl.store(out", "tl.store(0 + out"))
    assert json.loads(tune(capsys, "--op", "probe", "--json")[1])["raced"] == 8  # another kernel


def test_show_prints_the_table_of_each_point(ops: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = ops.parent / "tuned"
    folder.mkdir()
    times = {
        "1 16": {"BLOCK: 16": 3.0, "BLOCK: 64": 1.0, "BLOCK: 1024": None},
        "1 4096": {"BLOCK: 16": 3.0, "BLOCK: 64": 2.0, "BLOCK: 1024": 1.0},
    }
    point = {"key": ["rows", "columns"], "source": "", "microseconds": times}
    record = {"op": "probe", "device": "Model T", "target": "cpu:x86-64-v3", "kernels": {"probe_kernel-f32": point}}
    (folder / "probe.model-t.json").write_text(json.dumps(record))
    assert main(["tune", "my_ops.py", "--target", "cpu:x86-64-v3", "--op", "probe", "--show"]) == 0
    assert capsys.readouterr().out == (
        "probe_kernel-f32 for cpu:x86-64-v3, measured on Model T\n"
        "  #1  BLOCK: 64\n"
        "  #2  BLOCK: 1024\n"
        "      rows  columns  config\n"
        "      any     <= 16      #1\n"
        "      any      > 16      #2\n"
        "      2 sizes; 3.00x of config #0 on average, 3.00x to 3.00x\n"
        "\n"
        "probe_kernel-f16 for cpu:x86-64-v3, not measured: the first config\n"
        "  #0  BLOCK: 16\n"
        "  #1  BLOCK: 64\n"
        "  #2  BLOCK: 1024\n"
    )


def test_mistakes_name_their_cure(ops: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "my_ops.py", "--target", "cuda:sm_80"]) == 1
    said = capsys.readouterr().err
    assert "no device of this machine runs cuda:sm_80" in said
    assert "to fix: run kernelpack tune on a machine that has one, and commit what it writes beside the ops" in said
    assert tune(capsys, "--op", "prob")[2].splitlines() == [
        "kernelpack tune: error: there is no op 'prob'; did you mean 'probe'?",
        "  to fix: ops are autotuned, probe, sized",
    ]
    ops.write_text(ops.read_text().replace(", tune=calls", "").replace("    tune=calls,\n", ""))
    code, _, said = tune(capsys)
    assert code == 1
    assert "probe chooses among configs, but no calls are named to race them with" in said
