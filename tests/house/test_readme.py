"""README tells the truth: its tables are what the code says, and everything that it tells a person to type works."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs.readme import PAGES, PARTS, README, filled
from kernelpack.cli import VERBS

ROOT = Path(__file__).parents[2]
TEXT = README.read_text()


@pytest.mark.parametrize("name", PARTS)
def test_parts_made_from_data_are_up_to_date(name: str) -> None:
    pages = (re.search(rf"<!-- {name} -->\n.*?<!-- end -->", page.read_text(), re.DOTALL) for page in PAGES)
    part = next(filter(None, pages), None)
    assert part is not None, f"no page has a part {name}"
    assert part[0] == filled(part[0]), "to fix: make readme"


def test_every_verb_and_make_target_that_it_names_exists() -> None:
    assert set(re.findall(r"\| `kernelpack (\w+)` \|", TEXT)) == set(VERBS)
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:^|`)make ([a-z-]+)", TEXT, re.MULTILINE)) <= targets


def test_every_link_leads_somewhere() -> None:
    prose = re.sub(r"^```.*?^```", "", TEXT, flags=re.MULTILINE | re.DOTALL)
    links = re.findall(r"\]\(([^)#:]+)\)", prose)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_every_folder_is_a_room_that_it_explains() -> None:
    tracked = subprocess.run(["git", "-C", str(ROOT), "ls-files"], capture_output=True, text=True, check=True).stdout
    folders = {line.partition("/")[0] for line in tracked.splitlines() if "/" in line and not line.startswith(".")}
    assert folders == set(re.findall(r"^    ([a-z_]+)/ ", TEXT, re.MULTILINE))


def test_the_op_of_ones_own_builds_and_runs_as_it_says(tmp_path: Path) -> None:
    section = TEXT.partition("## An op of your own")[2].partition("\n## ")[0]
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, words in {"kernelpack": "-m kernelpack", "python": ""}.items():
        (tools / name).write_text(f'#!/bin/sh\nexec {sys.executable} {words} "$@"\n')
        (tools / name).chmod(0o755)
    path = os.pathsep.join([str(tools), str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "KERNELPACK_LOAD_LIBRARY": "0"}
    said = ""
    for language, content in re.findall(r"^```(\w+)\n(.*?)^```", section, re.MULTILINE | re.DOTALL):
        if language == "sh":
            command = ["bash", "-euo", "pipefail", "-c", content]
        else:
            name = content.split()[1]
            (tmp_path / name).write_text(content)
            if name not in ("use.py", "emulate.py"):
                continue
            command = [sys.executable, name]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
        said += done.stdout
    assert "built my: 1 op" in said
    assert "tensor(1." in said  # rows of torch.compile's result have length 1
    assert re.search(r" 0\.5000  0\.5000  0\.5000  0\.5000\n", said)  # and so has C++'s
