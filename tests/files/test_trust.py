"""What is read from caches was written by this user or root, or is listed in a lock that they own."""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernelpack import knobs
from kernelpack.errors import BuildError, PackError, UntrustedFileError
from kernelpack.files.cache import CacheFolder
from kernelpack.files.lock import lock_text, parse_lock
from kernelpack.files.trust import admitted, own_file, own_folder
from tests.files.strangers import OTHER, STRANGER, as_root, as_user, give_to_stranger

DATA = b"what was written"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A cache below a folder that everybody may enter: pytest's own are closed to others."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        made = Path(name) / "above" / "cache"
        (made / "key").mkdir(parents=True)
        (made / "key" / "file").write_bytes(DATA)
        yield made


def with_mode(name: str, mode: int) -> Callable[[Path], None]:
    return lambda folder: (folder / name).chmod(mode)


def with_link(name: str, *, of_stranger: bool = False) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        place = folder / name
        moved = place.rename(folder.parent.parent / "moved")
        place.symlink_to(moved)
        if of_stranger:
            give_to_stranger(place)

    return change


def with_pipe(folder: Path) -> None:
    (folder / "key" / "file").unlink()
    os.mkfifo(folder / "key" / "file")


def of_stranger(name: str) -> Callable[[Path], None]:
    return lambda folder: give_to_stranger(folder / name)


def of_root_to_everybody(folder: Path) -> None:
    """A folder such as /tmp, in which a stranger has made ours before us."""
    folder.parent.chmod(0o1777)
    give_to_stranger(folder)


CHANGES = {
    "another's file": (of_stranger("key/file"), "key/file", "belongs to user 12345, not to root"),
    "a file for all": (with_mode("key/file", 0o666), "key/file", "can be written by others (mode 666)"),
    "a file for a group": (with_mode("key/file", 0o664), "key/file", "can be written by others (mode 664)"),
    "a link for a file": (with_link("key/file"), "key/file", "is a link"),
    "a link for a folder": (with_link("key"), "key", "is a link"),
    "a pipe": (with_pipe, "key/file", "is no plain file"),
    "another's folder": (of_stranger("key"), "key", "belongs to user 12345"),
    "a folder for all": (with_mode("key", 0o777), "key", "can be written by others (mode 777)"),
    "a folder for a group": (with_mode("key", 0o775), "key", "can be written by others (mode 775)"),
    "a folder for all to add to": (with_mode("key", 0o1777), "key", "can be written by others (mode 1777)"),
    "another's cache": (of_stranger(""), "", "belongs to user 12345"),
    "a cache for all": (with_mode("", 0o777), "", "can be written by others (mode 777)"),
    "a cache for all to add to": (with_mode("", 0o1777), "", "can be written by others (mode 1777)"),
    "a folder above for all": (with_mode("..", 0o777), "..", "can be written by others (mode 777)"),
    "a folder above for a group": (with_mode("..", 0o775), "..", "can be written by others (mode 775)"),
    "another's folder above": (of_stranger(".."), "..", "belongs to user 12345"),
    "a stranger's in /tmp": (of_root_to_everybody, "", "belongs to user 12345"),
    "a stranger's link to ours": (with_link("", of_stranger=True), "", "belongs to user 12345"),
}


@as_root
@pytest.mark.parametrize("change", CHANGES)
def test_what_others_can_have_written_is_refused_by_name(folder: Path, change: str) -> None:
    alter, culprit, reason = CHANGES[change]
    alter(folder)
    for _ in range(2):
        with pytest.raises(UntrustedFileError) as refused:
            CacheFolder(folder).find("key/file")
        assert f"{os.path.normpath(folder / culprit)} {reason}" in str(refused.value)
        assert "to fix: " in str(refused.value)


def test_a_refusal_is_taken_back_when_the_folder_is_mended(folder: Path) -> None:
    folder.parent.chmod(0o777)
    with pytest.raises(UntrustedFileError, match="to fix: chmod go-w"):
        own_file(folder, "key/file")
    folder.parent.chmod(0o755)
    assert own_file(folder, "key/file").read_bytes() == DATA


