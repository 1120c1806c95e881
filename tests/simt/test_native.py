"""The emulator's C++ runtime: which compiler makes it, what is said where none does, and whose library is loaded."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelpack.files.lock import lock_text
from kernelpack.simt.native import library_name
from tests.files.strangers import as_root, give_to_stranger

PROGRAM = """
from kernelpack.errors import BuildError
from kernelpack.simt.native import runtime_library

try:
    runtime_library()
except BuildError as error:
    print(error)
"""


def said(tmp_path: Path, compiler: str = "no-such-compiler", **more: str) -> str:
    environment = {"KERNELPACK_CACHE_DIR": str(tmp_path / "cache"), "KERNELPACK_CXX": compiler, "PATH": "/usr/bin:/bin", **more}
    environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True)
    return done.stdout


def test_the_compiler_is_that_of_the_knob(tmp_path: Path) -> None:
    assert said(tmp_path, "no-such-compiler") == (
        "the C++ compiler 'no-such-compiler' was not found\n  to fix: apt-get install g++, or set KERNELPACK_CXX to another; options "
        "may follow its name: KERNELPACK_CXX='ccache g++ -O1'\n"
    )


def test_what_the_compiler_says_is_told(tmp_path: Path) -> None:
    compiler = tmp_path / "compiler"
    compiler.write_text("#!/bin/sh\necho it is broken $1 >&2\nexit 1\n")
    compiler.chmod(0o755)
    text = said(tmp_path, f"{compiler} -O0")
    assert "csrc/simt does not compile" in text
    assert "it is broken -O0" in text
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """A library in the cache that says when it is loaded."""
    library = tmp_path / "cache" / library_name()
    library.parent.mkdir()
    source = tmp_path / "planted.c"
    source.write_text(
        '#include <unistd.h>\n__attribute__((constructor)) static void run(void) { write(1, "loaded\\n", 7); _exit(0); }\n'
    )
    subprocess.run(["gcc", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    return library


def for_all(path: Path) -> None:
    path.chmod(0o777)


@as_root
@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("the library", give_to_stranger),
        ("its folder", for_all),
        *(
            pytest.param(*row, marks=pytest.mark.slow)
            for row in (
                ("the library", for_all),
                ("its folder", give_to_stranger),
                ("an empty folder", give_to_stranger),
                ("an empty folder", for_all),
            )
        ),
    ],
)
def test_a_library_that_a_stranger_can_have_written_is_an_error(
    planted: Path, tmp_path: Path, what: str, change: Callable[[Path], None]
) -> None:
    assert said(tmp_path) == "loaded\n", "it is what would be run"
    place = planted if what == "the library" else planted.parent
    if what == "an empty folder":
        planted.unlink()
    change(place)
    text = said(tmp_path)
    assert text.startswith(
        f"{place} belongs to user 12345" if change is give_to_stranger else f"{place} can be written by others"
    )
    assert "to fix: " in text


@as_root
def test_a_listed_library_of_a_stranger_is_loaded_as_it_was_listed(planted: Path, tmp_path: Path) -> None:
    sha256 = subprocess.run(["sha256sum", str(planted)], capture_output=True, text=True, check=True).stdout.partition(" ")[0]
    lock = tmp_path / "cache.lock"
    lock.write_text(lock_text({planted.name: sha256}))
    for path in (planted.parent, planted):
        give_to_stranger(path)
    assert said(tmp_path, KERNELPACK_CACHE_LOCK=str(lock)) == "loaded\n"
    planted.write_bytes(planted.read_bytes() + b" ")
    assert f"{planted} is not the file that {lock} lists" in said(tmp_path, KERNELPACK_CACHE_LOCK=str(lock))


@as_root
def test_no_folder_that_anybody_can_guess_is_used_without_a_cache(planted: Path, tmp_path: Path) -> None:
    """It was /tmp/kernelpack-UID, whoever had made that."""
    guessed = tmp_path / f"kernelpack-{os.getuid()}"
    shutil.move(planted.parent, guessed)
    text = said(tmp_path, KERNELPACK_CACHE="0", TMPDIR=str(tmp_path))
    assert text.startswith("the C++ compiler 'no-such-compiler' was not found")
