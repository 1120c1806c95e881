"""Builds an op library: plans its variants, compiles them in parallel, writes packs, C++ and the Python package, links."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import kernelpack
from kernelpack import knobs
from kernelpack.backends.base import CSRC, Backend, Fact, backend_of
from kernelpack.compiler import CompiledKernel
from kernelpack.errors import BuildError, CompilationError, KernelpackError, PackError, SchemaError
from kernelpack.frontend.ast_to_ttir import ast_to_ttir
from kernelpack.ir.core import entry_function
from kernelpack.ir.text import print_op
from kernelpack.opgen.dtypes import DType
from kernelpack.opgen.emit import LibraryPlan, library_files
from kernelpack.opgen.op import Op
from kernelpack.opgen.package import package_files
from kernelpack.opgen.sources import find_ops
from kernelpack.opgen.variants import KernelVariant, OpPlan, Planner
from kernelpack.opgen.worker import CompileJob, compile_all, compile_job
from kernelpack.pack.format import KernelPack, parse_pack
from kernelpack.pack.lock import differences, lock_line, lock_text, parse_lock
from kernelpack.pack.ninja import TORCH_TARGET_VERSION, NinjaFile, run_ninja, torch_dir, version_script, write_if_changed
from kernelpack.target import Target


@dataclass(frozen=True)
class Progress:
    """Where a build is: `done` of `total` kernels, `what` was finished last, `seconds` since the start."""

    done: int
    total: int
    what: str
    seconds: float


@dataclass(frozen=True)
class Built:
    """What a build made. `compiled` kernels were compiled now, the other packs came from the cache."""

    namespace: str
    directory: Path
    library: Path
    kernels_library: Path
    packs: tuple[KernelPack, ...]
    compiled: tuple[str, ...]
    seconds: float


@dataclass(frozen=True)
class Verified:
    """What `verify` found: the packs it compiled anew, and what differs from the lock file, a sentence each."""

    lock: Path
    packs: tuple[KernelPack, ...]
    differences: tuple[str, ...]
    seconds: float


@dataclass(frozen=True)
class Plan:
    """The ops of a library with all their variants, before anything is compiled."""

    namespace: str
    ops: tuple[Op, ...]
    op_plans: tuple[OpPlan, ...]
    targets: tuple[tuple[Target, Backend], ...]
    variants: tuple[KernelVariant, ...]
    build_command: str


ProgressCallback = Callable[[Progress], None]


def plan_library(sources: Sequence[Path | str], *, namespace: str, targets: Iterable[Target | str]) -> Plan:
    """Imports op files and plans every variant for every target. Raises KernelpackError with file and line."""
    if not namespace.isidentifier() or not namespace.isascii():
        raise SchemaError(f"namespace {namespace!r} is no identifier", cure="write --namespace my_ops")
    asked = [Target.parse(target) if isinstance(target, str) else target for target in targets]
    resolved = dict.fromkeys(backend_of(target).resolve_target(target) for target in asked)
    if not resolved:
        raise BuildError("no target was given", cure="write --target cpu:native")
    pairs = tuple((target, backend_of(target)) for target in resolved)
    keys = {backend.dispatch_key: backend.name for _, backend in pairs}
    for _, backend in pairs:
        if keys[backend.dispatch_key] != backend.name:
            raise BuildError(
                f"backends {keys[backend.dispatch_key]} and {backend.name} both serve {backend.dispatch_key} tensors"
            )
    paths = [Path(source) for source in sources]
    ops = find_ops(paths, namespace)
    planner = Planner(namespace, pairs)
    op_plans = tuple(planner.plan(op.host, op.space, op.configs, op.specialize, op.location) for op in ops)
    variants = tuple(sorted(planner.variants.values(), key=lambda variant: (str(variant.target), variant.name)))
    files = " ".join(path.name for path in paths)
    command = " ".join([f"kernelpack build {files} --namespace {namespace}", *(f"--target {target}" for target in resolved)])
    return Plan(namespace, tuple(ops), op_plans, pairs, variants, command)


def build(
    sources: Sequence[Path | str],
    *,
    namespace: str,
    targets: Iterable[Target | str],
    out: Path | str | None = None,
    jobs: int | None = None,
    progress: ProgressCallback | None = None,
    cache: bool = True,
) -> Built:
    """Builds `lib<namespace>_ops.so` and the Python package around it in the folder `out` (default: ./<namespace>).

    `jobs` processes compile (default: one for each CPU); `progress` is called after each kernel. With `cache` False nothing
    is taken from earlier builds. Raises KernelpackError.
    """
    started = time.monotonic()
    plan = plan_library(sources, namespace=namespace, targets=targets)
    directory = Path(out if out is not None else namespace).resolve()
    packs, compiled = compile_variants(plan.variants, jobs=jobs, progress=progress, cache=cache)
    library = _library_plan(plan, packs)
    built = Built(
        namespace,
        directory,
        directory / f"lib{namespace}_ops.so",
        directory / f"lib{namespace}_kernels.so",
        tuple(packs.values()),
        compiled,
        0.0,
    )
    _write(built, library, plan)
    _link(built, library, jobs or knobs.jobs())
    return Built(**{**vars(built), "seconds": time.monotonic() - started})


def verify(
    sources: Sequence[Path | str],
    *,
    namespace: str,
    targets: Iterable[Target | str] | None = None,
    out: Path | str | None = None,
    lock: Path | str | None = None,
    jobs: int | None = None,
    progress: ProgressCallback | None = None,
) -> Verified:
    """Compiles every kernel anew, without caches, and says what differs from a lock file.

    `targets` are those of the lock file if not given. `lock` names a lock file that is kept with the sources; without it, it is
    that of the library in `out` (default: ./<namespace>), whose packs are compared too. Raises KernelpackError.
    """
    started = time.monotonic()
    directory = Path(out if out is not None else namespace).resolve()
    file = directory / "ops.lock" if lock is None else Path(lock)
    if not file.is_file():
        raise PackError(f"{file} does not exist", cure="build the library first: kernelpack build")
    locked = parse_lock(file.read_text(), str(file))
    asked = list(targets) if targets is not None else sorted({target for target, _ in locked})
    plan = plan_library(sources, namespace=namespace, targets=asked)
    packs, _ = compile_variants(plan.variants, jobs=jobs, progress=progress, cache=False)
    made = {(line.target, line.variant): line.sha256 for line in map(lock_line, packs.values())}
    found = differences(locked, made)
    for pack in packs.values() if lock is None else ():
        path = directory / "packs" / pack.file_name
        if not path.is_file():
            found.append(f"{path} does not exist")
        elif path.read_text() != str(pack) and locked.get((str(pack.target), pack.variant)) == lock_line(pack).sha256:
            found.append(f"{path} was altered: it is not what the lock file states")
    return Verified(file, tuple(packs.values()), tuple(found), time.monotonic() - started)


# -- compiling --------------------------------------------------------------------------------------------------------------


def compile_variants(
    variants: Sequence[KernelVariant], *, jobs: int | None = None, progress: ProgressCallback | None = None, cache: bool = True
) -> tuple[dict[str, KernelPack], tuple[str, ...]]:
    """Returns the packs by entry, and the names of the kernels that were compiled now. Raises the first error, by name."""
    started = time.monotonic()
    store = _Store(knobs.cache_dir() if cache else None)
    keys = {variant.entry: store.key(variant) for variant in variants}
    packs: dict[str, KernelPack] = {}
    missing: list[KernelVariant] = []
    for variant in variants:
        found = store.load(keys[variant.entry])
        if found is None:
            missing.append(variant)
        else:
            packs[variant.entry] = found
    finished = len(packs)

    def done(job: CompileJob) -> None:
        nonlocal finished
        finished += 1
        if progress is not None:
            progress(Progress(finished, len(variants), f"{job.name} for {job.target}", time.monotonic() - started))

    if progress is not None and packs:
        progress(Progress(finished, len(variants), "kernels from the cache", time.monotonic() - started))
    results = compile_all([_job(variant) for variant in missing], jobs or knobs.jobs(), done)
    for variant, result in zip(missing, results, strict=True):
        if isinstance(result, BaseException):
            raise _located(variant, result)
        packs[variant.entry] = _pack(variant, result)
        store.save(keys[variant.entry], packs[variant.entry])
    ordered = {variant.entry: packs[variant.entry] for variant in variants}
    return ordered, tuple(f"{variant.name} for {variant.target}" for variant in missing)


def compile_stages(
    variants: Sequence[KernelVariant], *, jobs: int | None = None, progress: ProgressCallback | None = None
) -> dict[str, CompiledKernel]:
    """Returns the kernels by entry, each with the value of every stage. Raises the first error, by name."""
    started = time.monotonic()
    finished = 0

    def done(job: CompileJob) -> None:
        nonlocal finished
        finished += 1
        if progress is not None:
            progress(Progress(finished, len(variants), f"{job.name} for {job.target}", time.monotonic() - started))

    compile_jobs = [replace(_job(variant), keep_stages=True) for variant in variants]
    results = compile_all(compile_jobs, jobs or knobs.jobs(), done)
    for variant, result in zip(variants, results, strict=True):
        if isinstance(result, BaseException):
            raise _located(variant, result)
    return {variant.entry: result for variant, result in zip(variants, results, strict=True)}


def _module(variant: KernelVariant) -> Any:
    """Runs the front end and names the kernel's symbol."""
    constexprs = {name: _language_value(value) for name, value in variant.constexprs.items()}
    facts = tuple(fact for fact in variant.facts if fact not in variant.ones)
    module = ast_to_ttir(variant.kernel, dict(variant.signature), constexprs, facts)
    entry_function(module).attributes["sym_name"] = variant.entry
    return module


