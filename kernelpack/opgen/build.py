"""Builds an op library: plans its variants, compiles them in parallel, writes packs, C++ and the Python package, links."""

from __future__ import annotations

import contextlib
import keyword
import shlex
import time
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kernelpack import knobs
from kernelpack.backends.base import CSRC, Backend
from kernelpack.backends.installed import backend_of
from kernelpack.errors import BuildError, PackError, SchemaError
from kernelpack.files import generated
from kernelpack.ir.locations import is_of_language, relative_name
from kernelpack.kernel.dependencies import bindings_of, functions_in
from kernelpack.kernel.source import innermost
from kernelpack.opgen.emit.c_entries import c_files
from kernelpack.opgen.emit.cpp_library import image_files, library_files
from kernelpack.opgen.emit.library import LibraryPlan
from kernelpack.opgen.emit.package import PACKAGE_FILES, cmake_file, package_files
from kernelpack.opgen.op import Op
from kernelpack.opgen.sources import find_ops
from kernelpack.opgen.trace import read_trace
from kernelpack.opgen.traffic import is_needed, needed_variants, only
from kernelpack.opgen.variants.coverage import coverage, warnings_of
from kernelpack.opgen.variants.decisions import Choices
from kernelpack.opgen.variants.plan import Contest, KernelVariant, LaunchPlan, OpPlan
from kernelpack.opgen.variants.planner import OpPlanner
from kernelpack.opgen.workers.compile import ProgressCallback, compile_variants
from kernelpack.pack.elf import linked_packs
from kernelpack.pack.format import KernelPack, read_pack
from kernelpack.pack.linked_code import state_checksum
from kernelpack.pack.lock import differences, lock_line, lock_text, read_lock
from kernelpack.pack.ninja import (
    TORCH_TARGET_VERSION,
    NinjaFile,
    check_build_folder,
    compiler_machine,
    one_at_a_time,
    run_ninja,
    torch_dir,
    version_script,
    zstd_library,
)
from kernelpack.ship import manifest, sbom
from kernelpack.target import Target
from kernelpack.version import VERSION

_TORCHS = frozenset(
    (
        "_c10d_functional", "_c10d_functional_autograd", "_dtensor", "_native", "_quantized", "_test", "aten", "c10d",
        "debug_mode_ops", "debugprims", "export", "higher_order", "import_module", "inductor", "inductor_prims", "load_library",
        "loaded_libraries", "mkl", "mkldnn", "mkldnn_prepacked", "onednn", "onnx", "prim", "prims", "profiler", "quantization",
        "quantized", "rngprims", "sparse", "static_runtime", "symm_mem",
    )
)  # fmt: skip
"""The namespaces of torch 2.13's own ops, and what else torch.ops has."""


@dataclass(frozen=True)
class Built:
    """What a build made. `compiled` kernels were compiled now, the other packs came from the cache. `warnings` name regions of the
    declared variants whose calls will be refused, because nothing was built for them."""

    namespace: str
    ops: tuple[str, ...]
    directory: Path
    library: Path
    packs: tuple[KernelPack, ...]
    compiled: tuple[str, ...]
    seconds: float
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verified:
    """What `verify` found: the packs it compiled anew, and what differs from the lock file, a sentence each."""

    lock: Path
    packs: tuple[KernelPack, ...]
    differences: tuple[str, ...]
    seconds: float


@dataclass(frozen=True)
class BuildPlan:
    """The ops of a library with all their variants, before anything is compiled."""

    namespace: str
    ops: tuple[Op, ...]
    op_plans: tuple[OpPlan, ...]
    targets: tuple[tuple[Target, Backend], ...]
    variants: tuple[KernelVariant, ...]
    contests: tuple[Contest, ...]
    build_command: str


