"""The program that times the choice of variants first checks every choice against comparing one by one."""

from __future__ import annotations

from pathlib import Path

from benchmarks.dispatch import measure


def test_tables_choose_what_comparing_one_by_one_chooses(tmp_path: Path) -> None:
    assert min(measure(tmp_path, 40)) > 0