def _language_value(value: Any) -> Any:
    if isinstance(value, DType):
        from kernelpack.language.types import parse_type

        return parse_type(value.language)
    return value


def _job(variant: KernelVariant) -> CompileJob:
    """The ttir travels without source locations: equal kernels compile to equal bytes wherever their text stands."""
    facts = tuple(fact for fact in variant.facts if fact not in variant.ones)
    return CompileJob(variant.name, print_op(_module(variant)), variant.target, variant.options, facts)


def _located(variant: KernelVariant, error: BaseException) -> BaseException:
    """Returns an error of a worker with the user's line, found by compiling once more with locations in this process."""
    if not isinstance(error, CompilationError) or error.location is not None:
        return error
    try:
        facts = tuple(fact for fact in variant.facts if fact not in variant.ones)
        compile_job(
            CompileJob(variant.name, print_op(_module(variant), locations=True), variant.target, variant.options, facts)
        )
    except KernelpackError as located:
        return located
    return error


def _pack(variant: KernelVariant, kernel: CompiledKernel) -> KernelPack:
    figures = {name: int(value) if isinstance(value, bool) else value for name, value in kernel.metadata.items()}
    return KernelPack(
        op=variant.op,
        variant=variant.name,
        target=kernel.target,
        image_kind=kernel.image_kind,
        entry=kernel.entry,
        parameters=kernel.parameters,
        constexprs={name: _constexpr_text(value) for name, value in variant.constexprs.items()},
        options=kernel.options,
        facts=tuple(sorted({*kernel.facts, *variant.ones})),
        metadata={name: value for name, value in figures.items() if isinstance(value, (int, float))},
        tools={"kernelpack": kernelpack.__version__, **backend_of(kernel.target).tool_versions()},
        image=kernel.image,
    )


