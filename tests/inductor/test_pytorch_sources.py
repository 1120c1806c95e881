"""Where PyTorch's tests come from: the release's archive, or the older one where there is no way to it; what is no such archive is refused."""

from __future__ import annotations

import hashlib
import io
import tarfile
from pathlib import Path

import pytest

from tests.inductor import pytorch_sources
from tests.inductor.pytorch_sources import Archive, archives, fetched

TESTS = ("test/inductor/test_triton_cpu_backend.py", "test/inductor/nested/more.py")


def packed(path: Path, names: tuple[str, ...] = TESTS) -> Archive:
    """Writes an archive as a release's is, with a folder around all, and returns where it is."""
    with tarfile.open(path, "w:gz") as tar:
        for name in (*names, "setup.py"):
            member = tarfile.TarInfo(f"pytorch-v0/{name}")
            member.size = len(name)
            tar.addfile(member, io.BytesIO(name.encode()))
    return Archive("0", path.as_uri(), hashlib.sha256(path.read_bytes()).hexdigest())


def places(monkeypatch: pytest.MonkeyPatch, *found: Archive) -> None:
    monkeypatch.setattr(pytorch_sources, "archives", lambda release: list(found))


def test_the_release_comes_first_and_what_may_change_has_no_hash() -> None:
    first, *others = archives("2.13.0")
    assert first.url.endswith("/v2.13.0/pytorch-v2.13.0.tar.gz")
    assert [archive.sha256 is None for archive in (first, *others)] == [True, False]


def test_the_tests_alone_are_unpacked_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places(monkeypatch, packed(tmp_path / "archive.tar.gz"))
    folder, release = fetched("0", tmp_path / "into")
    assert release == "0"
    assert sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*.py")) == [
        "nested/more.py",
        "test_triton_cpu_backend.py",
    ]
    (tmp_path / "archive.tar.gz").unlink()
    assert fetched("0", tmp_path / "into") == (folder, release)
    assert [p.name for p in (tmp_path / "into").iterdir()] == [folder.name]


@pytest.mark.parametrize("problem", ["no way there", "another hash", "no tests", "no archive"])
def test_where_one_place_fails_the_next_is_asked(problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "first.tar.gz"
    bad = packed(path, () if problem == "no tests" else TESTS)
    if problem == "no way there":
        path.unlink()
    elif problem == "another hash":
        bad = Archive("0", bad.url, "0" * 64)
    elif problem == "no archive":
        path.write_bytes(b"<html>moved</html>")
        bad = Archive("0", bad.url)
    good = Archive("1", packed(tmp_path / "second.tar.gz").url)
    places(monkeypatch, bad, good)
    folder, release = fetched("0", tmp_path / "into")
    assert (folder.name, release) == ("pytorch-1", "1")
    places(monkeypatch, bad)
    with pytest.raises(SystemExit, match="could not be fetched:\nfile:"):
        fetched("0", tmp_path / "into")
