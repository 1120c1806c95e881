"""Compiles what records of launches need into a folder that launches take kernels from, and compares such a folder with a new compilation."""

from __future__ import annotations

import functools
import hashlib
import json
import lzma
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from kernelpack import knobs
from kernelpack.adopt import kernels
from kernelpack.adopt.records import Noted, Record, read_records
from kernelpack.backends.installed import backend_of
from kernelpack.compiled import LINKED, CompiledKernel
from kernelpack.compiler.target_backend import TargetOptions
from kernelpack.errors import BuildError, KernelpackError, PackError
from kernelpack.files import generated
from kernelpack.files.cache import CacheFolder
from kernelpack.files.whole import make_folder, write_whole
from kernelpack.ir.core import Operation
from kernelpack.opgen.workers.compile import Progress
from kernelpack.opgen.workers.worker import CompileJob, compile_all
from kernelpack.pack.lock import LockLine
from kernelpack.pack.ninja import compiler, compiler_machine, version_script
from kernelpack.runtime import front_end, record
from kernelpack.runtime.ahead_of_time import ASTSource
from kernelpack.runtime.cache import triton_key
from kernelpack.runtime.kernel_file import kernel_bytes, parse_kernel
from kernelpack.runtime.packs import FORMAT, HEAD, INDEX, key_of, read_folder
from kernelpack.ship import manifest
from kernelpack.target import Target
from kernelpack.version import VERSION

LOCK = "kernels.lock"
_IMAGES_BEGIN = f"# {generated.MARK}: compiled kernels, each compressed\n".encode()
_LOCK_BEGIN = "# kernelpack lock, version 2: tools, then target, variant, SHA-256 of the image"

Report = Callable[[Progress], None]


@dataclass(frozen=True)
class Refusal:
    """A variant that was not compiled, and why."""

    kernel: str
    place: str
    target: str
    problem: KernelpackError


@dataclass(frozen=True)
class Adopted:
    """What was made: the folder, how many variants of how many kernels it holds, how many of them were compiled now, and in how long."""

    folder: Path
    variants: int
    kernels: int
    compiled: int
    refused: tuple[Refusal, ...]
    unknown_licences: tuple[str, ...]
    """Packages, and modules that belong to none, that state no licence."""
    bytes: int
    seconds: float


@dataclass(frozen=True)
class _Wanted:
    """A variant to compile. `symbol` is what its code is called."""

    noted: Noted
    source: ASTSource
    options: TargetOptions
    make_ttir: Callable[[], Operation]
    key: str
    symbol: str

    @property
    def target(self) -> Target:
        return Target.parse(self.options.arch)

    @property
    def job(self) -> CompileJob:
        entry = self.symbol if backend_of(self.target).linked_machine(self.target) else _entry(self.source)
        facts = self.source.specialization.facts
        return CompileJob(self.noted.kernel, entry, self.make_ttir, self.target, self.options.plain, facts)


def adopt(
    files: Iterable[Path], *, targets: Sequence[Target], out: Path, jobs: int | None = None, progress: Report | None = None
) -> Adopted:
    """Compiles the kernels that records need for targets, which this machine need not have, into a folder.

    Kernels that the compiler refuses, or that are not here as they were recorded, are left out and listed. Raises BuildError for a file
    that is no record, one without launches for a target, and a folder of others.
    """
    started = time.monotonic()
    _check(out)
    read = read_records(files)
    wanted, refused = _wanted(read, targets)
    made, failed, compiled = _compiled(wanted, jobs, progress)
    refused += failed
    kept = [one for one in wanted if one.key in made]
    if not kept:
        first = f", the first: {refused[0].problem.message}" if refused else ""
        raise BuildError(f"nothing was adopted: {len(refused)} variants were refused{first}")
    size = _write(out, kept, made, read)
    owners = {one.noted.said["package"] or one.noted.kernel.partition(":")[0]: one.noted.said["package"] for one in kept}
    unknown = tuple(sorted(name for name, package in owners.items() if kernels.licence_of(package) is None))
    names = {one.noted.kernel for one in kept}
    return Adopted(out, len(kept), len(names), compiled, tuple(refused), unknown, size, time.monotonic() - started)


