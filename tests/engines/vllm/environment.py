"""The environment of vLLM, in build/vllm: beside its packages the models, and the variables that choose its model runner."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.engines.environment import ROOT, Environment, python

RUNNERS = ("v1", "v2")


def make_models(folder: Path) -> None:
    """Makes the models' folders in that of the environment."""
    subprocess.run([python(folder), "-m", "tests.engines.vllm.models", folder], check=True, cwd=ROOT)


VLLM = Environment("vllm", "2.7 GB", own=("VLLM_",), after=make_models)


def variables(folder: Path, runner: str) -> dict[str, str]:
    """Returns what a process of vLLM finds in its environment: the V2 runner with kernelpack as Triton, or the V1 runner without."""
    return {
        **VLLM.variables(folder),
        "KERNELPACK_AS_TRITON": str(int(runner == "v2")),
        "VLLM_USE_V2_MODEL_RUNNER": str(int(runner == "v2")),
        "VLLM_CACHE_ROOT": str(folder / "vllm-cache"),
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # otherwise one core is kept free, and two processes need two memory nodes
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_NO_USAGE_STATS": "1",
    }
