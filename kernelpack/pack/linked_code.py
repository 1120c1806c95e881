"""The checksum of a library's linked code: written into its file after linking, compared before its first kernel for CPUs runs."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

from kernelpack.files.whole import write_whole
from kernelpack.pack.elf import is_elf, read_elf

_STATED = "kernelpack_code"
"""The section that holds what csrc/kernels/linked_code.h reads, as `_LAYOUT` has it."""
_CHECKED = (".text", ".rodata")
"""Kernels for CPUs and their constants lie there, and the runtime's. Nothing writes to them when a library is loaded."""
_LAYOUT = "<6Q2I"


def state_checksum(library: Path) -> None:
    """Writes the checksum of a linked library's code into it, unless it stands there. Raises OSError."""
    image = library.read_bytes()
    if not is_elf(image):
        return  # what another linker writes
    sections = {section.name: section for section in read_elf(image).sections}
    if _STATED not in sections:
        return  # no kernels for CPUs
    ranges: list[int] = []
    checksum = 0
    for name in _CHECKED:
        section = sections[name]
        ranges += [section.address, section.offset, len(section.data)]
        checksum = zlib.crc32(section.data, checksum)
    stated = struct.pack(_LAYOUT, *ranges, checksum, 1)
    place = sections[_STATED]
    if place.data != stated:
        mode = library.stat().st_mode
        write_whole(library, image[: place.offset] + stated + image[place.offset + len(stated) :], shared=False)
        library.chmod(mode)
