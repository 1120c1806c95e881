"""Inductor compiles for the CPU with kernelpack as Triton."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path


def test_kernels_of_inductor_and_users_agree_with_eager_and_are_kept(tmp_path: Path) -> None:
    environment = {**os.environ, "KERNELPACK_LOAD_LIBRARY": "0", "KERNELPACK_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "tests.inductor.quick"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "every input is mutated" not in done.stderr, "torch assumes so where it cannot walk a kernel's ttir"
    found = {line.pop("case"): line for line in map(json.loads, done.stdout.splitlines())}
    accesses = found.pop("accesses")
    assert set(accesses["reads"]) >= {"read", "both"}
    assert accesses["writes"] == ["added", "both", "count", "written"]
    assert list(found) == ["pointwise", "reduction", "softmax", "matmul", "user_kernel"]
    for name, line in found.items():
        assert line["kernels"] >= 1, f"{name}: Inductor made no Triton kernel"
        assert line["compiled"][0] >= 1, name
        assert line["hit"] == (name in ("pointwise", "user_kernel")), f"{name}: FxGraphCache had nothing"
        assert line["compiled"][1] == 0, f"{name}: it was compiled again"
