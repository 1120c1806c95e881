"""docs/write-a-backend.md names every member of the contract, and none that there is not."""

from __future__ import annotations

import re
from pathlib import Path

from kernelpack.backends.base import Backend

PAGE = (Path(__file__).parents[2] / "docs" / "write-a-backend.md").read_text()
DERIVED = {"device_type", "tests"}
"""What follows from other members."""


def tabled(section: str) -> set[str]:
    """Returns the members that the table of a section names, in its first column."""
    text = PAGE.split(f"## {section}\n")[1].split("\n## ")[0]
    return {name for row in re.findall(r"^\| (`.*?) \|", text, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}


def test_the_page_names_what_a_backend_must_and_may_answer() -> None:
    members = {name for name in (*vars(Backend), *Backend.__annotations__) if not name.startswith("_")} - DERIVED
    stated = {name for name in Backend.__annotations__ if not hasattr(Backend, name)}
    assert tabled("What it must answer") == stated | Backend.__abstractmethods__
    assert tabled("What it may answer") == members - stated - Backend.__abstractmethods__
