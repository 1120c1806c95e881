"""Compiles the variants of a library in parallel processes, or takes them from earlier builds."""

from __future__ import annotations

import functools
import hashlib
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelpack import knobs
from kernelpack.backends.installed import backend_of
from kernelpack.compiled import CompiledKernel
from kernelpack.compiler.source_hash import source_hash
from kernelpack.dtypes import DType
from kernelpack.errors import KernelpackError, PackError
from kernelpack.files.cache import CacheFolder
from kernelpack.frontend.ast_to_ttir import ast_to_ttir
from kernelpack.ir.core import Operation
from kernelpack.kernel.dependencies import decisive_lines
from kernelpack.kernel.jit import JITFunction
from kernelpack.kernel.signatures import parse_type
from kernelpack.opgen.host.ir import Parts
from kernelpack.opgen.stated.kernels import kernel_parameters
from kernelpack.opgen.variants.plan import KernelVariant
from kernelpack.opgen.variants.read_only import check_stores
from kernelpack.opgen.workers.worker import CompileJob, compile_all
from kernelpack.options import FRONT_END_OPTIONS
from kernelpack.pack.format import KernelPack, parse_pack
from kernelpack.version import VERSION


@dataclass(frozen=True)
class Progress:
    """Where a build is: `done` of `total` kernels, `what` was finished last, `seconds` since the start."""

    done: int
    total: int
    what: str
    seconds: float


ProgressCallback = Callable[[Progress], None]


def compile_variants(
    variants: Sequence[KernelVariant],
    *,
    jobs: int | None = None,
    progress: ProgressCallback | None = None,
    cache: bool = True,
    failures: dict[str, KernelpackError] | None = None,
) -> tuple[dict[str, KernelPack], tuple[str, ...]]:
    """Returns the packs by entry, and the names of the kernels that were compiled now. Raises the first error, by name; with
    `failures`, errors are put there by entry instead.

    A specialised variant whose code is that of the plain one is left out: its assumptions made no difference. With `cache`
    False every kernel is compiled; later builds may still take them from the cache.
    """
    # keys do not say what plain globals hold
    store = _Store(None if knobs.compilation.allow_non_constexpr_globals else knobs.cache_dir())
    keys = {variant.entry: store.key(variant) for variant in variants}
    packs = {entry: found for entry, key in keys.items() if cache and (found := store.load(key)) is not None}
    missing = [variant for variant in variants if variant.entry not in packs]
    by_name = {variant.entry: variant for variant in missing}

    def keep(entry: str, kernel: CompiledKernel) -> None:
        packs[entry] = _pack(by_name[entry], kernel)
        store.save(keys[entry], packs[entry])

    _compile(missing, len(variants), keep, jobs, progress, failures=failures)
    kept = {
        variant.entry: packs[variant.entry]
        for variant in variants
        if variant.entry in packs and not _is_repetition(variant, packs)
    }
    return kept, tuple(f"{variant.name} for {variant.target}" for variant in missing if variant.entry in kept)


def compile_stages(
    variants: Sequence[KernelVariant],
    *,
    until: str | None = None,
    jobs: int | None = None,
    progress: ProgressCallback | None = None,
) -> dict[str, CompiledKernel]:
    """Returns the kernels by entry, each with the value of every stage, up to `until` where a backend has that stage: what comes after
    needs tools that may be missing. Raises the first error, by name."""
    kernels: dict[str, CompiledKernel] = {}
    _compile(variants, len(variants), kernels.__setitem__, jobs, progress, keep_stages=True, until=until)
    return {variant.entry: kernels[variant.entry] for variant in variants}


def _compile(
    missing: Sequence[KernelVariant],
    total: int,
    keep: Callable[[str, CompiledKernel], None],
    jobs: int | None,
    progress: ProgressCallback | None,
    keep_stages: bool = False,
    until: str | None = None,
    failures: dict[str, KernelpackError] | None = None,
) -> None:
    """Compiles variants and hands each kernel over as soon as it is there, so that a build that breaks off loses little."""
    started = time.monotonic()
    finished = total - len(missing)
    if progress is not None and finished:
        progress(Progress(finished, total, "kernels from the cache", 0.0))

    def done(job: CompileJob, result: Any) -> None:
        nonlocal finished
        finished += 1
        if not isinstance(result, BaseException):
            keep(job.entry, result)
        if progress is not None:
            progress(Progress(finished, total, f"{job.name} for {job.target}", time.monotonic() - started))

    groups: dict[Hashable, list[KernelVariant]] = {}
    for variant in missing:
        groups.setdefault(_meaning(variant), []).append(variant)
    compile_jobs = [job for group in groups.values() for job in _jobs(group, keep_stages, until)]
    compiled = compile_all(compile_jobs, min(jobs or knobs.jobs(), len(missing)), done)
    results = dict(zip((variant.entry for group in groups.values() for variant in group), compiled, strict=True))
    for variant in missing:
        result = results[variant.entry]
        if isinstance(result, KernelpackError):
            result.message = f"{variant.name} for {variant.target}: {result.message}"
            if failures is not None:
                failures[variant.entry] = result
                continue
        if isinstance(result, BaseException):
            raise result


def _is_repetition(variant: KernelVariant, packs: dict[str, KernelPack]) -> bool:
    """Whether a specialised variant compiled to the code of the variant that assumes nothing, where that was asked for too."""
    if variant.plain not in packs or variant.constants:
        return False
    code = packs[variant.entry].code_sha256
    return code != "" and code == packs[variant.plain].code_sha256


