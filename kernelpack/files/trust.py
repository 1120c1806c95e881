"""Who wrote what is read back: files of caches are this user's or root's, or a lock that they own lists them."""

from __future__ import annotations

import atexit
import functools
import hashlib
import os
import pwd
import shutil
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

from kernelpack import knobs
from kernelpack.errors import BuildError, PackError, UntrustedFileError
from kernelpack.files.lock import parse_lock
from kernelpack.files.whole import write_whole
from kernelpack.knobs.environment import expanded


def own_folder(folder: str | Path) -> Path:
    """Returns the real path of a folder whose files only this user and root can put there, change and replace. Raises OSError, and
    UntrustedFileError, which names the folder, or one above it, and the cure."""
    return Path(_own_folder(os.path.abspath(folder), os.geteuid()))


def own_file(folder: str | Path, name: str) -> Path:
    """Returns the real path of a plain file, in a folder or one inside it, that only this user and root can have written. Nobody else
    can change or replace it later: what is read there is what was checked. Raises OSError and UntrustedFileError."""
    user = os.geteuid()
    real = _own_folder(os.path.abspath(folder), user)
    mode = 0
    for part in name.split("/"):
        real = f"{real}/{part}"
        found = os.lstat(real)
        mode = found.st_mode
        if stat.S_ISLNK(mode):
            raise UntrustedFileError(f"{real} is a link", cure="remove it")
        _check(real, found, user)
    if not stat.S_ISREG(mode):
        raise UntrustedFileError(f"{real} is no plain file", cure="remove it")
    return Path(real)


def own_tree(folder: Path) -> None:
    """Raises UntrustedFileError, by name, for a file or folder in a folder, or for the folder itself, that somebody but this user and
    root owns or can write to. Raises OSError."""
    for path in (folder, *folder.rglob("*")):
        found = path.lstat()
        if stat.S_ISLNK(found.st_mode):
            _check_owner(str(path), found, os.geteuid())
        else:
            _check(str(path), found, os.geteuid())


def admitted(folder: str | Path, name: str, listed_as: str | None = None) -> Path:
    """Returns where a file of a cache is read: its real path if only this user and root can have written it, else a copy that is this
    process's own if knobs.cache.lock lists it, by its name in the cache (default: in the folder). Raises OSError, UntrustedFileError,
    and BuildError for a bad lock."""
    try:
        return own_file(folder, name)
    except UntrustedFileError:
        if (listed_as or name) not in listed():
            raise
    path = os.path.join(folder, name)
    data = _bytes_of(path)
    if not is_listed(listed_as or name, data):
        raise UntrustedFileError(
            f"{path} is not the file that {knobs.cache.lock} lists",
            cure="write the lock again where the cache is made: kernelpack cache --lock FILE",
        )
    copies = _copies(os.getpid())
    write_whole(copies / name, data, shared=False)
    return own_file(copies, name)


def is_listed(name: str, data: bytes) -> bool:
    """Whether knobs.cache.lock lists bytes by a file's name in the cache. Raises BuildError for a bad lock."""
    return listed().get(name) == hashlib.sha256(data).hexdigest()


def listed() -> Mapping[str, str]:
    """Returns what knobs.cache.lock lists: the SHA-256 of files by their names in the cache. Raises BuildError."""
    named = knobs.cache.lock
    return {} if named is None else _read_lock(os.path.abspath(expanded(named)), os.geteuid())


@functools.cache
def _read_lock(path: str, user: int) -> Mapping[str, str]:
    try:
        return parse_lock(own_file(*os.path.split(path)).read_text(errors="replace"), path)
    except OSError as problem:
        reason, cure = f"{path}: {problem.strerror}", "name a file that kernelpack cache --lock FILE wrote"
    except (UntrustedFileError, PackError) as problem:
        reason, cure = problem.message, problem.cure or ""
    raise BuildError(f"KERNELPACK_CACHE_LOCK: {reason}", cure=cure)


def _own_folder(folder: str, user: int) -> str:
    """Returns the real path of a folder that only a user and root can change and replace."""
    above, name = os.path.split(folder)
    real = os.path.join(_fixed_folder(above, user), name)
    found = os.lstat(real)
    if stat.S_ISLNK(found.st_mode):
        _check_owner(real, found, user)
        return _own_folder(os.path.realpath(real, strict=True), user)
    _check(real, found, user)
    return real


@functools.cache  # what is refused is asked again: its owner may have mended it
def _fixed_folder(folder: str, user: int) -> str:
    """Returns the real path of a folder whose files nobody but a user, root and their owners can replace: others may add some where
    the sticky bit keeps them from more, as in /tmp."""
    above, name = os.path.split(folder)
    real = os.path.join(_fixed_folder(above, user), name) if name else folder
    found = os.lstat(real)
    if stat.S_ISLNK(found.st_mode):
        _check_owner(real, found, user)
        return _fixed_folder(os.path.realpath(real, strict=True), user)
    if found.st_mode & stat.S_ISVTX:
        _check_owner(real, found, user)
    else:
        _check(real, found, user)
    return real


def _check(path: str, found: os.stat_result, user: int) -> None:
    _check_owner(path, found, user)
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UntrustedFileError(
            f"{path} can be written by others (mode {stat.S_IMODE(found.st_mode):o})", cure=f"chmod go-w {path}"
        )


def _check_owner(path: str, found: os.stat_result, user: int) -> None:
    if found.st_uid not in (0, user):
        owner = f"{_name_of(found.st_uid)}, not to {_name_of(user)}{'' if user == 0 else ' or root'}"
        raise UntrustedFileError(
            f"{path} belongs to {owner}",
            cure="use one of your own; KERNELPACK_CACHE_LOCK=FILE names a lock of what may be loaded from a cache of others",
        )


def _name_of(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"


def _bytes_of(path: str | Path) -> bytes:
    """Reads a file that others may replace meanwhile: what is checked is what is returned."""
    with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:  # a pipe would wait for ever
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise UntrustedFileError(f"{path} is no plain file", cure="remove it")
        return file.read()


@functools.cache
def _copies(process: int) -> Path:
    """Returns a process's folder of copies, which it removes when it ends."""
    folder = Path(tempfile.mkdtemp(prefix="kernelpack-"))

    def remove() -> None:
        if os.getpid() == process:  # forks call this, too
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return folder
