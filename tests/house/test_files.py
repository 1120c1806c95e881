"""The rules that every file of the project keeps: a length that one can read, a first sentence, names that say something, no
silenced checkers."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LONGEST = {"kernelpack": 500, "csrc": 500}
"""Lines of a file by its folder; 800 elsewhere."""
VAGUE = {"utils", "util", "common", "helpers", "helper", "manager", "misc"}
SOURCES = (".py", ".cpp", ".h", ".c", ".in")


def project_files() -> list[Path]:
    """The files that git tracks, and those that it would."""
    command = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return sorted({ROOT / name for name in names if (ROOT / name).is_file()})


def sources(*suffixes: str) -> list[Path]:
    return [path for path in project_files() if path.suffix in suffixes]


def relative(paths: list[Path]) -> list[str]:
    return [str(path.relative_to(ROOT)) for path in paths]


def test_no_source_file_is_too_long_to_read() -> None:
    lengths = {path: path.read_text().count("\n") for path in sources(*SOURCES)}
    assert len(lengths) > 100
    limits = {path: LONGEST.get(path.relative_to(ROOT).parts[0], 800) for path in lengths}
    assert relative([path for path, lines in lengths.items() if lines > limits[path]]) == []


def test_every_python_file_opens_with_a_sentence_that_says_what_it_is_for() -> None:
    silent = []
    for path in sources(".py"):
        text = path.read_text()
        purpose = ast.get_docstring(ast.parse(text))
        if text.strip() and not (purpose and re.match(r"\S.*[.:?]", purpose, re.DOTALL)):
            silent.append(path)
    assert relative(silent) == []


def test_every_cpp_file_opens_with_a_comment_that_says_what_it_is_for() -> None:
    silent = [path for path in sources(".cpp", ".h", ".c") if not re.match(r"(//|/\*) ?\S", path.read_text())]
    assert relative(silent) == []


def test_no_checker_is_silenced() -> None:
    silencing = re.compile(r"#\s*(noqa|type:\s*ignore|pyright:|pragma:)|//\s*NOLINT")
    assert relative([path for path in sources(*SOURCES) if silencing.search(path.read_text())]) == []


def test_nothing_that_lies_in_files_is_run_by_reading_it() -> None:
    """pickle serves between a build and its own processes, and nowhere else."""
    running = re.compile(r"\b(pickle|marshal|shelve|dill|joblib)\b|\btorch\.load\(|(?<![\w.])(eval|exec)\(")
    found = [
        path for path in sources(".py", ".in") if path.is_relative_to(ROOT / "kernelpack") and running.search(path.read_text())
    ]
    assert relative(found) == ["kernelpack/opgen/workers/worker.py"]


def test_no_file_has_a_name_that_says_nothing() -> None:
    own = [
        path for path in project_files() if not path.is_relative_to(ROOT / "kernelpack" / "triton")
    ]  # its names are Triton's
    assert relative([path for path in own if VAGUE & set(re.split(r"[^a-z]+", path.stem.lower()))]) == []


def test_every_room_says_what_it_is_for() -> None:
    rooms = [path.parent for path in sources(".py") if path.parent.is_relative_to(ROOT / "kernelpack")]
    assert relative([room for room in sorted(set(rooms)) if not (room / "__init__.py").is_file()]) == []


@pytest.mark.parametrize("name", sorted(path.name for path in ROOT.glob("requirements*.txt")))
def test_every_requirement_is_pinned_to_one_version(name: str) -> None:
    lines = [line for line in (ROOT / name).read_text().splitlines() if line and not line.startswith("#")]
    assert lines
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9_.-]+==[0-9][0-9A-Za-z.]*|-r [a-z-]+\.txt", line)] == []
