"""What a stranger puts into caches is not run: kernels, modules and timings are this user's or root's, or a lock lists them."""

from __future__ import annotations

import hashlib
import json
import pickle
import shutil
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

import kernelpack as kp
import kernelpack.language as tl
from kernelpack import knobs
from kernelpack.errors import BuildError, UntrustedFileError
from kernelpack.files.cache import CacheFolder
from kernelpack.files.lock import lock_text
from kernelpack.kernel.jit import JITFunction
from kernelpack.runtime.build import compile_module_from_src
from kernelpack.runtime.cache import CacheManager, FileCacheManager, RedisRemoteCacheBackend, RemoteCacheManager
from tests.files.strangers import as_root, give_to_stranger
from tests.runtime.test_cache import MODULE


@kp.jit
def three(out):
    tl.store(out, 3.0)


@kp.jit
def seven(out):
    tl.store(out, 7.0)


@kp.jit
def double(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets, mask=offsets < n) * 2, mask=offsets < n)


def launched(kernel: JITFunction) -> float:
    """Launches a kernel as a fresh process does."""
    kernel.device_caches.clear()
    out = torch.zeros(1)
    kernel[(1,)](out)
    return out.item()


def refused(*what: str) -> Any:
    """A warning that a cache is not used."""
    return pytest.warns(RuntimeWarning, match="(?s)the cache is not used: .*" + ".*".join(what) + ".*to fix: ")


def hash_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def folder(tmp_path: Path, compilations: list[Any]) -> Path:
    """The cache, in which the kernel `three` is kept."""
    assert launched(three) == 3
    assert launched(three) == 3
    assert len(compilations) == 1
    return tmp_path


@pytest.fixture
def kept(folder: Path) -> Path:
    """The file of `three`."""
    (found,) = folder.glob("*/kernel.bin")
    return found


