"""Plots of benchmarks say what they show: every figure, the unit and its direction, the machine, the peers."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from kernelpack.errors import BuildError
from kernelpack.report.plot import Figures, figures_of, plot, plots_of

ROWS = [
    {"case": "bf16 d64", "unit": "TFLOP/s", "ours": 400.0, "peer": "cudnn", "theirs": 380.0},
    {"case": "bf16 d64", "unit": "TFLOP/s", "ours": 400.0, "peer": "flash", "theirs": 200.0},
    {"case": "bf16 d128", "unit": "TFLOP/s", "ours": 600.0, "peer": "cudnn", "theirs": 620.0},
    {"case": "launch", "unit": "ns", "ours": 200.0, "peer": "by hand", "theirs": 900000.0},
    {"case": "launch", "unit": "ns", "ours": 200.0, "peer": "limit", "theirs": 250.0, "limit": 250.0, "pass": True},
]


def written(folder: Path, rows: list[dict[str, Any]] | None = None) -> Path:
    file = folder / "attention-h100.json"
    record = {
        "machine": {"cpu": "C", "cores": 16, "gpu": "H100"},
        "versions": {"torch": "2.13.0", "cudnn": "9"},
        "rows": rows or ROWS,
    }
    file.write_text(json.dumps(record))
    return file


def texts(svg: str) -> list[str]:
    return [text for text in ElementTree.fromstring(svg).itertext() if text.strip()]


def test_a_unit_is_a_plot_and_limits_are_no_peers(tmp_path: Path) -> None:
    assert figures_of(written(tmp_path)) == [
        Figures(
            "attention", "H100, torch 2.13.0, cudnn 9", "TFLOP/s",
            {"bf16 d64": {"kernelpack": 400.0, "cudnn": 380.0, "flash": 200.0}, "bf16 d128": {"kernelpack": 600.0, "cudnn": 620.0}},
        ),
        Figures("attention", "H100, torch 2.13.0, cudnn 9", "ns", {"launch": {"kernelpack": 200.0, "by hand": 900000.0}}),
    ]  # fmt: skip


def test_words_and_peers_choose_cases(tmp_path: Path) -> None:
    (figures,) = figures_of(written(tmp_path), "bf16 d64", ("flash",))
    assert (figures.subject, figures.cases) == ("attention bf16 d64", {"bf16 d64": {"kernelpack": 400.0, "flash": 200.0}})


def test_a_plot_says_unit_direction_machine_and_peers(tmp_path: Path) -> None:
    more, less = plots_of(written(tmp_path))
    found = texts(more)
    for text in (
        "attention",
        "H100, torch 2.13.0, cudnn 9",
        "kernelpack",
        "cudnn",
        "flash",
        "bf16 d128",
        "TFLOP/s (more is better)",
    ):
        assert text in found
    assert [text for text in found if text.endswith("x")] == ["1.05x", "0.97x"]
    assert "ns (less is better, logarithmic)" in texts(less)
    assert "4500.00x" in texts(less)


def test_marks_stand_where_their_values_are() -> None:
    figures = Figures(
        "a", "b", "GB/s", {"one": {"kernelpack": 100.0, "peer": 50.0}, "two": {"kernelpack": 25.0, "peer": 100.0}}
    )
    svg = ElementTree.fromstring(plot(figures))
    circles = [float(node.attrib["cx"]) for node in svg.iter("{http://www.w3.org/2000/svg}circle")][1:]  # after the legend's
    zero = min(float(node.attrib["x1"]) for node in svg.iter("{http://www.w3.org/2000/svg}line"))
    assert (circles[0] - zero) / (circles[1] - zero) == pytest.approx(4, rel=0.01)


@pytest.mark.parametrize("value", [0.0003, 1.0, 7.5, 9_999.0, 4e12])
def test_every_range_has_an_axis(value: float) -> None:
    for other in (value, value * 1.5, value * 1e4):
        figures = Figures("a", "b", "GB/s", {"one": {"kernelpack": value, "peer": other}})
        svg = ElementTree.fromstring(plot(figures))
        lines = [node for node in svg.iter("{http://www.w3.org/2000/svg}line") if node.attrib["class"] == "kp-grid"]
        assert 2 <= len(lines) <= 12


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "Expecting"),
        ("[]", "expected names with values"),
        ('{"machine": {}, "versions": {}, "rows": [{"case": "a"}]}', "rows[0]: 'unit' is missing"),
        (
            '{"machine": {}, "versions": {}, "rows": [{"case": "a", "unit": "s", "ours": "b", "peer": "c", "theirs": 1}]}',
            "rows[0].ours",
        ),
    ],
)
def test_another_file_is_refused_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "figures.json"
    file.write_text(text)
    with pytest.raises(BuildError, match="holds no figures") as raised:
        plots_of(file)
    assert said in str(raised.value)
    assert "python -m benchmarks.SUBJECT --json FILE" in str(raised.value)
