"""Writing files: what is there holds all that it should, or is what it was before."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

_PARTIAL = ".kernelpack-"


def is_partial(name: str) -> bool:
    """Whether a file is being written, or was when its process was killed."""
    return os.path.basename(name).startswith(_PARTIAL)


def make_folder(folder: Path, *, mode: int = 0o777) -> None:
    """Makes a folder, and those above it, with these permissions less those of the umask. Raises OSError."""
    if not folder.is_dir():
        make_folder(folder.parent, mode=mode)
        folder.mkdir(mode=mode, exist_ok=True)


def write_whole(path: Path, data: bytes, *, shared: bool = True) -> None:
    """Writes a file whole or not at all, and the folders above it; a link in its place is replaced. Raises OSError.

    The data goes into a new file of the same folder, whose name nobody can know before, which is then renamed. Unless `shared`, nobody
    but the owner may write to files and folders, whatever the umask says.
    """
    make_folder(path.parent, mode=0o777 if shared else 0o755)
    partial = path.with_name(f"{_PARTIAL}{secrets.token_hex(8)}")
    try:
        with open(
            os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666 if shared else 0o644), "wb"
        ) as file:
            file.write(data)
        os.replace(partial, path)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise
