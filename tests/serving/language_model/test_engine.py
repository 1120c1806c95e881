"""The engine's C++ tests, under AddressSanitizer: texts of many requests at once, whatever they share, wait for and give back."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from serving_examples.language_model.tokens import model_file
from tests.serving.language_model.conftest import HERE, SANITIZED
from tests.serving.language_model.reader import SERVER, build

PARTS = ("engine", "pages", "metrics", "gguf", "tokenizer", "text")
SOURCE = HERE / "engine_test.cpp"
TESTS = re.findall(r"^TEST\((\w+)\)", SOURCE.read_text(), re.M)


@pytest.fixture(scope="module")
def program(shared_folder: Path) -> Path:
    sources = [SOURCE, *(SERVER / f"{part}.cpp" for part in PARTS)]
    return build(shared_folder / "lm", "engine", sources, SANITIZED, ["-lpcre2-8", "-lpthread"])


@pytest.mark.parametrize("name", TESTS)
def test_engine(program: Path, name: str) -> None:
    environment = {**os.environ, "LM_FILE": str(model_file())}
    done = subprocess.run([program, name], capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == f"{name}\n"
