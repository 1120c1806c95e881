"""Profilers see lines of Python, the same ones wherever the files lie, and the machine code does not know about them."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import tempfile
from pathlib import Path

import pytest
import torch

from kernelpack.backends.cuda import CUDABackend
from kernelpack.backends.cuda.assemble import ptx_to_cubin
from kernelpack.backends.cuda.assemble.cubin import without_embedded_ptx, without_line_tables
from kernelpack.backends.cuda.assemble.llir_to_ptx import emit_ptx
from kernelpack.backends.cuda.assemble.toolchain import find_nvdisasm
from kernelpack.backends.cuda.machine.features import ARCHITECTURES
from kernelpack.errors import SourceLocation
from kernelpack.ir.core import Location
from kernelpack.ir.locations import relative_name, user_location
from kernelpack.llvm.debug_info import DebugInfo
from kernelpack.options import Options
from tests.backends.cuda.cases import cases
from tests.backends.cuda.launch import Launch
from tests.backends.cuda.running import lower

KERNEL = """
import kernelpack as kp
import kernelpack.language as tl

@kp.jit
def scaled(x, factor):
    return x * factor

@kp.jit
def rows(x, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    values = tl.load(x + i, mask=i < n, other=0.0)
    total = tl.sum(scaled(values, 3.0), 0)
    tl.store(out, total)
"""


def line_of(text: str) -> int:
    return next(number for number, line in enumerate(KERNEL.splitlines(), 1) if text in line)


def launch_from(folder: Path) -> Launch:
    """Returns a launch of the kernel above, read from a file in a folder."""
    folder.mkdir()
    path = folder / "my_kernels.py"
    path.write_text(KERNEL)
    spec = importlib.util.spec_from_file_location("my_kernels", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    arguments = {"x": torch.zeros(256), "out": torch.zeros(1), "n": 200, "B": 256}
    return Launch(module.rows, (1,), arguments, {}, options=Options(num_warps=2))


def disassemble(cubin: bytes, *options: str) -> str:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [str(find_nvdisasm()), *options, "--print-code", file.name]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def code(cubin: bytes) -> str:
    """Returns the machine code of a cubin: instructions with their encodings."""
    return disassemble(cubin, "--print-instruction-encoding")


def without_lines(llir: str) -> str:
    lines = re.sub(r",? !dbg !\d+", "", llir).splitlines()
    return "\n".join(line for line in lines if not re.match(r"!llvm\.|!\d+ = (distinct )?!DI|!\d+ = !\{i32 2", line))


def test_profilers_see_the_users_lines(tmp_path: Path) -> None:
    text = disassemble(launch_from(tmp_path / "a").compile("cuda:sm_90a").image, "--print-line-info")
    assert set(re.findall(r'File "(.*?)"', text)) == {"my_kernels.py"}
    instructions: dict[int, str] = {}
    for part in text.split('File "my_kernels.py", line ')[1:]:
        number, _, rest = part.partition("\n")
        instructions[int(number)] = instructions.get(int(number), "") + rest
    assert "LDG" in instructions[line_of("tl.load")]
    assert "STG" in instructions[line_of("tl.store")]
    # the shuffles of tl.sum belong to the line that calls it, the product to the function that is inlined
    assert "SHFL" in instructions[line_of("tl.sum")]
    assert line_of("return x * factor") in instructions


def test_the_same_bytes_wherever_the_file_lies(tmp_path: Path) -> None:
    first, second = (launch_from(tmp_path / name).compile("cuda:sm_80") for name in ("a", "b"))
    assert first.image == second.image
    assert first.stages["llir"] == second.stages["llir"]


@pytest.mark.parametrize(
    "name",
    [
        "softmax-float32-1000-4",
        "integers-int32-9",
        "attention-bfloat16-2x100x90x32-64x32-full-4-2",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in (
                "matmul-bfloat16-float32-100x72x80-64x64x32-rr-ieee-4-2",
                "attention-float32-2x100x90x32-64x32-full-4-2",
                "cross-entropy-0.0",
            )
        ),
    ],
)
def test_lines_change_no_machine_code(name: str) -> None:
    case = next(case for case in cases() if case.name == name)
    _, llir, _ = lower(case.launch(), "cuda:sm_90a")
    assert "!dbg" in llir
    plain = without_lines(llir)
    assert "!dbg" not in plain
    with_lines, without = (emit_ptx(text, ARCHITECTURES["sm_90a"]) for text in (llir, plain))
    assert ".loc" in with_lines
    assert ".loc" not in without
    assert CUDABackend().code_of(with_lines) == CUDABackend().code_of(without)
    big, small = (ptx_to_cubin.assemble(text, "sm_90a").image for text in (with_lines, without))
    assert code(big) == code(small)
    assert len(big) < 1.7 * len(small)
    left_out = without_line_tables(big)
    assert without_line_tables(left_out) == left_out
    assert code(left_out) == code(small)
    assert len(left_out) < len(small) + 512
    assert "//## File" in disassemble(big, "--print-line-info")
    assert "//## File" not in disassemble(left_out, "--print-line-info")


def test_no_assembler_leaves_text_of_ptx_in_a_cubin(monkeypatch: pytest.MonkeyPatch) -> None:
    case = next(case for case in cases() if case.name == "softmax-float32-1000-4")
    _, llir, _ = lower(case.launch())
    ptx = emit_ptx(llir, ARCHITECTURES["sm_80"])
    ptxas = ptx_to_cubin.find_ptxas()
    assert ptxas is not None
    assert b"shfl.sync" not in ptx_to_cubin.assemble_with_ptxas(ptx, "sm_80", ptxas).image
    small = ptx_to_cubin.assemble_with_nvjitlink("sm_80", ptx).image
    monkeypatch.setattr(ptx_to_cubin, "without_embedded_ptx", lambda image: image)
    whole = ptx_to_cubin.assemble_with_nvjitlink("sm_80", ptx).image
    assert b"shfl.sync" in whole
    assert b"shfl.sync" not in small
    assert code(small) == code(whole)
    assert without_embedded_ptx(small) == small


def test_names_are_relative_to_the_outermost_package(tmp_path: Path) -> None:
    (tmp_path / "pack" / "inner").mkdir(parents=True)
    for folder in ("pack", "pack/inner"):
        (tmp_path / folder / "__init__.py").write_text("")
    assert relative_name(str(tmp_path / "pack" / "inner" / "k.py")) == "pack/inner/k.py"
    assert relative_name(str(tmp_path / "k.py")) == "k.py"


def test_calls_are_chained_and_shared() -> None:
    debug = DebugInfo(first=5)
    kernel = debug.function("kernel", Location(SourceLocation("k.py", 1)))
    call = Location(SourceLocation("k.py", 3, 2))
    inner = Location(SourceLocation("h.py", 9, 4), call)
    assert debug.at(kernel, inner) == debug.at(kernel, inner) != debug.at(kernel, call)
    text = "\n".join(debug.lines())
    called = re.search(r"!(\d+) = distinct !DILocation\(line: 3, column: 2, ", text)
    scope = re.search(r'!(\d+) = distinct !DISubprogram\(name: "h"', text)
    assert called is not None
    assert scope is not None
    assert f"!DILocation(line: 9, column: 4, scope: !{scope[1]}, inlinedAt: !{called[1]})" in text
    assert debug.at(kernel, Location()) == "" == debug.at(None, call)
    assert DebugInfo(first=2).lines() == []


def test_the_languages_own_functions_are_their_callers() -> None:
    import kernelpack.language.standard as standard

    call = Location(SourceLocation("k.py", 3))
    assert user_location(Location(SourceLocation(standard.__file__, 9), call)) == call
    assert user_location(Location(SourceLocation("h.py", 9), call)).source == SourceLocation("h.py", 9)
