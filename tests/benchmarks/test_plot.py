"""`python -m benchmarks.plot` draws what a benchmark wrote, a plot for each unit."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks import plot
from benchmarks.report import Row, write_json

ROWS = [
    Row("bf16 4096", "TFLOP/s", 700.0, "cublas", 690.0),
    Row("bf16 4096", "TFLOP/s", 700.0, "other", 650.0),
    Row("compile", "s", 0.5, "other", 1.0),
]


@pytest.fixture
def figures(tmp_path: Path) -> Path:
    file = tmp_path / "matmul-cpu.json"
    write_json(file, "cpu", ROWS)
    return file


def test_each_unit_is_a_file(figures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plot.main([str(figures)])
    said = capsys.readouterr().out.splitlines()
    first, second = figures.with_suffix(".svg"), figures.with_name("matmul-cpu-2.svg")
    assert said == [f"{first}: matmul, TFLOP/s, 1 cases", f"{second}: matmul, s, 1 cases"]
    for file in (first, second):
        assert ElementTree.parse(file).getroot().tag.endswith("svg")


def test_cases_and_peers_are_chosen(figures: Path, tmp_path: Path) -> None:
    plot.main([str(figures), "--only", "bf16", "--peer", "cublas", "--out", str(tmp_path)])
    text = (tmp_path / "matmul-cpu.svg").read_text()
    assert "cublas" in text
    assert "other" not in text
    assert not (tmp_path / "matmul-cpu-2.svg").exists()


def test_a_plot_of_nothing_is_refused(figures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        plot.main([str(figures), "--only", "fp64"])
    assert "has no case with 'fp64' in its name" in capsys.readouterr().err