def plan_library(
    sources: Sequence[Path | str],
    *,
    namespace: str,
    targets: Iterable[Target | str],
    choices: Choices | None = None,
    trace: Path | str | None = None,
    checked: bool = False,
) -> BuildPlan:
    """Imports op files and plans every variant for every target. `choices` decides which of several configs are built (default:
    what `kernelpack tune` measured); with `trace`, a file of recorded calls, only the variants that they ran are. `checked` kernels
    check their accesses. Raises KernelpackError with file and line."""
    check_namespace(namespace)
    asked = [Target.parse(target) if isinstance(target, str) else target for target in targets]
    resolved = dict.fromkeys(backend_of(target).resolve_target(target) for target in asked)
    if not resolved:
        raise BuildError("no target was given", cure="write --target cpu:native")
    pairs = tuple((target, backend_of(target)) for target in resolved)
    keys = {backend.dispatch_key: backend.name for _, backend in pairs if backend.launcher is not None}
    for _, backend in pairs:
        if backend.launcher is not None and keys[backend.dispatch_key] != backend.name:
            raise BuildError(
                f"backends {keys[backend.dispatch_key]} and {backend.name} both serve {backend.dispatch_key} tensors"
            )
    for target, backend in pairs:
        if checked and "checked" in backend.unused_options:
            raise BuildError(
                f"kernels for {target} cannot check their accesses",
                cure="build a checked library for CPUs alone; the emulator checks kernels for GPUs (docs/emulator.md)",
            )
    paths = [Path(source) for source in sources]
    ops = find_ops(paths, namespace)
    planner = OpPlanner(namespace, pairs, choices, checked=checked)
    op_plans = tuple(planner.plan(op) for op in ops)
    variants = planner.used_variants()
    if trace is not None:
        recorded = read_trace(Path(trace))
        if not recorded.calls:
            raise BuildError(
                f"{trace} records no calls of ops", cure="run a model that calls ops of a built library, to its end"
            )
        needed = needed_variants(recorded, tuple(resolved))
        op_plans = tuple(only(op, needed) for op in op_plans)
        variants = [variant for variant in variants if is_needed(variant, needed)]
    files = " ".join(path.name for path in paths)
    words = [f"kernelpack build {files} --namespace {namespace}", *(f"--target {target}" for target in resolved)]
    command = " ".join([*words, *(["--checked"] if checked else [])])
    return BuildPlan(namespace, tuple(ops), op_plans, pairs, tuple(variants), tuple(planner.contests), command)


def check_namespace(namespace: str, cure: str = "write --namespace my_ops") -> None:
    """Raises SchemaError for a name that no library's ops can be called by."""
    if not namespace.isidentifier() or not namespace.isascii() or keyword.iskeyword(namespace):
        raise SchemaError(f"namespace {namespace!r} is no name that torch.ops can have", cure=cure)
    if namespace in _TORCHS:
        raise SchemaError(f"namespace {namespace!r}: torch.ops.{namespace} is torch's own", cure=cure)


def machine_of(plan: BuildPlan) -> str | None:
    """Returns the machine whose code is linked into the library, None for none. Raises BuildError for several, and for code that nothing
    launches."""
    for target, backend in plan.targets:
        if backend.launcher is None:
            raise BuildError(
                f"kernels for {target} are compiled, and nothing launches them: they cannot be in an op library",
                cure=f"leave --target {target} out; kernelpack inspect shows their code",
            )
    machines = {backend.linked_machine(target): target for target, backend in plan.targets}
    machines.pop(None, None)
    if len(machines) > 1:
        raise BuildError(
            f"{' and '.join(map(str, machines.values()))} are code for different machines, which one library cannot hold",
            cure="build a library for each of them",
        )
    return next(iter(machines), None)


def coverage_warnings(plan: BuildPlan) -> tuple[str, ...]:
    """Returns a sentence for each region of the declared variants for which nothing is built."""
    return tuple(warning for op in plan.op_plans for warning in warnings_of(coverage(op, plan.targets)))


def unchecked_warnings(packs: Iterable[KernelPack]) -> tuple[str, ...]:
    """Returns a sentence for each kernel of a checked library that makes accesses which belong to no tensor."""
    return tuple(
        f"{pack.variant} for {pack.target}: {accesses} of its accesses are not checked: their addresses come from memory or from integers"
        for pack in packs
        if (accesses := int(pack.metadata.get("unchecked", 0)))
    )


