"""Writes a compiled object as C++: its sections as data of assembler statements, with the relocations that the linker resolves."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from kernelpack.errors import PackError
from kernelpack.pack.format import KernelPack

# numbers of the ELF specification, and of the processor supplements that name relocations
_PROGBITS, _SYMTAB, _RELA = 1, 2, 4
_WRITE, _ALLOC, _EXEC = 1, 2, 4
_UNDEFINED = 0
_RELOCATIONS = {
    62: {
        1: "R_X86_64_64", 2: "R_X86_64_PC32", 4: "R_X86_64_PLT32", 9: "R_X86_64_GOTPCREL", 10: "R_X86_64_32", 11: "R_X86_64_32S",
        24: "R_X86_64_PC64", 41: "R_X86_64_GOTPCRELX", 42: "R_X86_64_REX_GOTPCRELX",
    },
    183: {
        257: "R_AARCH64_ABS64", 260: "R_AARCH64_PREL64", 261: "R_AARCH64_PREL32", 275: "R_AARCH64_ADR_PREL_PG_HI21",
        277: "R_AARCH64_ADD_ABS_LO12_NC", 278: "R_AARCH64_LDST8_ABS_LO12_NC", 282: "R_AARCH64_JUMP26", 283: "R_AARCH64_CALL26",
        284: "R_AARCH64_LDST16_ABS_LO12_NC", 285: "R_AARCH64_LDST32_ABS_LO12_NC", 286: "R_AARCH64_LDST64_ABS_LO12_NC",
        299: "R_AARCH64_LDST128_ABS_LO12_NC", 311: "R_AARCH64_ADR_GOT_PAGE", 312: "R_AARCH64_LD64_GOT_LO12_NC",
    },
}  # fmt: skip
"""By machine, then number."""


@dataclass(frozen=True)
class _Section:
    name: str
    kind: int
    flags: int
    data: bytes
    link: int
    info: int
    alignment: int


def object_source(pack: KernelPack) -> str:
    """Returns the assembler statement that holds a kernel's code: linked, it is what the object is.

    Raises PackError for an object that is no 64-bit little-endian ELF file or needs a relocation that the assembler has no name for.
    """
    machine, sections = _sections(pack)
    symbols = _symbols(sections)
    lines = [f"// {pack.variant} for {pack.target}", 'asm(R"(']
    for index, section in enumerate(sections):
        if section.kind != _PROGBITS or not section.flags & _ALLOC or not section.data:
            continue
        flags = "a" + "w" * bool(section.flags & _WRITE) + "x" * bool(section.flags & _EXEC)
        lines.append(f'  .section {section.name.split(".cst")[0]},"{flags}",@progbits')
        lines.append(f"  .balign {section.alignment}")
        lines.append(f"{_label(pack, index)}:")
        entries = [(name, value) for name, place, value in symbols if name == pack.entry and place == index]
        for name, value in entries:
            lines += [f"  .globl {name}", f"  .hidden {name}", f"  .type {name}, @function"]
            lines.append(f"  .set {name}, {_label(pack, index)} + {value}")
        lines += _data(section.data)
        for relocation in (other for other in sections if other.kind == _RELA and other.info == index):
            lines += _relocations(pack, machine, relocation, index, symbols)
    return "\n".join([*lines, "  .text", ')");', ""])


def _label(pack: KernelPack, section: int) -> str:
    return f".L{pack.entry}_{section}"


def _data(data: bytes) -> list[str]:
    """Returns six words a line, and what remains as bytes."""
    whole = len(data) // 8 * 8
    words = [f"{word:#x}" for (word,) in struct.iter_unpack("<Q", data[:whole])]
    lines = [f"  .quad {','.join(words[start : start + 6])}" for start in range(0, len(words), 6)]
    return lines + ([f"  .byte {','.join(map(hex, data[whole:]))}"] if data[whole:] else [])


def _relocations(
    pack: KernelPack, machine: int, relocation: _Section, index: int, symbols: list[tuple[str, int, int]]
) -> list[str]:
    lines = []
    for offset, info, addend in struct.iter_unpack("<QQq", relocation.data):
        kind = _RELOCATIONS.get(machine, {}).get(info & 0xFFFFFFFF)
        if kind is None:
            raise PackError(
                f"{pack.file_name}: its object has a relocation of type {info & 0xFFFFFFFF}, which has no form as source"
            )
        name, place, value = symbols[info >> 32]
        target = name if place == _UNDEFINED else f"{_label(pack, place)} + {value}"
        lines.append(f"  .reloc {_label(pack, index)} + {offset}, {kind}, {target} + {addend}")
    return lines


def _sections(pack: KernelPack) -> tuple[int, list[_Section]]:
    """Returns an object's machine and sections."""
    image = pack.image
    if image[:6] != b"\x7fELF\x02\x01":
        raise PackError(f"{pack.file_name}: its image is no 64-bit little-endian ELF object, so it has no form as source")
    (machine,) = struct.unpack_from("<H", image, 18)
    (start,) = struct.unpack_from("<Q", image, 40)
    size, count, names_index = struct.unpack_from("<HHH", image, 58)
    heads = [struct.unpack_from("<IIQQQQIIQQ", image, start + i * size) for i in range(count)]
    names = heads[names_index]

    def name_of(offset: int) -> str:
        begin = names[4] + offset
        return image[begin : image.index(b"\0", begin)].decode()

    return machine, [
        _Section(name_of(h[0]), h[1], h[2], image[h[4] : h[4] + h[5]] if h[1] != 8 else b"", h[6], h[7], max(h[8], 1))
        for h in heads
    ]


def _symbols(sections: list[_Section]) -> list[tuple[str, int, int]]:
    """Returns name, section and value of each symbol."""
    table = next(section for section in sections if section.kind == _SYMTAB)
    names = sections[table.link].data
    return [
        (names[name : names.index(b"\0", name)].decode(), place, value)
        for name, _, _, place, value, _ in struct.iter_unpack("<IBBHQQ", table.data)
    ]
