"""The hash of the compiler's own source: a changed compiler compiles anew."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

_ROOMS = (
    "analysis", "backends", "compiler", "frontend", "ir", "kernel", "knobs", "language", "layout", "llvm", "passes", "semantics",
)  # fmt: skip
_FILES = (
    "compiled.py", "context.py", "descriptors.py", "dtypes.py", "errors.py", "facts.py", "lazy.py", "limits.py", "options.py", "process_wide.py", "target.py",
    "version.py",
)  # fmt: skip


def source_files(root: Path) -> list[Path]:
    """Returns the files of a kernelpack folder that decide what is compiled."""
    return [*(path for room in _ROOMS for path in sorted((root / room).rglob("*.py"))), *(root / name for name in _FILES)]


@functools.cache
def source_hash(*more: str) -> str:
    """Returns the hash of the compiler's own source, and of `more` files of kernelpack: a changed compiler compiles anew."""
    root = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in [*source_files(root), *(root / name for name in more)]:
        digest.update(path.relative_to(root).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()
