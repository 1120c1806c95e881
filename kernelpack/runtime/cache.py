"""Who keeps compiled kernels: files of this machine, or of another one. Names are those of triton.runtime.cache."""

from __future__ import annotations

import base64
import importlib
import json
import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from kernelpack import knobs
from kernelpack.compiler.source_hash import source_hash
from kernelpack.errors import BuildError, UntrustedFileError
from kernelpack.files.cache import CacheFolder, go_without
from kernelpack.files.document import read_document
from kernelpack.files.trust import is_listed
from kernelpack.files.whole import write_whole
from kernelpack.version import VERSION


class CacheManager(ABC):
    """Keeps the files of one key. knobs.cache.manager_class replaces it by a class of the user's, called with the key."""

    @abstractmethod
    def __init__(self, key: str, override: bool = False, dump: bool = False) -> None: ...

    @abstractmethod
    def get_file(self, filename: str) -> str | None:
        """Returns the path of a file that was kept, or None."""

    @abstractmethod
    def put(self, data: bytes | str, filename: str, binary: bool = True) -> str:
        """Keeps a file, and returns its path. Raises OSError and UntrustedFileError."""

    @abstractmethod
    def get_group(self, filename: str) -> dict[str, str] | None:
        """Returns the paths of files that belong together, by name; None unless all are there."""

    def put_group(self, filename: str, group: dict[str, str]) -> str:
        """Notes which files belong together: name and path of each. Returns the path of the note."""
        return self.put(json.dumps({"child_paths": group}), _note_of(filename), binary=False)

    def _group(self, filename: str) -> dict[str, str] | None:
        """Returns what put_group noted; None where it did not, or the note does not read."""
        note = self.get_file(_note_of(filename))
        if note is None:
            return None
        try:
            paths: dict[str, str] = read_document(Path(note).read_bytes(), {"child_paths": {...: str}})["child_paths"]
        except ValueError:  # cut short by a full disk, altered
            return None
        return paths


class FileCacheManager(CacheManager):
    """Keeps files in a folder of knobs.cache.dir; with `dump` and `override` in the folders for what people read and replace.

    It gives no file that somebody else can have written, unless knobs.cache.lock lists it, and warns of one. It keeps none where
    others could replace it, and raises UntrustedFileError: `dump` does, as nothing is run of what people read.
    """

    def __init__(self, key: str, override: bool = False, dump: bool = False) -> None:
        self.key = key
        self._dump = dump
        places = knobs.cache
        self._folder = CacheFolder(places.dump_dir if dump else places.override_dir if override else places.dir)
        self.cache_dir = os.path.join(self._folder.root, key)

    def _make_path(self, filename: str) -> str:
        return os.path.join(self._folder.root, self._name(filename))

    def _name(self, filename: str) -> str:
        """Returns the name of a file in the cache's folder. Raises BuildError for one that would lie elsewhere."""
        if filename in ("", ".", "..") or "/" in filename or not filename.isprintable():
            raise BuildError(f"a cache cannot keep {filename!r}", cure="give the name of a file, without folders")
        return f"{self.key}/{filename}"

    def has_file(self, filename: str) -> bool:
        """Whether a file was kept."""
        return Path(self._make_path(filename)).exists()

    def get_file(self, filename: str) -> str | None:
        try:
            found = self._folder.find(self._name(filename))
        except UntrustedFileError as problem:
            go_without(problem)
            return None
        return None if found is None else str(found)

    def put(self, data: bytes | str, filename: str, binary: bool = True) -> str:
        if not self._dump:
            return str(self._folder.write(self._name(filename), _bytes(data)))
        path = self._make_path(filename)
        write_whole(Path(path), _bytes(data))
        return path

    def get_group(self, filename: str) -> dict[str, str] | None:
        noted = self._group(filename)
        if noted is None:
            return None
        paths = {name: path for name in noted if (path := self.get_file(name)) is not None}
        return paths if len(paths) == len(noted) else None


class RemoteCacheBackend(ABC):
    """Keeps bytes by file name, for one key: what knobs.cache.remote_manager_class is."""

    @abstractmethod
    def __init__(self, key: str) -> None: ...

    @abstractmethod
    def get(self, filenames: list[str]) -> dict[str, bytes]:
        """Returns those of the files that are there."""

    @abstractmethod
    def put(self, filename: str, data: bytes) -> None:
        """Keeps a file."""


