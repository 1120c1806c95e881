"""Makes cubins smaller: empties sections that code runs without, such as the PTX that assemblers embed beside line information."""

from __future__ import annotations

import struct

EMBEDDED_PTX = ".nv_debug_ptx_txt"
"""The section; nvJitLink puts a number after its name."""
LINE_TABLES = (".rela.debug_line", ".rela.nv_debug_line_sass", ".debug_line", ".nv_debug_line_sass")
"""And what relocates them."""
_ALIGNMENT = 128
"""What sections of a cubin are aligned to at most (code: one line of the instruction cache)."""


def _section(image: bytes, name: str) -> tuple[int, int, int] | None:
    """Returns where the header of the first section with content whose name begins so lies in an ELF file, where its content, and its
    size."""
    (headers,) = struct.unpack_from("<Q", image, 0x28)
    size, count, names_index = struct.unpack_from("<3H", image, 0x3A)
    (names,) = struct.unpack_from("<Q", image, headers + names_index * size + 0x18)
    for header in range(headers, headers + count * size, size):
        start = names + struct.unpack_from("<I", image, header)[0]
        content, length = struct.unpack_from("<2Q", image, header + 0x18)
        if image.startswith(name.encode(), start) and length:
            return header, content, length
    return None


def without_embedded_ptx(image: bytes) -> bytes:
    """Returns a cubin whose section of PTX text is empty. Everything else stays as aligned as it was."""
    return _without(image, EMBEDDED_PTX)


def without_line_tables(image: bytes) -> bytes:
    """Returns a cubin that does not say which instruction comes from which line of source."""
    for name in LINE_TABLES:
        image = _without(image, name)
    return image


def _without(image: bytes, name: str) -> bytes:
    """Returns a cubin whose sections with a name that begins so are empty."""
    found = _section(image, name)
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
    return _without(bytes(edited), name)
