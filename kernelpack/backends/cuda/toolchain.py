"""Where NVIDIA's tools are: ptxas and libdevice from their wheels or a CUDA toolkit, nvJitLink through cuda-python."""

from __future__ import annotations

import functools
import importlib.util
import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from kernelpack import knobs
from kernelpack.errors import BuildError


def _wheels() -> list[Path]:
    """Returns the folders in which NVIDIA's wheels lie (the namespace package `nvidia`)."""
    spec = importlib.util.find_spec("nvidia")
    return [Path(entry) for entry in spec.submodule_search_locations or ()] if spec is not None else []


def _in_wheels(pattern: str) -> Path | None:
    return next((path for folder in _wheels() for path in sorted(folder.glob(pattern))), None)


def find_ptxas() -> Path | None:
    """Returns the ptxas of knobs.nvidia.ptxas, by default the installed one; None where there is none."""
    return Path(knobs.nvidia.ptxas.path) if knobs.nvidia.ptxas is not None else None


def find_nvdisasm() -> Path | None:
    """Returns the nvdisasm of knobs.nvidia.nvdisasm, by default the installed one; None where there is none."""
    return Path(knobs.nvidia.nvdisasm.path) if knobs.nvidia.nvdisasm is not None else None


def ptxas_options() -> list[str]:
    """Returns the options of knobs.nvidia.ptxas_options."""
    return shlex.split(knobs.nvidia.ptxas_options or "")


def ptxas_name(ptxas: Path) -> str:
    """Returns what decides about the code that it makes: its version, and the options that it is given."""
    return " ".join(["ptxas", ptxas_version(ptxas), *ptxas_options()])


@functools.cache
def installed_ptxas() -> Path | None:
    """Returns ptxas of the nvidia-cuda-nvcc wheel, else the one on PATH, else None."""
    wheel = _in_wheels("cu*/bin/ptxas") or _in_wheels("cuda_nvcc/bin/ptxas")
    if wheel is not None:
        return wheel
    found = shutil.which("ptxas")
    return Path(found) if found is not None else None


@functools.cache
def installed_nvdisasm() -> Path | None:
    """Returns nvdisasm of the nvidia-cuda-nvdisasm wheel, else the one on PATH, else None."""
    found = _in_wheels("cu*/bin/nvdisasm") or shutil.which("nvdisasm")
    return Path(found) if found is not None else None


@functools.cache
def find_libdevice() -> Path | None:
    """Returns libdevice.10.bc of a wheel, else that of the toolkit whose ptxas or nvcc is on PATH, else None."""
    wheel = _in_wheels("cu*/nvvm/libdevice/libdevice.10.bc") or _in_wheels("cuda_nvcc/nvvm/libdevice/libdevice.10.bc")
    if wheel is not None:
        return wheel
    for tool in ("ptxas", "nvcc"):
        found = shutil.which(tool)
        if found is not None:
            path = Path(found).resolve().parent.parent / "nvvm" / "libdevice" / "libdevice.10.bc"
            if path.exists():
                return path
    return None


@functools.cache
def ptxas_version(ptxas: Path) -> str:
    """Returns the version that ptxas prints, e.g. 13.5.37."""
    text = subprocess.run([ptxas, "--version"], capture_output=True, text=True, check=True).stdout
    match = re.search(r"V(\d[\d.]*)", text)
    return match[1] if match is not None else "unknown"


@functools.cache
def nvjitlink_version() -> str | None:
    """Returns the version of nvJitLink, or None where cuda-python or the library is missing."""
    try:
        from cuda.bindings import nvjitlink

        major, minor = nvjitlink.version()
    except Exception:  # cuda-python raises its own kinds for a library that is not there
        return None
    return f"{major}.{minor}"


def disassemble(cubin: bytes) -> str:
    """Returns the SASS of a cubin. Raises BuildError where there is no nvdisasm."""
    tool = find_nvdisasm()
    if tool is None:
        raise BuildError("nvdisasm was not found", cure="pip install nvidia-cuda-nvdisasm, or put a CUDA toolkit on PATH")
    with tempfile.NamedTemporaryFile(prefix="kernelpack-", suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = subprocess.run([tool, "--print-code", file.name], capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"nvdisasm cannot read the cubin: {done.stderr.strip()}")
    return done.stdout
