"""The environment that the packages run in, in build/packages, and the variables by which kernelpack is their Triton."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "build" / "packages"
REQUIREMENTS = ROOT / "requirements-packages.txt"


def python(folder: Path) -> str:
    """Returns the interpreter of the environment in a folder."""
    return str(folder / "env" / "bin" / "python")


def variables(folder: Path) -> dict[str, str]:
    """Returns what a process that calls the packages finds in its environment."""
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(("KERNELPACK_", "TRITON_"))},
        "PYTHONPATH": str(ROOT),
        "KERNELPACK_AS_TRITON": "1",
        "KERNELPACK_LOAD_LIBRARY": "0",
        "KERNELPACK_CACHE_DIR": str(folder / "cache"),
        "HF_HUB_OFFLINE": "1",
    }


def set_up(folder: Path) -> None:
    """Makes the environment, once for each version of the requirements."""
    done = folder / "ready"
    wanted = REQUIREMENTS.read_text()
    if done.exists() and done.read_text() == wanted:
        return
    if not Path(python(folder)).exists():
        subprocess.run([sys.executable, "-m", "venv", folder / "env"], check=True)
    pip = [python(folder), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    print(f"installing {REQUIREMENTS.name}: 1.5 GB", flush=True)
    subprocess.run([*pip, *(line for line in wanted.splitlines() if line.startswith(("setuptools", "wheel")))], check=True)
    without_cuda = {
        "MAMBA_FORCE_BUILD": "TRUE",
        "MAMBA_SKIP_CUDA_BUILD": "TRUE",
    }  # mamba_ssm has no wheel for torch without CUDA
    subprocess.run([*pip, "--no-build-isolation", "-r", REQUIREMENTS], check=True, env={**os.environ, **without_cuda})
    subprocess.run([*pip, "--no-build-isolation", ROOT / "as_triton"], check=True)
    done.write_text(wanted)