def test_folders_that_only_we_can_change_are_read_wherever_they_are(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.parent.chmod(0o1777)  # as /tmp: nobody else can move what is ours
    assert own_file(folder, "key/file") == folder / "key" / "file"
    link = folder.parent / "link"
    link.symlink_to(folder)
    assert own_file(link, "key/file") == folder / "key" / "file"
    monkeypatch.chdir(folder.parent)
    assert own_file("cache/../cache", "key/file") == folder / "key" / "file"
    assert CacheFolder("cache").find("key/other") is None
    assert CacheFolder(folder / "absent").find("key/file") is None


@as_root
def test_a_user_reads_what_root_wrote_and_nothing_of_other_users(folder: Path) -> None:
    def roots() -> None:
        assert own_file(folder, "key/file").read_bytes() == DATA

    def strangers() -> None:
        with pytest.raises(UntrustedFileError, match=rf"{folder} belongs to user {STRANGER}, not to user {OTHER} or root"):
            own_file(folder, "key/file")

    as_user(OTHER, roots)
    for path in (folder, folder / "key", folder / "key" / "file"):
        give_to_stranger(path)
    as_user(STRANGER, roots)
    as_user(OTHER, strangers)


@as_root
def test_what_does_not_exist_in_a_strangers_folder_is_no_problem_before_it_is_written(folder: Path) -> None:
    give_to_stranger(folder)
    cache = CacheFolder(folder)
    assert cache.find("other/file") is None
    with pytest.raises(UntrustedFileError, match="belongs to user"):
        cache.write("other/file", DATA)
    assert not (folder / "other").exists()


@pytest.mark.parametrize("name", ["file", "dangling", "loop"])
def test_where_no_folder_can_be_nothing_is_kept(folder: Path, name: str) -> None:
    (folder / "file").write_bytes(DATA)
    (folder / "dangling").symlink_to(folder / "absent")
    (folder / "loop").symlink_to(folder / "loop")
    cache = CacheFolder(folder / name)
    assert cache.find("key/file") is None
    assert cache.read("key/file") is None
    assert cache.names() == []
    cache.keep("key/file", DATA)
    with pytest.raises(OSError, match=name):
        cache.write("key/file", DATA)


def test_a_cache_is_written_for_its_owner_alone(folder: Path) -> None:
    before = os.umask(0)
    try:
        written = CacheFolder(folder / "new" / "cache").write("key/file", DATA)
    finally:
        os.umask(before)
    assert own_file(folder / "new" / "cache", "key/file") == written
    for path in (folder / "new", folder / "new" / "cache", written.parent, written):
        assert not path.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def test_a_link_in_the_place_of_a_file_is_replaced_not_followed(folder: Path) -> None:
    victim = folder.parent / "precious"
    victim.write_bytes(b"precious")
    (folder / "key" / "file").unlink()
    (folder / "key" / "file").symlink_to(victim)
    assert CacheFolder(folder).write("key/file", DATA).read_bytes() == DATA
    assert victim.read_bytes() == b"precious"


def test_a_cache_that_is_refused_is_told_of_once(folder: Path) -> None:
    folder.chmod(0o777)
    cache = CacheFolder(folder)
    with pytest.warns(RuntimeWarning, match=rf"the cache is not used: {folder} can be written by others"):
        assert cache.read("key/file") is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cache.read("key/file") is None
        cache.keep("key/other", DATA)
    assert not (folder / "key" / "other").exists()


# -- locks ------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def lock(folder: Path) -> Iterator[Path]:
    """A lock that lists the file of the cache, which is a stranger's."""
    file = folder.parent / "cache.lock"
    file.write_text(lock_text({"key/file": hashlib.sha256(DATA).hexdigest()}))
    if os.geteuid() == 0:
        give_to_stranger(folder)
    with knobs.cache.scope():
        knobs.cache.lock = str(file)
        yield file


@as_root
def test_a_listed_file_is_read_from_a_copy_of_our_own(folder: Path, lock: Path) -> None:
    found = admitted(folder, "key/file")
    assert not found.is_relative_to(folder)
    (folder / "key" / "file").write_bytes(b"changed by others")
    assert found.read_bytes() == DATA
    with pytest.raises(UntrustedFileError, match=rf"{folder}/key/file is not the file that {lock} lists"):
        admitted(folder, "key/file")
    with pytest.raises(UntrustedFileError, match="belongs to user"):
        admitted(folder, "key/other")


@as_root
def test_a_listed_file_under_the_name_of_another_is_refused(folder: Path, lock: Path) -> None:
    other = b"the kernel of another function"
    lock.write_text(
        lock_text({f"{name}/file": hashlib.sha256(data).hexdigest() for name, data in (("key", other), ("other", DATA))})
    )
    with pytest.raises(UntrustedFileError, match="is not the file that"):
        admitted(folder, "key/file")


@as_root
def test_a_pipe_that_is_listed_is_not_waited_for(folder: Path, lock: Path) -> None:
    with_pipe(folder)
    with pytest.raises(UntrustedFileError, match="is no plain file"):
        admitted(folder, "key/file")


@as_root
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda lock: lock.chmod(0o666), "can be written by others (mode 666)"),
        (give_to_stranger, f"belongs to user {STRANGER}, not to root"),
        (lambda lock: lock.parent.chmod(0o777), "can be written by others (mode 777)"),
        (Path.unlink, "No such file or directory"),
        (lambda lock: lock.write_text("nothing"), "it is no lock of a cache"),
    ],
)
def test_a_lock_that_is_not_ours_or_does_not_read_is_an_error(
    folder: Path, lock: Path, change: Callable[[Path], None], reason: str
) -> None:
    change(lock)
    with pytest.raises(BuildError) as refused:
        CacheFolder(folder).read("key/file")
    assert not isinstance(refused.value, UntrustedFileError), "it is no reason to go on without the cache"
    assert str(refused.value).startswith("KERNELPACK_CACHE_LOCK: ")
    assert str(lock if "777" not in reason else lock.parent) in str(refused.value)
    assert reason in str(refused.value)
    assert "to fix: " in str(refused.value)


