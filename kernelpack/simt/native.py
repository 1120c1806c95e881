"""The emulator's C++ runtime, compiled for this machine once, and LLVM's code generator for this machine."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm

from kernelpack import knobs
from kernelpack.backends.base import CSRC
from kernelpack.errors import BuildError, EmulationError
from kernelpack.pack.ninja import compiler


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
    """Returns the emulator's functions, csrc/simt. Raises BuildError where they cannot be compiled, EmulationError where the
    addresses are taken that shared memory has."""
    path = str(_built())
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


def _built() -> Path:
    """Returns the library, compiled for this machine once and kept in the cache."""
    sources = sorted((CSRC / "simt").glob("*.cpp"))
    texts = b"".join(path.read_bytes() for path in [*sources, CSRC / "simt" / "simt.h"])
    key = hashlib.sha256(texts + llvm.get_host_cpu_name().encode()).hexdigest()[:16]
    folder = knobs.cache_dir() or Path(tempfile.gettempdir()) / f"kernelpack-{os.getuid()}"
    target = folder / f"simt-{key}.so"
    if target.exists():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as work:
        objects = [f"{work}/{source.stem}.o" for source in sources]
        command = [compiler(), "-std=c++17", "-O2", "-march=native", "-ffp-contract=off", "-fPIC"]
        _run(*([*command, "-c", str(source), "-o", made] for source, made in zip(sources, objects, strict=True)))
        _run([*command, "-shared", *objects, "-o", f"{work}/simt.so"])
        os.replace(f"{work}/simt.so", target)
    return target


def _run(*commands: list[str]) -> None:
    """Runs commands at once. Raises BuildError, with what one says that fails."""
    jobs = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for command in commands]
    said = [job.communicate()[1] for job in jobs]
    for job, problems in zip(jobs, said, strict=True):
        if job.returncode:
            raise BuildError(f"the emulator's C++ in {CSRC / 'simt'} does not compile:\n{problems}")
