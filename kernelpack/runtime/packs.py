"""Kernels that `kernelpack adopt` compiled ahead of time: KERNELPACK_PACKS names folders of them, launches look there first."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import threading
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kernelpack import knobs
from kernelpack.backends.installed import backend_of
from kernelpack.compiled import LINKED, CompiledKernel
from kernelpack.compiler.target_backend import TargetOptions, inspection
from kernelpack.errors import MissingKernelError, OptionError, PackError, UntrustedFileError
from kernelpack.files.document import Shape, read_document
from kernelpack.files.trust import own_file
from kernelpack.runtime import record
from kernelpack.runtime.ahead_of_time import ASTSource
from kernelpack.runtime.kernel_file import parse_kernel
from kernelpack.ship.manifest import sha256
from kernelpack.target import Target
from kernelpack.version import VERSION

INDEX = "kernels.json"
FORMAT = 1
HEAD = ("kernel", "package", "version", "source")
"""What all lines of a record say of a kernel: the index says it once."""
CURE = "adopt it again: kernelpack adopt"

_VARIANT: Shape = {
    "key": str, "target": str, "entry": str, "start": range(2**40), "size": range(2**31), "image sha256": str, "code sha256": str, "record": {...: object},
}  # fmt: skip
_KERNEL: Shape = {
    "kernel": str, "package": str | None, "version": str | None, "licence": str | None, "source": str, "variants": [_VARIANT],
}  # fmt: skip
_SEARCH: Shape = {"kernel": str, "source": str, "search": [str], "config": {...: object}}
_INDEX: Shape = {
    "kernelpack packs": range(FORMAT, FORMAT + 1),
    "kernelpack": str,
    "targets": [str],
    "files": {...: str},
    "kernels": [_KERNEL],
    "searches": [_SEARCH],
}


@dataclass(frozen=True)
class Variant:
    """A variant in a folder. `said` is the line of the record that it was compiled for."""

    folder: Folder
    kernel: str
    source: str
    target: str
    key: str
    said: Mapping[str, Any]
    place: tuple[int, int]
    image_sha256: str
    code_sha256: str


@dataclass(frozen=True, eq=False)
class Folder:
    """A folder that `kernelpack adopt` wrote."""

    path: Path
    files: Mapping[str, str]
    """The SHA-256 of each other file."""
    kernels: tuple[Mapping[str, Any], ...]
    searches: tuple[Mapping[str, Any], ...]
    _compared: dict[str, Path] = field(default_factory=dict)

    @functools.cached_property
    def variants(self) -> tuple[Variant, ...]:
        return tuple(
            Variant(
                self,
                kernel["kernel"],
                kernel["source"],
                one["target"],
                one["key"],
                {**{name: kernel[name] for name in HEAD}, **one["record"]},
                (one["start"], one["size"]),
                one["image sha256"],
                one["code sha256"],
            )
            for kernel in self.kernels
            for one in kernel["variants"]
        )

    @functools.cached_property
    def images(self) -> bytes:
        return self.file(self._images).read_bytes()

    @property
    def _images(self) -> str:
        return next((name for name in self.files if name.endswith(".bin")), "kernels.bin")

    def file(self, name: str) -> Path:
        """Returns a file of the folder that is as it was written. Raises PackError and UntrustedFileError."""
        if name not in self._compared:
            path = _own(self.path, name)
            if name not in self.files or sha256(path) != self.files[name]:
                raise PackError(f"{path} was altered: its SHA-256 is not that of {INDEX}", cure=CURE)
            self._compared[name] = path
        return self._compared[name]

    def load(self, variant: Variant) -> CompiledKernel:
        """Returns the compiled kernel of a variant. Raises PackError for a folder that was altered."""
        import lzma  # late: Python can be built without it

        start, size = variant.place
        packed = self.images[start : start + size]
        where = f"{self.path / self._images}, {variant.kernel}"
        try:
            kernel = parse_kernel(lzma.decompress(packed), where)
        except lzma.LZMAError as problem:
            raise PackError(f"{where}: {problem}", cure=CURE) from None
        if kernel.image_kind != LINKED:
            return kernel
        name, _, symbol = kernel.image.decode().partition(":")
        return replace(kernel, image=f"{self.file(name)}:{symbol}".encode())


def read_folder(path: Path) -> Folder:
    """Reads the index of a folder. Raises PackError for one that `kernelpack adopt` of this version did not write, UntrustedFileError for one
    that others can change."""
    file = _own(path, INDEX)
    try:
        found = read_document(file.read_bytes(), {"kernelpack": str, ...: object})
        if found["kernelpack"] != VERSION:
            raise PackError(f"{file} was written by kernelpack {found['kernelpack']}, this is {VERSION}", cure=CURE)
        found = read_document(file.read_bytes(), _INDEX)
    except ValueError as problem:
        raise PackError(f"{file} is no index that kernelpack adopt wrote: {problem}", cure=CURE) from None
    return Folder(path, found["files"], tuple(found["kernels"]), tuple(found["searches"]))


def _own(path: Path, name: str) -> Path:
    try:
        return own_file(path, name)
    except UntrustedFileError as problem:
        cure = (problem.cure or "").partition(";")[0]
        raise UntrustedFileError(f"{problem.message}, and its code would run", cure=cure) from None
    except OSError as problem:
        raise PackError(
            f"{path / name} cannot be read: {problem.strerror}", cure="name a folder that kernelpack adopt wrote"
        ) from None


class _Packs:
    """The folders of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._folders: dict[str, Folder] = {}
        self._by_key: dict[str, Variant] = {}
        self._searches: dict[tuple[str, tuple[str, ...]], Mapping[str, Any]] = {}
        self._read = ""

    def add(self, path: Path) -> None:
        """Adds the kernels of a folder. Raises PackError, UntrustedFileError, and PackError for a kernel that another folder has otherwise."""
        place = os.path.realpath(path)
        with self._lock:
            if place in self._folders:
                return
            key = knobs.REQUIRE_SIGNATURE.get()
            if key:
                from kernelpack.ship.signature import check_signed  # late: it needs model-signing

                check_signed(Path(place), Path(key))
            folder = read_folder(Path(place))
            for variant in folder.variants:
                other = self._by_key.get(variant.key, variant)
                if other.code_sha256 != variant.code_sha256:
                    raise PackError(
                        f"{folder.path} and {other.folder.path} have different code of one variant of {variant.kernel}",
                        cure="name one of them, or adopt both records into one folder",
                    )
            self._by_key = {**{variant.key: variant for variant in folder.variants}, **self._by_key}
            for search in folder.searches:
                self._searches.setdefault((search["source"], tuple(search["search"])), search["config"])
            self._folders[place] = folder

    @property
    def folders(self) -> list[Folder]:
        """Those of KERNELPACK_PACKS too, which is read when it changes."""
        named = knobs.PACKS.get()
        if named != self._read:
            for path in filter(None, named.split(os.pathsep)):
                self.add(Path(knobs.expanded(path)))
            self._read = named
        return list(self._folders.values())

    def find(self, key: str) -> Variant | None:
        return self._by_key.get(key)

    def config(self, source: str, key: tuple[str, ...]) -> Mapping[str, Any] | None:
        return self._searches.get((source, key))


