"""Makes cubins smaller: the PTX that assemblers embed beside line information is larger than the code, and nobody needs it."""

from __future__ import annotations

import struct

EMBEDDED_PTX = ".nv_debug_ptx_txt"
"""The section; nvJitLink puts a number after its name."""
_ALIGNMENT = 128
"""What sections of a cubin are aligned to at most (code: one line of the instruction cache)."""


def _section(image: bytes, name: str) -> tuple[int, int, int] | None:
    """Returns where the header of the first section whose name begins so lies in an ELF file, where its content, and its size."""
    (headers,) = struct.unpack_from("<Q", image, 0x28)
    size, count, names_index = struct.unpack_from("<3H", image, 0x3A)
    (names,) = struct.unpack_from("<Q", image, headers + names_index * size + 0x18)
    for header in range(headers, headers + count * size, size):
        start = names + struct.unpack_from("<I", image, header)[0]
        if image.startswith(name.encode(), start):
            return header, *struct.unpack_from("<2Q", image, header + 0x18)
    return None


def without_embedded_ptx(image: bytes) -> bytes:
    """Returns a cubin whose section of PTX text is empty. Everything else stays as aligned as it was."""
    found = _section(image, EMBEDDED_PTX)
    if found is None:
        return image
    header, start, size = found
    cut = size // _ALIGNMENT * _ALIGNMENT
    edited = bytearray(image)
    struct.pack_into("<Q", edited, header + 0x20, 0)
    edited[start : start + size] = bytes(size)  # what stays as padding shall not depend on the text

    def move(position: int) -> None:
        """Corrects an offset into the file."""
        (offset,) = struct.unpack_from("<Q", edited, position)
        if offset >= start + size:
            struct.pack_into("<Q", edited, position, offset - cut)

    segments, headers = struct.unpack_from("<2Q", edited, 0x20)
    segment_size, segment_count, header_size, header_count = struct.unpack_from("<4H", edited, 0x36)
    for number in range(segment_count):
        move(segments + number * segment_size + 0x08)
    for number in range(header_count):
        move(headers + number * header_size + 0x18)
    move(0x20)
    move(0x28)
    del edited[start : start + cut]
    return bytes(edited)
