"""What Inductor generates, adopted: a fresh process takes its graph from FxGraphCache and its kernels from the folder, and compiles nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernelpack.adopt.records import read_records

PROGRAM = """
from kernelpack import as_triton
as_triton.install()
import torch
import torch._inductor.config as config
from torch._dynamo.utils import counters
config.cpu_backend, config.compile_threads = "triton", 1

@torch.compile
def weights(x, w):
    return torch.nn.functional.layer_norm(torch.nn.functional.gelu(x @ w), (300,)).softmax(-1)

torch.manual_seed(0)
x, w = torch.randn(4, 64), torch.randn(64, 300)
print(weights(x, w).sum(0)[:3].tolist(), counters["inductor"]["fxgraph_cache_hit"])
"""


@pytest.mark.slow  # tests/adopt/test_serving.py adopts what host code compiles
def test_a_fresh_process_compiles_nothing(tmp_path: Path) -> None:
    def run(**more: str) -> str:
        environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor"), "KERNELPACK_CACHE": "0", **more}
        done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    record = tmp_path / "record"
    first = run(KERNELPACK_TRACE=str(record))
    assert read_records([record]).variants
    command = [sys.executable, "-m", "kernelpack", "adopt", record, "--target", "cpu:native", "--out", tmp_path / "packs"]
    subprocess.run(command, check=True, capture_output=True)
    again = run(KERNELPACK_PACKS=str(tmp_path / "packs"), KERNELPACK_MISS="error")
    assert again.split(" ")[:-1] == first.split(" ")[:-1]
    assert (first.split()[-1], again.split()[-1]) == ("0", "1")
