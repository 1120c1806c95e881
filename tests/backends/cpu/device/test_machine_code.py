"""A kernel's assembly: LLVM's own where its IR is at hand, else what objdump reads from the object."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kernelpack.backends.cpu.device import machine_code
from kernelpack.backends.cpu.device.machine_code import disassemble, model_name
from kernelpack.backends.cpu.facts import features
from kernelpack.compiler.stages import compile_ttir
from kernelpack.errors import BuildError
from kernelpack.options import Options
from kernelpack.target import Target
from tests.ir.examples import ADD, parse

KERNEL = compile_ttir(parse(ADD), Target.parse("cpu:x86-64-v3"), Options())
WITHOUT_IR = dataclasses.replace(KERNEL, stages={})


def test_assembly_has_the_labels_of_llvm() -> None:
    text = disassemble(KERNEL)
    assert "\nkernel:\n" in text
    assert "vmaskmovps" in text


@pytest.mark.skipif(shutil.which("objdump") is None, reason="no objdump")
def test_an_object_is_read_by_objdump() -> None:
    text = disassemble(WITHOUT_IR)
    assert "<kernel>:" in text
    assert "vmaskmovps" in text


def test_without_objdump_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_code.shutil, "which", lambda name: None)
    with pytest.raises(BuildError, match="objdump was not found") as raised:
        disassemble(WITHOUT_IR)
    assert "apt-get install binutils" in str(raised.value)


def test_what_objdump_cannot_read_is_an_error_with_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(command: list[str], **more: Any) -> subprocess.CompletedProcess[str]:
        assert command[-1] == "kernel.o"
        assert (Path(more["cwd"]) / "kernel.o").read_bytes() == KERNEL.image
        return subprocess.CompletedProcess(command, 1, "", "file format not recognized\n")

    monkeypatch.setattr(machine_code.shutil, "which", lambda name: "/bin/objdump")
    monkeypatch.setattr(machine_code.subprocess, "run", fails)
    with pytest.raises(BuildError, match="objdump cannot read code for cpu:x86-64-v3: file format not recognized"):
        disassemble(WITHOUT_IR)


def test_the_cpu_is_called_what_the_system_calls_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text("processor\t: 0\nmodel name\t: Some CPU @ 3 GHz\nmodel name\t: Another\n")
    monkeypatch.setattr(features, "Path", lambda name: file)
    assert model_name() == "Some CPU @ 3 GHz"
    file.unlink()
    monkeypatch.setattr(machine_code.platform, "processor", lambda: "")
    monkeypatch.setattr(machine_code.platform, "machine", lambda: "riscv64")
    assert model_name() == "riscv64"
