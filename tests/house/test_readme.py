"""README is short and tells the truth: its tables, and those of other pages, are what the code says."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from docs.readme import PAGES, PARTS, README, filled, plots

ROOT = Path(__file__).parents[2]
TEXT = README.read_text()


@pytest.mark.parametrize("name", PARTS)
def test_parts_made_from_data_are_up_to_date(name: str) -> None:
    pages = (re.search(rf"<!-- {name} -->\n.*?<!-- end -->", page.read_text(), re.DOTALL) for page in PAGES)
    part = next(filter(None, pages), None)
    assert part is not None, f"no page has a part {name}"
    assert part[0] == filled(part[0]), "to fix: make readme"


def test_plots_are_up_to_date() -> None:
    for file, svg in plots().items():
        assert file.read_text() == svg, "to fix: make readme"
        assert f"]({file.relative_to(ROOT)})" in TEXT


def test_it_can_be_read_in_some_minutes() -> None:
    assert len(TEXT.split()) <= 1200


def test_every_folder_is_a_room_that_it_explains() -> None:
    tracked = subprocess.run(["git", "-C", str(ROOT), "ls-files"], capture_output=True, text=True, check=True).stdout
    folders = {line.partition("/")[0] for line in tracked.splitlines() if "/" in line and not line.startswith(".")}
    assert folders == set(re.findall(r"^    ([a-z_]+)/ ", TEXT, re.MULTILINE))
