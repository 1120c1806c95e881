"""Runs the command line as people do: into a pipe, or on a terminal of some width."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path

ROOT = Path(__file__).parents[2]


def environment(**variables: str) -> dict[str, str]:
    quiet = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")}
    return {**quiet, "PYTHONPATH": str(ROOT), "TERM": "xterm", **variables}


def kernelpack(*words: str, cwd: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs `python -m kernelpack` with its output in pipes."""
    command = [sys.executable, "-m", "kernelpack", *words]
    return subprocess.run(command, cwd=cwd, env=environment(**variables), capture_output=True, text=True, timeout=300)


def on_terminal(*words: str, columns: int, cwd: Path | None = None, **variables: str) -> tuple[int, str]:
    """Runs it on a terminal; returns the exit code and everything that was written, with its control characters."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    command = [sys.executable, "-m", "kernelpack", *words]
    process = subprocess.Popen(command, cwd=cwd, env=environment(**variables), stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    written = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # the other end was closed
            break
        if not piece:
            break
        written += piece
    os.close(ours)
    return process.wait(timeout=60), written.decode()
