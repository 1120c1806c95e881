"""Builds replace and remove what kernelpack wrote, and nothing else; what fails leaves the earlier files whole."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelpack.errors import BuildError
from kernelpack.files import generated
from kernelpack.opgen.build import Built, build
from kernelpack.opgen.emit_source import emit_source
from kernelpack.opgen.unbox import unbox
from kernelpack.opgen.variants.decisions import PointResults, Results, read_results
from kernelpack.opgen.workers import compile
from kernelpack.pack.ninja import one_at_a_time
from tests.files.strangers import as_root, give_to_stranger
from tests.opgen.test_build import SCALE

ROOT = Path(__file__).parents[2]
MINE = "# my own work\n"
ONE = SCALE.replace(", tl.float16]", "]")


def compiler(folder: Path, rest: str) -> str:
    """Returns a C++ compiler that says what machine it is for, and then does what is stated; `$2` is the output."""
    file = folder / "compiler"
    file.write_text(
        f'#!/bin/sh\ncase "$*" in *-dumpmachine*) exec g++ "$@";; esac\nwhile [ "$1" != -o ]; do shift; done\n{rest}\n'
    )
    file.chmod(0o755)
    return str(file)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Built]:
    """A library that was built before, as far as files go: tests copy it. Its cache and its compiler are those of all tests here."""
    folder = tmp_path_factory.mktemp("first")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNELPACK_CACHE_DIR", str(folder / "cache"))
        patch.setenv("KERNELPACK_CXX", compiler(folder, 'echo N10kernelpack "$2" > "$2"'))
        patch.setattr(compile, "_compiler_hash", lambda: "the compiler")  # its source may change while tests run
        (folder / "ops").mkdir()
        (folder / "ops" / "scale.py").write_text(ONE)
        yield run(folder / "ops" / "scale.py", folder / "mine")


@pytest.fixture
def source(first: Built, tmp_path: Path) -> Path:
    file = tmp_path / "ops" / "scale.py"
    file.parent.mkdir()
    file.write_text(ONE)
    return file


@pytest.fixture
def copy(first: Built, tmp_path: Path) -> Path:
    return Path(shutil.copytree(first.directory, tmp_path / "mine"))


def run(source: Path, out: Path) -> Built:
    return build([source.parent], namespace="mine", targets=["cpu:x86-64-v3"], out=out, jobs=2)


def contents(folder: Path) -> dict[str, bytes | None]:
    """Returns what a folder holds, by name; links as None."""
    return {
        str(path.relative_to(folder)): None if path.is_symlink() else path.read_bytes()
        for path in folder.rglob("*")
        if path.is_symlink() or path.is_file()
    }


FIXED = ["__init__.py", "fakes.py", "host_runtime.py", "ops.lock", "libmine_ops.so", "manifest.json", "sbom.cdx.json"]


@pytest.mark.parametrize("name", [*FIXED, "cpp/library.cpp", "cpp/kernels.h", "packs/scale_kernel.any.cpu_x86_64_v3.kpack"])
def test_a_file_that_a_build_did_not_write_is_refused_by_name(source: Path, tmp_path: Path, name: str) -> None:
    file = tmp_path / "mine" / name
    file.parent.mkdir(parents=True)
    file.write_text(MINE)
    before = contents(tmp_path / "mine")
    with pytest.raises(BuildError, match=f"{file} exists, and kernelpack did not write it") as refused:
        run(source, tmp_path / "mine")
    assert "to fix: move it away" in str(refused.value)
    assert {name: text for name, text in contents(tmp_path / "mine").items() if not name.startswith("build/")} == before


def test_fixed_names_are_refused_before_anything_is_compiled(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").write_text(MINE)
    monkeypatch.setattr("kernelpack.opgen.build.compile_variants", lambda *_, **__: pytest.fail("it compiles"))
    with pytest.raises(BuildError, match="kernelpack did not write it"):
        run(source, tmp_path / "mine")


@pytest.mark.parametrize("name", ["ops.lock", "__init__.py", "libmine_ops.so", "packs", "cpp", "build", "build/objects"])
def test_nothing_is_written_through_a_link(source: Path, copy: Path, tmp_path: Path, name: str) -> None:
    """A link to a folder or file of kernelpack's own, too: only the user knows what it is for."""
    moved, place = tmp_path / "elsewhere", copy / name
    place.rename(moved)
    place.symlink_to(moved)
    before = contents(moved) if moved.is_dir() else moved.read_bytes()
    source.write_text(ONE.replace("* 2", "* 3"))
    with pytest.raises(BuildError, match=f"{place} is a link") as refused:
        run(source, tmp_path / "mine")
    assert "to fix: " in str(refused.value)
    assert (contents(moved) if moved.is_dir() else moved.read_bytes()) == before
    assert place.is_symlink()


