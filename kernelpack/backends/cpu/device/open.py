"""Loads CPU code into this process, for launches from Python: objects, which are linked here, and what was linked ahead of time."""

from __future__ import annotations

import ctypes
import functools
import os

from kernelpack import knobs
from kernelpack.backends.base import Opened
from kernelpack.compiled import CompiledKernel
from kernelpack.errors import PackError
from kernelpack.llvm.codegen import initialise, llvm


def open_linked(kernel: CompiledKernel) -> Opened:
    """Loads the shared object of a kernel that was linked ahead of time. Raises PackError where it does not load."""
    path, _, symbol = kernel.image.decode().rpartition(":")
    library = _library(path)
    try:
        address = ctypes.cast(library[symbol], ctypes.c_void_p).value
    except AttributeError:
        raise PackError(f"{path} has no symbol {symbol}", cure="adopt it again: kernelpack adopt") from None
    return Opened(address or 0, keeper=library)


@functools.cache
def _library(path: str) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(path)
    except OSError as problem:
        raise PackError(
            f"{path} cannot be loaded: {problem}", cure="adopt it again on this machine: kernelpack adopt"
        ) from None


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
