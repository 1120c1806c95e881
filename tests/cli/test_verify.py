"""kernelpack verify answers with its exit code whether the sources still make what the lock file states."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from kernelpack.cli import main


@pytest.fixture
def library(built: dict[str, Any], tmp_path: Path) -> Path:
    """A copy of the library's lock file and packs, beside its source."""
    folder = Path(built["directory"])
    shutil.copytree(folder / "packs", tmp_path / "clitest" / "packs")
    shutil.copy(folder / "ops.lock", tmp_path / "clitest")
    shutil.copy(folder.parent / "my_ops.py", tmp_path)
    return tmp_path


def words(library: Path, *more: str) -> list[str]:
    return ["verify", str(library / "my_ops.py"), "--namespace", "clitest", "--out", str(library / "clitest"), *more]


def test_unchanged_sources_verify(capsys: pytest.CaptureFixture[str], library: Path, built: dict[str, Any]) -> None:
    assert main(words(library)) == 0
    assert f"verified: {built['kernels']} kernels compiled anew" in capsys.readouterr().out


def test_altered_byte_of_the_lock_fails_and_names_the_variant(capsys: pytest.CaptureFixture[str], library: Path) -> None:
    lock = library / "clitest" / "ops.lock"
    text = lock.read_text()
    lock.write_text(text[:-2] + ("0" if text[-2] != "0" else "1") + "\n")
    variant = text.splitlines()[-1].split()[1]
    assert main(words(library)) == 1
    said = capsys.readouterr().out
    assert f"{variant} for cuda:sm_80 differs" in said
    assert "to fix:" in said


def test_altered_kernel_line_fails_in_json(capsys: pytest.CaptureFixture[str], library: Path) -> None:
    source = library / "my_ops.py"
    source.write_text(source.read_text().replace("value > level", "value >= level"))
    assert main(words(library, "--json")) == 1
    record = json.loads(capsys.readouterr().out)
    assert len(record["differences"]) == record["kernels"]


def test_the_shares_are_together_all(library: Path, built: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    """A difference is found in one of them."""
    lock = library / "clitest" / "ops.lock"
    text = lock.read_text()
    lock.write_text(text[:-2] + ("0" if text[-2] != "0" else "1") + "\n")
    records = []
    for part in (1, 2, 3):
        main(words(library, "--share", f"{part}/3", "--json"))
        records.append(json.loads(capsys.readouterr().out))
    assert sum(record["kernels"] for record in records) == built["kernels"]
    assert sum(len(record["differences"]) for record in records) == 1


@pytest.mark.parametrize("text", ["0/3", "4/3", "3", "a/b", "1/0", "/"])
def test_what_is_no_share_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["verify", "x.py", "--namespace", "x", "--share", text])
    assert "is no part of a whole; write 1/3" in capsys.readouterr().err


def test_verify_takes_nothing_from_the_cache_but_leaves_it_to_builds(
    library: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cache = library / "cache"
    monkeypatch.setenv("KERNELPACK_CACHE_DIR", str(cache))
    assert main(words(library)) == 0
    kept = {file: file.read_text() for file in cache.rglob("*.kpack")}
    for file, text in kept.items():  # packs that parse, but hold another kernel's code
        file.write_text(next(other for other in kept.values() if other != text))
    assert main(words(library)) == 0
    assert {file: file.read_text() for file in cache.rglob("*.kpack")} == kept
    capsys.readouterr()


def test_lock_file_beside_the_sources(capsys: pytest.CaptureFixture[str], library: Path, built: dict[str, Any]) -> None:
    lock = library / "ops.lock"
    shutil.move(library / "clitest" / "ops.lock", lock)
    shutil.rmtree(library / "clitest")
    command = words(library, "--lock", str(lock))
    assert main(command) == 0
    # a lock file that lost a target is noticed when the targets are named
    lock.write_text("".join(line for line in lock.read_text().splitlines(True) if "cuda" not in line))
    assert main(command) == 0
    assert main([*command, "--target", ",".join(built["targets"])]) == 1
    assert "for cuda:sm_80 is not in the lock file" in capsys.readouterr().out


def test_missing_lock_is_an_error_with_its_cure(capsys: pytest.CaptureFixture[str], source: Path, tmp_path: Path) -> None:
    assert main(["verify", str(source), "--namespace", "none", "--out", str(tmp_path / "none")]) == 1
    said = capsys.readouterr().err
    assert "ops.lock does not exist" in said
    assert "kernelpack build" in said


def test_another_llvm_is_said_before_anything_is_compiled(capsys: pytest.CaptureFixture[str], library: Path) -> None:
    lock = library / "clitest" / "ops.lock"
    lines = lock.read_text().splitlines(True)
    stated = next(line for line in lines if line.startswith("# llvm = "))
    lock.write_text("".join("# llvm = llvmlite 0.1.0, LLVM 3.5.0\n" if line == stated else line for line in lines))
    assert main(words(library)) == 1
    said = capsys.readouterr()
    assert "is for llvm = llvmlite 0.1.0, LLVM 3.5.0; here is " + stated.strip("# \n") in said.err
    assert "install what the lock file states" in said.err
    assert said.out == ""