def test_a_link_that_leads_nowhere_is_refused(source: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "ops.lock").symlink_to(tmp_path / "absent")
    with pytest.raises(BuildError, match=r"ops\.lock is a link"):
        run(source, tmp_path / "mine")
    assert not (tmp_path / "absent").exists()


def test_a_folder_that_the_user_reaches_by_a_link_is_written(source: Path, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "mine").symlink_to(tmp_path / "real")
    assert run(source, tmp_path / "mine").library == tmp_path / "real" / "libmine_ops.so"


def test_unknown_files_stay_and_those_of_earlier_builds_go(source: Path, copy: Path) -> None:
    """So does a pack that the folder's lock file does not list, and one under a name that is not its own."""
    pack = (copy / "packs" / "scale_kernel.any.cpu_x86_64_v3.kpack").read_bytes()
    strangers = {name: MINE.encode() for name in ("packs/x.kpack", "cpp/x.cpp", "cpp/x.h", "build/objects/x.o")}
    strangers |= {"packs/copied.kpack": pack, "packs/scale_other.any.cpu_x86_64_v3.kpack": pack.replace(b"scale_", b"other_")}
    for name, text in strangers.items():
        (copy / name).write_bytes(text)
    (copy / "packs" / "linked.kpack").symlink_to(source)
    before = contents(copy)
    source.write_text(ONE.replace("scale_kernel", "times_kernel").replace('"scale(', '"times('))
    source.write_text(source.read_text().replace("def scale(", "def times("))
    run(source, copy)
    left = contents(copy)
    assert left.items() >= strangers.items()
    assert left["packs/linked.kpack"] is None
    gone = {"cpp/op_scale.cpp", "packs/scale_kernel.any.cpu_x86_64_v3.kpack"}
    assert {name for name in before.keys() - left.keys() if not name.startswith("build/")} == gone
    assert len([name for name in before.keys() - left.keys() if name.startswith("build/objects/")]) == 1


def test_text_that_speaks_of_the_mark_is_its_authors(source: Path, tmp_path: Path) -> None:
    mark = "@generated by kernelpack"
    for text in (f'MARK = "{mark}"\n', f"# {'-' * 5000}\n# {mark} 0.1.0\n", f"# what is {mark} may go\n"):
        (tmp_path / "__init__.py").write_text(text)
        assert not generated.is_own(tmp_path / "__init__.py")


@as_root
@pytest.mark.parametrize("name", ["build", "build/objects", "build/objects/{}"])
def test_objects_that_somebody_else_can_write_are_not_linked(source: Path, copy: Path, name: str) -> None:
    place = copy / name.format(next((copy / "build" / "objects").glob("*.o")).name)
    for change in (lambda: give_to_stranger(place), lambda: (os.chown(place, 0, 0), place.chmod(0o775))):
        change()
        with pytest.raises(BuildError, match=f"{re.escape(str(place))} (belongs to user|can be written by others)") as refused:
            run(source, copy)
        assert f"to fix: remove {copy / 'build'}, or build into another folder" in str(refused.value)


def test_what_is_linked_is_its_owners_whatever_the_umask(source: Path, tmp_path: Path) -> None:
    earlier = os.umask(0o002)
    try:
        run(source, tmp_path / "mine")
        run(source, tmp_path / "mine")
    finally:
        os.umask(earlier)
    modes = {path.stat().st_mode & 0o022 for path in (tmp_path / "mine" / "build").rglob("*")}
    assert modes == {0}


