"""Where NVIDIA's tools are: ptxas and libdevice from their wheels or a CUDA toolkit, nvJitLink through cuda-python."""

from __future__ import annotations

import functools
import hashlib
import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from kernelpack import knobs
from kernelpack.errors import BuildError
from kernelpack.knobs import CHECK_PTXAS
from kernelpack.knobs.nvidia_programs import NvidiaTool, in_wheels


def no_ptxas(program: Path) -> str:
    """Returns what to do about a program that is no ptxas: which variable names it."""
    checks = CHECK_PTXAS.get() and program == Path(CHECK_PTXAS.get())
    name = CHECK_PTXAS.name if checks else "KERNELPACK_PTXAS_PATH"
    return f"set {name} to NVIDIA's ptxas (pip install nvidia-cuda-nvcc), or unset it"


def find_ptxas() -> Path | None:
    """Returns the ptxas of knobs.nvidia.ptxas, by default the installed one; None where there is none."""
    return Path(knobs.nvidia.ptxas.path) if knobs.nvidia.ptxas is not None else None


def get_ptxas(arch: int = 80) -> NvidiaTool:
    """Returns the ptxas that assembles kernels, whatever the architecture: its path, and the release that it says. Raises BuildError where
    there is none."""
    found: NvidiaTool | None = knobs.nvidia.ptxas
    if found is None:
        raise BuildError(
            "ptxas was not found", cure="pip install nvidia-cuda-nvcc, or set KERNELPACK_PTXAS_PATH to NVIDIA's ptxas"
        )
    return found


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
def find_libdevice() -> Path | None:
    """Returns libdevice.10.bc of a wheel, else that of the toolkit whose ptxas or nvcc is on PATH, else None."""
    wheel = in_wheels("cu*/nvvm/libdevice/libdevice.10.bc", "cuda_nvcc/nvvm/libdevice/libdevice.10.bc")
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
def libdevice_digest() -> str:
    """Returns the SHA-256 of libdevice, whose functions become part of kernels; `none` where there is none."""
    found = find_libdevice()
    return "none" if found is None else hashlib.sha256(found.read_bytes()).hexdigest()


@functools.cache
def ptxas_version(ptxas: Path) -> str:
    """Returns the version that ptxas prints, e.g. 13.5.37. Raises BuildError for a program that prints none: it is no ptxas."""
    try:
        text = subprocess.run([ptxas, "--version"], capture_output=True, text=True, check=False).stdout
    except OSError as problem:
        raise BuildError(f"{ptxas} cannot be run: {problem.strerror}", cure=no_ptxas(ptxas)) from None
    match = re.search(r"V(\d[\d.]*)", text)
    if match is None:
        said = text.partition("\n")[0]
        raise BuildError(
            f"{ptxas} is no ptxas: asked for its --version it says {said!r}, expected 'V13.0.88'", cure=no_ptxas(ptxas)
        )
    return match[1]


@functools.cache
def nvjitlink_version() -> str | None:
    """Returns the version of nvJitLink, or None where cuda-python or the library is missing."""
    try:
        from cuda.bindings import nvjitlink

        major, minor = nvjitlink.version()
    except Exception:  # cuda-python raises its own kinds for a library that is not there
        return None
    return f"{major}.{minor}"


def disassemble(cubin: bytes, *flags: str) -> str:
    """Returns the SASS of a cubin, with what `flags` of nvdisasm ask for. Raises BuildError where there is no nvdisasm."""
    tool = find_nvdisasm()
    if tool is None:
        raise BuildError("nvdisasm was not found", cure="pip install nvidia-cuda-nvdisasm, or put a CUDA toolkit on PATH")
    with tempfile.NamedTemporaryFile(prefix="kernelpack-", suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = subprocess.run([tool, "--print-code", *flags, file.name], capture_output=True, text=True, check=False)
    if done.returncode or not done.stdout.strip():
        raise BuildError(
            f"{tool} made no SASS of the cubin: {done.stderr.strip() or 'it printed nothing'}",
            cure="set KERNELPACK_NVDISASM_PATH to NVIDIA's nvdisasm, or unset it",
        )
    return done.stdout
