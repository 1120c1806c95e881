"""CMake projects: one that builds an op library from Python files, and one that takes a folder which a build wrote."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kernelpack.cli import main

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "serving_examples" / "cmake"
RIGHT = "y = 2.5 x + y of 1000000 elements is right (cpu)\n"
TAKES = """
cmake_minimum_required(VERSION 3.18)
project(takes LANGUAGES C)
find_package(demo REQUIRED)
find_package(demo REQUIRED)  # by two parts of a project
find_package(OpenMP REQUIRED)
add_executable(plain %s/main.c)
target_link_libraries(plain PRIVATE demo::kernels OpenMP::OpenMP_C ${CMAKE_DL_LIBS})
add_executable(with_ops ops.c)
target_link_libraries(with_ops PRIVATE demo::ops -Wl,--no-as-needed %s/lib/libtorch_cpu.so)
"""
OPS = """
#include <dlfcn.h>
#include <stdio.h>
int main(void) {
  const char* (*said)(void) = (const char* (*)(void))dlsym(RTLD_DEFAULT, "demo_load_error");
  puts(said == 0 ? "it was not kept" : said());
  return 0;
}
"""

pytestmark = pytest.mark.skipif(shutil.which("cmake") is None, reason="there is no cmake")


def run(*words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(list(map(str, words)), cwd=cwd, env=environment, capture_output=True, text=True)


def configure(source: Path, build: Path, capsys: pytest.CaptureFixture[str], *options: str) -> subprocess.CompletedProcess[str]:
    """Runs cmake with the Python of these tests, and the folder that kernelpack names."""
    with pytest.raises(SystemExit):
        main(["--cmake-dir"])
    folder = capsys.readouterr().out.strip()
    known = [f"-Dkernelpack_DIR={folder}", f"-DKERNELPACK_PYTHON={sys.executable}"]
    return run("cmake", "-S", source, "-B", build, *known, *options, cwd=build.parent)


def built(build: Path) -> str:
    done = run("cmake", "--build", build, cwd=build.parent)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_project_builds_its_library_again_when_a_source_changes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(EXAMPLE.parent / "plain_c", tmp_path / "plain_c")
    shutil.copytree(EXAMPLE, tmp_path / "cmake")
    done = configure(tmp_path / "cmake", tmp_path / "build", capsys, "-DWITH_TORCH=OFF")
    assert done.returncode == 0, done.stderr
    assert "kernelpack builds demo" in built(tmp_path / "build")
    assert run("build/plain", "cpu", cwd=tmp_path).stdout == RIGHT
    assert "kernelpack builds demo" not in built(tmp_path / "build")
    source = tmp_path / "plain_c" / "saxpy.py"
    source.write_text(source.read_text() + "\n# a change\n")
    assert "kernelpack builds demo" in built(tmp_path / "build")
    assert "kernelpack builds demo" not in built(tmp_path / "build")

    # the folder of the library is one that other projects find
    (tmp_path / "takes").mkdir()
    (tmp_path / "takes" / "CMakeLists.txt").write_text(TAKES % (EXAMPLE.parent / "plain_c", Path(torch.__file__).parent))
    (tmp_path / "takes" / "ops.c").write_text(OPS)
    done = configure(tmp_path / "takes", tmp_path / "other", capsys, f"-Ddemo_DIR={tmp_path / 'build' / 'demo'}")
    assert done.returncode == 0, done.stderr
    built(tmp_path / "other")
    assert run("other/plain", "cpu", cwd=tmp_path).stdout == RIGHT
    done = run("other/with_ops", cwd=tmp_path)
    assert done.stdout == "\n", done


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("demo SOURCES a.py", "kernelpack_add_library(demo): TARGETS is missing"),
        ("demo TARGETS cpu:native", "kernelpack_add_library(demo): SOURCES is missing"),
        ("demo a.py SOURCES a.py TARGETS cpu:native", "kernelpack_add_library(demo): unknown arguments a.py"),
    ],
)
def test_calls_that_lack_something_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], call: str, said: str
) -> None:
    text = f"cmake_minimum_required(VERSION 3.18)\nproject(p LANGUAGES NONE)\nfind_package(kernelpack REQUIRED)\nkernelpack_add_library({call})\n"
    (tmp_path / "CMakeLists.txt").write_text(text)
    done = configure(tmp_path, tmp_path / "build", capsys)
    assert done.returncode != 0
    assert said in done.stderr


@pytest.mark.slow
def test_a_program_that_is_linked_to_the_ops_calls_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = configure(EXAMPLE, tmp_path / "build", capsys, f"-DCMAKE_PREFIX_PATH={torch.utils.cmake_prefix_path}")
    assert done.returncode == 0, done.stderr
    built(tmp_path / "build")
    done = run("build/server", cwd=tmp_path)
    assert done.stdout == "y = 2.5 x + y of 5000 elements is right\n", done
