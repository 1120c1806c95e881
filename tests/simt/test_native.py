"""The emulator's C++ runtime: which compiler makes it, and what is said where none does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
from kernelpack.errors import BuildError
from kernelpack.simt.native import runtime_library

try:
    runtime_library()
except BuildError as error:
    print(error)
"""


def said(tmp_path: Path, compiler: str) -> str:
    environment = {"KERNELPACK_CACHE_DIR": str(tmp_path / "cache"), "KERNELPACK_CXX": compiler, "PATH": "/usr/bin:/bin"}
    environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True)
    return done.stdout


def test_the_compiler_is_that_of_the_knob(tmp_path: Path) -> None:
    assert said(tmp_path, "no-such-compiler") == (
        "the C++ compiler 'no-such-compiler' was not found\n  to fix: apt-get install g++, or set KERNELPACK_CXX\n"
    )


def test_what_the_compiler_says_is_told(tmp_path: Path) -> None:
    compiler = tmp_path / "compiler"
    compiler.write_text("#!/bin/sh\necho it is broken >&2\nexit 1\n")
    compiler.chmod(0o755)
    text = said(tmp_path, str(compiler))
    assert "csrc/simt does not compile" in text
    assert "it is broken" in text
    assert list((tmp_path / "cache").iterdir()) == []
