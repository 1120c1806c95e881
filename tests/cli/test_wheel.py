"""kernelpack wheel makes what pip installs: for the systems that the library runs on, the same bytes each time, nothing of others' overwritten."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelpack.cli import main
from tests.cli.terminal import kernelpack

PACKAGE = [
    "__init__.py", "fakes.py", "host_runtime.py", "libclitest_ops.so", "manifest.json", "ops.lock", "sbom.cdx.json",
]  # fmt: skip
OLD = os.environ.get("OLD_TORCH_PYTHON", "")
"""A Python of an environment with torch 2.10, the oldest that wheels are for: CI makes one."""
USE = """
import importlib.util, sys, torch, clitest
assert importlib.util.find_spec("kernelpack") is None
x = torch.randn(1000)
expected = torch.where(x > 0.25, x, 0.0)
assert torch.equal(torch.ops.clitest.threshold(x, 0.25), expected)
call = torch.compile(lambda x: torch.ops.clitest.threshold(x, 0.25), fullgraph=True, dynamic=True, backend="aot_eager")
assert torch.equal(call(x), expected)
print(clitest.__file__)
"""


@pytest.fixture
def library(built: dict[str, Any], tmp_path: Path) -> Path:
    """A copy of the library that `kernelpack build` made."""
    folder = tmp_path / "clitest"
    shutil.copytree(built["directory"], folder, ignore=shutil.ignore_patterns("build", "packs"))
    return folder


def made(library: Path, *words: str, version: str = "0.1.0") -> Path:
    """Makes the wheel of a library beside it, and returns it."""
    assert main(["wheel", str(library), "--version", version, "--out", str(library.parent / "dist"), *words]) == 0
    (wheel,) = (library.parent / "dist").glob(f"*-{version}-*.whl")
    return wheel


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Runs a command that must fail, and returns what it says."""
    capsys.readouterr()
    assert main(["wheel", *words]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err
    return captured.err


@pytest.mark.parametrize(
    "python",
    [
        pytest.param(sys.executable, id="this_torch"),
        pytest.param(OLD, id="old_torch", marks=pytest.mark.skipif(OLD == "", reason="OLD_TORCH_PYTHON names no Python")),
    ],
)
def test_pip_installs_it_and_it_serves_without_kernelpack(python: str, library: Path, tmp_path: Path) -> None:
    wheel, target = made(library), tmp_path / "installed"
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", str(target), str(wheel)]
    subprocess.run(pip, check=True, capture_output=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KERNELPACK_")}
    environment["PYTHONPATH"] = str(target)
    done = subprocess.run([python, "-c", USE], cwd=target, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(target / "clitest" / "__init__.py")


def test_its_platform_is_what_auditwheel_says(library: Path) -> None:
    wheel = made(library)
    command = [sys.executable, "-m", "auditwheel", "show", "--disable-isa-ext-check", str(wheel)]
    said = " ".join(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())
    platform = wheel.stem.rpartition("-")[2]
    assert platform.startswith("manylinux_2_")
    assert f'consistent with the following platform tag: "{platform}"' in said


def test_it_holds_the_package_and_says_what_it_needs(library: Path, tmp_path: Path) -> None:
    (library / "notes.txt").write_text("what I think of it")
    (library / "mine.py").write_text("secret = 1")
    licence = tmp_path / "LICENSE"
    licence.write_text("do as you like")
    wheel = made(library, "--name", "Click-Test", "--license", str(licence))
    assert wheel.name.startswith("click_test-0.1.0-py3-none-manylinux_2_")
    with zipfile.ZipFile(wheel) as archive:
        assert archive.testzip() is None
        info = [f"click_test-0.1.0.dist-info/{name}" for name in ("METADATA", "RECORD", "WHEEL", "licenses/LICENSE")]
        assert sorted(archive.namelist()) == sorted([*(f"clitest/{name}" for name in PACKAGE), *info])
        metadata = archive.read(info[0]).decode().splitlines()
        assert archive.read("clitest/libclitest_ops.so") == (library / "libclitest_ops.so").read_bytes()
    assert {"Name: click-test", "Requires-Dist: torch>=2.10", "Requires-Python: >=3.10", "License-File: LICENSE"} <= {*metadata}


def test_what_calls_without_boxing_is_in_it(library: Path) -> None:
    """A library that needs libtorch, which no manylinux has, leaves the platform as it is."""
    plain = made(library)
    beside = library / "libclitest_ops.torch-9.9.9.so"
    shutil.copy(Path(torch.__file__).parent / "lib" / "libtorch.so", beside)
    beside.write_bytes(beside.read_bytes() + b"N10kernelpack")
    wheel = made(library, version="0.2.0")
    assert wheel.name == plain.name.replace("0.1.0", "0.2.0")
    assert f"clitest/{beside.name}" in zipfile.ZipFile(wheel).namelist()


def test_the_same_library_gives_the_same_bytes_anywhere(library: Path, tmp_path: Path) -> None:
    first = made(library).read_bytes()
    other = tmp_path / "elsewhere" / "clitest"
    shutil.copytree(library, other, copy_function=shutil.copyfile)
    for path in other.iterdir():
        os.utime(path, (1, 1)) if path.is_file() else None
    assert made(other).read_bytes() == first


def test_a_wheel_of_its_own_is_made_anew_and_that_of_others_stays(library: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wheel = made(library)
    before = wheel.read_bytes()
    (library / "ops.lock").write_text((library / "ops.lock").read_text().replace("any", "all"))
    said = refused(capsys, str(library), "--version", "0.1.0", "--out", str(wheel.parent))
    assert f"{library / 'ops.lock'} was altered: its SHA-256 is not that of manifest.json\n  to fix: build it again" in said
    assert wheel.read_bytes() == before
    (library / "manifest.json").unlink()
    assert made(library).read_bytes() != before
    wheel.write_bytes(b"PK, and what somebody else packed")
    said = refused(capsys, str(library), "--version", "0.1.0", "--out", str(wheel.parent))
    assert f"{wheel} exists, and kernelpack did not write it" in said
    assert wheel.read_bytes() == b"PK, and what somebody else packed"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--version", "new"], "'new' is no version of a package\n  to fix: write numbers with dots, such as 0.1.0"),
        (["--version", "1", "--name", "-x"], "'-x' is no name of a package\n  to fix: write letters and digits"),
        (["--version", "1", "--name", "a b"], "'a b' is no name of a package"),
        (["--version", "1", "--license", "no/such/file"], "no/such/file: No such file or directory"),
    ],
    ids=" ".join,
)
def test_names_versions_and_licences_that_are_none(
    library: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    words = [f"--name={words[3]}" if word == "--name" else word for word in words if word not in ("-x", "a b")]
    assert said in refused(capsys, str(library), *words, "--out", str(library.parent / "dist"))
    assert not (library.parent / "dist").exists()


def test_folders_without_a_whole_library(library: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--version", "1", "--out", str(tmp_path / "dist")]
    assert f"{tmp_path} holds no op library\n  to fix: name the folder" in refused(capsys, str(tmp_path), *words)
    file = library / "libclitest_ops.so"
    data = file.read_bytes()
    file.write_bytes(b"MZ" + data[2:])
    assert "is no library for x86_64 or aarch64" in refused(capsys, str(library), *words)
    file.write_bytes(data[:3000] + b"N10kernelpack")
    assert "auditwheel cannot read the library" in refused(capsys, str(library), *words)
    file.write_bytes(data)
    (library / "ops.lock").write_text("what is this?")
    assert "it is no lock file" in refused(capsys, str(library), *words)
    (library / "ops.lock").unlink()
    assert f"{library} holds no whole op library" in refused(capsys, str(library), *words)
    assert not (tmp_path / "dist").exists()


def test_a_package_named_kernelpack_is_refused(library: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (library / "libclitest_ops.so").rename(library / "libkernelpack_ops.so")
    assert "would hide kernelpack itself" in refused(capsys, str(library), "--version", "1")


def test_without_auditwheel_the_error_says_what_to_install(library: Path) -> None:
    (library.parent / "auditwheel.py").write_text("raise ModuleNotFoundError(name='auditwheel')")
    path = os.pathsep.join([str(library.parent), str(Path(__file__).parents[2])])
    done = kernelpack("wheel", str(library), "--version", "1", cwd=library.parent, PYTHONPATH=path)
    assert done.returncode == 1
    assert "auditwheel is not installed" in done.stderr
    assert "to fix: pip install 'kernelpack[wheel]'" in done.stderr
