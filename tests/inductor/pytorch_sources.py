"""Fetches the folder test/inductor of a PyTorch release, which its wheels do not hold, into build/inductor."""

from __future__ import annotations

import hashlib
import shutil
import tarfile
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

FOLDER = "test/inductor"


@dataclass(frozen=True)
class Archive:
    """Sources of a release at a public place. `sha256` is known where the place does not change what it gives."""

    release: str
    url: str
    sha256: str | None = None


def archives(release: str) -> list[Archive]:
    """Returns where a release's tests may be had, the best place first. The last is older: most of its tests fit later releases."""
    github = "https://github.com/pytorch/pytorch/releases/download"
    return [
        Archive(release, f"{github}/v{release}/pytorch-v{release}.tar.gz"),
        Archive(
            "2.6.0",
            "https://deb.debian.org/debian/pool/main/p/pytorch/pytorch_2.6.0%2Bdfsg.orig.tar.xz",
            "099a9601bc40d67656e75735c44abedb0fbe92d08817852ab7472eebb7e6ddff",
        ),
    ]


def fetched(release: str, into: Path) -> tuple[Path, str]:
    """Returns a folder with the tests, and which release they are of. Raises SystemExit, with what each place answered."""
    problems = []
    for archive in archives(release):
        folder = into / f"pytorch-{archive.release}"
        if folder.is_dir():
            return folder, archive.release
        try:
            _unpack(archive, folder, into)
        except (OSError, ValueError, tarfile.TarError) as problem:
            problems.append(f"{archive.url}: {problem}")
        else:
            return folder, archive.release
    raise SystemExit("the tests of PyTorch could not be fetched:\n" + "\n".join(problems))


def _unpack(archive: Archive, folder: Path, into: Path) -> None:
    into.mkdir(parents=True, exist_ok=True)
    packed, partial = into / f"{folder.name}.tar", into / f"{folder.name}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    print(f"fetching {archive.url}", flush=True)
    with urllib.request.urlopen(archive.url, timeout=60) as answer, packed.open("wb") as file:
        shutil.copyfileobj(answer, file)
    try:
        found = hashlib.sha256(packed.read_bytes()).hexdigest()
        if archive.sha256 is not None and found != archive.sha256:
            raise ValueError(f"its SHA-256 is {found}, expected {archive.sha256}")
        with tarfile.open(packed) as tar:
            for member in tar:
                inner = member.name.partition("/")[2]
                if member.isfile() and inner.startswith(f"{FOLDER}/"):
                    member.name = inner.removeprefix(f"{FOLDER}/")
                    tar.extract(member, partial, filter="data")
        if not (partial / "test_triton_cpu_backend.py").is_file():
            raise ValueError(f"it has no {FOLDER}/test_triton_cpu_backend.py")
    finally:
        packed.unlink()
    partial.rename(folder)
