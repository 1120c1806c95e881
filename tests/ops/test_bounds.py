"""No op reads or writes outside of its tensors, in any case of the accuracy grid, at any CPU level."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ops.grid import cases
from tests.ops.levels import EACH_LEVEL, run_at

ROOT = Path(__file__).parents[2]


def test_a_forbidden_page_ends_the_process() -> None:
    """On either side of a tensor."""
    code = """
        import ctypes, sys, torch
        from tests.ops.guard_pages import Guarded
        guarded = Guarded(torch.arange(5.0), at_end=sys.argv[1] == "end")
        first = guarded.tensor.data_ptr()
        assert ctypes.string_at(first, 20) == torch.arange(5.0).numpy().tobytes()
        print("inside", flush=True)
        ctypes.string_at(first + 20 if sys.argv[1] == "end" else first - 1, 1)
    """
    code = "\n".join(line.strip() for line in code.splitlines())
    for side in ("end", "start"):
        done = subprocess.run([sys.executable, "-c", code, side], cwd=ROOT, capture_output=True, text=True, timeout=300)
        assert (done.returncode, done.stdout) == (-signal.SIGSEGV, "inside\n"), done.stderr


@pytest.mark.parametrize("level", EACH_LEVEL)
def test_no_access_outside_of_a_tensor(level: str) -> None:
    done = run_at(level, "-m", "tests.ops.guard_pages")
    lines = done.stdout.splitlines()
    assert done.returncode == 0, f"exit {done.returncode} at {lines[-1] if lines else 'the start'}\n{done.stderr[-3000:]}"
    assert lines[-1] == "no access outside of a tensor"
    assert len(lines) == 2 * len(cases()) + 1
