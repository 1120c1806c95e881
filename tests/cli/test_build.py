"""kernelpack build makes a library that its own instructions load, and says what it did."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

import kernelpack as kp
from tests.cli.terminal import environment, kernelpack


def test_json_says_what_was_built_and_where(built: dict[str, Any]) -> None:
    assert built["namespace"] == "clitest"
    assert built["ops"] == ["threshold"]
    assert [target.partition(":")[0] for target in built["targets"]] == ["cpu", "cuda"]
    assert Path(built["library"]).is_file()
    assert len(built["compiled"]) == built["kernels"]
    assert built["cached"] == 0
    assert built["seconds"] > 0


def test_library_holds_the_ops(built: dict[str, Any]) -> None:
    kp.load(built["directory"])
    x = torch.randn(1000)
    assert torch.equal(torch.ops.clitest.threshold(x, 0.25), torch.where(x > 0.25, x, 0.0))


def test_second_build_compiles_nothing_and_prints_python_that_works(built: dict[str, Any]) -> None:
    folder = Path(built["directory"]).parent
    words = ["build", "my_ops.py", "--namespace", "clitest", "--target", ",".join(built["targets"])]
    done = kernelpack(*words, cwd=folder, KERNELPACK_CACHE_DIR=str(folder / "cache"))
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert f"{built['kernels']} kernels (0 compiled, {built['kernels']} cached)" in done.stdout
    lines = re.search(r"from Python\n((?:  .*\n)+)", done.stdout)
    assert lines is not None
    program = lines[1].replace("  ", "").replace("(...)", "(torch.ones(3), 0.5)")
    code = f"import torch\n{program}\nprint(torch.ops.clitest.threshold(torch.ones(3), 0.5))"
    run = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "tensor([1., 1., 1.])"


def test_no_cache_compiles_again_to_the_same_library(built: dict[str, Any]) -> None:
    folder = Path(built["directory"]).parent
    before = Path(built["library"]).read_bytes()
    words = [
        "build",
        "my_ops.py",
        "--namespace",
        "clitest",
        "--target",
        ",".join(built["targets"]),
        "--json",
        "--no-cache",
        "-j",
        "1",
    ]
    done = kernelpack(*words, cwd=folder, KERNELPACK_CACHE_DIR=str(folder / "cache"))
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["compiled"]) == built["kernels"]
    assert Path(built["library"]).read_bytes() == before