def build(
    sources: Sequence[Path | str],
    *,
    namespace: str,
    targets: Iterable[Target | str],
    trace: Path | str | None = None,
    out: Path | str | None = None,
    jobs: int | None = None,
    progress: ProgressCallback | None = None,
    cache: bool = True,
    line_tables: bool = False,
    checked: bool = False,
) -> Built:
    """Builds `lib<namespace>_ops.so` and the Python package around it in the folder `out` (default: ./<namespace>).

    `jobs` processes compile (default: one for each CPU); `progress` is called after each kernel. With `cache` False nothing
    is taken from earlier builds. With `trace`, a file that KERNELPACK_TRACE wrote, the library has only the variants that the recorded
    calls ran, and refuses other calls. With `line_tables` the library says which line of source its code for GPUs comes from, which
    profilers show; packs always do. With `checked`, for CPUs, each load, store and atomic is held to the storage of its tensor: a call
    ends with an error before the first one outside. Raises KernelpackError.
    """
    started = time.monotonic()
    plan = plan_library(sources, namespace=namespace, targets=targets, trace=trace, checked=checked)
    machine, linked = machine_of(plan), compiler_machine()
    if machine not in (None, linked):
        raise BuildError(
            f"the C++ compiler {knobs.CXX.get()} links libraries for {linked}, these targets are code for {machine}",
            cure=f"set {knobs.CXX.name} to a compiler for it, such as {machine}-linux-gnu-g++, or write the source with --emit-source DIR and "
            "build it on such a machine",
        )
    directory = Path(out if out is not None else namespace).resolve()
    file = directory / f"lib{namespace}_ops.so"
    check_build_folder(directory / "build")
    texts = ("ops.lock", f"{namespace}-config.cmake", manifest.NAME, sbom.NAME, *PACKAGE_FILES)
    for path in (file, *(directory / name for name in texts)):
        generated.check(path)
    unpacks = [zstd_library()] if any(backend.linked_machine(target) is None for target, backend in plan.targets) else []
    packs, compiled = compile_variants(plan.variants, jobs=jobs, progress=progress, cache=cache)
    library = library_plan(plan, packs, line_tables=line_tables)
    names = tuple(op.name for op in plan.ops)
    kernels = tuple(packs.values())
    warnings = (*(() if trace else coverage_warnings(plan)), *unchecked_warnings(kernels))
    built = Built(namespace, names, directory, file, kernels, compiled, 0.0, warnings)
    with one_at_a_time(directory / "build"):
        written = _write(built, library, unpacks, jobs or knobs.jobs())
        _state(built, plan, written, compressed=bool(unpacks))
    return Built(**{**vars(built), "seconds": time.monotonic() - started})


def verify(
    sources: Sequence[Path | str],
    *,
    namespace: str,
    targets: Iterable[Target | str] | None = None,
    trace: Path | str | None = None,
    out: Path | str | None = None,
    lock: Path | str | None = None,
    jobs: int | None = None,
    progress: ProgressCallback | None = None,
    checked: bool = False,
    share: tuple[int, int] | None = None,
) -> Verified:
    """Compiles every kernel anew, without caches, and says what differs from a lock file.

    `targets` are those of the lock file if not given; variants for others are not compared. With `share` (k, n) those are that
    the k-th of n parts of the variants has, by a hash of their names, each for all targets. `lock` names a lock file that is kept
    with the sources. Without it, the lock file of the library in `out` (default: ./<namespace>) counts, and the library's packs are
    compared too. Raises KernelpackError.
    """
    started = time.monotonic()
    directory = Path(out if out is not None else namespace).resolve()
    file = directory / "ops.lock" if lock is None else Path(lock)
    if not file.is_file():
        cure = "build the library first: kernelpack build" if lock is None else "name the ops.lock that a build wrote"
        raise PackError(f"{file} does not exist", cure=cure)
    locked = read_lock(file)
    asked = list(targets) if targets is not None else sorted({target for target, _ in locked.hashes})
    plan = plan_library(sources, namespace=namespace, targets=asked, trace=trace, checked=checked)
    for target, _ in plan.targets:
        locked.check_tools(backend_of(target).tool_versions(), str(file))
    compared = {str(target) for target, _ in plan.targets}
    hashes = {key: sha256 for key, sha256 in locked.hashes.items() if key[0] in compared and _is_in(key[1], share)}
    entries = {variant.entry for variant in plan.variants if _is_in(variant.name, share)}
    needed = entries | {variant.plain for variant in plan.variants if variant.entry in entries}  # which may have the same code
    compiled, _ = compile_variants(
        [variant for variant in plan.variants if variant.entry in needed], jobs=jobs, progress=progress, cache=False
    )
    packs = {entry: pack for entry, pack in compiled.items() if entry in entries}
    made = {(line.target, line.variant): line.sha256 for line in map(lock_line, packs.values())}
    found = differences(hashes, made)
    for pack in packs.values() if lock is None else ():
        path = directory / "packs" / pack.file_name
        try:
            if str(read_pack(path)) != str(pack) and hashes.get((str(pack.target), pack.variant)) == lock_line(pack).sha256:
                found.append(f"{path} is not the pack that the lock file states")
        except FileNotFoundError:
            found.append(f"{path} does not exist")
        except PackError as problem:
            found.append(problem.message)
    return Verified(file, tuple(packs.values()), tuple(found), time.monotonic() - started)


