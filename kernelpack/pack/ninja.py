"""Builds the shared libraries with ninja: writes build.ninja, runs it, and turns its failures into errors."""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from kernelpack import knobs
from kernelpack.errors import BuildError, UntrustedFileError
from kernelpack.files import generated
from kernelpack.files.trust import own_tree
from kernelpack.files.whole import make_folder

TORCH_TARGET_VERSION = "0x020a000000000000"
"""torch 2.10: the oldest whose stable C ABI has all that is used."""
_LOCK, _NINJA = ".lock", "build.ninja"
_UMASK = 0o022
"""Nobody but its owner writes to what is in a build folder, and will be linked, whatever the user's umask says."""


def torch_dir() -> Path:
    """Returns torch's folder, without importing it."""
    spec = find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        raise BuildError("torch is not installed", cure="pip install 'torch>=2.10'")
    return Path(next(iter(spec.submodule_search_locations)))


@dataclass
class NinjaFile:
    """A build.ninja that compiles C++ and links shared libraries."""

    include: Sequence[Path]
    defines: Sequence[str] = ()
    edges: list[str] = field(default_factory=list)

    def compile(self, source: Path, name: str, flags: str = "") -> str:
        """Adds a compilation, with `flags` after those of all, and returns its object."""
        output = f"{name}.o"
        self.edges.append(f"build {_escape(output)}: cxx {_escape(str(source))}")
        if flags:
            self.edges.append(f"  cxxflags = $cxxflags {flags}")
        return output

    def link(self, output: Path, objects: Iterable[str], exports: Path, flags: str, *, called: str = "") -> None:
        """Adds a shared library that exports what the version script `exports` names and hides all else. The names of exported functions that
        fit the pattern `called` are for those who call them: profilers do without.

        dlclose leaves it in the process: torch keeps pointers to its ops, and a GPU may still run its kernels.
        """
        inputs = " ".join(map(_escape, objects))
        self.edges.append(f"build {_escape(str(output))}: link {inputs} | {_escape(str(exports))}")
        self.edges.append(f"  flags = -Wl,--version-script={_shell(exports)} {flags}\n  name = {output.name}")
        objcopy = _objcopy() if called else None
        if objcopy is not None:
            self.edges.append(f"  strip = && {objcopy} --wildcard --strip-symbol='{called}' {output.name}.new")

    def text(self, compiler: str) -> str:
        include = " ".join(f"-I{_shell(path)}" for path in self.include)
        defines = " ".join(f"-D{define}" for define in self.defines)
        return "\n".join(
            [
                f"# {generated.MARK}",
                "ninja_required_version = 1.5",
                f"cxx = {compiler}",
                f"cxxflags = -std=c++17 -O2 -fno-tree-vectorize -fPIC -fno-plt -fvisibility=hidden -fvisibility-inlines-hidden -w {defines} {include}",
                "rule cxx",
                "  command = $cxx $cxxflags -MMD -MF $out.d -c $in -o $out",
                "  depfile = $out.d",
                "  deps = gcc",
                "  description = compiling $in",
                "rule link",
                "  command = $cxx -shared -Wl,-soname,$name -Wl,-z,defs -Wl,-z,nodelete -Wl,--as-needed -o $name.new @$name.rsp $flags $strip"
                " && chmod go-w $name.new && mv -fT $name.new $out",  # whole at any time, for those who load it
                "  rspfile = $name.rsp",
                "  rspfile_content = $in",
                "  description = linking $name",
                *self.edges,
                "",
            ]
        )


def version_script(symbols: Iterable[str]) -> str:
    """Returns the linker script that exports these symbols alone: nothing of two op libraries can clash."""
    return f"{{ global: {' '.join(f'{symbol};' for symbol in symbols)} local: *; }};\n"


@contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """While it is entered, a folder is kernelpack's own, and other processes that enter it for the folder wait: two builds would
    read what the other half wrote. Raises BuildError for a folder that holds files of others."""
    check_build_folder(folder)
    make_folder(folder.parent)
    make_folder(folder, mode=0o777 & ~_UMASK)
    with open(os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666 & ~_UMASK), "r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not lock.read():
            lock.write(f"# {generated.MARK}: builds in this folder wait for each other\n")
            lock.flush()
        yield


def check_build_folder(folder: Path) -> None:
    """Raises BuildError unless a folder is new, empty or marked as kernelpack's own: files inside carry no marks. What is in it is
    linked: nobody but this user and root may own it or write to it."""
    for place in (folder, *(folder.iterdir() if folder.is_dir() else ())):
        generated.check_link(place)
    marked = any((folder / name).is_file() and generated.is_own(folder / name) for name in (_LOCK, _NINJA))
    if os.path.lexists(folder) and not marked and (not folder.is_dir() or {path.name for path in folder.iterdir()} - {_LOCK}):
        raise BuildError(
            f"{folder} holds files that kernelpack did not write", cure="move them away, or build into another folder"
        )
    if folder.is_dir():
        try:
            own_tree(folder)
        except UntrustedFileError as problem:
            raise BuildError(
                f"{problem.message}, and what is in {folder} becomes part of the library",
                cure=f"remove {folder}, or build into another folder",
            ) from None


def run_ninja(file: NinjaFile, directory: Path, jobs: int) -> None:
    """Writes build.ninja into a folder and builds everything. Raises BuildError with what the compiler said."""
    generated.write_if_changed(directory / _NINJA, file.text(shlex.join(compiler()).replace("$", "$$")), shared=False)
    command = [*_ninja(), "-C", str(directory), "-j", str(jobs)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, umask=_UMASK)
    if result.returncode != 0:
        said = (result.stdout + result.stderr).strip()
        raise BuildError(f"the C++ build in {directory} failed:\n{said[-4000:]}")


def compiler_machine() -> str:
    """Returns the machine for which the C++ compiler compiles and links: `x86_64`, ... Raises BuildError where there is none."""
    result = subprocess.run([*compiler(), "-dumpmachine"], capture_output=True, text=True, check=False)
    machine = result.stdout.strip().partition("-")[0]
    if result.returncode != 0 or not machine:
        said = result.stderr.strip() or "it names no machine"
        raise BuildError(f"{knobs.CXX.get()} -dumpmachine failed: {said}", cure="set KERNELPACK_CXX to a C++ compiler")
    return machine


def compiler() -> list[str]:
    """Returns the C++ compiler and the options that KERNELPACK_CXX gives it. Raises BuildError where there is none."""
    return knobs.CXX.command("the C++ compiler")


def zstd_library() -> str:
    """Returns the static libzstd that the C++ compiler finds: it unpacks images. Raises BuildError where there is none."""
    name = "libzstd.a"
    found = subprocess.run(
        [*compiler(), f"-print-file-name={name}"], capture_output=True, text=True, check=False
    ).stdout.strip()
    if not Path(found).is_absolute():
        raise BuildError(f"{name} was not found, by which a library unpacks its kernels", cure="apt-get install libzstd-dev")
    return found


def _objcopy() -> str | None:
    """Returns the compiler's objcopy; None where it has none, as compilers without GNU's binutils."""
    named = subprocess.run([*compiler(), "-print-prog-name=objcopy"], capture_output=True, text=True, check=False).stdout
    found = shutil.which(named.strip())
    return None if found is None else _shell(Path(found))


def _ninja() -> list[str]:
    if find_spec("ninja") is not None:
        return [sys.executable, "-P", "-m", "ninja"]  # -P: no ninja.py of the folder where the user stands
    if shutil.which("ninja") is not None:
        return ["ninja"]
    raise BuildError("ninja was not found", cure="pip install 'kernelpack[build]'")


def _escape(path: str) -> str:
    return path.replace("$", "$$").replace(" ", "$ ").replace(":", "$:")


def _shell(path: Path) -> str:
    return shlex.quote(str(path)).replace("$", "$$")