def verify(
    out: Path, *, records: Iterable[Path] = (), jobs: int | None = None, progress: Report | None = None
) -> tuple[int, list[str], list[str]]:
    """Compiles the kernels of a folder anew, without the cache. Returns how many were compared, a sentence for each that differs, and one
    for each that cannot be compared: its package is not here as it was. `records` say which files programs and generated code are in."""
    folder = read_folder(out.resolve())
    files = {one.kernel: {"file": one.said["file"]} for one in read_records(records).variants if "file" in one.said}
    wanted: list[_Wanted] = []
    absent: list[str] = []
    for variant in folder.variants:
        what = f"{variant.kernel} for {variant.target}"
        noted = Noted({**variant.said, **files.get(variant.kernel, {})}, str(out / INDEX))
        try:
            found = _variant(noted, *kernels.source_of(noted), Target.parse(variant.target))
        except KernelpackError as problem:
            absent.append(f"{what}: {problem.message}")
            continue
        if found.key == variant.key:
            wanted.append(found)
        else:
            absent.append(f"{what}: its line has another key than it is kept under")
    made, failed, _ = _compiled(wanted, jobs, progress, cache=False)
    differ = [f"{one.kernel} for {one.target} does not compile: {one.problem.message}" for one in failed]
    stated = {variant.key: variant.image_sha256 for variant in folder.variants}
    for one in wanted:
        if one.key in made and _sha256(made[one.key].image) != stated[one.key]:
            differ.append(f"{one.noted.kernel} for {one.target} ({one.key[:12]}) has another image")
    for name in folder.files:
        try:
            folder.file(name)
        except PackError as problem:
            differ.append(problem.message)
    return len(wanted), differ, absent


def _wanted(read: Record, targets: Sequence[Target]) -> tuple[list[_Wanted], list[Refusal]]:
    """Returns what is to be compiled, each once, and what is not found here."""
    found: dict[str, _Wanted] = {}
    refused = [
        Refusal(one.kernel, one.place, one.said["backend"], BuildError(f"{one.place}: {one.kernel}: {one.said['refused']}"))
        for one in read.refused
    ]
    backends = {target.backend for target in targets}
    lacking = backends - {one.said["backend"] for one in (*read.variants, *read.refused)}
    if lacking:
        raise BuildError(
            f"the record has no launches for {', '.join(sorted(lacking))}",
            cure="record a run with KERNELPACK_TRACE=FILE, or name other targets",
        )
    for noted in read.variants:
        if noted.said["backend"] not in backends:
            continue
        try:
            source, options = kernels.source_of(noted)
        except KernelpackError as problem:
            refused.append(Refusal(noted.kernel, noted.place, noted.said["backend"], problem))
            continue
        if not noted.said["source"]:  # written by hand
            noted = replace(noted, said={**noted.said, **record.identity(source.fn), "kernel": noted.kernel})
        first: _Wanted | None = None
        for target in targets:
            if target.backend == noted.said["backend"]:
                one = _variant(noted, source, options, target, first)
                first = first or one
                found.setdefault(one.key, one)
    return list(found.values()), refused


def _variant(noted: Noted, source: ASTSource, options: Any, target: Target, like: _Wanted | None = None) -> _Wanted:
    """Returns the variant for a target; the ttir is that of `like`, which is the same for another one."""
    for_target = TargetOptions(**asdict(options), arch=str(backend_of(target).resolve_target(target)))
    key = key_of(source, for_target)
    make = like.make_ttir if like else functools.partial(front_end.ttir_of, source.fn, source.specialization, options)
    return _Wanted(noted, source, for_target, make, key, f"{_entry(source)}_{key[:16]}")


def _entry(source: ASTSource) -> str:
    special = source.specialization
    return source.fn.symbol(dict(special.signature), dict(special.constexprs))


def _compiled(
    wanted: Sequence[_Wanted], jobs: int | None, progress: Report | None, *, cache: bool = True
) -> tuple[dict[str, CompiledKernel], list[Refusal], int]:
    """Returns the kernels by key, those that are refused, and how many were compiled now."""
    store = _Store()
    made = {one.key: kernel for one in wanted if cache and (kernel := store.load(one)) is not None}
    missing = [one for one in wanted if one.key not in made]
    started, finished = time.monotonic(), len(made)
    if progress is not None and finished:
        progress(Progress(finished, len(wanted), "kernels from the cache", 0.0))

    todo = [one.job for one in missing]
    wanted_by = {id(job): one for job, one in zip(todo, missing, strict=True)}

    def done(job: CompileJob, result: Any) -> None:
        nonlocal finished
        finished += 1
        if isinstance(result, CompiledKernel):  # kept at once, so that a run that breaks off loses little
            one = wanted_by[id(job)]
            made[one.key] = _bare(result)
            store.save(one, made[one.key])
        if progress is not None:
            progress(Progress(finished, len(wanted), f"{job.name} for {job.target}", time.monotonic() - started))

    processes = max(1, min(jobs or knobs.jobs(), len(missing)))
    results = compile_all(todo, processes, done, go_on=True) if missing else []
    refused = []
    for one, result in zip(missing, results, strict=True):
        if isinstance(result, KernelpackError):
            refused.append(Refusal(one.noted.kernel, one.noted.place, str(one.target), result))
        elif isinstance(result, BaseException):
            raise result
    return made, refused, len(missing) - len(refused)


