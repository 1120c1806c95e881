"""A library that cannot run here is refused when it is loaded, with the reason, and nothing of it is registered."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from kernelpack.opgen.build import Built

ROOT = Path(__file__).parents[2]
LOAD = """
import sys
from pathlib import Path
import torch
import kernelpack
for folder in sys.argv[1:]:
    for load in (kernelpack.load, lambda folder: __import__(Path(folder).name)):  # with kernelpack, and as a package
        try:
            load(folder)
        except ImportError as error:
            print(" ".join(str(error).split()))
        assert not hasattr(torch.ops.sample, "rownorm"), folder
assert not [schema for schema in torch._C._jit_get_all_schemas() if schema.name.startswith("sample::")]
"""
REASONS = {
    "other_machine": "it is a library for aarch64, this machine is x86_64",
    "unknown_machine": "it is a library for another machine, this machine is x86_64",
    "no_library": "it is no library, this machine is x86_64",
    "cut": "file too short",
    "newer_system": "version `GLIBC_9.99' not found",
}


def test_files_that_are_no_library_of_this_machine(sample_built: Built, tmp_path: Path) -> None:
    data = sample_built.library.read_bytes()
    needed = next(name for name in (b"GLIBC_2.34", b"GLIBC_2.14") if name in data)
    altered = {
        "other_machine": data[:18] + (183).to_bytes(2, "little") + data[20:],
        "unknown_machine": data[:18] + (8).to_bytes(2, "little") + data[20:],
        "no_library": b"#!/bin/sh\n",
        "cut": data[:40],
        "newer_system": data.replace(needed, b"GLIBC_9.99"),
    }
    for name, content in altered.items():
        shutil.copytree(
            sample_built.directory, tmp_path / name, ignore=shutil.ignore_patterns("build", "packs", "cpp", "manifest.json")
        )
        (tmp_path / name / "libsample_ops.so").write_bytes(content)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)]), "KERNELPACK_LOAD_LIBRARY": "0"}
    command = [sys.executable, "-c", LOAD, *(str(tmp_path / name) for name in altered)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    expected = [(name, reason) for name, reason in REASONS.items() for _ in range(2)]
    assert len(said) == len(expected)
    for line, (name, reason) in zip(said, expected, strict=True):
        assert line.startswith(f"{tmp_path / name / 'libsample_ops.so'} was not loaded: ")
        assert reason in line
