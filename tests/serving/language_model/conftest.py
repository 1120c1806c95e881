"""Builds the programs that the tests ask, once for all processes of a parallel run."""

from __future__ import annotations

import fcntl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serving.language_model.http_server import build
from tests.serving.language_model.reader import SERVER, SOURCES, Reader

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def reader_program(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "language_model_reader"
    folder.mkdir(exist_ok=True)
    program = folder / "reader"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.is_file():
            sanitizers = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
            flags = ["-std=c++20", "-O1", "-g1", "-Wall", "-Wextra", "-Werror", *sanitizers, f"-I{SERVER}"]
            command = ["g++", *flags, *map(str, SOURCES), str(HERE / "reader.cpp"), "-lpcre2-8", "-o", f"{program}.new"]
            done = subprocess.run(command, capture_output=True, text=True)
            assert done.returncode == 0, f"{done.stderr}\n  to fix: apt-get install libpcre2-dev"
            Path(f"{program}.new").rename(program)
    return program


@pytest.fixture(scope="module")
def reader(reader_program: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """The C++ readers, under two sanitizers."""
    reader = Reader(reader_program, tmp_path_factory.mktemp("reader") / "log")
    yield reader
    reader.process.kill()
    reader.process.wait()


@pytest.fixture(scope="session")
def http_program(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The server with a model that computes nothing, under AddressSanitizer."""
    base = tmp_path_factory.getbasetemp()
    return build(base if worker_id == "master" else base.parent, "-O0", "-fsanitize=address")
