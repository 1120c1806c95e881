"""A library whose code for CPUs was altered runs none of it, whoever opened it; what a debugger does to code is no alteration."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelpack.opgen.build import Built
from kernelpack.pack.elf import linked_packs, read_elf
from kernelpack.pack.linked_code import state_checksum
from tests.opgen.test_kernels_library import python

WITHOUT_TORCH = """
    import ctypes, sys
    library = ctypes.CDLL(sys.argv[1])
    library.sample_kernels_error.restype = ctypes.c_char_p
    for _ in range(2):
        if library.sample_load_kernels(b"scale_", b"cpu", 0):
            print(library.sample_kernels_error().decode())
    """

WITH_TORCH = """
    import sys, torch
    torch.ops.load_library(sys.argv[1])
    for _ in range(2):
        try:
            torch.ops.sample.scale(torch.ones(2))
        except RuntimeError as error:
            print(str(error).removeprefix("sample::scale: "))
    """

BREAKPOINT = """
    import ctypes, mmap, sys, torch
    torch.ops.load_library(sys.argv[1])
    lines = [line.split() for line in open("/proc/self/maps") if line.rstrip().endswith(sys.argv[1])]
    start = min(int(line[0].partition("-")[0], 16) for line in lines)
    page = (start + int(sys.argv[2])) & -mmap.PAGESIZE
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    assert protect(ctypes.c_void_p(page), ctypes.c_size_t(mmap.PAGESIZE), 7) == 0
    byte = ctypes.c_ubyte.from_address(start + int(sys.argv[2]))
    before, byte.value = byte.value, 0xCC
    torch.ops.sample.row_sum(torch.ones(2, 2))  # the library is compared
    byte.value = before
    print(torch.ops.sample.scale(torch.ones(2)))
    """


def place_of_kernel(built: Built) -> int:
    """Returns where in the library the code of the kernel lies that scales."""
    library = read_elf(built.library.read_bytes())
    symbols = {pack.symbol for pack in linked_packs([pack for pack in built.packs if pack.target.backend == "cpu"])}
    symbol = next(one for one in library.symbols if one.name in symbols and "scale_kernel" in one.name)
    section = library.sections[symbol.section]
    return symbol.value - section.address + section.offset


def place_of_constant(built: Built) -> int:
    return next(one.offset for one in read_elf(built.library.read_bytes()).sections if one.name == ".rodata")


@pytest.mark.parametrize("place", [place_of_kernel, place_of_constant])
@pytest.mark.parametrize("code", [WITHOUT_TORCH, WITH_TORCH])
def test_one_altered_bit_is_refused_by_every_call(
    code: str, place: Callable[[Built], int], sample_built: Built, tmp_path: Path
) -> None:
    data = bytearray(sample_built.library.read_bytes())
    data[place(sample_built)] ^= 1
    library = tmp_path / sample_built.library.name
    library.write_bytes(data)
    said = [
        f"{library} was altered after it was built: the checksum of its code differs, and no kernel of it is run",
        "  to fix: install the library again, or build it again",
    ]
    assert python(code, library).splitlines() == said * 2


@pytest.mark.parametrize("code", [WITHOUT_TORCH, WITH_TORCH])
def test_a_library_without_names_for_profilers_is_the_same(code: str, sample_built: Built, tmp_path: Path) -> None:
    library = tmp_path / sample_built.library.name
    shutil.copy(sample_built.library, library)
    subprocess.run(["strip", library], check=True)
    assert library.stat().st_size < sample_built.library.stat().st_size
    assert python(code, library) == ""


def test_a_breakpoint_in_a_kernel_is_no_alteration(sample_built: Built) -> None:
    assert python(BREAKPOINT, sample_built.library.resolve(), place_of_kernel(sample_built)) == "tensor([2., 2.])\n"


def test_a_library_is_written_once(sample_built: Built, tmp_path: Path) -> None:
    library = tmp_path / sample_built.library.name
    shutil.copy(sample_built.library, library)
    os.utime(library, (1, 1))
    state_checksum(library)
    assert library.stat().st_mtime == 1