class RedisRemoteCacheBackend(RemoteCacheBackend):
    """Keeps files on the server of knobs.redis; needs the package `redis`."""

    def __init__(self, key: str) -> None:
        redis: Any = importlib.import_module("redis")
        self._key = key
        self._server = redis.Redis(host=knobs.redis.host, port=knobs.redis.port)

    def get(self, filenames: list[str]) -> dict[str, bytes]:
        found = self._server.mget([self._name(filename) for filename in filenames])
        return {filename: data for filename, data in zip(filenames, found, strict=True) if data is not None}

    def put(self, filename: str, data: bytes) -> None:
        self._server.set(self._name(filename), data)

    def _name(self, filename: str) -> str:
        return str(knobs.redis.key_format).format(key=self._key, filename=filename)


class RemoteCacheManager(CacheManager):
    """Keeps files with knobs.cache.remote_manager_class, and copies of them here.

    Who put a file there cannot be known: it is taken if knobs.cache.lock lists it, if knobs.cache.trust_remote says so, or if the copy
    here, which this user wrote, is the same.
    """

    def __init__(self, key: str, override: bool = False, dump: bool = False) -> None:
        kind: Any = knobs.cache.remote_manager_class
        self._remote = kind(key)
        self._local = FileCacheManager(key, override=override, dump=dump)

    def get_file(self, filename: str) -> str | None:
        return self._fetched([filename]).get(filename)

    def put(self, data: bytes | str, filename: str, binary: bool = True) -> str:
        self._remote.put(filename, _bytes(data))
        return self._local.put(data, filename, binary)

    def get_group(self, filename: str) -> dict[str, str] | None:
        noted = self._group(filename)
        if noted is None:
            return None
        paths = self._fetched(list(noted))
        return paths if len(paths) == len(noted) else None

    def _fetched(self, filenames: list[str]) -> dict[str, str]:
        found = self._remote.get(filenames)
        paths = {name: self._admitted(name, found[name]) for name in filenames if name in found}
        return {name: path for name, path in paths.items() if path is not None}

    def _admitted(self, filename: str, data: bytes) -> str | None:
        """Returns the path of a copy of what the other machine gave, None where it is not taken."""
        if knobs.cache.trust_remote or is_listed(f"{self._local.key}/{filename}", data):
            return self._local.put(data, filename)
        own = self._local.get_file(filename)
        if own is not None and Path(own).read_bytes() == data:
            return own
        go_without(
            UntrustedFileError(
                f"somebody else may have put what {type(self._remote).__name__} gives there",
                cure="KERNELPACK_TRUST_REMOTE_CACHE=1 if you trust all who can write there, or list its files by KERNELPACK_CACHE_LOCK",
            )
        )
        return None


def _bytes(data: bytes | str) -> bytes:
    return data if isinstance(data, bytes) else str(data).encode()


def _note_of(filename: str) -> str:
    return f"__grp__{filename}"


def get_cache_manager(key: str) -> CacheManager:
    """Returns who keeps the files of a key."""
    usual = FileCacheManager if knobs.cache.remote_manager_class is None else RemoteCacheManager
    manager: CacheManager = (knobs.cache.manager_class or usual)(key)
    return manager


def get_override_manager(key: str) -> CacheManager:
    """Returns who keeps what people put in the place of compiled files."""
    manager: CacheManager = (knobs.cache.manager_class or FileCacheManager)(key, override=True)
    return manager


def get_dump_manager(key: str) -> CacheManager:
    """Returns who keeps what people read."""
    manager: CacheManager = (knobs.cache.manager_class or FileCacheManager)(key, dump=True)
    return manager


def triton_key() -> str:
    """Returns what tells this compiler from any other: its version, and the hash of its source."""
    return f"{VERSION}-{source_hash()}"


def _base32(key: str) -> str:
    """Returns a hash of hexadecimal digits in fewer characters, as names of folders have it."""
    return base64.b32encode(bytes.fromhex(key)).decode().rstrip("=")


_DECISIVE = ("KERNELPACK_DEBUG", "PTXAS_OPTIONS", "TRITON_DEBUG", "TRITON_DEFAULT_FP_FUSION", "TRITON_F32_DEFAULT")


def get_cache_invalidating_env_vars() -> dict[str, str]:
    """Returns the variables that change what is compiled, as far as they are set."""
    return {name: os.environ[name] for name in _DECISIVE if os.environ.get(name)}
