"""kernelpack cache says what is kept and what of it is refused, and writes the lock by which others may load it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernelpack.cli import main
from kernelpack.opgen.build import plan_library
from kernelpack.opgen.workers import compile
from kernelpack.opgen.workers.compile import compile_variants
from tests.files.strangers import as_root, give_to_stranger


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KERNELPACK_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(compile, "_compiler_hash", lambda: "the compiler")  # its source may change while tests run
    return tmp_path / "cache"


def compiled(source: Path) -> int:
    """Returns how many kernels of an op file are compiled now."""
    return len(compile_variants(plan_library([source], namespace="mine", targets=["cpu:x86-64-v3"]).variants, jobs=1)[1])


def test_an_empty_cache_is_no_problem(cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "--json", "--lock", str(tmp_path / "lock")]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "folder": str(cache),
        "files": 0,
        "bytes": 0,
        "refused": [],
        "lock": str(tmp_path / "lock"),
    }


def test_without_a_cache_there_is_none_to_look_at(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELPACK_CACHE", "0")
    assert main(["cache"]) == 1
    assert "to fix: unset KERNELPACK_CACHE" in capsys.readouterr().err


@as_root
def test_builds_take_what_the_lock_lists_from_a_cache_of_others(
    cache: Path, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert compiled(source) == 2
    (cache / ".kernelpack-1234").write_text("what a process that was killed left")
    lock = tmp_path / "cache.lock"
    assert main(["cache", "--lock", str(lock)]) == 0
    assert f"{cache}: 2 files, " in capsys.readouterr().out
    for path in (cache, *cache.rglob("*")):
        give_to_stranger(path)
    with pytest.warns(RuntimeWarning, match=f"the cache is not used: {cache} belongs to user 12345"):
        assert compiled(source) == 2
    monkeypatch.setenv("KERNELPACK_CACHE_LOCK", str(lock))
    assert compiled(source) == 0
    (file, _) = sorted(cache.rglob("*.kpack"))
    file.write_bytes(file.read_bytes().replace(b"0", b"1"))
    with pytest.warns(RuntimeWarning, match=f"the cache is not used: {file} is not the file that {lock} lists"):
        assert compiled(source) == 1


@as_root
def test_a_lock_is_not_written_of_what_others_can_have_written(
    cache: Path, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compiled(source)
    (file, _) = sorted(cache.rglob("*.kpack"))
    file.chmod(0o666)
    assert main(["cache", "--lock", str(tmp_path / "lock")]) == 1
    assert f"{file} can be written by others (mode 666)\n  to fix: chmod go-w {file}" in capsys.readouterr().err
    assert not (tmp_path / "lock").exists()
    assert main(["cache"]) == 1
    said = capsys.readouterr().out
    assert f"{cache}: 1 file, " in said
    assert "refused: 1 file that others can have written" in said
    assert f"to fix: chmod go-w {file}" in said


def test_a_lock_replaces_no_other_file(cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "notes"
    file.write_text("my notes")
    assert main(["cache", "--lock", str(file)]) == 1
    assert f"{file} exists, and kernelpack did not write it" in capsys.readouterr().err
    assert file.read_text() == "my notes"
    file.unlink()
    for _ in range(2):
        assert main(["cache", "--lock", str(file)]) == 0
