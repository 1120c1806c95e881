"""SASS as people read it: a function's lines, each with what the hardware is told beside the instruction; and what is missing, by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelpack.backends.cuda.assemble import sass
from kernelpack.errors import BuildError


def instruction(text: str, control: int) -> str:
    """One instruction as nvdisasm prints it; `control` is what the second of its words says beside the operation."""
    return f"        /*0000*/                   {text} ;   /* 0x000000ff00017624 */\n{'':59}/* 0x{control << 41:016x} */"


def control(stall: int, *, stays: bool = False, write: int = 7, read: int = 7, wait: int = 0) -> int:
    return stall | stays << 4 | write << 5 | read << 8 | wait << 11


PRINTED = "\n".join(
    [
        ".text.first:",
        instruction("MOV R1, c[0x0][0x28]", control(4, stays=True)),
        instruction("LDG.E R2, [R2.64]", control(1, write=0, read=3)),
        ".L_x_1:",
        instruction("FADD R2, R2, R2", control(15, wait=0b000001)),
        ".text.second:",
        instruction("EXIT", control(5, wait=0b110000)),
    ]
)


@pytest.fixture
def disassembler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program in the place of nvdisasm that prints the text above for a file that begins so."""
    (tmp_path / "printed").write_text(PRINTED)
    program = tmp_path / "nvdisasm"
    program.write_text(
        f'#!/bin/sh\nfor file; do :; done\nif grep -q cubin "$file"; then cat {tmp_path / "printed"}; else echo "no ELF" >&2; fi\n'
    )
    program.chmod(0o755)
    monkeypatch.setattr(sass, "find_nvdisasm", lambda: program)
    return program


@pytest.mark.usefixtures("disassembler")
def test_a_line_says_waits_barriers_yield_and_stall_before_the_instruction() -> None:
    assert sass.get_sass(b"cubin") == (
        "Function:first\n"
        "--:-:-:-:4\tMOV R1, c[0x0][0x28];\n"
        "--:3:0:Y:1\tLDG.E R2, [R2.64];\n"
        ".L_x_1:\n"
        "01:-:-:Y:f\tFADD R2, R2, R2;\n"
    )


@pytest.mark.usefixtures("disassembler")
def test_a_function_is_asked_for_by_name(tmp_path: Path) -> None:
    file = tmp_path / "kernel.cubin"
    file.write_bytes(b"cubin")
    assert sass.extract(file, "second") == sass.get_sass(b"cubin", "second") == "Function:second\n48:-:-:Y:5\tEXIT;\n"
    with pytest.raises(BuildError, match=r"has no function third\n  to fix: it has first, second"):
        sass.extract(file, "third")


@pytest.mark.usefixtures("disassembler")
def test_what_is_no_cubin_is_refused_with_what_the_tool_said() -> None:
    with pytest.raises(BuildError, match=r"made no SASS of .*: no ELF"):
        sass.get_sass(b"text")


def test_without_the_tool_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sass, "find_nvdisasm", lambda: None)
    with pytest.raises(BuildError, match=r"nvdisasm was not found\n  to fix: pip install nvidia-cuda-nvdisasm"):
        sass.get_sass(b"cubin")
