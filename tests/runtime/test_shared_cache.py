"""The cache's folder when it is hardest on a launch: other processes compile the same kernel at the same time, and the disk is full."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAM = """
import resource, signal, sys

if "full" in sys.argv:  # no file can hold more than a few bytes, as on a full disk
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, resource.RLIM_INFINITY))

import torch
import kernelpack as kp
import kernelpack.language as tl

compiled = []
kp.knobs.compilation.listener = lambda *told: compiled.append(not told[-1])


@kp.jit
def twice(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


if "wait" in sys.argv:
    print("ready", flush=True)
    input()
x = torch.arange(1000.0)
out = torch.empty_like(x)
twice[(4,)](x, out, 1000, BLOCK=256)
assert torch.equal(out, x * 2)
print("compiled" if compiled[0] else "taken from the cache")
"""


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    file = folder / "program.py"
    file.write_text(PROGRAM)
    changes = {"KERNELPACK_CACHE_DIR": str(folder / "cache"), "KERNELPACK_LOAD_LIBRARY": "0", "PYTHONPATH": str(ROOT)}
    environment = {**os.environ, **changes}
    command = [sys.executable, str(file), *words]
    return subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def end(process: subprocess.Popen[str], given: str = "") -> str:
    """Returns the last line that a process prints."""
    printed, wrong = process.communicate(given, timeout=120)
    assert process.returncode == 0, wrong
    return printed.splitlines()[-1]


def test_processes_that_compile_the_same_kernel_at_once(tmp_path: Path) -> None:
    both = [start(tmp_path, "wait") for _ in range(2)]
    for process in both:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in both:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    assert "compiled" in [end(process) for process in both]
    assert end(start(tmp_path)) == "taken from the cache"


def test_a_full_disk_costs_the_cache_alone(tmp_path: Path) -> None:
    assert end(start(tmp_path, "full")) == "compiled"
    assert end(start(tmp_path)) == "compiled"  # nothing that was cut short is taken for a kernel