def _bare(kernel: CompiledKernel) -> CompiledKernel:
    """Returns a kernel without what launches do not need: its stages, and the lines of source in its image."""
    return replace(kernel, stages={}, image=backend_of(kernel.target).without_lines(kernel.image))


class _Store:
    """Kernels of earlier runs, by everything that decides their bytes."""

    def __init__(self) -> None:
        self._folder = CacheFolder(knobs.cache_dir() or "")
        self._on = knobs.cache_dir() is not None and not knobs.compilation.unusual

    def _name(self, wanted: _Wanted) -> str:
        decisive = f"{triton_key()} {backend_of(wanted.target).cache_key()} {wanted.key} {wanted.symbol}"
        return f"adopted/{_sha256(decisive.encode())}.bin"

    def load(self, wanted: _Wanted) -> CompiledKernel | None:
        data = self._folder.read(self._name(wanted)) if self._on else None
        try:
            return None if data is None else parse_kernel(data)
        except PackError:  # cut short by a full disk, altered
            return None

    def save(self, wanted: _Wanted, kernel: CompiledKernel) -> None:
        if self._on:
            self._folder.keep(self._name(wanted), kernel_bytes(kernel))


def _check(out: Path) -> None:
    """Raises BuildError for a folder that holds files of others."""
    generated.check_link(out)
    if out.is_dir() and any(out.iterdir()) and not (out / INDEX).is_file():
        raise BuildError(f"{out} holds files that kernelpack did not write", cure="name a new folder")
    generated.check(out / INDEX)


def _write(out: Path, kept: Sequence[_Wanted], made: Mapping[str, CompiledKernel], read: Record) -> int:
    """Writes the folder: what is loaded first, the index last, so that a process that reads meanwhile has the old one whole."""
    make_folder(out, mode=0o755)
    files: dict[str, bytes] = {}
    libraries: dict[Target, str] = {}
    for target in sorted({one.target for one in kept if backend_of(one.target).linked_machine(one.target)}):
        own = [one for one in kept if one.target == target]
        data = _linked(target, [(one.symbol, made[one.key].image) for one in own])
        libraries[target] = f"{target.slug}-{_sha256(data)[:12]}.so"
        files[libraries[target]] = data
    images, rows = bytearray(_IMAGES_BEGIN), []
    for one in sorted(kept, key=lambda one: (one.noted.kernel, str(one.target), one.key)):
        kernel = replace(made[one.key], entry=_entry(one.source))
        if one.target in libraries:
            kernel = replace(kernel, image_kind=LINKED, image=f"{libraries[one.target]}:{one.symbol}".encode())
        data = kernel_bytes(kernel)
        packed = lzma.compress(data, preset=6)
        rows.append((one, made[one.key], len(images), len(packed)))
        images += packed
    files[f"kernels-{_sha256(bytes(images))[:12]}.bin"] = bytes(images)
    files[LOCK] = _lock_text(kept, made).encode()
    for name, data in files.items():
        if not (out / name).is_file() or (out / name).read_bytes() != data:
            write_whole(out / name, data, shared=False)
    stated = {name: _sha256(data) for name, data in sorted(files.items())}
    index = _index_text(rows, stated, read, sorted({str(one.target) for one in kept}))
    generated.write(out / INDEX, index)
    for old in out.iterdir():
        if old.suffix in (".so", ".bin") and old.name not in files:
            old.unlink()
    _write_manifest(out, kept, made, [*files, INDEX])
    return sum(map(len, files.values())) + len(index)