def _constexpr_text(value: Any) -> str:
    return f"tl.{value.name}" if isinstance(value, DType) else repr(value)


class _Store:
    """Packs of earlier builds, by everything that decides their bytes."""

    def __init__(self, directory: Path | None) -> None:
        self.directory = directory / "packs" if directory is not None else None
        self.compiler = _compiler_hash() if directory is not None else ""

    def key(self, variant: KernelVariant) -> str:
        facts: tuple[Fact, ...] = variant.facts
        parts = [
            self.compiler,
            json.dumps(dict(backend_of(variant.target).tool_versions()), sort_keys=True),
            variant.kernel.cache_key if self.directory is not None else "",
            repr((variant.op, variant.name, variant.entry, str(variant.target), sorted(variant.signature.items()))),
            repr((list(variant.constexprs.items()), variant.options, facts)),
        ]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def load(self, key: str) -> KernelPack | None:
        if self.directory is None:
            return None
        path = self.directory / key[:2] / f"{key}.kpack"
        try:
            return parse_pack(path.read_text(), str(path))
        except (OSError, PackError, UnicodeDecodeError):  # missing, or cut short by a full disk: compile again
            return None

    def save(self, key: str, pack: KernelPack) -> None:
        if self.directory is None:
            return
        path = self.directory / key[:2] / f"{key}.kpack"
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{time.monotonic_ns()}")
        partial.write_text(str(pack))
        partial.replace(path)  # whole or not at all, also with several builds at once


