"""kernelpack.knobs.nvidia: NVIDIA's programs, where its wheels or PATH have them, and the switches that name others."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelpack.errors import BuildError
from kernelpack.knobs.environment import base_knobs, env_base, env_opt_str


@functools.cache
def in_wheels(*patterns: str) -> Path | None:
    """Returns the first file in NVIDIA's wheels (the namespace package `nvidia`) that a pattern finds, the patterns in order."""
    spec = importlib.util.find_spec("nvidia")
    folders = [Path(entry) for entry in spec.submodule_search_locations or ()] if spec is not None else []
    return next((path for pattern in patterns for folder in folders for path in sorted(folder.glob(pattern))), None)


@dataclass(frozen=True)
class NvidiaTool:
    """One of NVIDIA's programs."""

    path: str

    @functools.cached_property
    def version(self) -> str:
        """The release, such as 13.0. Raises BuildError for what is none of NVIDIA's programs."""
        try:
            text = subprocess.run([self.path, "--version"], capture_output=True, text=True, check=True).stdout
            return str(re.findall(r"release (\d+\.\d+)", text)[0])
        except (OSError, subprocess.CalledProcessError, IndexError) as problem:
            raise BuildError(
                f"{self.path} --version does not say one: {problem}", cure="name one of NVIDIA's programs"
            ) from None


@functools.cache
def _installed(name: str, *patterns: str) -> NvidiaTool | None:
    """Returns a program of the wheels, else the one of PATH, else None."""
    path = in_wheels(*patterns) or shutil.which(name)
    return None if path is None else NvidiaTool(str(path))


class env_nvidia_tool(env_base[Any]):
    """A program of NVIDIA's: set to a path, or a NvidiaTool; by default the one of its wheel, where `patterns` find it, or of PATH;
    None where there is none."""

    def __init__(self, key: str, name: str, *patterns: str, meaning: str) -> None:
        super().__init__(key, lambda _: _installed(name, *patterns), meaning=meaning)

    def __set__(self, group: Any, value: Any) -> None:
        super().__set__(group, self.parse(os.fspath(value)) if isinstance(value, (str, Path)) else value)

    def parse(self, text: str) -> NvidiaTool:
        if shutil.which(text) is None:
            raise BuildError(f"{text} is no program", cure=f"name one, or unset {self.key}")
        return NvidiaTool(text)

    def text(self, value: NvidiaTool | None) -> str | None:
        return None if value is None else value.path


class NvidiaKnobs(base_knobs):
    """NVIDIA's programs: `ptxas` assembles kernels, with `ptxas_options` too; `nvdisasm` takes them apart."""

    ptxas = env_nvidia_tool(
        "KERNELPACK_PTXAS_PATH",
        "ptxas",
        *("cu*/bin/ptxas", "cuda_nvcc/bin/ptxas"),
        meaning="the ptxas that assembles kernels; default: that of its wheel, or of PATH. torch.compile sets TRITON_PTXAS_PATH for itself",
    )
    nvdisasm = env_nvidia_tool(
        "KERNELPACK_NVDISASM_PATH",
        "nvdisasm",
        "cu*/bin/nvdisasm",
        meaning="what takes kernels apart; default: that of its wheel, or of PATH",
    )
    ptxas_options = env_opt_str("PTXAS_OPTIONS", meaning="more options of ptxas")