LISTED = lock_text({"a/b": "0" * 64, "a/c d": "1" * 64})


def test_a_lock_says_what_it_lists() -> None:
    assert parse_lock(LISTED, "lock") == {"a/b": "0" * 64, "a/c d": "1" * 64}
    assert parse_lock(lock_text({}), "lock") == {}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", 1),
        (LISTED.replace("version 1", "version 2"), 1),
        (LISTED[:-1], 1),
        (LISTED.replace("0" * 64, "0" * 63), 2),
        (LISTED.replace("a/c d", "a/b"), 3),
        (LISTED.replace("  a/c d", ""), 3),
        (LISTED + "\n", 4),
    ],
)
def test_a_lock_that_was_altered_is_refused_with_its_line(text: str, line: int) -> None:
    with pytest.raises(PackError, match=rf"^cache\.lock:{line}: (.|\n)*to fix: write it again: kernelpack cache --lock FILE"):
        parse_lock(text, "cache.lock")


@as_root
def test_copies_go_when_their_process_ends_and_not_before(folder: Path, lock: Path) -> None:
    program = (
        "import os, sys\n"
        "from kernelpack.files.trust import admitted\n"
        f"found = admitted({str(folder)!r}, 'key/file')\n"
        "if os.fork() == 0:\n"
        f"    assert admitted({str(folder)!r}, 'key/file') != found\n"
        "    sys.exit()\n"
        "assert os.wait()[1] == 0\n"
        "print(found, found.exists())\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "KERNELPACK_CACHE_LOCK": str(lock)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    path, existed = done.stdout.split()
    assert existed == "True"
    assert not Path(path).exists()


@as_root
def test_the_folder_of_copies_is_ours_whatever_the_umask(folder: Path, lock: Path) -> None:
    before = os.umask(0)
    try:
        assert own_folder(admitted(folder, "key/file").parent)
    finally:
        os.umask(before)
