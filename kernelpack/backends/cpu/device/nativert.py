"""A CPU kernel as two libraries that programs load without kernelpack: AOTInductor's packages hold them."""

from __future__ import annotations

import hashlib
import string
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kernelpack.backends.base import CSRC
from kernelpack.backends.cpu.facts.features import level_of
from kernelpack.errors import BuildError
from kernelpack.pack.native import native_library
from kernelpack.pack.ninja import compiler

if TYPE_CHECKING:
    from kernelpack.compiled import CompiledKernel

_PASSED = {"f32": "number", "f64": "narrow_float", **dict.fromkeys(("i1", "i8", "i16", "i32", "i64"), "number")}
"""How AOTInductor passes numbers, by the type of the kernel's parameter (csrc/nativert/launcher.h). It passes integers as 64 bits,
of which narrower parameters are the first ones."""

_LAUNCHER = string.Template("""\
#include "nativert/launcher.h"

using kernelpack::Passed;

extern "C" void run_from_nativert(uint32_t x, uint32_t y, uint32_t z, int, void** args, void* kernel) {
  static constexpr kernelpack::Parameter kParameters[] = {
      $parameters
  };
  kernelpack::run_from_nativert({x, y, z}, args, kernel, $program_ns, $together, $tiled, kParameters);
}
""")


def kernel_library(kernel: CompiledKernel) -> bytes:
    """Returns the kernel as a shared object, whose symbol is its entry. Raises BuildError where there is no linker."""
    with tempfile.TemporaryDirectory(prefix="kernelpack-") as folder:
        made, image = Path(folder) / "kernel.so", Path(folder) / "kernel.o"
        image.write_bytes(kernel.image)
        command = [*compiler(), "-shared", "-o", str(made), str(image), "-lm"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise BuildError(f"{kernel.entry} cannot be linked: {done.stderr.strip()}")
        return made.read_bytes()


def launcher_library(kernel: CompiledKernel, names: Sequence[str]) -> bytes:
    """Returns a shared object that exports `run_from_nativert(x, y, z, threads, args, kernel)`; `args` has an entry for each argument of
    the kernel's function, which are called `names`. Raises BuildError where C++ does not compile, or for a parameter that AOTInductor does
    not pass."""
    rows = []
    for parameter in kernel.parameters:
        passed = "memory" if parameter.type.startswith("!tt.ptr") else _PASSED.get(parameter.type)
        if passed is None or parameter.name not in names:
            raise BuildError(
                f"{kernel.entry}: AOTInductor passes no parameter {parameter.name} of type {parameter.type}",
                cure="pass tensors, integers and floats, one by one",
            )
        rows.append(f"{{{names.index(parameter.name)}, Passed::{passed}}},  // {parameter.name}")
    program_ns = float(kernel.metadata.get("program_ns", 0))
    together = str(bool(kernel.metadata.get("launch_cooperative_grid", kernel.options.launch_cooperative_grid))).lower()
    tiled = f'"{kernel.entry}"' if level_of(kernel.target).tiles else "nullptr"
    text = _LAUNCHER.substitute(parameters="\n      ".join(rows), program_ns=program_ns, together=together, tiled=tiled)
    files = [CSRC / "kernels" / "cpu.cpp", *sorted((CSRC / "nativert").glob("*.h")), *sorted((CSRC / "kernels").glob("*.h"))]
    digest = hashlib.sha256(b"\0".join([text.encode(), *(file.read_bytes() for file in files)])).hexdigest()
    with tempfile.TemporaryDirectory(prefix="kernelpack-") as folder:
        source = Path(folder) / "launcher.cpp"
        source.write_text(text)
        sources, work = [source, files[0]], Path(folder) / "work"
        work.mkdir()
        made = native_library(f"nativert-{digest[:16]}.so", sources, [f"-I{CSRC}"], work, f"the launcher of {kernel.entry}")
        return made.read_bytes()
