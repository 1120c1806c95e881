"""kernelpack build --emit-source: the line that it prints builds the library anew, code of kernels and all, and it works."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kernelpack.cli import main
from kernelpack.errors import PackError
from kernelpack.pack.format import read_pack
from kernelpack.pack.object_source import object_source

SAXPY = Path(__file__).parents[2] / "serving_examples" / "plain_c" / "saxpy.py"
USE = """
import ctypes, sys, torch
torch.ops.load_library(sys.argv[1])
x, y = torch.arange(5000.0), torch.ones(5000)
torch.ops.demo.saxpy(x, y, 2.0)
assert torch.equal(y, 2 * torch.arange(5000.0) + 1)
library = ctypes.CDLL(sys.argv[1])
launch = library.demo_launch_saxpy_kernel_any_cpu_x86_64_v3
grid = (0, None, *map(ctypes.c_int64, (2, 1, 1)))
assert launch(*grid, ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr()), ctypes.c_float(1), 5000) == 0
assert torch.equal(y, 3 * torch.arange(5000.0) + 1)
"""


def test_the_printed_line_builds_a_library_that_works(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["build", str(SAXPY), "--namespace", "demo", "--target", "cpu:native,cpu:x86-64-v3,cuda:sm_80"]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").touch()
    assert main([*command, "--emit-source", str(tmp_path / "other")]) == 1
    assert "to fix: name a new folder" in capsys.readouterr().err
    assert main([*command, "--emit-source", str(tmp_path / "source"), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    folder = Path(record["directory"])
    assert record["command"] == (folder / "build.sh").read_text().splitlines()[-1]
    assert {path.suffix for path in folder.rglob("*") if path.is_file()} == {".cpp", ".h", ".sh"}
    subprocess.run(record["command"].replace("-O2", "-O0"), shell=True, cwd=folder, check=True)
    subprocess.run([sys.executable, "-c", USE, str(folder / "libdemo_ops.so")], check=True)


def test_objects_become_the_same_bytes_again(built: dict[str, str], tmp_path: Path) -> None:
    """Code and constants of an assembled source are those of the object that it was written from."""
    for file in Path(built["directory"]).glob("packs/*.cpu_*.kpack"):
        pack = read_pack(file)
        (tmp_path / "object.o").write_bytes(pack.image)
        (tmp_path / "source.cpp").write_text(object_source(pack))
        subprocess.run(["g++", "-c", "source.cpp", "-o", "source.o"], cwd=tmp_path, check=True)
        for object_file in ("object", "source"):
            command = ["objcopy", "-O", "binary", "--only-section=.text", f"{object_file}.o", f"{object_file}.bin"]
            subprocess.run(command, cwd=tmp_path, check=True)
        code = (tmp_path / "object.bin").read_bytes()
        assert (tmp_path / "source.bin").read_bytes()[: len(code)] == code

    with pytest.raises(PackError, match="no 64-bit little-endian ELF object"):
        object_source(replace(pack, image=b"\x7fELF of another kind"))
