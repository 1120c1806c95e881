"""PTX -> cubin: ptxas, or nvJitLink where there is none; reads registers and spills, fails on messages that mean wrong code."""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from kernelpack.backends.base import Lowered
from kernelpack.backends.cuda.cubin import without_embedded_ptx
from kernelpack.backends.cuda.toolchain import find_ptxas, nvjitlink_version, ptxas_version
from kernelpack.errors import BuildError

FATAL = {
    "C7504": "setmaxnreg was ignored",
    "C7512": "wgmma was serialised: too few registers",
    "C7517": "a wait for wgmma was inserted",
    "C7519": "a fence for wgmma was inserted",
}
"""Messages of the assembler that are no errors to it, but mean that the code is not what was written."""


@dataclass(frozen=True)
class Assembled:
    """A cubin with what the assembler said about it."""

    image: bytes
    log: str
    tool: str


def ptx_to_cubin(ptx: str, lowered: Lowered) -> bytes:
    """Returns the cubin of a kernel and notes its resources. Raises BuildError."""
    assembled = assemble(ptx, lowered.target.arch)
    for code, meaning in FATAL.items():
        if code in assembled.log:
            raise BuildError(f"{assembled.tool} reports {code} for {lowered.entry}: {meaning}\n{assembled.log.strip()}")
    lowered.metadata.update(resources(assembled.log))
    lowered.metadata["assembler"] = assembled.tool
    return without_embedded_ptx(assembled.image)


def assemble(ptx: str, arch: str) -> Assembled:
    """Assembles with the first tool there is: ptxas of the wheel, ptxas on PATH, nvJitLink."""
    ptxas = find_ptxas()
    if ptxas is not None:
        return assemble_with_ptxas(ptx, arch, ptxas)
    if nvjitlink_version() is not None:
        return assemble_with_nvjitlink(ptx, arch)
    raise BuildError(
        "no assembler for PTX was found",
        cure="pip install nvidia-cuda-nvcc (ptxas), or pip install cuda-python nvidia-nvjitlink",
    )


def assemble_with_ptxas(ptx: str, arch: str, ptxas: Path) -> Assembled:
    tool = f"ptxas {ptxas_version(ptxas)}"
    with tempfile.TemporaryDirectory(prefix="kernelpack-") as folder:
        # fixed names in the working directory: the cubin must not depend on where it was made
        (Path(folder) / "kernel.ptx").write_text(ptx)
        command = [str(ptxas), f"-arch={arch}", "-O3", "-v", "-lineinfo", "kernel.ptx", "-o", "kernel.cubin"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        log = done.stdout + done.stderr
        if done.returncode:
            raise BuildError(f"{tool} failed:\n{log.strip()}\n{_excerpt(ptx, log)}", cure="this is a defect of kernelpack")
        return Assembled((Path(folder) / "kernel.cubin").read_bytes(), log, tool)


def _excerpt(ptx: str, log: str) -> str:
    """Returns the PTX lines that the messages name."""
    lines = ptx.splitlines()
    numbers = sorted({int(number) for number in re.findall(r"line (\d+)", log)})[:5]
    return "\n".join(f"{number}: {lines[number - 1]}" for number in numbers if 0 < number <= len(lines))


def assemble_with_nvjitlink(ptx: str, arch: str) -> Assembled:
    from cuda.bindings import nvjitlink

    tool = f"nvJitLink {nvjitlink_version()}"
    options = [f"-arch={arch}", "-O3", "-verbose", "-lineinfo"]
    handle = nvjitlink.create(len(options), options)
    try:
        data = ptx.encode()
        try:
            nvjitlink.add_data(handle, nvjitlink.InputType.PTX, data, len(data), "kernel.ptx")
            nvjitlink.complete(handle)
        except nvjitlink.nvJitLinkError as problem:
            size = nvjitlink.get_error_log_size(handle)
            message = bytearray(size)
            nvjitlink.get_error_log(handle, message)
            raise BuildError(f"{tool} failed: {problem}\n{_text(message)}", cure="this is a defect of kernelpack") from None
        log = bytearray(nvjitlink.get_info_log_size(handle))
        if log:
            nvjitlink.get_info_log(handle, log)
        image = bytearray(nvjitlink.get_linked_cubin_size(handle))
        nvjitlink.get_linked_cubin(handle, image)
        return Assembled(bytes(image), _text(log), tool)
    finally:
        nvjitlink.destroy(handle)


def _text(buffer: bytearray) -> str:
    return buffer.decode(errors="replace").strip("\0\n ")


def resources(log: str) -> dict[str, int]:
    """Returns registers a thread, bytes spilled (stores and loads), and bytes of stack from the assembler's report."""
    found = {"registers": 0, "spills": 0, "stack": 0}
    for name, pattern in (
        ("registers", r"Used (\d+) registers"),
        ("spills", r"(\d+) bytes spill (?:stores|loads)"),
        ("stack", r"(\d+) bytes stack frame"),
    ):
        found[name] = sum(map(int, re.findall(pattern, log)))
    return found
