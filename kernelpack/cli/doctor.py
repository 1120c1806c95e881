"""kernelpack doctor: what is installed, what can be built, which devices the op libraries cover, and what to do about the rest."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, distributions, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from kernelpack import as_triton, knobs
from kernelpack.backends.base import Backend, Device, Tool
from kernelpack.backends.installed import backends
from kernelpack.cli.terminal import Style, count, shorten, width
from kernelpack.errors import BuildError, PackError
from kernelpack.opgen.load import namespace_of, own_library
from kernelpack.pack.ninja import compiler
from kernelpack.version import LANGUAGE_VERSION, VERSION

PURPOSE = "say what is installed, what can be built, what runs here, and what to do about what is missing"
OLDEST_TORCH = (2, 10)
PACKAGES = {
    "numpy": "no kernel compiles",
    "ninja": "no library is linked",
    "cuda-python": "nvJitLink cannot stand in for ptxas",
    "pybind11": "kernelpack._C is not built from source",
}
"""Packages that building needs, and what cannot be done without each. LLVM and NVIDIA's tools are the backends' to report."""


@dataclass(frozen=True)
class Library:
    """An op library on this machine. `error` says why it does not load; None if it does. `unboxed`: how many functions
    of its ops torch calls without boxing."""

    path: str
    targets: tuple[str, ...]
    kernels: int
    error: str | None
    cure: str = ""
    unboxed: int = 0


@dataclass(frozen=True)
class StandIn:
    """What `import triton` means. `everywhere`: also in programs that do not import kernelpack, if it is asked for."""

    asked_for: bool
    everywhere: bool
    triton: str | None
    """The version of Triton that is installed."""
    other_versions: dict[str, str] | None
    """What installed packages want of Triton that kernelpack does not stand in for; None where nobody can tell."""


@dataclass(frozen=True)
class Report:
    """What doctor found. `coverage` says for each device which of each library's targets runs on it."""

    installed: tuple[Tool, ...]
    buildable: dict[str, tuple[str, ...]]
    devices: tuple[Device, ...]
    without_device: tuple[str, ...]
    libraries: tuple[Library, ...]
    stand_in: StandIn
    caveats: dict[str, str] = field(default_factory=dict)
    """By targets."""

    @property
    def serves(self) -> bool:
        """Whether nothing that serving needs is broken."""
        return all(tool.found for tool in self.installed if tool.name == "torch") and not any(
            library.error for library in self.libraries
        )

    def best(self, device: Device, library: Library) -> str | None:
        """Returns the library's target that runs on a device, as the library chooses it."""
        return next((str(target) for target in device.targets if str(target) in library.targets), None)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "libraries", nargs="*", type=Path, metavar="DIR", help="op libraries to look at beside kernelpack's own"
    )


def run(arguments: argparse.Namespace) -> int:
    report = examine(arguments.libraries)
    print(json.dumps(_record(report), indent=1) if arguments.json else _text(report))
    return 0 if report.serves else 1


def examine(folders: Sequence[Path]) -> Report:
    """Looks at this machine, kernelpack's own op library and those in `folders`."""
    known: dict[str, Backend] = {}
    tools = [*_general_tools()]
    try:
        known = backends()
    except ModuleNotFoundError as error:
        tools.append(
            Tool(str(error.name).partition(".")[0], None, True, "no kernel compiles", "pip install 'kernelpack[build]'")
        )
    for backend in known.values():
        tools += [tool for tool in backend.tools() if tool not in tools]
    own = [own_library()] if (own_library() / "libkernelpack_ops.so").exists() or not folders else []
    devices = {name: tuple(backend.devices()) for name, backend in known.items()}
    return Report(
        tuple(tools),
        {name: tuple(map(str, backend.targets())) for name, backend in known.items() if not _missing(backend)},
        tuple(device for found in devices.values() for device in found),
        tuple(name for name, found in devices.items() if not found),
        tuple(_library(folder) for folder in [*own, *folders]),
        _stand_in(),
        {str(target): said for backend in known.values() for target in backend.targets() if (said := backend.caveat(target))},
    )


def _missing(backend: Backend) -> list[str]:
    return [tool.name for tool in backend.tools() if tool.needed and not tool.found]


# -- what is installed ------------------------------------------------------------------------------------------------------


