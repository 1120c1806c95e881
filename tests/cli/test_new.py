"""kernelpack new writes a project whose commands work as its README says, and overwrites nothing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kernelpack.cli import main
from kernelpack.cli.new import FILES
from tests.cli.terminal import ROOT
from tests.docs.test_commands import wrong_with

SMOKE = ROOT / "tests" / "serving" / "smoke.py"
DEVELOP = """
import torch
from ops.l2_normalize import l2_normalize, reference
x = torch.randn(5, 600)
torch.testing.assert_close(l2_normalize(x).double(), reference(x.double()), rtol=1e-6, atol=1e-6)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    assert main(["new", "some_ops", "--out", str(tmp_path / "project")]) == 0
    return tmp_path / "project"


def environment(folder: Path) -> dict[str, str]:
    """Where commands find this kernelpack, as in an environment that has it installed."""
    tools = folder / "bin"
    tools.mkdir()
    for name, words in {"kernelpack": "-P -m kernelpack", "python": ""}.items():
        (tools / name).write_text(f'#!/bin/sh\nexec {sys.executable} {words} "$@"\n')
        (tools / name).chmod(0o755)
    return {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "KERNELPACK_LOAD_LIBRARY": "0"}


def run(*command: str, cwd: Path, env: dict[str, str]) -> str:
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def commands(project: Path) -> list[str]:
    """The commands of a project's README, in their order."""
    found = re.findall(r"^```sh\n(.*?)^```", (project / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    return "".join(found).splitlines()


def test_the_op_runs_before_anything_is_built(project: Path, tmp_path: Path) -> None:
    run(sys.executable, "-c", DEVELOP, cwd=project, env=environment(tmp_path))


def test_its_files_are_there_and_in_order(project: Path, tmp_path: Path) -> None:
    assert {str(path.relative_to(project)) for path in project.rglob("*") if path.is_file()} == set(FILES)
    assert not [path for path in project.rglob("*") if path.is_file() and "$" in path.read_text()]
    style = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "E,F,W,B,UP", "--line-length", "128", "."]
    run(*style, cwd=project, env=environment(tmp_path))
    named = re.findall(r"^\| `([^`]+)`", (project / "README.md").read_text(), re.MULTILINE)
    assert [file for file in named if not (project / file).is_file()] == []


def test_readme_and_ci_give_commands_that_there_are(project: Path) -> None:
    known = commands(project)
    ci = re.findall(r"- run: (.*)", (project / ".github" / "workflows" / "ci.yml").read_text())
    assert [line for line in ci if line not in known and not line.startswith("sudo apt-get install")] == []
    assert [line for line in known if line.startswith("kernelpack ") and line not in ci] == []
    assert [(line, why) for line in known if line.startswith("kernelpack ") and (why := wrong_with(line))] == []


@pytest.mark.slow
def test_a_project_is_built_verified_tested_timed_and_shipped_as_its_readme_says(project: Path, tmp_path: Path) -> None:
    known = environment(tmp_path)
    said = ""
    for command in commands(project):
        if not command.startswith("pip install"):  # what it installs is here
            said += run("sh", "-c", command, cwd=project, env=known)
    assert re.search(r"verified: \d+ kernels compiled anew", said)
    assert re.search(r"\d+ passed", said)
    assert re.search(r"4096x4096 +float32 .* us +\d+\.\d\dx\n", said)
    (wheel,) = (project / "dist").glob("some_ops-0.1.0-py3-none-manylinux_*.whl")
    target = tmp_path / "installed"
    run(
        sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", str(target), str(wheel),
        cwd=project, env=known,
    )  # fmt: skip
    run(sys.executable, str(SMOKE), "some_ops", cwd=target, env={**known, "PYTHONPATH": str(target)})


@pytest.mark.parametrize("name", ["3x", "my-ops", "class", "größe", "aten", "torch", "kernelpack", "ops", "json", "a/b", ""])
def test_names_that_no_project_can_have(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", name]) == 1
    said = capsys.readouterr().err
    assert repr(name) in said
    assert "to fix: choose a name such as my_ops" in said
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_is_not_overwritten(project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "README.md").write_text("my own")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for place in ("project", "file", "link"):
        assert main(["new", "some_ops", "--out", str(tmp_path / place)]) == 1
        assert f"{tmp_path / place} exists, and nothing in it is overwritten" in capsys.readouterr().err
    assert (project / "README.md").read_text() == "my own"
    assert not (tmp_path / "nowhere").exists()
    (tmp_path / "empty").mkdir()
    assert main(["new", "some_ops", "--out", str(tmp_path / "empty")]) == 0
