"""Builds and runs the C++ programs that serve a saved encoder without Python."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import torch

EXAMPLES = Path(__file__).parents[1]


def build_program(name: str, folder: Path) -> Path:
    """Compiles serving_examples/NAME/serve.cpp by the one line that stands in it; returns the program, in `folder`."""
    home = Path(torch.__file__).parent
    program = folder / name
    includes = [EXAMPLES, home / "include", home / "include/torch/csrc/api/include"]
    command = [
        *shlex.split(os.environ.get("KERNELPACK_CXX") or "g++"),
        "-std=c++20",
        "-O1",
        str(EXAMPLES / name / "serve.cpp"),
        "-o",
        str(program),
    ]
    command += [f"-I{path}" for path in includes]
    command += [
        f"-L{home / 'lib'}",
        f"-Wl,-rpath,{home / 'lib'}",
        "-Wl,--no-as-needed",
        "-ltorch",
        "-ltorch_cpu",
        "-lc10",
        "-ldl",
    ]
    subprocess.run(command, check=True)
    return program


def run_program(
    program: Path, library: Path, model: Path, batches: Path, *, seconds: float = 0.5, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a program, which times each batch for about `seconds`.

    Its exit status is 0 if every embedding agrees with Python's and no Python is in its process.
    """
    command = [program, library, model, batches, str(seconds)]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **(environment or {})})
