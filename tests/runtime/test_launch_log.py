"""Which kernel ran: for people (KERNELPACK_LOG=launch), for perf (KERNELPACK_PERF_MAP=1), for torch.profiler."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import torch

import kernelpack as kp
import kernelpack.language as tl

PROGRAM = """
import os
import torch
import kernelpack as kp
import kernelpack.language as tl

@kp.jit
def double(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)

x = torch.randn(3, 100)
for _ in range(2):
    double[(2,)](x, torch.empty_like(x), x.numel(), BLOCK=256)
path = f"/tmp/perf-{os.getpid()}.map"
if os.path.exists(path):
    print(open(path).read())
    os.unlink(path)
"""


def run(tmp_path: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "program.py").write_text(PROGRAM)
    environment = {**os.environ, "KERNELPACK_LOAD_LIBRARY": "0", **variables}
    return subprocess.run([sys.executable, "program.py"], cwd=tmp_path, env=environment, capture_output=True, text=True)


def test_each_launch_is_told(tmp_path: Path) -> None:
    lines = run(tmp_path, KERNELPACK_LOG="launch").stderr.splitlines()
    line = (
        r"kernelpack: double\(x float32\[3, 100\], out float32\[3, 100\], n 300, BLOCK 256\) for cpu:[\w+-]+, grid \(2, 1, 1\)"
    )
    assert len(lines) == 2
    assert all(re.fullmatch(line, one) for one in lines), lines


def test_another_value_is_refused(tmp_path: Path) -> None:
    said = run(tmp_path, KERNELPACK_LOG="launches").stderr
    assert "KERNELPACK_LOG is 'launches'\n  to fix: set it to launch, or unset it" in said


def test_perf_finds_names(tmp_path: Path) -> None:
    done = run(tmp_path, KERNELPACK_PERF_MAP="1")
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"[0-9a-f]+ [0-9a-f]+ double\n\n", done.stdout)
    assert run(tmp_path).stdout == ""


@kp.jit
def negate(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, -tl.load(x + at, mask=at < n), mask=at < n)


def test_torch_profiler_finds_names() -> None:
    x = torch.ones(300)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        for _ in range(3):
            negate[(2,)](x, x.numel(), BLOCK=256)
    names = [event.name for event in profile.events()]
    assert names.count("negate") == 3, names
    assert x.eq(-1).all()