def _compiler_hash() -> str:
    """Returns the hash of the compiler's own source: a changed compiler compiles everything anew."""
    root = Path(kernelpack.__file__).parent
    rooms = ("frontend", "language", "ir", "passes", "analysis", "layout", "llvm", "backends")
    files = [path for room in rooms for path in sorted((root / room).rglob("*.py"))]
    digest = hashlib.sha256()
    for path in [*files, root / "compiler.py", root / "target.py", Path(__file__).parents[1] / "pack" / "format.py"]:
        digest.update(path.relative_to(root).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


# -- writing and linking ----------------------------------------------------------------------------------------------------


def _library_plan(plan: Plan, packs: dict[str, KernelPack]) -> LibraryPlan:
    targets: dict[str, tuple[Target, ...]] = {}
    for target, backend in plan.targets:
        targets[backend.name] = (*targets.get(backend.name, ()), target)
    backends = tuple(dict.fromkeys(backend for _, backend in plan.targets))
    return LibraryPlan(plan.namespace, kernelpack.__version__, plan.build_command, plan.op_plans, backends, targets, packs)


def _write(built: Built, library: LibraryPlan, plan: Plan) -> None:
    """Writes packs, lock file, C++ and Python; removes those of variants and ops that no longer exist."""
    wanted: dict[Path, str] = {built.directory / "ops.lock": lock_text(built.packs)}
    wanted |= {built.directory / "packs" / pack.file_name: str(pack) for pack in built.packs}
    wanted |= {built.directory / "cpp" / name: text for name, text in library_files(library).items()}
    wanted |= {built.directory / name: text for name, text in package_files(library).items()}
    for path, text in wanted.items():
        write_if_changed(path, text)
    for pattern in ("packs/*.kpack", "cpp/*.cpp", "cpp/*.h"):
        for path in built.directory.glob(pattern):
            if path not in wanted:
                path.unlink()


def _link(built: Built, library: LibraryPlan, jobs: int) -> None:
    """Writes the objects of packs and builds both libraries."""
    folder = built.directory / "build"
    generated = built.directory / "cpp"
    runtime = CSRC
    torch = torch_dir()
    objects: list[str] = []
    for pack in built.packs:
        if pack.image_kind == "object":
            write_if_changed(folder / "objects" / f"{pack.entry}.o", pack.image)
            objects.append(f"objects/{pack.entry}.o")
    for stale in (folder / "objects").glob("*.o"):
        if f"objects/{stale.name}" not in objects:
            stale.unlink()
    launchers = [source for backend in library.backends for source in backend.launcher_sources]
    headers = [backend.launcher_header.parent for backend in library.backends]
    file = NinjaFile(
        list(dict.fromkeys([generated, runtime, *headers, torch / "include"])), [f"TORCH_TARGET_VERSION={TORCH_TARGET_VERSION}"]
    )
    kernels = [file.compile(source, f"runtime/{source.stem}") for source in dict.fromkeys(launchers)]
    kernels += [
        file.compile(generated / f"kernels_{backend.name}.cpp", f"kernels_{backend.name}") for backend in library.backends
    ]
    ops = [file.compile(source, f"runtime/ops_{source.stem}") for source in sorted((runtime / "ops").glob("*.cpp"))]
    ops += [file.compile(generated / f"op_{plan.host.name}.cpp", f"op_{plan.host.name}") for plan in library.ops]
    ops.append(file.compile(generated / "library.cpp", "library"))
    c_entries = file.compile(generated / "kernels_c.cpp", "kernels_c")
    name = built.namespace
    exports = {
        "ops": [f"kernelpack_namespace_{name}", f"{name}_load_error", f"{name}_warmup", f"{name}_last_error"],
        "kernels": [f"{name}_find_kernel", f"{name}_launch_kernel", f"{name}_kernels_error"],
    }
    scripts = {key: folder / f"{key}.exports" for key in exports}
    for key, script in scripts.items():
        write_if_changed(script, version_script(exports[key]))
    file.link(built.library, [*ops, *kernels, *objects], scripts["ops"], f"-L{torch / 'lib'} -ltorch_cpu -ldl")
    file.link(built.kernels_library, [c_entries, *kernels, *objects], scripts["kernels"], "-ldl")
    run_ninja(file, folder, jobs)
