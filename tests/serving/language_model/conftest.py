"""Builds the programs that the tests ask, once for all processes of a parallel run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from serving_examples.language_model.build import HTTPLIB_FLAGS, missing
from serving_examples.language_model.gguf_file import File
from tests.serving.language_model import http_server
from tests.serving.language_model.reader import SERVER, SOURCES, Reader, build

HERE = Path(__file__).parent
HTTP_PARTS = ("api", "http", "main", "chat", "metrics", "engine", "pages", "gguf", "tokenizer", "text")
HTTP_SOURCES = [*(SERVER / f"{name}.cpp" for name in HTTP_PARTS), HERE / "fake_server.cpp"]
FLAGS = [f"-Wa,-I{SERVER}", f"-I{HERE.parents[2] / 'csrc'}", f"-I{HERE.parents[1]}", *HTTPLIB_FLAGS]
HTTP_LIBRARIES = ["-lcpp-httplib", "-lpcre2-8", "-lpthread"]
SANITIZED = [*FLAGS, "-O0", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A folder of all processes of a parallel run."""
    if absent := missing():
        pytest.skip(f"{' '.join(absent)} not installed; to fix: apt-get install {' '.join(absent)}")
    base = tmp_path_factory.getbasetemp()
    return base if worker_id == "master" else base.parent


@pytest.fixture(scope="session")
def smollm() -> File:
    """SmolLM2's file."""
    return http_server.smollm()


@pytest.fixture(scope="session")
def reader_program(shared_folder: Path) -> Path:
    return build(shared_folder / "lm", "reader", [*SOURCES, HERE / "reader.cpp"], SANITIZED, ["-lpcre2-8"])


@pytest.fixture(scope="module")
def reader(reader_program: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """The C++ readers, under two sanitizers."""
    reader = Reader(reader_program, tmp_path_factory.mktemp("reader") / "log")
    yield reader
    reader.process.kill()
    reader.process.wait()


@pytest.fixture(scope="session")
def http_program(shared_folder: Path) -> Path:
    """The server with a model that computes nothing, under two sanitizers."""
    return build(shared_folder / "lm", "server", HTTP_SOURCES, SANITIZED, HTTP_LIBRARIES)


@pytest.fixture(scope="session")
def threads_program(shared_folder: Path) -> Path:
    """The same under ThreadSanitizer."""
    return build(shared_folder / "lm_threads", "server", HTTP_SOURCES, [*FLAGS, "-O1", "-fsanitize=thread"], HTTP_LIBRARIES)
