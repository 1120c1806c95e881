"""The emulator's C++ runtime, compiled for this machine once, and LLVM's code generator for this machine."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import tempfile
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm

from kernelpack.backends.base import CSRC
from kernelpack.errors import EmulationError
from kernelpack.pack.native import native_library


def host_machine() -> Any:
    """Returns a new target machine: a compiler owns the one it is given."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    wanted = {"fma", "f16c", "avx", "avx2"}  # not avx512bf16: its conversions flush subnormal numbers
    host = llvm.get_host_cpu_features()
    features = ",".join(f"+{name}" for name in sorted(wanted) if host.get(name))
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(opt=1, reloc="pic", codemodel="jitdefault", jit=True, features=features)


@functools.cache
def runtime_library() -> ctypes.CDLL:
    """Returns the emulator's functions, csrc/simt. Raises BuildError where they cannot be compiled, UntrustedFileError where somebody
    else can have written the library that the cache has of them, EmulationError where the addresses are taken that shared memory has."""
    with tempfile.TemporaryDirectory(prefix="kernelpack-") as work:
        options = ["-march=native", "-ffp-contract=off"]
        path = str(native_library(library_name(), _sources(), options, Path(work), f"the emulator's C++ in {CSRC / 'simt'}"))
        llvm.load_library_permanently(path)
        library = ctypes.CDLL(path)
    for name in ("simt_kind", "simt_text"):
        getattr(library, name).restype = ctypes.c_char_p
    for name in ("simt_site", "simt_other_site"):
        getattr(library, name).restype = ctypes.c_uint32
    library.simt_map.restype = ctypes.c_uint64
    window, size = 0x60000000, 256 * 1024
    if not library.simt_map(ctypes.c_uint64(window), ctypes.c_uint64(size)):
        raise EmulationError(f"the addresses from {window:#x} on, of shared memory, are taken in this process", kind="memory")
    return library


def library_name() -> str:
    """Returns what the library is called in the cache: its sources and this CPU decide."""
    texts = b"".join(path.read_bytes() for path in [*_sources(), CSRC / "simt" / "simt.h"])
    return f"simt-{hashlib.sha256(texts + llvm.get_host_cpu_name().encode()).hexdigest()[:16]}.so"


def _sources() -> list[Path]:
    return sorted((CSRC / "simt").glob("*.cpp"))
