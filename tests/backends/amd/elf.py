"""Reads what tests ask of ELF files: the header's machine and flags, and the symbols."""

from __future__ import annotations

import struct
from dataclasses import dataclass

_SYMBOL = struct.Struct("<IBBHQQ")


@dataclass(frozen=True)
class Elf:
    """`kind` is e_type: 1 for relocatable, 3 for shared objects; `symbols` has the section of each, 0 for undefined ones."""

    machine: int
    kind: int
    abi: tuple[int, int]
    flags: int
    symbols: dict[str, int]


def read(data: bytes) -> Elf:
    assert data[:6] == b"\x7fELF\x02\x01"  # 64 bits, little endian
    kind, machine = struct.unpack_from("<HH", data, 16)
    sections, flags = struct.unpack_from("<Q", data, 40)[0], struct.unpack_from("<I", data, 48)[0]
    size, count = struct.unpack_from("<HH", data, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, sections + size * number) for number in range(count)]
    symbols: dict[str, int] = {}
    for _, what, _, _, offset, length, link, *_ in headers:
        if what == 2:  # SHT_SYMTAB
            names = headers[link][4]
            for place in range(offset, offset + length, _SYMBOL.size):
                name, _, _, section, _, _ = _SYMBOL.unpack_from(data, place)
                text = data[names + name : data.index(b"\0", names + name)].decode()
                symbols[text] = section
    return Elf(machine, kind, (data[7], data[8]), flags, {name: section for name, section in symbols.items() if name})
