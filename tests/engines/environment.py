"""The environment of an engine, in build/NAME: the packages of requirements-NAME.txt, and the variables that its processes find."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Environment:
    """An engine's packages, as PyPI has them, with kernelpack as their Triton."""

    name: str
    size: str
    """What the packages take on disk, in words."""
    own: tuple[str, ...] = ()
    """How the names of the engine's own variables begin: none of them is handed on, as none of kernelpack's and Triton's is."""
    building: Mapping[str, str] = field(default_factory=dict)
    """Variables for the packages that are built from sources."""
    after: Callable[[Path], None] = lambda folder: None
    """What else is made in the folder, after the packages."""

    @property
    def folder(self) -> Path:
        """Where all of it lies, if nothing else is asked for."""
        return ROOT / "build" / self.name

    @property
    def requirements(self) -> Path:
        return ROOT / f"requirements-{self.name}.txt"

    def variables(self, folder: Path) -> dict[str, str]:
        """Returns what a process finds in its environment."""
        foreign = ("KERNELPACK_", "TRITON_", "PYTHONDONTWRITEBYTECODE", *self.own)  # installed packages have bytecode
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith(foreign)},
            "PYTHONPATH": str(ROOT),
            "KERNELPACK_AS_TRITON": "1",
            "KERNELPACK_LOAD_LIBRARY": "0",
            "KERNELPACK_CACHE_DIR": str(folder / "cache"),
            "HF_HUB_OFFLINE": "1",
        }

    def set_up(self, folder: Path) -> None:
        """Makes the environment, once for each version of the requirements."""
        done = folder / "ready"
        wanted = self.requirements.read_text()
        if done.exists() and done.read_text() == wanted:
            return
        if not Path(python(folder)).exists():
            subprocess.run([sys.executable, "-m", "venv", folder / "env"], check=True)
        pip = [python(folder), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        print(f"installing {self.requirements.name}: {self.size}", flush=True)
        builders = [line for line in wanted.splitlines() if line.startswith(("setuptools==", "wheel=="))]
        subprocess.run([*pip, *builders], check=True)
        sources = [*pip, "--no-build-isolation"]
        subprocess.run([*sources, "-r", self.requirements], check=True, env={**os.environ, **self.building})
        subprocess.run([*sources, ROOT / "as_triton"], check=True)
        self.after(folder)
        done.write_text(wanted)

    def add_folder(self, parser: argparse.ArgumentParser) -> None:
        """Adds the argument that says where all of it lies."""
        parser.add_argument("--folder", type=Path, default=self.folder, help=f"where the environment lies (build/{self.name})")


def python(folder: Path) -> str:
    """Returns the interpreter of the environment in a folder."""
    return str(folder / "env" / "bin" / "python")