_packs = _Packs()


def load(folder: str | os.PathLike[str]) -> None:
    """Lets launches of this process take kernels from a folder that `kernelpack adopt` wrote, as KERNELPACK_PACKS does.

    Raises PackError for a folder that is none, was altered, or has other code for a kernel that an earlier one has; UntrustedFileError for
    one that others can change.
    """
    _packs.add(Path(folder))


def key_of(source: ASTSource, options: TargetOptions) -> str:
    """Returns the name of a compiled kernel in folders, whatever compiled it: the SHA-256 of what the kernel's meaning depends on. Raises
    TypeError where a constant has no text that says all of it."""
    unused = backend_of(Target.parse(options.arch)).unused_options
    decisive = replace(options, **{name: getattr(TargetOptions, name) for name in unused}).hash()
    return hashlib.sha256(f"{source.hash()}-{decisive}".encode()).hexdigest()


def find(source: ASTSource, target: Target, options: TargetOptions) -> CompiledKernel | None:
    """Returns the kernel for a source from the folders of this process, None where they do not have it. Raises MissingKernelError then, if
    KERNELPACK_MISS=error."""
    if not in_use() and knobs.MISS.get() == "compile":
        return None
    if knobs.compilation.unusual or inspection()[0]:  # it asks for other code than was packed
        return None
    levels = backend_of(target).runs_code_of(target)
    try:
        keys = [key_of(source, replace(options, arch=str(level))) for level in levels]
    except TypeError:  # of a constant no text says all: it cannot have been adopted
        keys = []
    variant = next(filter(None, map(_packs.find, keys)), None)
    if variant is None:
        _missed(source, target, options)
        return None
    return replace(variant.folder.load(variant), options=options.plain)


