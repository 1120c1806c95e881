"""Links CPU objects into this process, for launches from Python."""

from __future__ import annotations

import os

from kernelpack import knobs
from kernelpack.backends.base import Opened
from kernelpack.compiled import CompiledKernel
from kernelpack.llvm.codegen import initialise, llvm


def open_object(kernel: CompiledKernel) -> Opened:
    """Links a kernel's object by LLVM. Torch's threads share its programs, small launches run serially."""
    initialise()
    machine = llvm.Target.from_default_triple().create_target_machine()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    code = llvm.ObjectFileRef.from_data(kernel.image)
    size = sum(section.size() for section in code.sections() if section.is_text())
    engine.add_object_file(code)
    engine.finalize_object()
    address = engine.get_function_address(kernel.entry)
    if knobs.PERF_MAP.is_on():
        _name_for_perf(address, size, kernel.entry)
    return Opened(address, keeper=engine)


def _name_for_perf(address: int, size: int, name: str) -> None:
    """Adds a line to the file in which perf looks for the names of code that was made in this process: address, size, name."""
    file = os.open(f"/tmp/perf-{os.getpid()}.map", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(file, "w") as lines:
        lines.write(f"{address:x} {size:x} {name}\n")