def _linked(target: Target, objects: Sequence[tuple[str, bytes]]) -> bytes:
    """Returns a shared object of objects, which exports their symbols. Raises BuildError where there is no linker for the target."""
    machine = backend_of(target).linked_machine(target)
    if compiler_machine() != machine:
        raise BuildError(
            f"{knobs.CXX.get()} links for {compiler_machine()}, {target} is for {machine}",
            cure=f"set KERNELPACK_CXX to a compiler for it, such as {machine}-linux-gnu-g++",
        )
    with tempfile.TemporaryDirectory(prefix="kernelpack-") as place:
        folder = Path(place)
        for symbol, image in objects:
            (folder / f"{symbol}.o").write_bytes(image)
        (folder / "exports").write_text(version_script(symbol for symbol, _ in objects))
        (folder / "inputs").write_text("\n".join(f"{symbol}.o" for symbol, _ in objects))
        flags = ["-shared", "-Wl,--version-script=exports", "-Wl,-z,nodelete", "-Wl,--as-needed", "-Wl,-s"]
        command = [*compiler(), *flags, "-o", "kernels.so", "@inputs", "-lm"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise BuildError(f"kernels for {target} cannot be linked: {done.stderr.strip()}")
        return (folder / "kernels.so").read_bytes()


def _index_text(
    rows: Sequence[tuple[_Wanted, CompiledKernel, int, int]],
    files: Mapping[str, str],
    read: Record,
    targets: Sequence[str],
) -> str:
    """Returns the index: a line for each variant."""
    kernel_rows: dict[str, list[dict[str, Any]]] = {}
    heads: dict[str, dict[str, Any]] = {}
    for one, kernel, start, size in rows:
        said = {name: part for name, part in one.noted.said.items() if name not in (*HEAD, "file")}
        head = {name: one.noted.said[name] for name in HEAD}
        head["licence"] = kernels.licence_of(head["package"])
        name = json.dumps(head)
        heads[name] = head
        variant = {
            "key": one.key,
            "target": str(one.target),
            "entry": _entry(one.source),
            "start": start,
            "size": size,
            "image sha256": _sha256(kernel.image),
            "code sha256": kernel.code_sha256,
            "record": said,
        }
        kernel_rows.setdefault(name, []).append(variant)
    lines = []
    for name, variants in kernel_rows.items():
        listed = ",\n   ".join(map(json.dumps, variants))
        lines.append(f'  {json.dumps(heads[name])[:-1]}, "variants": [\n   {listed}\n  ]}}')
    adopted = {(head["kernel"], head["source"]) for head in heads.values()}
    searches = [
        json.dumps({name: one.said[name] for name in ("kernel", "source", "search", "config")})
        for one in read.searches
        if (one.kernel, one.said["source"]) in adopted
    ]
    first = {"kernelpack packs": FORMAT, "kernelpack": VERSION, "targets": list(targets), "files": dict(files)}
    head_lines = [f" {json.dumps(name)}: {json.dumps(value)}," for name, value in first.items()]
    searched = "\n  " + ",\n  ".join(searches) + "\n " if searches else ""
    return "\n".join(["{", *head_lines, ' "kernels": [', ",\n".join(lines), " ],", f' "searches": [{searched}]', "}", ""])


def _tools(kept: Sequence[_Wanted]) -> dict[str, tuple[str, ...]]:
    """Returns the versions of what made the images, by tool."""
    stated = {pair for target in {one.target for one in kept} for pair in backend_of(target).tool_versions().items()}
    return {tool: tuple(sorted(number for name, number in stated if name == tool)) for tool in sorted(dict(stated))}


def _lock_text(kept: Sequence[_Wanted], made: Mapping[str, CompiledKernel]) -> str:
    lines = sorted(LockLine(str(one.target), _name(one), _sha256(made[one.key].image)) for one in kept)
    tools = [f"# {tool} = {number}" for tool, numbers in _tools(kept).items() for number in numbers]
    return "\n".join([_LOCK_BEGIN, *tools, *map(str, lines)]) + "\n"


def _name(wanted: _Wanted) -> str:
    """Returns what the lock and the manifest call a variant."""
    return f"{wanted.noted.kernel}:{wanted.key[:16]}"


def _write_manifest(out: Path, kept: Sequence[_Wanted], made: Mapping[str, CompiledKernel], files: Iterable[str]) -> None:
    """Writes what `kernelpack sign` signs and `kernelpack verify --manifest` compares."""
    images: dict[str, dict[str, str]] = {}
    for one in kept:
        images.setdefault(str(one.target), {})[_name(one)] = _sha256(made[one.key].image)
    whole = manifest.Manifest(
        namespace="adopted",
        kernelpack=VERSION,
        targets=tuple(sorted(images)),
        tools=_tools(kept),
        sources={},
        files={name: manifest.sha256(out / name) for name in sorted(files)},
        images={target: dict(sorted(images[target].items())) for target in sorted(images)},
    )
    generated.write(out / manifest.NAME, str(whole))


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
