"""ARM, emulated: the op library is accurate at each of its levels, on a CPU that has no more; launchers in C++ choose what the CPU has."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.arm import machine
from tests.arm.machine import CPUS, CXX, ROOT, TOO_OLD, library, run, run_python, system
from tests.csrc.conftest import fake_library
from tests.csrc.test_kernels import NAMES, SETTINGS
from tests.ops.grid import OPS, cases

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(machine.missing()), reason=machine.missing())]


@pytest.mark.parametrize("op", [op for op in OPS if op != "scaled_matmul"])  # torch 2.10 has nothing to compare it with
@pytest.mark.parametrize("level", CPUS)
def test_errors_are_at_most_twice_those_of_torch(level: str, op: str) -> None:
    done = run_python(["tests.ops.grid", op], CPUS[level])
    assert done.returncode == 0, done.stdout[-3000:]
    assert f"{sum(case.op == op for case in cases())} cases, 0 inaccurate" in done.stdout


FILES = ("test_int8", "test_packed_attention", "test_paged_attention", "test_quantized_rows", "test_rope_and_cache")
"""Tests of ops that have no place in the grid. Those of sampling and latent attention take too long under qemu."""
OF_THE_LIBRARY = " and ".join(
    f"not {word}" for word in ("cuda", "develop", "emulated", "gpus", "guard", "level", "process", "without_python", "x86")
)
"""The tests that call the library alone. Others start programs, or compile."""


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("level", ["cpu:aarch64", "cpu:aarch64+sve2"])
def test_ops_pass_the_tests_of_their_own(level: str, file: str) -> None:
    words = ["pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow", "-k", OF_THE_LIBRARY, f"tests/ops/{file}.py"]
    done = run_python(words, CPUS[level])
    assert done.returncode == 0, done.stdout[-3000:]


def test_a_level_that_the_cpu_lacks_is_refused() -> None:
    refused = run_python(["tests.ops.grid", "softmax"], CPUS["cpu:aarch64"], KERNELPACK_CPU_TARGET="cpu:aarch64+bf16")
    assert "KERNELPACK_CPU_TARGET asks for cpu:aarch64+bf16, which this CPU cannot run" in refused.stdout


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The C++ tests of loaders and launchers, for ARM."""
    folder = tmp_path_factory.mktemp("arm")
    for name, text in fake_library().items():
        (folder / name).write_text(text)
    flags = ["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'csrc'}", f"-I{ROOT / 'csrc/kernels'}", "-I."]
    tests = ROOT / "tests/csrc"
    sources = [*sorted(tests.glob("*_test.cpp")), *sorted((ROOT / "csrc/kernels").glob("*.cpp")), *sorted(folder.glob("*.cpp"))]
    zstd = system() / "usr/lib/aarch64-linux-gnu/libzstd.a"
    include = [f"-idirafter{system() / 'usr/include'}"]
    for command in (
        [CXX, *flags, "-shared", "-fPIC", tests / "mock_cuda.cpp", "-o", "mock.so"],
        [CXX, *flags, *include, *sources, zstd, "-ldl", "-lpthread", "-o", "kernels_test"],
    ):
        done = subprocess.run([*map(str, command)], cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize(
    "name", [name for name in NAMES if not name.startswith("cuda_driver_that")]
)  # these have other drivers
def test_cpp(program: Path, name: str) -> None:
    for setting in SETTINGS.get(name, [{}]):
        settings = {"KERNELPACK_LIBCUDA": str(program / "mock.so"), "ARM_LEVEL": "cpu:aarch64+sve2", **setting}
        done = run([program / "kernels_test", name], "max", **settings)
        assert done.returncode == 0, f"{setting}: {done.stdout}"


@pytest.mark.parametrize("level", [*CPUS, "an ARM CPU before ARMv8.2"])
def test_the_best_level_that_the_cpu_has_is_chosen(program: Path, level: str) -> None:
    name = "the_best_level_that_the_cpu_has_is_chosen"
    done = run([program / "kernels_test", name], CPUS.get(level, TOO_OLD), ARM_LEVEL=level)
    assert done.returncode == 0, done.stdout


def test_python_and_cpp_agree_on_what_the_cpu_has() -> None:
    for level, cpu in CPUS.items():
        done = run_python(["tests.arm.levels"], cpu)
        assert done.stdout.splitlines()[-1] == level, done.stdout


def test_the_library_is_for_arm_and_needs_torch_alone() -> None:
    text = subprocess.run(["readelf", "-hd", library() / "libkernelpack_ops.so"], capture_output=True, text=True).stdout
    assert "AArch64" in text
    assert not re.search(r"NEEDED.*(cuda|python|llvm)", text)
