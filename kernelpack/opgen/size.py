"""Says what each byte of a built library is: the code of which op for which target, tables, runtime, what the linker needs."""

from __future__ import annotations

import re
import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kernelpack.errors import BuildError
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
    parts: dict[tuple[str, str, str], int] = defaultdict(int)
    compressed = dict(_compressed(path.read_text() for path in sources))
    for entry, count in compressed.items():
        parts[_op(packs[entry]), str(packs[entry].target), "compressed code"] += count
    image = libraries[0].read_bytes()
    for kind, name, count in _pieces(image):
        pack = packs.get(name)
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
    (start,) = struct.unpack_from("<Q", image, 40)
    length, count, names_index = struct.unpack_from("<HHH", image, 58)
    heads = [struct.unpack_from("<IIQQQQIIQQ", image, start + index * length) for index in range(count)]
    names = heads[names_index][4]
    sections = [(_text(image, names + head[0]), head) for head in heads]
    functions = list(_functions(image, sections))
    covered = 0
    for name, (_, kind, _, _, _, size, *_) in sections:
        if kind in (0, 8) or not size:  # unused, or no bytes of the file
            continue
        covered += size
        if name == ".text":
            for function, bytes_ in functions:
                yield _kind_of_function(function), function, bytes_
            yield "runtime", "", size - sum(bytes_ for _, bytes_ in functions)
        else:
            yield _kind_of_section(name), "", size
    yield "padding and headers", "", len(image) - covered


def _functions(image: bytes, sections: list[tuple[str, tuple[int, ...]]]) -> Iterator[tuple[str, int]]:
    """Yields the functions of the code section with their sizes. Each address comes once, the longest name for it."""
    text = next(index for index, (name, _) in enumerate(sections) if name == ".text")
    table = next((head for name, head in sections if name == ".symtab"), None)
    if table is None:
        return
    strings = sections[table[6]][1][4]
    found: Mapping[int, tuple[int, str]] = {}
    found = defaultdict(lambda: (0, ""))
    for name, info, _, place, value, size in struct.iter_unpack("<IBBHQQ", image[table[4] : table[4] + table[5]]):
        if place == text and info & 0xF == 2 and size:
            found[value] = max(found[value], (size, _text(image, strings + name)))
    yield from ((name, size) for size, name in found.values())


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


def _text(data: bytes, offset: int) -> str:
    return data[offset : data.index(b"\0", offset)].decode()
