"""kernelpack doctor sees what is there, what is missing, and what is broken, and says what to do."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelpack.backends.base import Device
from kernelpack.cli.doctor import Library, Report, StandIn
from kernelpack.target import Target
from tests.cli.terminal import ROOT, environment, kernelpack


def report(*words: str, **variables: str) -> tuple[int, dict[str, Any]]:
    done = kernelpack("doctor", *words, "--json", **variables)
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout)


def test_what_is_installed_can_be_built_and_is_covered(built: dict[str, Any]) -> None:
    _, found = report(built["directory"])
    installed = {tool["name"]: tool["found"] for tool in found["installed"]}
    assert installed["torch"] == torch.__version__
    assert installed["g++"]
    assert installed["ptxas"]
    assert "cuda:sm_90a" in found["buildable"]["cuda"]
    assert "cpu:aarch64" in found["buildable"]["cpu"]
    library = next(entry for entry in found["libraries"] if entry["path"] == built["directory"])
    assert library["error"] is None
    assert library["kernels"] == built["kernels"]
    processor = found["devices"][0]
    assert processor["targets"]
    assert processor["libraries"][built["directory"]] == built["targets"][0]


@pytest.mark.slow  # it compiles torch's headers
def test_whether_this_torch_boxes_the_arguments_of_ops_is_said(built: dict[str, Any], tmp_path: Path) -> None:
    folder = tmp_path / "clitest"
    shutil.copytree(built["directory"], folder, ignore=shutil.ignore_patterns("build", "packs", "cpp"))
    _, found = report(str(folder))
    assert found["libraries"][-1]["unboxed"] == 0
    assert f"kernelpack unbox {folder}" in kernelpack("doctor", str(folder)).stdout
    made = kernelpack("unbox", str(folder))
    assert made.returncode == 0, made.stderr
    release = torch.__version__.partition("+")[0]
    assert f"unboxed libclitest_ops.torch-{release}.so: 2 schemas, torch {release}" in made.stdout
    _, found = report(str(folder))
    assert found["libraries"][-1]["unboxed"] == 4
    again = json.loads(kernelpack("unbox", str(folder / "libclitest_ops.so"), "--json").stdout)
    assert again["torch"] == release
    assert again["schemas"][0].startswith("threshold(Tensor x, float level)")


@pytest.mark.parametrize(
    ("keep", "without", "error"),
    [
        (0, "manifest.json", "libclitest_ops.so"),
        (4096, "manifest.json", "SIG"),
        (4096, "packs", "libclitest_ops.so was not loaded: it was altered"),
    ],
)
def test_broken_library_is_reported_and_fails(
    built: dict[str, Any], tmp_path: Path, keep: int, without: str, error: str
) -> None:
    folder = tmp_path / "clitest"
    shutil.copytree(built["directory"], folder, ignore=shutil.ignore_patterns("build", "packs", "cpp", without))
    library = folder / "libclitest_ops.so"
    library.write_bytes(library.read_bytes()[:keep] or b"not a library")
    code, found = report(str(folder))
    assert code == 1
    entry = next(entry for entry in found["libraries"] if entry["path"] == str(folder))
    assert error in entry["error"]
    assert "build" in entry["cure"]


def test_folder_without_a_library_fails(tmp_path: Path) -> None:
    code, found = report(str(tmp_path))
    assert code == 1
    assert found["libraries"][-1]["error"] == "holds no op library"


def test_missing_compiler_is_reported_with_its_cure() -> None:
    _, found = report(KERNELPACK_CXX="no-such-compiler")
    compiler = next(tool for tool in found["installed"] if tool["name"] == "no-such-compiler")
    assert compiler["found"] is None
    assert "KERNELPACK_CXX" in compiler["cure"]


def without(package: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs the command line where a package is not installed."""
    code = f"import sys; sys.modules[{package!r}] = None; sys.argv = ['kernelpack', *{words!r}]\nfrom kernelpack.cli import main\nsys.exit(main())"
    return subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True)


def test_installation_that_only_serves_is_diagnosed(source: Path) -> None:
    done = without("llvmlite", "doctor")
    assert "llvmlite" in done.stdout
    assert "pip install 'kernelpack[build]'" in done.stdout
    build = without("llvmlite", "build", str(source), "--namespace", "my", "--target", "cpu:native")
    assert build.returncode == 1
    assert "llvmlite is not installed\n  to fix: pip install 'kernelpack[build]'" in build.stderr


def test_command_line_starts_when_the_own_library_is_broken(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "kernelpack", tmp_path / "kernelpack", ignore=shutil.ignore_patterns("library", "__pycache__"))
    library = tmp_path / "kernelpack" / "library"
    library.mkdir()
    (library / "libkernelpack_ops.so").write_bytes(b"not a library")
    (library / "__init__.py").write_text("raise ImportError('the library is broken')\n")
    (library / "ops.lock").write_text("# kernelpack lock, version 2\n")
    done = kernelpack("doctor", cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    assert str(library) in done.stdout
    command = [sys.executable, "-c", "import kernelpack"]
    imported = subprocess.run(command, cwd=tmp_path, env=environment(PYTHONPATH=str(tmp_path)), capture_output=True, text=True)
    assert "the library is broken" in imported.stderr


def test_device_takes_the_best_target_that_the_library_has() -> None:
    device = Device("a GPU", (Target("cuda", "sm_90a"), Target("cuda", "sm_90"), Target("cuda", "sm_80")))
    empty = Report((), {}, (device,), (), (), StandIn(False, False, None, {}))
    assert empty.best(device, Library("x", ("cpu:x86-64-v3", "cuda:sm_80", "cuda:sm_90"), 3, None)) == "cuda:sm_90"
    assert empty.best(device, Library("x", ("cpu:x86-64-v3",), 1, None)) is None


def test_targets_whose_code_deserves_doubt_say_so() -> None:
    _, found = report()
    assert found["caveats"]["cpu:aarch64"] == "its code was run by an emulator alone, and its speed was never measured"
    assert "cpu:aarch64: its code was run by an emulator alone, and its speed was never measured" in kernelpack("doctor").stdout


def test_it_says_what_import_triton_means() -> None:
    assert "import triton\n   - means" in kernelpack("doctor").stdout
    done = kernelpack("doctor", KERNELPACK_AS_TRITON="1")
    assert (
        "means kernelpack, as Triton 3.6.0, in processes that import kernelpack first (KERNELPACK_AS_TRITON=1)" in done.stdout
    )
    assert "pip install 'kernelpack[as-triton]'" in done.stdout


def test_packages_that_want_another_triton_are_named(tmp_path: Path) -> None:
    for name, wanted in (
        ("pinned", "triton==3.1.0"),
        ("content", "triton>=3.0"),
        ("elsewhere", 'triton==1; sys_platform == "none"'),
    ):
        info = tmp_path / f"{name}-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\nRequires-Dist: {wanted}\n")
    done = kernelpack("doctor", PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert "pinned 1 wants triton==3.1.0, and gets 3.6.0 where kernelpack stands in" in done.stdout
    assert "content 1" not in done.stdout
    assert "elsewhere 1" not in done.stdout
