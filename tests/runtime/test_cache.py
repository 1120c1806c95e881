"""kernelpack.runtime.cache: who keeps compiled kernels may be a class of the user's, here or on another machine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

import kernelpack as kp
import kernelpack.language as tl
from kernelpack import knobs
from kernelpack.errors import BuildError
from kernelpack.runtime.build import compile_module_from_src
from kernelpack.runtime.cache import (
    FileCacheManager,
    RemoteCacheManager,
    get_cache_invalidating_env_vars,
    get_cache_manager,
    triton_key,
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    with knobs.cache.scope():
        knobs.cache.dir = str(tmp_path)
        yield tmp_path


@kp.jit
def kept(out, VALUE: tl.constexpr):
    tl.store(out, VALUE)


class Elsewhere:
    data: ClassVar[dict[tuple[str, str], bytes]] = {}

    def __init__(self, key: str) -> None:
        self.key = key

    def get(self, filenames: list[str]) -> dict[str, bytes]:
        return {name: self.data[self.key, name] for name in filenames if (self.key, name) in self.data}

    def put(self, filename: str, data: bytes) -> None:
        self.data[self.key, filename] = data


def test_a_group_is_there_with_all_its_files(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    knobs.cache.dir = str(tmp_path_factory.mktemp("links") / "cache")
    Path(knobs.cache.dir).symlink_to(folder)
    manager = FileCacheManager("key")
    assert manager.get_file("kernel.json") is None
    paths = {"kernel.json": manager.put("{}", "kernel.json", binary=False), "kernel.cubin": manager.put(b"x", "kernel.cubin")}
    manager.put_group("kernel.json", paths)
    assert manager.get_group("kernel.json") == paths
    assert manager.get_group("other.json") is None
    Path(paths["kernel.cubin"]).unlink()
    assert manager.get_group("kernel.json") is None


@pytest.mark.parametrize(
    "note", [b"", b"\xff", b"3", b"{}", b"[" * 100_000, b'{"child_paths": 3}', b'{"child_paths": [3]}', b'{"child_paths": {"a": 1}}', b"9" * 5000]
)  # fmt: skip
def test_a_note_of_a_group_that_was_altered_is_none(folder: Path, note: bytes) -> None:
    manager = FileCacheManager("key")
    manager.put(note, "__grp__all")
    assert manager.get_group("all") is None


@pytest.mark.parametrize("name", ["", "..", "a/b", "a\0b", "\ud800", "a\nb"])
def test_what_is_no_name_of_a_file_is_refused(folder: Path, name: str) -> None:
    manager = FileCacheManager("key")
    with pytest.raises(BuildError, match="a cache cannot keep"):
        manager.get_file(name)
    with pytest.raises(BuildError, match="a cache cannot keep"):
        manager.put(b"", name)
    manager.put_group("all", {name: "x"})
    if name.isascii():
        with pytest.raises(BuildError, match="a cache cannot keep"):
            manager.get_group("all")
    else:  # JSON that holds half a surrogate is no text: the note counts as altered
        assert manager.get_group("all") is None


def test_kernels_are_kept_by_a_manager_of_the_users() -> None:
    asked: list[str] = []

    class Mine(FileCacheManager):
        def get_file(self, filename: str) -> str | None:
            asked.append(filename)
            return super().get_file(filename)

    knobs.cache.manager_class = Mine
    out = torch.zeros(1)
    for _ in range(2):
        kept[(1,)](out, 3)
        kept.device_caches.clear()
    assert asked == ["kernel.bin"] * 2
    assert out.item() == 3


def test_kernels_are_kept_on_another_machine(folder: Path) -> None:
    knobs.cache.remote_manager_class = Elsewhere
    knobs.cache.trust_remote = True
    Elsewhere.data.clear()
    out = torch.zeros(1)
    kept[(1,)](out, 4)
    ((key, name),) = Elsewhere.data
    assert isinstance(get_cache_manager(key), RemoteCacheManager)
    local = folder / key / name
    assert local.read_bytes() == Elsewhere.data[key, name]
    local.unlink()
    kept.device_caches.clear()
    hits: list[Any] = []
    with knobs.compilation.scope():
        knobs.compilation.listener = lambda source, metadata, files, times, hit: hits.append((hit, files))
        kept[(1,)](out, 4)
    assert hits == [(True, {name: str(local)})]
    manager = RemoteCacheManager("group")
    manager.put_group("all", {"one": manager.put(b"1", "one"), "two": manager.put(b"2", "two")})
    assert set(manager.get_group("all") or ()) == {"one", "two"}
    del Elsewhere.data["group", "two"]
    assert manager.get_group("all") is None


MODULE = """
#include <Python.h>
static PyObject* twice(PyObject* self, PyObject* number) { return PyNumber_Add(number, number); }
static PyMethodDef methods[] = {{"twice", twice, METH_O, ""}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "twice_module", NULL, -1, methods};
PyMODINIT_FUNC PyInit_twice_module(void) { return PyModule_Create(&definition); }
"""


def test_c_source_becomes_a_module() -> None:
    made = compile_module_from_src(MODULE, "twice_module")
    assert made.twice(21) == 42
    path = Path(str(made.__file__))
    assert compile_module_from_src(MODULE, "twice_module").__file__ == made.__file__
    path.with_suffix(".moved").write_bytes(path.read_bytes())
    path.unlink()  # the loaded file itself must stay as it is
    path.write_bytes(b"cut short")
    assert compile_module_from_src(MODULE, "twice_module").twice("ab") == "abab"
    with pytest.raises(BuildError, match=r"(?s)broken does not compile:.*error: unknown type name"):
        compile_module_from_src("nonsense x;", "broken")


def test_what_else_decides_what_is_compiled_can_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+-[0-9a-f]{64}", triton_key())
    monkeypatch.setenv("TRITON_DEBUG", "1")
    monkeypatch.setenv("OTHER_DEBUG", "1")
    found = get_cache_invalidating_env_vars()
    assert found["TRITON_DEBUG"] == "1"
    assert "OTHER_DEBUG" not in found


def test_a_cache_that_fails_is_no_obstacle() -> None:
    class Away(FileCacheManager):
        def get_file(self, filename: str) -> str | None:
            raise ConnectionError("the server is away")

        def put(self, data: bytes | str, filename: str, binary: bool = True) -> str:
            raise ConnectionError("the server is away")

    knobs.cache.manager_class = Away
    kept.device_caches.clear()
    out = torch.zeros(1)
    kept[(1,)](out, 6)
    assert out.item() == 6