def in_use() -> bool:
    """Whether this process takes kernels from a folder."""
    return bool(_packs.folders)


def chosen(source: str, key: tuple[Any, ...]) -> Mapping[str, Any] | None:
    """Returns the config, as records have it, that a recorded search of a kernel with this digest chose for a key; None where there is none."""
    return _packs.config(source, tuple(map(repr, key))) if in_use() else None


def _missed(source: ASTSource, target: Target, options: TargetOptions) -> None:
    """Does what KERNELPACK_MISS asks for a kernel that no folder has."""
    asked = knobs.MISS.get()
    if asked not in ("compile", "warn", "error"):
        raise OptionError(f"{knobs.MISS.name} is {asked!r}", cure="set it to compile, warn or error")
    if asked == "compile":
        return
    where = ", ".join(str(folder.path) for folder in _packs.folders) or f"{knobs.PACKS.name}, which names no folder"
    try:
        said = record.line_of(source, target.backend, options)
    except TypeError as problem:
        raise MissingKernelError(f"{source.name} is not in {where}, and cannot be adopted: {problem}") from None
    what = f"{said['kernel']} is not in {where} for this launch on {target}{_nearest(said, target)}"
    cure = f"run `kernelpack adopt` on a record that has this line, too:\n{json.dumps(said)}"
    if asked == "error":
        raise MissingKernelError(what, location=source.fn.location, cure=cure)
    warnings.warn(f"{what}\n  it is compiled now; to fix: {cure}", RuntimeWarning, stacklevel=2)


def _nearest(said: Mapping[str, Any], target: Target) -> str:
    """Returns what of a kernel the folders have, the variant that is most alike."""
    same = [variant for folder in _packs.folders for variant in folder.variants if variant.kernel == said["kernel"]]
    if not same:
        return ": no variant of it is"
    own = [variant for variant in same if variant.source == said["source"]]
    if not own:
        return ": what is there was compiled from another source; the kernel, or what it calls, has changed since"
    levels = {str(level) for level in backend_of(target).runs_code_of(target)}
    here = [variant for variant in own if variant.target in levels]
    if not here:
        return f": it is for {', '.join(sorted({variant.target for variant in own}))}"
    differences = min((_differences(variant.said, said) for variant in here), key=len)
    return f"; the nearest variant has {', '.join(differences[:6]) or 'other options'}"


def _differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """Returns where one line of a record differs from another."""
    names = list(here["signature"])
    found = []
    for part in ("signature", "constants", "facts", "options"):
        old, new = (_by_name(one[part], names) for one in (there, here))
        for name in sorted({*old, *new}):
            if old.get(name) != new.get(name):
                found.append(f"{name}={_short(old.get(name))} where this launch has {_short(new.get(name))}")
    return found


def _by_name(part: Any, names: list[str]) -> dict[str, Any]:
    if isinstance(part, Mapping):
        return dict(part)
    return {".".join([names[path[0]], *map(str, path[1:])]): value for path, value in part}


def _short(value: Any) -> str:
    return "nothing" if value is None else json.dumps(value)[:60]
