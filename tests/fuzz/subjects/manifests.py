"""manifest.json of built folders: read, written again as it was, and compared with a folder."""

from __future__ import annotations

from pathlib import Path

from kernelpack.ship.manifest import NAME, Manifest, compare, differing_sources, parse_manifest, read_manifest
from tests.fuzz.subject import Subject
from tests.fuzz.subjects.packs import PACK

_MANIFEST = Manifest(
    namespace="my",
    kernelpack="0.1.0",
    targets=("cpu:x86-64-v3",),
    tools={"llvm": ("llvmlite 0.50.0, LLVM 22.1.0",)},
    sources={"my_ops.py": "ab" * 32},
    files={"fakes.py": "ab" * 32, "packs/a.kpack": "cd" * 32},
    images={"cpu:x86-64-v3": {PACK.variant: PACK.sha256}},
)


def _run(data: bytes, folder: Path) -> None:
    file = folder / NAME
    file.write_bytes(data)
    found = read_manifest(folder)
    assert parse_manifest(str(found).encode()) == found
    compare(folder, found).sentences()
    (folder / "my_ops.py").write_bytes(data)
    differing_sources([folder / "my_ops.py"], found)


SUBJECT = Subject(lambda: [str(_MANIFEST).encode()], _run, tokens=[b'"../a"', b'"\\u0000"', b"ab" * 32, b'"/"', b"[]"])