def _is_in(variant: str, share: tuple[int, int] | None) -> bool:
    return share is None or zlib.crc32(variant.encode()) % share[1] == share[0] - 1


# -- writing and linking ----------------------------------------------------------------------------------------------------


def library_plan(plan: BuildPlan, packs: dict[str, KernelPack], *, line_tables: bool = False) -> LibraryPlan:
    """Returns what the C++ and the Python of a library are printed from."""
    targets: dict[str, tuple[Target, ...]] = {}
    for target, backend in plan.targets:
        targets[backend.name] = (*targets.get(backend.name, ()), target)
    backends = tuple(dict.fromkeys(backend for _, backend in plan.targets))
    ops = tuple(
        replace(op, launches=tuple(_without_repetitions(launch, packs) for launch in op.launches)) for op in plan.op_plans
    )
    return LibraryPlan(plan.namespace, VERSION, plan.build_command, ops, backends, targets, packs, line_tables)


def _without_repetitions(launch: LaunchPlan, packs: dict[str, KernelPack]) -> LaunchPlan:
    """Returns a launch without the rows of variants that were left out when compiling."""
    points = {
        target: [[row for row in point if row.variant.entry in packs] for point in points]
        for target, points in launch.points.items()
    }
    return replace(launch, points=points)


def _write(built: Built, library: LibraryPlan, unpacks: Sequence[str], jobs: int) -> list[Path]:
    """Writes the C++, builds the library, and then writes what is loaded with them: packs, lock file, Python. Removes the files of
    variants and ops that no longer exist. Returns what it wrote."""
    folder = built.directory
    files = library_files(library) | image_files(library, folder / "cpp") | c_files(library)
    cpp = {folder / "cpp" / name: text for name, text in files.items()}
    package = {folder / "packs" / pack.file_name: str(pack) for pack in built.packs}
    package |= {folder / name: text for name, text in (package_files(library) | cmake_file(library)).items()}
    package |= {folder / "ops.lock": lock_text(built.packs)}
    for path in (*cpp, *package):
        generated.check(path)
    earlier = _earlier_packs(folder)
    for path, text in cpp.items():
        generated.write_if_changed(path, text)
    _link(built, library, unpacks, jobs)
    for path, text in package.items():
        generated.write_if_changed(path, text)
    found = (path for pattern in ("*.cpp", "*.h") for path in (folder / "cpp").glob(pattern))
    generated.remove(path for path in found if path not in cpp)
    for path, pack in earlier.items():
        if path not in package:
            path.unlink()
            (folder / "build" / "objects" / f"{pack.entry}.o").unlink(missing_ok=True)
    return [built.library, *cpp, *package]


def _state(built: Built, plan: BuildPlan, written: Sequence[Path], *, compressed: bool) -> None:
    """Writes the bill of materials, and last the manifest of all that was written."""
    folder = built.directory
    bill = sbom.sbom(built.library, VERSION, manifest.tools_of(built.packs), compressed=compressed)
    generated.write_if_changed(folder / sbom.NAME, bill)
    sources = {relative_name(str(path)): path for path in source_files(plan)}
    stated = manifest.manifest_of(built.namespace, VERSION, built.packs, sources, folder, [*written, folder / sbom.NAME])
    generated.write_if_changed(folder / manifest.NAME, str(stated))


