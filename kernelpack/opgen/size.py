"""Says what each byte of a built library is: the code of which op for which target, tables, runtime, what the linker needs."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kernelpack.errors import BuildError
from kernelpack.pack.elf import ElfFile, read_elf
from kernelpack.pack.format import KernelPack, read_pack

_IMAGE = re.compile(r"^    \{\w+_([^_\W]+)_images \+ \d+, (\d+), \d+, ", re.MULTILINE)
_ROW = re.compile(r'^    \{"[^"]*", "([^"]*)", "[^"]*", &(\w+)_images\[(\d+)\]', re.MULTILINE)
_LINKING = (".dyn", ".gnu", ".hash", ".rela", ".got", ".plt", ".init", ".fini")
_TABLES = (".data", ".bss", ".tm_clone_table")
_NAMES = (".symtab", ".strtab", ".shstrtab", ".comment")


@dataclass(frozen=True)
class Part:
    """Some bytes of a library. `op` and `target` are "" for what serves all; `kind` says what they are."""

    op: str
    target: str
    kind: str
    bytes: int


@dataclass(frozen=True)
class Sizes:
    """A library's bytes: those of `parts` together are all that the file has."""

    library: Path
    total: int
    parts: tuple[Part, ...]


def sizes(folder: Path) -> Sizes:
    """Returns what the bytes of the library in a built folder are. Raises BuildError for another folder, PackError for a damaged pack."""
    libraries = [path for path in folder.glob("lib*_ops.so") if path.is_file()]
    files = sorted((folder / "packs").glob("*.kpack"))
    sources = [path for pattern in ("kernels_*.cpp", "images_*.cpp") for path in sorted((folder / "cpp").glob(pattern))]
    if len(libraries) != 1 or not files or not sources:
        raise BuildError(f"{folder} is no folder that kernelpack build wrote", cure="name the folder of a built library")
    packs = {pack.entry: pack for pack in map(read_pack, files)}
    of_symbol = {pack.symbol: pack for pack in packs.values()} | packs  # code that several share counts for the lowest target
    parts: dict[tuple[str, str, str], int] = defaultdict(int)
    compressed = dict(_compressed(path.read_text() for path in sources))
    for entry, count in compressed.items():
        parts[_op(packs[entry]), str(packs[entry].target), "compressed code"] += count
    image = libraries[0].read_bytes()
    for kind, name, count in _pieces(image):
        pack = of_symbol.get(name)
        if pack is not None:
            parts[_op(pack), str(pack.target), "linked code"] += count
        else:
            parts["", "", kind] += count
    parts["", "", "constants and names"] -= sum(compressed.values())  # they lie among them
    found = (Part(*key, count) for key, count in parts.items() if count)
    return Sizes(
        libraries[0], len(image), tuple(sorted(found, key=lambda part: (part.op == "", part.op, part.target, part.kind)))
    )


def _op(pack: KernelPack) -> str:
    return ", ".join(pack.ops)


def _compressed(sources: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Yields the entry of each kernel whose image is compressed, and the bytes of that."""
    texts = list(sources)
    stored = {found[0][0]: [int(count) for _, count in found] for text in texts if (found := _IMAGE.findall(text))}
    for entry, backend, number in (row for text in texts for row in _ROW.findall(text)):
        yield entry, stored[backend][int(number)]


def _pieces(image: bytes) -> Iterator[tuple[str, str, int]]:
    """Yields what a library consists of: kind, the name of a function if there is one, bytes. All bytes of the file come once."""
    library = read_elf(image)
    covered = 0
    for number, section in enumerate(library.sections):
        size = len(section.data)
        covered += size
        if section.name == ".text":
            functions = _functions(library, number)
            yield from ((_kind_of_function(name), name, count) for count, name in functions)
            yield "runtime", "", size - sum(count for count, _ in functions)
        else:
            yield _kind_of_section(section.name), "", size
    yield "padding and headers", "", len(image) - covered


def _functions(library: ElfFile, section: int) -> list[tuple[int, str]]:
    """Returns the functions of a section, with their sizes first. Each address comes once."""
    found: dict[int, tuple[int, str]] = defaultdict(lambda: (0, ""))
    for symbol in (*library.symbols, *library.exported):
        if symbol.section == section and symbol.is_function and symbol.size:
            found[symbol.value] = max(found[symbol.value], (symbol.size, symbol.name))
    return list(found.values())


def _kind_of_function(name: str) -> str:
    if re.match(r"\w+_launch_", name) and not name.startswith("_Z"):
        return "C functions"
    return "ops" if re.match(r"_ZNK?\d+\w+_ops\d", name) else "runtime"


def _kind_of_section(name: str) -> str:
    if name.startswith(_LINKING):
        return "what the linker needs"
    if name.startswith(_TABLES):
        return "tables"
    if name in _NAMES:
        return "names for profilers"
    return "constants and names" if name.startswith(".rodata") else "runtime"
