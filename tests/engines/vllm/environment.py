"""The environment that vLLM runs in, in build/vllm: its packages, the models, and the variables that choose its model runner."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "build" / "vllm"
REQUIREMENTS = ROOT / "requirements-vllm.txt"
RUNNERS = ("v1", "v2")


def python(folder: Path) -> str:
    """Returns the interpreter of the environment in a folder."""
    return str(folder / "env" / "bin" / "python")


def variables(folder: Path, runner: str) -> dict[str, str]:
    """Returns what a process of vLLM finds in its environment: the V2 runner with kernelpack as Triton, or the V1 runner without."""
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(("VLLM_", "KERNELPACK_", "TRITON_"))},
        "PYTHONPATH": str(ROOT),
        "KERNELPACK_AS_TRITON": str(int(runner == "v2")),
        "KERNELPACK_LOAD_LIBRARY": "0",
        "KERNELPACK_CACHE_DIR": str(folder / "cache"),
        "VLLM_USE_V2_MODEL_RUNNER": str(int(runner == "v2")),
        "VLLM_CACHE_ROOT": str(folder / "vllm-cache"),
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # otherwise one core is kept free, and two processes need two memory nodes
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }


def set_up(folder: Path) -> None:
    """Makes the environment and the models, once for each version of the requirements."""
    done = folder / "ready"
    wanted = REQUIREMENTS.read_text()
    if done.exists() and done.read_text() == wanted:
        return
    if not Path(python(folder)).exists():
        subprocess.run([sys.executable, "-m", "venv", folder / "env"], check=True)
    pip = [python(folder), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    print(f"installing {REQUIREMENTS.name}: 2.7 GB", flush=True)
    subprocess.run([*pip, "-r", REQUIREMENTS], check=True)
    subprocess.run([*pip, "--no-build-isolation", ROOT / "as_triton"], check=True)
    subprocess.run([python(folder), "-m", "tests.engines.vllm.models", folder], check=True, cwd=ROOT)
    done.write_text(wanted)


def folder_argument(parser: argparse.ArgumentParser) -> None:
    """Adds the argument that says where all of it lies."""
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the environment and the models lie (build/vllm)")