def source_files(plan: BuildPlan) -> list[Path]:
    """Returns the Python files that a library is made of: those of its ops, and of the functions that their kernels call, the language's left
    out."""
    kernels = [variant.kernel for variant in plan.variants]
    called = [function for binding in bindings_of(kernels) for function in functions_in(binding.value)]
    found = {innermost(function).__code__.co_filename for function in (*kernels, *called)}
    found |= {op.location.file for op in plan.ops}
    return sorted(Path(file) for file in found if not is_of_language(file))


def _earlier_packs(folder: Path) -> dict[Path, KernelPack]:
    """Returns the packs of the library that an earlier build left in a folder: those that its lock file lists, under their own names."""
    try:
        locked = read_lock(folder / "ops.lock").hashes
    except (OSError, PackError):
        return {}
    found = {}
    for path in (folder / "packs").glob("*.kpack"):
        with contextlib.suppress(OSError, PackError):
            pack = read_pack(path)
            if path.name == pack.file_name and locked.get((str(pack.target), pack.variant)) == lock_line(pack).sha256:
                found[path] = pack
    return found


def exported(namespace: str) -> list[str]:
    """Returns the symbols that a library exports, as patterns."""
    of_ops = ("load_error", "schema", "unboxed", "warmup", "last_error")
    of_kernels = ("find_kernel", "launch_*", "load_kernels", "target", "kernels_error")
    return [f"kernelpack_namespace_{namespace}", *(f"{namespace}_{what}" for what in (*of_ops, *of_kernels))]


def _link(built: Built, library: LibraryPlan, unpacks: Sequence[str], jobs: int) -> None:
    """Writes the objects of packs and builds the library; `unpacks` are the static libraries that unpack its images."""
    folder = built.directory / "build"
    cpp = built.directory / "cpp"
    runtime = CSRC
    torch = torch_dir()
    objects: list[str] = []
    for backend in library.backends:
        for pack in linked_packs(library.packs_of(backend)) if library.is_linked(backend) else ():
            generated.write_if_changed(folder / "objects" / f"{pack.entry}.o", pack.image, shared=False)
            objects.append(f"objects/{pack.entry}.o")
    launchers = [file for source in library.launchers for file in source.sources]
    headers = [source.header.parent for source in library.launchers]
    file = NinjaFile(
        list(dict.fromkeys([runtime, *headers, torch / "include"])), [f"TORCH_TARGET_VERSION={TORCH_TARGET_VERSION}"]
    )
    # first what takes longest: a thousand short functions, which more than -O1 does nothing for
    made = [file.compile(cpp / "kernels_c.cpp", "kernels_c", "-O1")]
    made += [file.compile(source, f"runtime/{source.stem}") for source in dict.fromkeys(launchers)]
    made += [file.compile(runtime / "kernels" / "zstd_image.cpp", "runtime/zstd_image")] if unpacks else []
    for backend in library.backends:
        names = [f"kernels_{backend.name}", *([] if library.is_linked(backend) else [f"images_{backend.name}"])]
        made += [file.compile(cpp / f"{name}.cpp", name, "-O0") for name in names]  # tables
    made += [file.compile(source, f"runtime/ops_{source.stem}") for source in sorted((runtime / "ops").glob("*.cpp"))]
    made += [file.compile(cpp / f"op_{plan.host.name}.cpp", f"op_{plan.host.name}") for plan in library.ops]
    made.append(file.compile(cpp / "library.cpp", "library"))
    script = folder / "library.exports"
    generated.write_if_changed(script, version_script(exported(built.namespace)), shared=False)
    flags = " ".join([*map(shlex.quote, unpacks), "-ldl"])
    file.link(built.library, [*made, *objects], script, flags, called=f"{built.namespace}_launch_*")
    run_ninja(file, folder, jobs)
    state_checksum(built.library)
