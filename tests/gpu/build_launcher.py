"""Builds kernelpack._C for a Python that has neither setuptools nor pybind11 at hand, or stands on another machine.

python -m tests.gpu.build_launcher                                   for the Python that runs it
python -m tests.gpu.build_launcher INCLUDE .cpython-312-x86_64-linux-gnu.so      for one with these headers and this suffix
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[2]


def pybind11_headers() -> Path:
    """Returns the folder with pybind11's headers: its own package's, or those that torch brings."""
    for package in ("pybind11", "torch"):
        found = importlib.util.find_spec(package)
        if found is not None and found.origin is not None:
            folder = Path(found.origin).parent / "include"
            if (folder / "pybind11").is_dir():
                return folder
    raise SystemExit("pybind11's headers are missing: pip install pybind11")


def build(include: str, suffix: str) -> Path:
    """Returns kernelpack/_C<suffix>, which needs no libstdc++ of another machine."""
    sources = [*(ROOT / "csrc" / "python").glob("*.cpp"), *(ROOT / "csrc" / "kernels").glob("*.cpp")]
    flags = [
        "-std=c++17",
        "-O2",
        "-fPIC",
        "-fvisibility=hidden",
        f"-I{ROOT / 'csrc'}",
        f"-I{pybind11_headers()}",
        f"-I{include}",
    ]
    destination = ROOT / "kernelpack" / f"_C{suffix}"
    with tempfile.TemporaryDirectory() as folder:
        objects = [str(Path(folder) / f"{source.parent.name}_{source.stem}.o") for source in sources]
        commands = [["g++", "-c", *flags, str(source), "-o", made] for source, made in zip(sources, objects, strict=True)]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for command, done in zip(commands, pool.map(subprocess.run, commands), strict=True):
                if done.returncode:
                    raise SystemExit(f"failed: {' '.join(command)}")
        linked = Path(f"{destination}.new")
        static = ["-static-libstdc++", "-static-libgcc"]
        subprocess.run(["g++", "-shared", *static, *objects, "-o", str(linked), "-ldl"], check=True)
        linked.replace(destination)
    return destination


if __name__ == "__main__":
    here = [sysconfig.get_path("include"), str(sysconfig.get_config_var("EXT_SUFFIX"))]
    print(build(*(sys.argv[1:] or here)))
