"""manifest.json: what a built folder holds, by SHA-256, and what differs from that."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kernelpack.errors import PackError
from kernelpack.files import generated
from kernelpack.files.document import read_document
from kernelpack.files.whole import is_partial
from kernelpack.ir.locations import relative_name
from kernelpack.pack.format import KernelPack

NAME, SIGNATURE = "manifest.json", "manifest.json.sig"
VERSION = 1
LOADED = (".py", ".so")
"""Suffixes of the files that a process runs: no shipped folder may lack one. Others may be left out."""
_OTHERS = (NAME, SIGNATURE, "metadata.json")  # Hugging Face reads the last one
_SHAPE = {
    "kernelpack manifest": range(VERSION, VERSION + 1),
    "namespace": str,
    "kernelpack": str,
    "targets": [str],
    "tools": {...: [str]},
    "sources": {...: str},
    "files": {...: str},
    "images": {...: {...: str}},
}
_CURE = "build it again: kernelpack build"


@dataclass(frozen=True)
class Manifest:
    """What a build wrote. `tools` are the versions of what made the images. `sources` are the Python files of ops and kernels, `files` those
    of the folder, `images` the machine code by target and variant, each with its SHA-256. `str()` and `parse_manifest` are inverse."""

    namespace: str
    kernelpack: str
    targets: tuple[str, ...]
    tools: Mapping[str, tuple[str, ...]]
    sources: Mapping[str, str]
    files: Mapping[str, str]
    images: Mapping[str, Mapping[str, str]]

    def __str__(self) -> str:
        return json.dumps({"kernelpack manifest": VERSION, **vars(self)}, indent=1) + "\n"


@dataclass(frozen=True)
class Differences:
    """Files of a folder that differ from its manifest, by their names in it. Of `missing` ones a process runs the code."""

    altered: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    added: tuple[str, ...] = ()

    def sentences(self) -> list[str]:
        """Returns what differs, a sentence for each file."""
        found = [f"{name} was altered: its SHA-256 is not that of the manifest" for name in self.altered]
        found += [f"{name} is missing" for name in self.missing]
        return found + [f"{name} is not in the manifest" for name in self.added]


def manifest_of(
    namespace: str,
    version: str,
    packs: Sequence[KernelPack],
    sources: Mapping[str, Path],
    folder: Path,
    files: Iterable[Path],
) -> Manifest:
    """Returns the manifest of a library with these packs and these files of its folder; `sources` by the names that it states."""
    images: dict[str, dict[str, str]] = {}
    for pack in packs:
        images.setdefault(str(pack.target), {})[pack.variant] = pack.sha256
    return Manifest(
        namespace=namespace,
        kernelpack=version,
        targets=tuple(sorted(images)),
        tools=tools_of(packs),
        sources={name: sha256(path) for name, path in sorted(sources.items())},
        files={path.relative_to(folder).as_posix(): sha256(path) for path in sorted(files)},
        images={target: dict(sorted(images[target].items())) for target in sorted(images)},
    )


def tools_of(packs: Iterable[KernelPack]) -> dict[str, tuple[str, ...]]:
    """Returns the versions of what made the images of packs, by tool."""
    tools: dict[str, set[str]] = {}
    for pack in packs:
        for tool, stated in pack.tools.items():
            tools.setdefault(tool, set()).add(stated)
    return {tool: tuple(sorted(tools[tool])) for tool in sorted(tools)}


def read_manifest(folder: Path) -> Manifest:
    """Reads the manifest of a folder. Raises PackError where there is none, or one that no build wrote."""
    file = folder / NAME
    try:
        text = file.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise PackError(f"{file} does not exist", cure="name a folder that kernelpack build wrote") from None
    return parse_manifest(text, str(file))


def parse_manifest(text: bytes, name: str = NAME) -> Manifest:
    """Parses a manifest. Raises PackError, with the place, for anything that no build wrote."""
    try:
        found = read_document(text, _SHAPE)
    except ValueError as problem:
        raise PackError(f"{name} is no manifest of this kernelpack: {problem}", cure=_CURE) from None
    for file in found["files"]:
        if file.startswith("/") or ".." in file.split("/"):
            raise PackError(f"{name} names {file!r}, which is outside its folder", cure=_CURE)
    del found["kernelpack manifest"]
    tools = {tool: tuple(stated) for tool, stated in found.pop("tools").items()}
    return Manifest(**{**found, "targets": tuple(found["targets"]), "tools": tools})


def add_file(path: Path) -> None:
    """Adds a file that was made later, such as that of `kernelpack unbox`, to the manifest beside it, where there is one."""
    if (path.parent / NAME).is_file():
        manifest = read_manifest(path.parent)
        files = dict(sorted({**manifest.files, path.name: sha256(path)}.items()))
        generated.write(path.parent / NAME, str(replace(manifest, files=files)))


def compare(folder: Path, manifest: Manifest) -> Differences:
    """Returns how a folder differs from its manifest. What is only built from, and what Python caches, does not count."""
    here = {path.relative_to(folder).as_posix(): path for path in _files(folder)}
    return Differences(
        altered=tuple(name for name, stated in manifest.files.items() if name in here and sha256(here[name]) != stated),
        missing=tuple(name for name in manifest.files if name not in here and name.endswith(LOADED)),
        added=tuple(sorted(name for name in here if name not in manifest.files and name not in _OTHERS)),
    )


def differing_sources(sources: Iterable[Path], manifest: Manifest) -> list[str]:
    """Returns a sentence for each source that is not what a build saw: files, and folders with what the build took of them. Raises
    PackError for a source that the build did not see, FileNotFoundError for one that is not there."""
    found = []
    for source in sources:
        paths = {
            relative_name(str(path.resolve())): path for path in (sorted(source.glob("*.py")) if source.is_dir() else [source])
        }
        known = [name for name in paths if name in manifest.sources]
        if not known:
            raise PackError(f"the manifest states no source {source}", cure=f"it states {', '.join(manifest.sources)}")
        found += [
            f"{paths[name]} is not the source of this build" for name in known if sha256(paths[name]) != manifest.sources[name]
        ]
    return found


def sha256(path: Path) -> str:
    """Returns the SHA-256 of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def _files(folder: Path) -> Iterator[Path]:
    """Yields what lies in a folder, but for the objects it was linked from and what Python caches. A link to a folder counts as a file."""
    for place, folders, names in os.walk(folder):
        top = Path(place) == folder
        links = [name for name in folders if (Path(place) / name).is_symlink()]
        folders[:] = [name for name in folders if name != "__pycache__" and not (top and name == "build")]
        yield from (Path(place) / name for name in (*names, *links) if not is_partial(name))
