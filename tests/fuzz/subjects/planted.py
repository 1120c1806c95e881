"""A reader with faults of every kind, by which tests see that they are found. It is no part of a campaign."""

from __future__ import annotations

import os
import time
from pathlib import Path

from kernelpack.errors import PackError
from tests.fuzz.subject import Subject


def _planted(data: bytes, folder: Path) -> None:
    """A reader with faults after a mark that no seed has."""
    if not data.startswith(b"mark"):
        raise PackError("planted:1: it is none")
    if b"K" in data:
        {}["x"]
    if b"R" in data:
        _planted(data, folder)
    if b"LOOP" in data:
        while True:
            time.monotonic()
    if b"M" in data:
        bytearray(1 << 40)
    if b"D" in data:
        os.abort()


SUBJECT = Subject(lambda: [b"mark a", b"nothing"], _planted, tokens=[b"mark"])
