"""Runs programs at each CPU level that the op library holds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernelpack.backends.cpu.facts.features import runnable
from kernelpack.target import Target

LEVELS = ("cpu:x86-64-v3", "cpu:x86-64-v4", "cpu:x86-64-v4+avx512bf16", "cpu:x86-64-v4+amx")
"""Those whose kernels differ for floats."""
EACH_LEVEL = [pytest.param(level, marks=pytest.mark.slow) if level == "cpu:x86-64-v4" else level for level in LEVELS]
"""The same as parameters of tests. Most kernels of x86-64-v4 are those of x86-64-v4+avx512bf16, too, which is always tested."""


def run_at(level: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs Python with arguments, on two threads, in a process whose ops are those of a level; skips the test where this CPU lacks it."""
    if Target.parse(level) not in runnable():
        pytest.skip(f"this CPU has no {level}")
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "KERNELPACK_CPU_TARGET": level, "OMP_NUM_THREADS": "2"},
        capture_output=True,
        text=True,
        timeout=600,
    )
