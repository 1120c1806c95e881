"""An ARM machine without ARM: Debian's programs for arm64 run by qemu, with PyPI's torch for aarch64 and the ops, compiled and linked here.

qemu executes what an ARM CPU would, one instruction after another: results are those of silicon, times are not.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "arm"
CXX = "aarch64-linux-gnu-g++"
PACKAGES = {"qemu-aarch64": "qemu-user", CXX: "g++-aarch64-linux-gnu", "apt-get": "apt"}
"""Debian's package of each program that this takes."""

CPUS = {"cpu:aarch64": "neoverse-n1", "cpu:aarch64+bf16": "max,sve=off", "cpu:aarch64+sve2": "max,sve-default-vector-length=32"}
"""The CPU that qemu plays, by the best level that it has: instructions of a higher level end the process. Vectors of SVE are twice as long as
those that the code is made for."""
TOO_OLD = "cortex-a72"
"""A CPU of ARMv8.0, which no level is for."""

_DEBIAN = ("libgomp1", "libstdc++6", "libzstd-dev", "python3")


def missing() -> str:
    """Returns what this machine lacks for it, and the cure; an empty text for nothing."""
    absent = [name for name in PACKAGES if shutil.which(name) is None]
    if not absent:
        return ""
    return f"{', '.join(absent)} not found; to fix: apt-get install {' '.join(PACKAGES[name] for name in absent)}"


@functools.cache
def system() -> Path:
    """Returns the folder with Debian's arm64 files. Nothing of this machine's own packages changes."""
    folder = FOLDER / "system"
    if not folder.is_dir():
        state, cache = FOLDER / "apt" / "state", FOLDER / "apt" / "cache"
        for made in (state / "lists" / "partial", cache / "archives" / "partial"):
            made.mkdir(parents=True, exist_ok=True)
        options = {
            "APT::Architecture": "arm64",
            "APT::Architectures::": "arm64",
            "APT::Sandbox::User": "",
            "Dir::State": state,
            "Dir::State::status": "/dev/null",
            "Dir::Cache": cache,
            "Debug::NoLocking": "1",
        }
        apt = ["apt-get", "-qq", *(word for name, value in options.items() for word in ("-o", f"{name}={value}"))]
        _check([*apt, "update"])
        _check([*apt, "install", "--yes", "--download-only", "--no-install-recommends", *_DEBIAN])
        scratch = FOLDER / "unpacking"
        shutil.rmtree(scratch, ignore_errors=True)
        for package in sorted((cache / "archives").glob("*.deb")):
            _check(["dpkg", "-x", package, scratch])
        scratch.rename(folder)
    return folder


@functools.cache
def python() -> Path:
    """Returns its Python, with torch beside it."""
    found = next(path for path in sorted((system() / "usr/bin").glob("python3.*")) if path.name.count(".") == 1)
    wanted = (ROOT / "requirements-arm.txt").read_text()
    done = FOLDER / "packages.txt"
    if not done.is_file() or done.read_text() != wanted:
        version = found.name.removeprefix("python")
        platforms = [word for name in ("manylinux_2_28_aarch64", "manylinux2014_aarch64") for word in ("--platform", name)]
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--upgrade"]
        where = ["--only-binary=:all:", *platforms, "--python-version", version, "--target", FOLDER / "packages"]
        _check([*pip, *where, "-r", ROOT / "requirements-arm.txt"])
        done.write_text(wanted)
    return found


@functools.cache
def library() -> Path:
    """Returns the folder of the op library, built for every level of ARM by a compiler for it. What did not change is not compiled again."""
    folder = FOLDER / "library"
    build = [sys.executable, "-m", "kernelpack", "build", "ops", "--namespace", "kernelpack", "--target", ",".join(CPUS)]
    environment = {**os.environ, "KERNELPACK_CXX": CXX, "KERNELPACK_LOAD_LIBRARY": "0"}
    _check([*build, "--out", folder, "-j", str(os.cpu_count())], environment)
    return folder


def run(program: Sequence[str | Path], cpu: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a program for ARM on a CPU of qemu's."""
    words = ["qemu-aarch64", "-cpu", cpu, "-L", str(system()), *map(str, program)]
    return subprocess.run(
        words, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=7200
    )


def run_python(arguments: Sequence[str], cpu: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs Python on it, with the op library loaded."""
    load = "import kernelpack, runpy, sys; kernelpack.load(sys.argv.pop(1)); runpy.run_module(sys.argv.pop(1), run_name='__main__')"
    settings = {
        "KERNELPACK_LOAD_LIBRARY": "0",
        "OMP_NUM_THREADS": "2",
        "PYTHONPATH": f"{ROOT}:{FOLDER / 'packages'}",
        "PYTHONPYCACHEPREFIX": str(FOLDER / "bytecode"),
        **environment,
    }
    return run([python(), "-c", load, str(library()), *arguments], cpu, **settings)


def _check(command: Sequence[str | Path], environment: dict[str, str] | None = None) -> None:
    done = subprocess.run([*map(str, command)], cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
