"""Progress and colours appear on terminals alone, fit their width, and NO_COLOR is honoured."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import SOURCE
from tests.cli.terminal import environment, kernelpack, on_terminal

COLOUR = re.compile(r"\x1b\[\d+m")


def visible(text: str) -> list[str]:
    """The lines as the terminal shows them: what is overwritten or erased is not there."""
    lines = []
    for line in re.sub(r"\x1b\[\d+m", "", text).replace("\r\n", "\n").split("\n"):
        lines.append(line.split("\r\x1b[K")[-1])
    return lines


@pytest.mark.parametrize("columns", [80, 120])
def test_progress_is_one_line_that_goes_away(source: Path, tmp_path: Path, columns: int) -> None:
    words = ["inspect", str(source), "--target", "cpu:x86-64-v3"]
    code, text = on_terminal(*words, columns=columns, KERNELPACK_CACHE_DIR=str(tmp_path / "cache"))
    assert code == 0
    steps = text.split("\r\x1b[K")
    assert "1/2" in "".join(steps)
    assert "2/2" in "".join(steps)
    assert all(len(step) < columns for step in steps[1:-1])
    assert "2/2" not in "\n".join(visible(text))


def test_pipes_get_neither_progress_nor_colour(source: Path) -> None:
    done = kernelpack("inspect", str(source), KERNELPACK_CACHE="0")
    assert done.returncode == 0
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    assert "\r" not in done.stdout


@pytest.mark.parametrize(("variables", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)])
def test_colour_can_be_turned_off(variables: dict[str, str], coloured: bool) -> None:
    code, text = on_terminal("bild", columns=80, **variables)
    assert code == 2
    assert bool(COLOUR.search(text)) == coloured


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_tables_fit_the_terminal(built: dict[str, Any], columns: int) -> None:
    _, text = on_terminal("inspect", built["directory"], columns=columns)
    lines = visible(text)
    assert all(len(line) <= columns for line in lines)
    names = [line.split()[0] for line in lines if line.startswith("  thresh")]
    assert len(names) == built["kernels"]
    assert columns < 80 or not any("…" in name for name in names)


def test_doctor_fits_the_terminal() -> None:
    _, text = on_terminal("doctor", columns=80)
    found = [line for line in visible(text) if line.startswith(("  ok", "  no", "   -")) and "library" not in line]
    assert found
    assert all(len(line) <= 80 for line in found)


def test_interrupt_ends_a_build_at_once(tmp_path: Path) -> None:
    many = SOURCE.replace('"x": [tl.float32, tl.float16]', '"x": [tl.float32], "BLOCK": [2**n for n in range(4, 12)]')
    many = many.replace('meta["BLOCK"]', "256").replace("BLOCK=256", "BLOCK=x.shape[0]")
    (tmp_path / "my_ops.py").write_text(many)
    words = ["inspect", "my_ops.py", "--target", "cpu:x86-64-v3,cpu:x86-64-v4,cpu:aarch64,cuda:sm_80,cuda:sm_90a", "-j", "1"]
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "kernelpack", *words],
        cwd=tmp_path,
        env=environment(KERNELPACK_CACHE="0"),
        stderr=theirs,
        stdout=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(
            signal.SIGINT, signal.SIG_DFL
        ),  # background jobs of a shell ignore it, and so would children
    )
    os.close(theirs)
    text = ""
    while " 2/" not in text:
        text += os.read(ours, 4096).decode(errors="replace")
    os.killpg(process.pid, signal.SIGINT)
    while True:
        try:
            text += os.read(ours, 4096).decode(errors="replace")
        except OSError:
            break
    os.close(ours)
    assert process.wait(timeout=60) == 130
    assert "Traceback" not in text
    counts = [int(number) for number in re.findall(r" (\d+)/\d+ ", text)]
    assert max(counts) < 20, "it compiled on after the interrupt"