def _general_tools() -> list[Tool]:
    return [
        Tool("kernelpack", f"{VERSION}, {Path(__file__).parents[1]}", True, "", ""),
        Tool("Python", f"{platform.python_version()}, {sys.executable}", True, "", ""),
        _torch(),
        *(
            Tool(name, _version(name), name != "pybind11", without, "pip install 'kernelpack[build]'")
            for name, without in PACKAGES.items()
        ),
        Tool(knobs.CXX.get(), _compiler(), True, "no library is linked", "apt-get install g++, or set KERNELPACK_CXX"),
        Tool(
            "kernelpack._C",
            "present" if find_spec("kernelpack._C") else None,
            False,
            "kernels cannot be launched from Python while they are written; built ops can",
            "pip install kernelpack, or python setup.py build_ext --inplace in a checkout",
        ),
    ]


def _torch() -> Tool:
    found = _version("torch")
    oldest = ".".join(map(str, OLDEST_TORCH))
    numbers = tuple(map(int, re.findall(r"\d+", found)[:2])) if found else ()
    if found and numbers < OLDEST_TORCH:
        return Tool("torch", None, True, f"torch {found} is too old, {oldest} is needed", f"pip install 'torch>={oldest}'")
    return Tool("torch", found, True, "nothing loads", f"pip install 'torch>={oldest}'")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _compiler() -> str | None:
    try:
        command = compiler()
    except BuildError:
        return None
    done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False)
    return f"{done.stdout.partition(chr(10))[0]}, {shutil.which(command[0])}" if done.returncode == 0 else None


# -- standing in for Triton -------------------------------------------------------------------------------------------------


def _stand_in() -> StandIn:
    of_pypi = (found.version for found in distributions(name="triton") if found.files is not None)
    try:
        wanted = as_triton.other_versions_wanted()
    except ModuleNotFoundError:
        wanted = None
    return StandIn(knobs.AS_TRITON.is_on(), as_triton.starts_with_python(), next(of_pypi, None), wanted)


def _said_of(stand_in: StandIn, good: str, absent: str) -> list[str]:
    name, own = knobs.AS_TRITON.name, f"kernelpack, as Triton {LANGUAGE_VERSION}"
    theirs = f"PyPI's triton {stand_in.triton}" if stand_in.triton else "nothing"
    if stand_in.asked_for and stand_in.everywhere:
        said = [(good, f"means {own}, in every process ({name}={knobs.AS_TRITON.get()})")]
    elif stand_in.asked_for:
        said = [
            (absent, f"means {own}, in processes that import kernelpack first ({name}={knobs.AS_TRITON.get()})"),
            ("  ", "for every process: pip install 'kernelpack[as-triton]'"),
        ]
    else:
        said = [(absent, f"means {theirs}; {name}=1 or kernelpack.as_triton.install() makes it kernelpack")]
    if stand_in.other_versions is None:
        said.append(("  ", "which versions packages want was not looked at: pip install packaging"))
    for package, wanted in (stand_in.other_versions or {}).items():
        said.append((absent, f"{package} wants {wanted}, and gets {LANGUAGE_VERSION} where kernelpack stands in"))
    limit = width(sys.stdout)
    lines = []
    for mark, text in said:
        first, *rest = textwrap.wrap(text, limit - 5) if limit else [text]
        lines += [f"  {mark} {first}", *(f"     {line}" for line in rest)]
    return lines


# -- libraries --------------------------------------------------------------------------------------------------------------


def _library(folder: Path) -> Library:
    from kernelpack.pack.lock import parse_lock

    lock = folder / "ops.lock"
    if not lock.is_file() or not list(folder.glob("lib*_ops.so")):
        return Library(str(folder), (), 0, "holds no op library", "kernelpack build, or make build in a checkout")
    try:
        locked = parse_lock(lock.read_text(), str(lock)).hashes
    except PackError as error:
        return Library(str(folder), (), 0, error.message, error.cure or "")
    targets = tuple(sorted({target for target, _ in locked}))
    problem, unboxed = _load(folder)
    return Library(str(folder), targets, len(locked), problem, "build it anew: kernelpack build", unboxed)