@pytest.fixture
def evil(kept: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """What a stranger puts in its place: a kernel with all its digests right, that does something else."""
    with monkeypatch.context() as patch:
        elsewhere = tmp_path_factory.mktemp("elsewhere")
        patch.setenv("KERNELPACK_CACHE_DIR", str(elsewhere))
        assert launched(seven) == 7
        (other,) = elsewhere.glob("*/kernel.bin")
    data = other.read_bytes()
    kept.write_bytes(data)
    assert launched(three) == 7, "whoever may write here decides what runs"
    return data


# -- the cache of kernels ---------------------------------------------------------------------------------------------------


@as_root
def test_a_kernel_that_a_stranger_wrote_is_not_run(kept: Path, evil: bytes, compilations: list[Any]) -> None:
    give_to_stranger(kept)
    before = len(compilations)
    with refused(str(kept), "belongs to user 12345"):
        assert launched(three) == 3
    assert len(compilations) == before + 1
    assert launched(three) == 3
    assert len(compilations) == before + 1, "what was compiled has taken the stranger's place"
    assert kept.stat().st_uid == 0


@as_root
@pytest.mark.parametrize("mode", [0o777, 0o775, 0o1777])
def test_a_folder_that_others_can_write_is_not_used(
    folder: Path, kept: Path, evil: bytes, compilations: list[Any], mode: int
) -> None:
    folder.chmod(mode)
    with refused(f"{folder} can be written by others"):
        assert launched(three) == 3
    kept.unlink()
    assert launched(three) == 3
    assert not kept.exists(), "nothing is kept there either"
    folder.chmod(0o755)
    assert launched(three) == 3
    assert kept.exists()


@as_root
def test_a_link_to_the_folder_of_a_stranger_is_not_used(
    folder: Path, kept: Path, evil: bytes, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    strange = Path(shutil.copytree(folder, tmp_path_factory.mktemp("strange") / "cache"))
    for path in (strange, *strange.rglob("*")):
        give_to_stranger(path)
    link = folder / "link"
    link.symlink_to(strange)
    monkeypatch.setenv("KERNELPACK_CACHE_DIR", str(link))
    with refused(f"{strange} belongs to user 12345"):
        assert launched(three) == 3


@as_root
def test_a_listed_kernel_is_loaded_from_a_strangers_cache(
    folder: Path, kept: Path, compilations: list[Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    lock = tmp_path_factory.mktemp("lock") / "cache.lock"
    lock.write_text(lock_text({f"{kept.parent.name}/{kept.name}": hash_of(kept.read_bytes())}))
    for path in (folder, kept.parent, kept):
        give_to_stranger(path)
    with knobs.cache.scope(), warnings.catch_warnings():
        warnings.simplefilter("error")
        knobs.cache.lock = str(lock)
        assert launched(three) == 3
    assert len(compilations) == 1
    with knobs.cache.scope(), refused(f"{folder} belongs to user 12345"):
        assert launched(three) == 3
    assert len(compilations) == 2


@as_root
def test_a_kernel_that_the_lock_does_not_list_is_not_run(
    folder: Path, kept: Path, evil: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    lock = tmp_path_factory.mktemp("lock") / "cache.lock"
    lock.write_text(lock_text({f"{kept.parent.name}/{kept.name}": hash_of(b"the right one")}))
    for path in (folder, kept.parent, kept):
        give_to_stranger(path)
    with knobs.cache.scope(), refused(f"{kept} is not the file that {lock} lists"):
        knobs.cache.lock = str(lock)
        assert launched(three) == 3


def test_a_bad_lock_is_an_error_and_no_reason_to_compile(folder: Path, kept: Path) -> None:
    (folder / "cache.lock").write_text("nothing")
    kept.chmod(0o666)
    with knobs.cache.scope():
        knobs.cache.lock = str(folder / "cache.lock")
        with pytest.raises(BuildError, match=r"KERNELPACK_CACHE_LOCK: .*cache\.lock:1: it is no lock"):
            launched(three)


@as_root
def test_what_a_manager_of_the_users_gives_is_asked_too(kept: Path, evil: bytes) -> None:
    class Shared(CacheManager):
        def __init__(self, key: str, override: bool = False, dump: bool = False) -> None: ...
        def get_file(self, filename: str) -> str | None:
            return str(kept)

        def put(self, data: bytes | str, filename: str, binary: bool = True) -> str:
            raise OSError("read only")

        def get_group(self, filename: str) -> dict[str, str] | None: ...

    with knobs.cache.scope():
        knobs.cache.manager_class = Shared
        assert launched(three) == 7  # ours
        give_to_stranger(kept)
        with refused(str(kept), "belongs to user 12345"):
            assert launched(three) == 3


# -- the form of a kernel's file --------------------------------------------------------------------------------------------


class Payload:
    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.file,)


def test_reading_a_kernel_runs_nothing(folder: Path, kept: Path, compilations: list[Any]) -> None:
    pickled = pickle.dumps(Payload(folder / "ran"))
    first, _, body = kept.read_bytes().split(b"\n", 2)
    texts = [hashlib.sha256(pickled).digest() + pickled, b"\n".join([first, hash_of(pickled).encode(), pickled])]
    for number, text in enumerate(texts, 2):
        for name in ("kernel.bin", "kernel.pickle"):
            kept.with_name(name).write_bytes(text)
        assert launched(three) == 3
        assert len(compilations) == number
    assert not (folder / "ran").exists()
    assert body


# -- another machine --------------------------------------------------------------------------------------------------------


class Server:
    """Keeps files for all: the last test's, and what a stranger puts there."""

    data: ClassVar[dict[tuple[str, str], bytes]] = {}

    def __init__(self, key: str) -> None:
        self.key = key

    def get(self, filenames: list[str]) -> dict[str, bytes]:
        return {name: data for (key, name), data in self.data.items() if key == self.key}

    def put(self, filename: str, data: bytes) -> None:
        self.data[self.key, filename] = data


@pytest.fixture
def server(folder: Path, kept: Path) -> Iterator[type[Server]]:
    with knobs.cache.scope():
        knobs.cache.remote_manager_class = Server
        Server.data = {(kept.parent.name, kept.name): kept.read_bytes()}
        yield Server


def test_what_this_user_put_on_a_server_is_taken_from_it(server: type[Server], compilations: list[Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert launched(three) == 3
    assert len(compilations) == 1


def test_what_somebody_else_may_have_put_on_a_server_is_not_run(
    kept: Path, evil: bytes, server: type[Server], compilations: list[Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = kept.parent.name, kept.name
    kept.unlink()
    server.data[place] = evil
    before = len(compilations)
    with refused("somebody else may have put what Server gives there"):
        assert launched(three) == 3
    assert len(compilations) == before + 1
    assert server.data[place] == kept.read_bytes() != evil
    kept.unlink()
    lock = tmp_path_factory.mktemp("lock") / "cache.lock"
    lock.write_text(lock_text({"/".join(place): hash_of(server.data[place])}))
    with knobs.cache.scope():
        knobs.cache.lock = str(lock)
        assert launched(three) == 3
        server.data[place] = evil
        kept.unlink()
        assert launched(three) == 3
    assert len(compilations) == before + 2
    with knobs.cache.scope():
        knobs.cache.trust_remote = True
        server.data[place] = evil
        assert launched(three) == 7, "the user trusts all who write there"


def test_a_server_decides_neither_names_nor_places(server: type[Server], folder: Path) -> None:
    manager = RemoteCacheManager("key")
    note = json.dumps({"child_paths": {"../../precious": "precious", "one": "one"}})
    server.data = {("key", "__grp__all"): note.encode(), ("key", "../../precious"): b"evil", ("key", "one"): b"1"}
    with knobs.cache.scope():
        knobs.cache.trust_remote = True
        with pytest.raises(BuildError, match=r"a cache cannot keep '\.\./\.\./precious'"):
            manager.get_group("all")
        server.data["key", "__grp__all"] = json.dumps({"child_paths": {"one": "/etc/passwd"}}).encode()
        assert manager.get_group("all") == {"one": str(folder / "key" / "one")}
    assert not list(folder.parent.rglob("precious"))


def test_redis_is_a_server_like_others(server: type[Server], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = {"triton:key:kernel.bin": b"evil"}

    class Redis:
        def __init__(self, **where: Any) -> None: ...
        def mget(self, names: list[str]) -> list[bytes | None]:
            return [stored.get(name) for name in names]

        def set(self, name: str, data: bytes) -> None:
            stored[name] = data

    monkeypatch.setattr("kernelpack.runtime.cache.importlib.import_module", lambda name: type("redis", (), {"Redis": Redis}))
    knobs.cache.remote_manager_class = RedisRemoteCacheBackend
    manager = RemoteCacheManager("key")
    with refused("somebody else may have put what RedisRemoteCacheBackend gives there"):
        assert manager.get_file("kernel.bin") is None
    assert not (folder / "key").exists()
    own = manager.put(b"mine", "kernel.bin")
    assert stored == {"triton:key:kernel.bin": b"mine"}
    assert manager.get_file("kernel.bin") == own


# -- what else is kept ------------------------------------------------------------------------------------------------------


def test_a_manager_keeps_files_in_its_own_folder(folder: Path) -> None:
    for name in ("../key/file", "/etc/passwd", "..", ".", ""):
        with pytest.raises(BuildError, match="a cache cannot keep"):
            FileCacheManager("key").put(b"", name)
        with pytest.raises(BuildError, match="a cache cannot keep"):
            FileCacheManager("key").get_file(name)


@as_root
def test_a_module_that_a_stranger_wrote_is_an_error(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = Path(str(compile_module_from_src(MODULE, "twice_module").__file__))
    assert path.is_relative_to(folder)
    lock = tmp_path_factory.mktemp("lock") / "cache.lock"
    lock.write_text(lock_text({str(path.relative_to(folder)): hash_of(path.read_bytes())}))
    for place in (folder, path.parent, path):
        give_to_stranger(place)
    with refused(f"{folder} belongs to user 12345"), pytest.raises(UntrustedFileError, match=f"{folder} belongs to user 12345"):
        compile_module_from_src(MODULE, "twice_module")
    with knobs.cache.scope():
        knobs.cache.lock = str(lock)
        found = compile_module_from_src(MODULE, "twice_module")
    assert found.twice(21) == 42
    assert not Path(str(found.__file__)).is_relative_to(folder)


@as_root
def test_a_module_in_our_folder_that_a_stranger_owns_is_replaced(folder: Path) -> None:
    path = Path(str(compile_module_from_src(MODULE, "twice_module").__file__))
    path.unlink()  # the loaded file itself must stay as it is
    path.write_bytes(b"evil")
    give_to_stranger(path)
    with refused(f"{path} belongs to user 12345"):
        assert compile_module_from_src(MODULE, "twice_module").twice(21) == 42
    assert path.stat().st_uid == 0
    assert path.name.endswith(sysconfig.get_config_var("EXT_SUFFIX"))


@pytest.mark.parametrize("text", [b"", b"[]", b"3", b'{"a": 1}', b"null", b"\xff", b"[" * 100_000])
def test_timings_that_say_nothing_are_measured_again(folder: Path, text: bytes) -> None:
    searched: list[bool] = []

    @kp.autotune([kp.Config({"BLOCK": size}) for size in (64, 128)], key=["n"], cache_results=True)
    @kp.jit
    def tuned(x, out, n, BLOCK: tl.constexpr):
        offsets = tl.arange(0, BLOCK)
        tl.store(out + offsets, tl.load(x + offsets, mask=offsets < n), mask=offsets < n)

    def search() -> None:
        tuned.cache.clear()
        tuned[(1,)](torch.ones(8), torch.zeros(8), 8)

    with knobs.autotuning.scope():
        knobs.autotuning.listener = lambda **found: searched.append(found["cache_hit"])
        search()
        search()
        (file,) = folder.glob("autotune/*.json")
        file.write_bytes(text)
        search()
        file.write_bytes(json.dumps(dict.fromkeys(json.loads(file.read_bytes()), "fast")).encode())
        search()
        file.chmod(0o666)
        with refused(f"{file} can be written by others"):
            search()
    assert searched == [False, True, False, False, False]


def test_the_warning_of_a_cache_is_for_each_folder(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(0o777)
        with refused(f"{tmp_path / name} can be written"):
            CacheFolder(tmp_path / name).keep("file", b"")
