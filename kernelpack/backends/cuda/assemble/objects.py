"""Functions in objects of their own (`@kp.jit(noinline="object")`): modules of LLVM IR and PTX beside the kernel's, linked to one cubin.

Kernels whose calls agree in types, layouts and known facts have the same function to the letter, which is then assembled once.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from kernelpack.errors import BuildError

_DEFINITION = re.compile(r"^define (?P<head>[^\n]*) \{\n.*?^\}\n", re.MULTILINE | re.DOTALL)
_SEPARATOR = "\n// an object of its own, linked to the kernel\n"


def split_llir(text: str) -> list[str]:
    """Returns the kernel's module, which declares the functions that have objects of their own, and theirs."""
    heads = [match["head"] for match in _DEFINITION.finditer(text)]
    shared = [_name(head) for head in heads if not head.startswith(("internal ", "ptx_kernel "))]
    kernel = next(_name(head) for head in heads if head.startswith("ptx_kernel "))
    return [_only(text, name, shared) for name in (kernel, *shared)] if shared else [text]


def _name(head: str) -> str:
    found = re.search(r"@([\w.$]+)\(", head)
    assert found is not None, head
    return found[1]


def _only(text: str, kept: str, shared: Sequence[str]) -> str:
    """Returns a module with a kernel or shared function, and functions that have no object; it declares the others."""

    def shortened(match: re.Match[str]) -> str:
        head, name = match["head"], _name(match["head"])
        if name == kept or head.startswith("internal "):
            return match[0]
        return "declare " + re.sub(r" noinline| !dbg !\d+", "", head) + "\n" if name in shared else ""

    return _DEFINITION.sub(shortened, text)


def join_ptx(modules: Sequence[str]) -> str:
    """Returns one text for the modules of a kernel, the kernel's first."""
    return _SEPARATOR.join(modules)


def split_ptx(text: str) -> list[str]:
    return text.split(_SEPARATOR)


def link(objects: Sequence[bytes], arch: str, ptxas: Path) -> tuple[bytes, str]:
    """Returns the cubin that nvlink, which comes with `ptxas`, makes of relocatable objects, and what it reports."""
    nvlink = ptxas.with_name("nvlink")
    if not nvlink.is_file():
        raise BuildError(
            f'a function marked noinline="object" is linked by nvlink, and there is none beside {ptxas}',
            cure="pip install nvidia-cuda-nvcc, or write noinline=True",
        )
    with tempfile.TemporaryDirectory(prefix="kernelpack-") as folder:
        names = [f"{index}.o" for index in range(len(objects))]  # relative: the cubin must not depend on where it was made
        for name, data in zip(names, objects, strict=True):
            (Path(folder) / name).write_bytes(data)
        command = [str(nvlink), f"-arch={arch}", "--verbose", *names, "-o", "kernel.cubin"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        log = done.stdout + done.stderr
        if done.returncode:
            raise BuildError(f"nvlink failed:\n{log.strip()}", cure="this is a defect of kernelpack")
        return (Path(folder) / "kernel.cubin").read_bytes(), log
