"""Copies of the sample library for tests that alter it, and keys that sign it."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from kernelpack.opgen.build import Built
from tests.opgen.conftest import sample_built

__all__ = ["sample_built"]


@pytest.fixture
def folder(sample_built: Built, tmp_path: Path) -> Path:
    """A copy of what the build wrote, with the objects left out, as it would be shipped."""
    return Path(
        shutil.copytree(sample_built.directory, tmp_path / "sample", ignore=shutil.ignore_patterns("build", "__pycache__"))
    )


@dataclass(frozen=True)
class Key:
    """The files of a pair of keys."""

    private: Path
    public: Path


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Key, Key]:
    """Two pairs of keys, made as docs/ship.md says."""
    made = []
    for name in ("one", "two"):
        place = tmp_path_factory.mktemp(name)
        key = Key(place / "key.pem", place / "public.pem")
        for command in (
            ["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(key.private)],
            ["openssl", "ec", "-in", str(key.private), "-pubout", "-out", str(key.public)],
        ):
            subprocess.run(command, check=True, capture_output=True)
        made.append(key)
    return made[0], made[1]