def _meaning(variant: KernelVariant) -> Hashable:
    """Returns what the front end makes ttir of: variants for several targets may share it."""
    constexprs = repr(list(variant.constexprs.items()))
    read = [getattr(variant.options, name) for name in FRONT_END_OPTIONS]
    nested = repr(variant.parts)
    return id(variant.kernel), tuple(variant.signature.items()), constexprs, nested, variant.facts, variant.read_only, *read


def _jobs(group: Sequence[KernelVariant], keep_stages: bool, until: str | None) -> list[CompileJob]:
    """Returns jobs that run the front end once for variants that mean the same."""
    make_ttir = functools.partial(ttir_of, group[0])
    return [
        CompileJob(
            variant.name,
            variant.entry,
            make_ttir,
            variant.target,
            variant.options,
            variant.facts,
            variant.apart,
            keep_stages,
            until,
        )
        for variant in group
    ]


def ttir_of(variant: KernelVariant) -> Operation:
    """Returns what the front end makes of a variant's kernel. What the kernel is called is left to each job."""
    signature, constexprs = _nested(variant)
    module = ast_to_ttir(
        variant.kernel,
        signature,
        constexprs,
        variant.facts,
        variant.options,
        any_warps=True,
        plain_globals=knobs.compilation.allow_non_constexpr_globals,
    )
    check_stores(module, variant.read_only)
    return module


def _nested(variant: KernelVariant) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the types and the compile-time values of a kernel's parameters as the front end takes them: tuples are tuples of types, and
    values in them are named by their place (`strides.0`); classes of named ones are values, too."""
    constexprs = {name: _language_value(value) for name, value in variant.constexprs.items()}
    signature: dict[str, Any] = dict(variant.signature)

    def nest(path: str, part: str | Parts) -> Any:
        if isinstance(part, Parts):
            if part.of is not None:
                constexprs[path] = part.of
            return tuple(nest(f"{path}.{number}", entry) for number, entry in enumerate(part.entries))
        if part in signature:
            return signature.pop(part)
        constexprs[path] = constexprs.pop(part)
        return "constexpr"

    nested = {parameter.name: variant.parts.get(parameter.name) for parameter in kernel_parameters(variant.kernel)}
    types = {name: nest(name, parts) for name, parts in nested.items() if parts is not None}
    return {name: {**signature, **types}[name] for name in nested if name in signature or name in types}, constexprs


def _language_value(value: Any) -> Any:
    if isinstance(value, DType):
        return parse_type(value.language)
    return value


def _pack(variant: KernelVariant, kernel: CompiledKernel) -> KernelPack:
    figures = {name: int(value) if isinstance(value, bool) else value for name, value in kernel.metadata.items()}
    return KernelPack(
        ops=variant.ops,
        variant=variant.name,
        target=kernel.target,
        image_kind=kernel.image_kind,
        entry=variant.entry,
        parameters=kernel.parameters,
        constexprs={name: _constexpr_text(value) for name, value in variant.constexprs.items()},
        options=kernel.options,
        facts=tuple(sorted({*kernel.facts, *variant.constants})),
        metadata={name: value for name, value in figures.items() if isinstance(value, (int, float))},
        tools={"kernelpack": VERSION, **backend_of(kernel.target).tool_versions()},
        code_sha256=kernel.code_sha256,
        descriptors=kernel.descriptors,
        code_of=kernel.entry if kernel.entry != variant.entry else "",
        image=kernel.image,
    )


def _constexpr_text(value: Any) -> str:
    return f"tl.{value.name}" if isinstance(value, DType) else repr(value)


class _Store:
    """Packs of earlier builds, by everything that decides their bytes."""

    def __init__(self, directory: Path | None) -> None:
        self.folder = CacheFolder(directory) if directory is not None else None
        self.compiler = _compiler_hash() if directory is not None else ""
        self.sources: dict[tuple[JITFunction, bool, bool, bool], tuple[str, str]] = {}

    def key(self, variant: KernelVariant) -> str:
        """Returns the name of the file in which a variant's pack is kept."""
        if self.folder is None:
            return ""
        backend = backend_of(variant.target)
        place = variant.kernel, backend.line_information, variant.options.debug, variant.options.checked
        if place not in self.sources:
            lines = decisive_lines(variant.kernel, backend.line_information, variant.options)
            self.sources[place] = variant.kernel.cache_key, lines
        source, lines = self.sources[place]
        parts = [
            self.compiler,
            backend.cache_key(),
            source,
            lines,
            repr((variant.ops, variant.name, variant.entry, str(variant.target), list(variant.signature.items()))),
            repr((list(variant.constexprs.items()), variant.parts, variant.options, variant.assumed)),
            *map(str, variant.apart),
            repr([(one.parameter, one.argument) for one in variant.read_only]),
        ]
        name = hashlib.sha256("\0".join(parts).encode()).hexdigest()
        return f"packs/{name[:2]}/{name}.kpack"

    def load(self, key: str) -> KernelPack | None:
        data = None if self.folder is None else self.folder.read(key)
        try:
            return None if data is None else parse_pack(data.decode(), key)
        except (UnicodeDecodeError, PackError):  # cut short by a full disk: compile again
            return None

    def save(self, key: str, pack: KernelPack) -> None:
        if self.folder is not None:
            self.folder.keep(key, str(pack).encode())


def _compiler_hash() -> str:
    """Returns the hash of what makes packs."""
    return source_hash("pack/format.py", "opgen/workers/compile.py", "opgen/workers/worker.py")
