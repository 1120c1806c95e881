"""Reads objects and libraries: 64-bit little-endian ELF files with their sections, symbols and relocations."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kernelpack.errors import PackError
from kernelpack.pack.format import KernelPack

# numbers of the ELF specification
_PROGBITS, _SYMTAB, _RELA, _NOBITS, _DYNSYM = 1, 2, 4, 8, 11
_ALLOC = 2
_FUNCTION = 2
UNDEFINED = 0
"""The section of a symbol that another object defines."""


@dataclass(frozen=True)
class Section:
    """A section; `address` is where it is loaded, `offset` where it lies in the file, `link` and `info` name other sections."""

    name: str
    kind: int
    flags: int
    address: int
    offset: int
    data: bytes
    link: int
    info: int
    alignment: int

    @property
    def is_loaded(self) -> bool:
        """Whether it has bytes that are in memory when the code runs."""
        return self.kind == _PROGBITS and bool(self.flags & _ALLOC) and bool(self.data)


@dataclass(frozen=True)
class Symbol:
    name: str
    section: int
    value: int
    size: int
    is_function: bool


@dataclass(frozen=True)
class Relocation:
    """A place of a section that gets the address of a symbol."""

    offset: int
    kind: int
    symbol: Symbol
    addend: int


@dataclass(frozen=True)
class ElfFile:
    machine: int
    sections: tuple[Section, ...]
    symbols: tuple[Symbol, ...]
    exported: tuple[Symbol, ...]
    """What a library offers to others, and needs of them: it need not be among its symbols."""

    def relocations(self, section: int) -> Iterator[Relocation]:
        """Yields the relocations of a section, by its number."""
        for table in self.sections:
            if table.kind == _RELA and table.info == section:
                for offset, info, addend in struct.iter_unpack("<QQq", table.data):
                    yield Relocation(offset, info & 0xFFFFFFFF, self.symbols[info >> 32], addend)


def read_object(pack: KernelPack) -> ElfFile:
    """Reads a pack's image. Raises PackError for one that is no 64-bit little-endian ELF file."""
    if not is_elf(pack.image):
        raise PackError(f"{pack.file_name}: its image is no 64-bit little-endian ELF object, so it has no form as source")
    return read_elf(pack.image)


def is_elf(image: bytes) -> bool:
    """Whether these are the bytes of a 64-bit little-endian ELF file."""
    return image[:6] == b"\x7fELF\x02\x01"


def read_elf(image: bytes) -> ElfFile:
    """Reads a file that a compiler or linker wrote. One without a table of symbols has none."""
    (machine,) = struct.unpack_from("<H", image, 18)
    (start,) = struct.unpack_from("<Q", image, 40)
    size, count, names_index = struct.unpack_from("<HHH", image, 58)
    heads = [struct.unpack_from("<IIQQQQIIQQ", image, start + i * size) for i in range(count)]
    names = heads[names_index]
    sections = tuple(
        Section(
            _text(image, names[4] + h[0]),
            h[1],
            h[2],
            h[3],
            h[4],
            image[h[4] : h[4] + h[5]] if h[1] != _NOBITS else b"",
            h[6],
            h[7],
            max(h[8], 1),
        )
        for h in heads
    )
    return ElfFile(machine, sections, tuple(_symbols(sections, _SYMTAB)), tuple(_symbols(sections, _DYNSYM)))


def _symbols(sections: tuple[Section, ...], kind: int) -> Iterator[Symbol]:
    for table in (section for section in sections if section.kind == kind):
        names = sections[table.link].data
        for name, info, _, place, value, size in struct.iter_unpack("<IBBHQQ", table.data):
            yield Symbol(_text(names, name), place, value, size, info & 0xF == _FUNCTION)


def _text(data: bytes, offset: int) -> str:
    return data[offset : data.index(b"\0", offset)].decode()


def linked_for(packs: Sequence[KernelPack]) -> dict[str, KernelPack]:
    """Returns by each pack's entry the pack whose code is linked for it: of packs with equal code, the first."""
    first: dict[object, KernelPack] = {}
    linked = {pack.entry: first.setdefault(_code(pack), pack) for pack in packs}
    by_symbol: dict[str, KernelPack] = {}
    for pack in first.values():
        other = by_symbol.setdefault(pack.symbol, pack)
        if other is not pack:
            raise PackError(f"{other.file_name} and {pack.file_name} have different code of one name, {pack.symbol}")
    return linked


def linked_packs(packs: Sequence[KernelPack]) -> list[KernelPack]:
    """Returns the packs whose code is linked."""
    linked = linked_for(packs)
    return [pack for pack in packs if linked[pack.entry] is pack]


def _code(pack: KernelPack) -> object:
    """Returns what is linked of a pack's object, whatever its entry is called."""
    made = read_object(pack)
    loaded = []
    for index, section in enumerate(made.sections):
        if section.is_loaded:
            places = tuple(
                (
                    one.offset,
                    one.kind,
                    "" if one.symbol.name == pack.symbol else one.symbol.name,
                    one.symbol.section,
                    one.symbol.value,
                    one.addend,
                )
                for one in made.relocations(index)
            )
            entries = tuple(one.value for one in made.symbols if one.name == pack.symbol and one.section == index)
            loaded.append((section.name, section.flags, section.alignment, section.data, places, entries))
    return made.machine, tuple(loaded)
