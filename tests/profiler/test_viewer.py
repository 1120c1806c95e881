"""The viewer: metrics that follow from others, which frames are shown, and the command line."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernelpack.errors import ProfilerError
from kernelpack.profiler.viewer import Node, parse, print_tree


def frame(name: str, metrics: dict[str, Any], *children: dict[str, Any]) -> dict[str, Any]:
    return {"frame": {"name": name, "type": "function"}, "metrics": metrics, "children": list(children)}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    product = {"count": 4, "time (ns)": 3_000_000, "flops16": 6e12, "device_id": "0"}
    sums = {"count": 1, "time (ns)": 1_000_000, "bytes": 2_000_000, "device_id": "0"}
    layer = frame("layer", {"cpu_time (ns)": 5000}, frame("product", product), frame("sums", sums))
    root = frame("ROOT", {"count": 0, "time (ns)": 0, "flops16": 0, "bytes": 0}, layer, frame("empty", {}))
    path = tmp_path / "made.hatchet"
    path.write_text(json.dumps([root, {"CUDA": {"0": {}}}]))
    return path


def values(node: Node) -> dict[str, list[float | None]]:
    found: dict[str, list[float | None]] = {node.name: [None if math.isnan(value) else value for value in node.values]}
    for child in node.children:
        found |= values(child)
    return found


@pytest.mark.parametrize(
    ("metric", "root", "layer", "product", "sums"),
    [
        ("time/ms", 4, 4, 3, 1),
        ("time/s", 0.004, 0.004, 0.003, 0.001),
        ("avg_time/us", 800, 800, 750, 1000),
        ("cpu_time/us", None, 5, None, None),
        ("tflop16/s", 1500, 1500, 2000, None),
        ("gbyte/s", 0.5, 0.5, None, 2),
        ("time/%", 100, 100, 75, 25),
        ("count", 5, 5, 4, 1),
        ("bytes", 2e6, 2e6, None, 2e6),
    ],
)
def test_metrics(file: Path, metric: str, root: float, layer: float | None, product: float | None, sums: float | None) -> None:
    tree, names = parse([metric], file)
    assert names == [metric]
    expected = {"ROOT": [root], "layer": [layer], "product": [product], "sums": [sums], "empty": [None]}
    assert values(tree) == {name: [pytest.approx(value) for value in row] for name, row in expected.items()}


@pytest.mark.parametrize(
    ("chosen", "shown"),
    [
        ({"include": "prod"}, {"ROOT", "layer", "product"}),
        ({"include": "layer"}, {"ROOT", "layer", "product", "sums"}),
        ({"exclude": "prod|empty"}, {"ROOT", "layer", "sums"}),
        ({"threshold": 2}, {"ROOT", "layer", "product"}),
    ],
)
def test_frames_that_are_shown(file: Path, chosen: dict[str, Any], shown: set[str]) -> None:
    assert set(values(parse(["time/ms"], file, **chosen)[0])) == shown


def test_a_tree_is_printed_with_its_metrics(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    print_tree(*parse(["time/ms", "tflop16/s"], file))
    assert capsys.readouterr().out.splitlines() == [
        "time/ms  tflop16/s",
        "4.000 1500.000 ROOT",
        "├─ 4.000 1500.000 layer",
        "│  ├─ 3.000 2000.000 product",
        "│  └─ 1.000 - sums",
        "└─ - - empty",
    ]


def test_metrics_that_a_file_has_not_are_named(file: Path) -> None:
    with pytest.raises(ProfilerError, match="there is no metric 'flops8'") as raised:
        parse(["tflop8/s"], file)
    assert "bytes, count, cpu_time, flops16, time" in str(raised.value)


def test_what_is_no_regular_expression_is_refused(file: Path) -> None:
    for option in ("include", "exclude"):
        with pytest.raises(ProfilerError, match=r"'\(' is no regular expression"):
            parse(["time"], file, **{option: "("})


def test_a_file_that_is_no_profile_is_named(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("text")
    with pytest.raises(ProfilerError, match="text is no profile"):
        parse(["time"], tmp_path / "text")


def view(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "kernelpack.profiler.viewer", *arguments], capture_output=True, text=True)


def test_the_command_line(file: Path) -> None:
    assert view("-m", "time/ms", "-d", "1", str(file)).stdout.splitlines()[1:] == ["4.000 ROOT", "├─ 4.000 layer", "└─ - empty"]
    assert view("--list", str(file)).stdout.split() == ["bytes", "count", "cpu_time", "flops16", "time"]
    failed = view("-m", "speed", str(file))
    assert failed.returncode == 1
    assert failed.stderr.startswith("there is no metric 'speed'")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "expected a list of one value or more"),
        ("{}", "expected a list of one value or more"),
        ("[3]", r"\[0\]: expected names with values, found 3"),
        ('[{"frame": 3, "metrics": {}, "children": []}]', r"\[0\].frame: expected names with values, found 3"),
        ('[{"frame": {"name": []}, "metrics": {}, "children": []}]', r"\[0\].frame.name: expected a text"),
        ('[{"frame": {"name": "x"}, "metrics": {}, "children": {}}]', r"\[0\].children: expected a list"),
        (
            '[{"frame": {"name": "x"}, "metrics": {"a": 1%s}, "children": []}]' % ("0" * 400),
            r"\[0\].metrics.a: expected a number",
        ),
        ("[" * 100_000, "it is nested too deep"),
    ],
)
def test_files_that_are_no_profiles_are_refused_with_the_place(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "x.hatchet"
    file.write_text(text)
    with pytest.raises(ProfilerError, match=f"x.hatchet is no profile: .*{message}"):
        parse(["time/ms"], file)


@pytest.fixture
def usual_recursion() -> Iterator[None]:
    """Python's own limit: other tests may have left a higher one."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)
    yield
    sys.setrecursionlimit(before)


@pytest.mark.usefixtures("usual_recursion")
def test_a_profile_of_any_depth_is_read_or_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.hatchet"
    refused = set()
    for depth in range(100, 600, 5):
        file.write_text('[{"frame": {"name": "x"}, "metrics": {"count": 1}, "children": ' * depth + "[]" + "}]" * depth)
        try:
            tree, names = parse(["count"], file, include="x")
            print_tree(tree, names)
        except ProfilerError as problem:
            refused.add(problem.message.partition(": ")[2])
    assert refused
    assert refused <= {"it is nested too deep", "its frames are nested too deep"}