def test_a_build_folder_of_somebody_else_is_refused(source: Path, tmp_path: Path) -> None:
    folder = tmp_path / "mine" / "build"
    (folder / "objects").mkdir(parents=True)
    (folder / "objects" / "precious.o").write_text(MINE)
    before = contents(tmp_path / "mine")
    with pytest.raises(BuildError, match=f"{folder} holds files that kernelpack did not write") as refused:
        run(source, tmp_path / "mine")
    assert "to fix: " in str(refused.value)
    assert contents(tmp_path / "mine") == before


def test_build_folders_that_may_be_taken(tmp_path: Path) -> None:
    """New ones, empty ones, those of builds that broke off early, and those of an earlier kernelpack, whose lock held no mark."""
    folder = tmp_path / "build"
    for name, text in {"": "", ".lock": "", "runtime": "", "build.ninja": "# @generated by kernelpack\n"}.items():
        with one_at_a_time(folder):
            assert "@generated by kernelpack" in (folder / ".lock").read_text()
        (folder / ".lock").unlink()
        if name:
            (folder / name).write_text(text)
        if name == "runtime":
            with pytest.raises(BuildError, match="holds files that kernelpack did not write"), one_at_a_time(folder):
                pass
            (folder / name).unlink()


def test_a_failed_build_leaves_the_earlier_library_whole(
    source: Path, copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = {name: text for name, text in contents(copy).items() if not name.startswith(("build/", "cpp/"))}
    monkeypatch.setenv("KERNELPACK_CXX", compiler(tmp_path, "echo out of memory >&2; exit 1"))
    source.write_text(ONE.replace('"scale(', '"times(').replace("def scale(", "def times("))
    with pytest.raises(BuildError, match="out of memory"):
        run(source, copy)
    assert {name: text for name, text in contents(copy).items() if not name.startswith(("build/", "cpp/"))} == package


def test_a_link_that_breaks_off_leaves_the_earlier_library_as_it_was(
    source: Path, copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    libraries = {path: path.read_bytes() for path in copy.glob("*.so")}
    half = 'echo half > "$2"; case "$2" in *.so*) kill -9 $$;; esac'
    monkeypatch.setenv("KERNELPACK_CXX", compiler(tmp_path, half))
    with pytest.raises(BuildError, match="linking"):
        run(source, copy)
    assert {path: path.read_bytes() for path in copy.glob("*.so*")} == libraries
    assert len(libraries) == 1


@pytest.mark.slow
def test_unboxing_replaces_its_own_library_alone(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELPACK_CXX", "g++")
    copy = run(source, tmp_path / "mine").directory
    made = unbox(copy)
    assert unbox(copy).path == made.path
    written = [path for path in copy.rglob("*") if path.is_file() and "build" not in path.relative_to(copy).parts]
    assert {path.suffix for path in written} == {".py", ".so", ".lock", ".kpack", ".cpp", ".h", ".json", ".cmake"}
    assert [path for path in written if not generated.is_own(path)] == []
    made.path.write_text(MINE)
    with pytest.raises(BuildError, match=f"{made.path} exists, and kernelpack did not write it"):
        unbox(copy)
    assert made.path.read_text() == MINE


def emit(source: Path, folder: Path) -> None:
    emit_source([source], namespace="mine", targets=["cpu:x86-64-v3"], directory=folder)


def test_emitted_source_replaces_and_removes_its_own_files_alone(source: Path, tmp_path: Path) -> None:
    folder = tmp_path / "source"
    emit(source, folder)
    assert not [path for path in folder.rglob("*") if path.is_file() and b"@generated by kernelpack" not in path.read_bytes()]
    (folder / "server").mkdir()
    (folder / "server" / "main.cpp").write_text(MINE)
    (folder / "generated" / "op_old.cpp").write_text("// @generated by kernelpack 0.1.0: an op that is no more\n")
    emit(source, folder)
    assert (folder / "server" / "main.cpp").read_text() == MINE
    assert not (folder / "generated" / "op_old.cpp").exists()
    (folder / "generated" / "mine.cpp").write_text(MINE)  # build.sh would compile it
    with pytest.raises(BuildError, match=r"generated/mine\.cpp exists, and kernelpack did not write it"):
        emit(source, folder)
    (folder / "generated" / "mine.cpp").unlink()
    (folder / "ops" / "call.cpp").write_text(MINE)
    with pytest.raises(BuildError, match=r"ops/call\.cpp exists, and kernelpack did not write it"):
        emit(source, folder)


def test_source_is_not_emitted_beside_a_build_script_of_the_users(source: Path, tmp_path: Path) -> None:
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "build.sh").write_text("#!/bin/sh\nmake\n")
    with pytest.raises(BuildError, match=r"source holds other files"):
        emit(source, folder)
    assert (folder / "build.sh").read_text() == "#!/bin/sh\nmake\n"


def results() -> Results:
    return Results(
        "scale", "a CPU", "cpu:x86-64-v3", {"scale_kernel": PointResults(("n",), "text", {(1,): {"defaults": 1e-6}})}
    )


def test_tuned_times_replace_their_own_file_alone(tmp_path: Path) -> None:
    folder = tmp_path / "tuned"
    results().save(folder)
    results().save(folder)
    (found,) = read_results(folder, "scale")
    assert found == results()
    file = folder / results().file_name
    for text in ("{}", MINE):
        file.write_text(text)
        with pytest.raises(BuildError, match=f"{file} exists, and kernelpack did not write it"):
            results().save(folder)
        assert file.read_text() == text
    file.unlink()
    folder.rename(tmp_path / "real")
    folder.symlink_to(tmp_path / "real")
    with pytest.raises(BuildError, match=f"{folder} is a link"):
        results().save(folder)


def test_make_lock_replaces_a_lock_file_alone(copy: Path, tmp_path: Path) -> None:
    recipe = re.search(r"^lock:.*\n\t@(.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe is not None
    command = recipe[1].replace("$(PY)", sys.executable).replace("$(LIBRARY)", str(copy))
    locked = tmp_path / "here" / "ops" / "ops.lock"
    locked.parent.mkdir(parents=True)

    def make() -> str:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "KERNELPACK_LOAD_LIBRARY": "0"}
        return subprocess.run(
            command, shell=True, cwd=tmp_path / "here", env=environment, capture_output=True, text=True
        ).stderr

    assert make() == ""
    assert locked.read_text() == (copy / "ops.lock").read_text()
    locked.write_text("# kernelpack lock, version 1: of an earlier build\n")
    assert make() == ""
    assert locked.read_text() == (copy / "ops.lock").read_text()
    locked.rename(tmp_path / "elsewhere.lock")
    locked.symlink_to(tmp_path / "elsewhere.lock")
    (tmp_path / "elsewhere.lock").write_text(MINE)
    assert "ops.lock is a link" in make()
    assert (tmp_path / "elsewhere.lock").read_text() == MINE


def test_nothing_is_left_of_a_write_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "made.txt"
    generated.write(file, "# @generated by kernelpack: the first\n")
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space"):
        generated.write(file, "# @generated by kernelpack: the second\n")
    assert contents(tmp_path) == {"made.txt": b"# @generated by kernelpack: the first\n"}


@pytest.mark.slow
def test_modules_in_the_working_folder_are_not_run(source: Path, tmp_path: Path) -> None:
    """ninja and the process that is asked for schemas are Python's: what lies where the user stands is not on their path."""
    here = tmp_path / "here"
    here.mkdir()
    for name in ("ninja", "json", "torch"):
        (here / f"{name}.py").write_text("open('ran', 'w')\n")
    program = (
        f"import sys; sys.path.remove('')\n"
        f"from kernelpack.opgen.build import build\nfrom kernelpack.opgen.unbox import unbox\n"
        f"unbox(build([{str(source)!r}], namespace='mine', targets=['cpu:x86-64-v3'], out={str(tmp_path / 'mine')!r}).directory)\n"
    )
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "KERNELPACK_LOAD_LIBRARY": "0",
        "KERNELPACK_CXX": "g++",
    }
    done = subprocess.run([sys.executable, "-c", program], cwd=here, env=environment, capture_output=True, text=True)
    assert not (here / "ran").exists()
    assert done.returncode == 0, done.stderr
