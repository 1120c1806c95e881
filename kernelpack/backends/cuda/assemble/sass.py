"""SASS with what the hardware is told beside each instruction, as Triton's tools.disasm prints it."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

from kernelpack.backends.cuda.assemble.toolchain import find_nvdisasm
from kernelpack.errors import BuildError

_FUNCTION = re.compile(r"\.text\.(\S+):")
_LABEL = re.compile(r"(\.L_x_\w+):")
_INSTRUCTION = re.compile(r"\s+/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;?\s*/\* 0x[0-9a-f]{16} \*/")
_SECOND_WORD = re.compile(r"\s+/\* 0x([0-9a-f]{16}) \*/")


def get_sass(cubin: bytes, fun: str | None = None) -> str:
    """Returns the SASS of a function of a cubin; see extract."""
    with tempfile.NamedTemporaryFile(prefix="kernelpack-", suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        return extract(file.name, fun)


def extract(file_path: str | Path, fun: str | None) -> str:
    """Returns the SASS of the function `fun` of a cubin in a file, of its first function where that is None.

    A line is `WAIT:READ:WRITE:YIELD:STALL`, a tab and the instruction: the barriers that it waits for as a number of six bits, those that
    it sets when its operands are read and its result is written, whether other warps may go on, and the cycles until the next one may
    start. Raises BuildError where there is no nvdisasm, no cubin, or no such function.
    """
    tool = find_nvdisasm()
    if tool is None:
        raise BuildError("nvdisasm was not found", cure="pip install nvidia-cuda-nvdisasm, or put a CUDA toolkit on PATH")
    command = [str(tool), "--print-code", "--print-instruction-encoding", str(file_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    functions = _functions(done.stdout)
    name = fun if fun is not None else next(iter(functions), None)
    if name is None:
        raise BuildError(f"{tool} made no SASS of {file_path}: {done.stderr.strip() or 'it printed nothing'}")
    if name not in functions:
        raise BuildError(f"{file_path} has no function {name}", cure=f"it has {', '.join(functions)}")
    return "\n".join([f"Function:{name}", *functions[name], ""])


def _functions(printed: str) -> dict[str, list[str]]:
    """Returns the lines of each function that nvdisasm printed, by name."""
    functions: dict[str, list[str]] = {}
    lines: list[str] = []
    instruction = ""
    for line in printed.splitlines():
        if found := _FUNCTION.match(line):
            lines = functions[found[1]] = []
        elif found := _LABEL.match(line):
            lines.append(f"{found[1]}:")
        elif found := _INSTRUCTION.match(line):
            instruction = found[1]
        elif found := _SECOND_WORD.match(line):
            lines.append(f"{_control(int(found[1], 16))}\t{instruction};")
    return functions


def _control(word: int) -> str:
    """Returns what the second half of an instruction's 128 bits says beside its operation."""
    stall, stays, write, read, wait = (
        word >> shift & (1 << width) - 1 for shift, width in ((41, 4), (45, 1), (46, 3), (49, 3), (52, 6))
    )
    barriers = ("-" if number == 7 else str(number) for number in (read, write))
    return ":".join([f"{wait:02d}" if wait else "--", *barriers, "-" if stays else "Y", f"{stall:x}"])
