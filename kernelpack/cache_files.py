"""Files that several processes may write to the cache at once."""

from __future__ import annotations

import time
from pathlib import Path


def write_whole(path: Path, data: bytes) -> None:
    """Writes a file whole or not at all, and the folders above it. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{time.monotonic_ns()}")
    partial.write_bytes(data)
    partial.replace(path)