def _load(folder: Path) -> tuple[str | None, int]:
    """Returns why a library does not load, tried in a process of its own: a bad library can end it; and how many of its functions
    torch calls without boxing."""
    name = namespace_of(next(folder.glob("lib*_ops.so")))
    code = f"import kernelpack; print(kernelpack.load({str(folder)!r})._library.{name}_unboxed())"
    environment = {**os.environ, knobs.LOAD_LIBRARY.name: "0"}
    environment["PYTHONPATH"] = os.pathsep.join(path or os.getcwd() for path in sys.path)
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, env=environment, check=False)
    if done.returncode == 0:
        return None, int(done.stdout)
    if done.returncode < 0:
        return f"{signal.Signals(-done.returncode).name} ends the process that loads it", 0
    said = done.stderr.strip().splitlines()  # what comes after the error's own line is its cure
    return next((line for line in reversed(said) if re.match(r"[\w.]+(Error|Exception): ", line)), said[-1]), 0


# -- what is printed --------------------------------------------------------------------------------------------------------


def _record(report: Report) -> dict[str, Any]:
    return {
        "installed": [asdict(tool) for tool in report.installed],
        "buildable": report.buildable,
        "caveats": report.caveats,
        "devices": [
            {
                "name": device.name,
                "targets": list(map(str, device.targets)),
                "libraries": {library.path: report.best(device, library) for library in report.libraries},
            }
            for device in report.devices
        ],
        "libraries": [asdict(library) for library in report.libraries],
        "stand_in": asdict(report.stand_in),
    }


def _text(report: Report) -> str:
    style = Style(sys.stdout)
    good, bad, absent = style.green("ok"), style.red("no"), style.yellow(" -")
    lines = [style.bold("installed")]
    names, limit = max(len(tool.name) for tool in report.installed), width(sys.stdout)
    for tool in report.installed:
        if tool.found:
            lines.append(f"  {good} {tool.name:{names}}  {shorten(tool.found, limit - names - 7) if limit else tool.found}")
        else:
            lines += [
                f"  {bad if tool.needed else absent} {tool.name:{names}}  missing: {tool.without}",
                f"     {'':{names}}  to fix: {tool.cure}",
            ]
    lines += ["", style.bold("targets that can be built")]
    for name, targets in report.buildable.items():
        lines += _wrapped(f"  {name}: ", [target.partition(":")[2] for target in targets])
    for target, said in report.caveats.items():
        first, *rest = textwrap.wrap(f"{target}: {said}", limit - 5) if limit else [f"{target}: {said}"]
        lines += [f"  {absent} {first}", *(f"     {line}" for line in rest)]
    if not report.buildable:
        lines.append("  none: see what is missing above")
    lines += ["", style.bold("devices of this machine")]
    for device in report.devices:
        lines += _wrapped(f"  {device.name} runs ", list(map(str, device.targets)))
    lines += [f"  no device for {name}" for name in report.without_device]
    lines += ["", style.bold("import triton"), *_said_of(report.stand_in, good, absent)]
    for library in report.libraries:
        lines += ["", style.bold("op library ") + library.path]
        if library.error:
            lines += [f"  {bad} {library.error}", f"     to fix: {library.cure}"]
            continue
        lines.append(f"  {good} loads: {count(library.kernels, 'kernel')}")
        lines += _wrapped("     built for ", list(library.targets))
        if library.unboxed:
            lines.append(f"  {good} this torch calls its ops without boxing")
        else:
            lines.append(
                f"  {absent} this torch boxes the arguments of its ops; for shorter calls: kernelpack unbox {library.path}"
            )
        for device in report.devices:
            best = report.best(device, library)
            if best:
                lines.append(f"  {good} {device.name} uses {best}")
            else:
                cure = (
                    f"build it with --target {device.targets[0]}" if device.targets else "no target of kernelpack's runs on it"
                )
                lines.append(f"  {bad} {device.name} is not covered; to fix: {cure}")
    return "\n".join(lines)


def _wrapped(start: str, words: Sequence[str]) -> list[str]:
    """Returns `start` and the words after it, separated by commas, in lines that fit a terminal."""
    limit = width(sys.stdout)
    lines, line = [], start
    for index, word in enumerate(words):
        text = word + (", " if index + 1 < len(words) else "")
        if limit is not None and len(line) + len(text.rstrip()) > limit and line.strip():
            lines.append(line.rstrip())
            line = "    "
        line += text
    return [*lines, line.rstrip()]
