"""ops.lock and the locks of caches: read, written again as they were, and compared."""

from __future__ import annotations

from pathlib import Path

from kernelpack.files import lock
from kernelpack.pack.lock import LockLine, differences, lock_text, parse_lock, read_lock
from tests.fuzz.subject import Subject
from tests.fuzz.subjects.packs import PACK

_OPS = lock_text([PACK])
_CACHE = lock.lock_text({"autotune/a.json": "ab" * 32, "k/kernel.bin": "cd" * 32})


def _run(data: bytes, folder: Path) -> None:
    if data.startswith(b"# kernelpack lock"):
        file = folder / "ops.lock"
        file.write_bytes(data)
        found = read_lock(file)
        lines = [str(LockLine(target, variant, sha256)) for (target, variant), sha256 in found.hashes.items()]
        tools = [f"# {tool} = {version}" for tool, version in found.tools.items()]
        assert parse_lock("\n".join([_OPS.split("\n")[0], *tools, *lines, ""])) == found
        differences(parse_lock(_OPS).hashes, found.hashes)
    else:
        hashes = lock.parse_lock(data.decode(errors="replace"), "cache.lock")
        assert lock.parse_lock(lock.lock_text(hashes), "cache.lock") == hashes


SUBJECT = Subject(lambda: [_OPS.encode(), _CACHE.encode()], _run, tokens=[b"cpu:x86-64-v3", b"ab" * 32, b"  ", b"\r", b"\x85"])
