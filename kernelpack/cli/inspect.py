"""kernelpack inspect: the variants of op files or of a built library, and any stage of their compilation."""

from __future__ import annotations

import argparse
import base64
import itertools
import json
import sys
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from kernelpack.backends.installed import backend_of
from kernelpack.cli import sizes
from kernelpack.cli.build import add_jobs_argument, add_op_argument, add_variant_argument
from kernelpack.cli.targets import add_target_argument, parse_targets, tell_caveats
from kernelpack.cli.terminal import ProgressLine, Style, count, is_terminal, size, table, width
from kernelpack.errors import BuildError
from kernelpack.nearest import did_you_mean
from kernelpack.target import Target

if TYPE_CHECKING:
    from kernelpack.compiled import CompiledKernel
    from kernelpack.opgen.variants.plan import KernelVariant
    from kernelpack.pack.format import KernelPack

PURPOSE = "show the variants of op files or of a built library, or any stage of their compilation"
COLUMNS = {
    "registers": ("regs", "registers of a thread"),
    "spills": ("spills", "bytes of a thread's registers that go to memory"),
    "shared": ("shared", "bytes of shared memory"),
    "num_warps": ("warps", "warps that run a program"),
    "stack": ("stack", "bytes of a thread's stack"),
    "scratch": ("scratch", "bytes of memory in which a CPU keeps the tiles of a program"),
    "waits_at_once": (
        "waits",
        "1 where each product is waited for before the next begins, because the assembler cannot overlap them",
    ),
}
"""Figures by their names in packs: what the table calls them, and what they mean."""
UNUSUAL = ("stack", "scratch", "waits_at_once")
"""Figures that the table leaves out where all are 0."""

_T = TypeVar("_T", "KernelVariant", "KernelPack")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "sources",
        nargs="+",
        type=Path,
        metavar="SOURCE",
        help="files with ops, the folder of a built library, or packs (*.kpack)",
    )
    parser.add_argument(
        "--namespace",
        metavar="NAME",
        default="ops",
        help="the namespace of the build, after which kernels are named (default: ops)",
    )
    add_target_argument(parser, required=False, default=" (default: cpu:native, or all that the library has)")
    add_op_argument(parser)
    add_variant_argument(parser)
    parser.add_argument(
        "--stage",
        metavar="STAGE",
        help="print this stage, of those that the table names: ttir, llir, ptx, sass, asm, ...; images as bytes",
    )
    parser.add_argument("--size", action="store_true", help="say what the bytes of a built library are, by op, target and kind")
    add_jobs_argument(parser)
    meanings = "; ".join(f"{head}: {meaning}" for head, meaning in COLUMNS.values())
    parser.epilog = f"Columns of the table: size: bytes of the image; {meanings}."


def run(arguments: argparse.Namespace) -> int:
    if arguments.size:
        return sizes.run(arguments)
    tell_caveats(parse_targets(arguments.target or []))
    if arguments.stage is None:
        packs = _packs(arguments)
        from_packs = _pack_files(arguments.sources) is not None
        print(json.dumps([_record(pack) for pack in packs], indent=1) if arguments.json else _text(packs, from_packs))
        return 0
    kernels = _kernels(arguments)
    if arguments.json:
        print(json.dumps([_stage_record(name, kernel, arguments.stage) for name, kernel in kernels], indent=1))
    else:
        _print_stage(kernels, arguments.stage)
    return 0


# -- which kernels ----------------------------------------------------------------------------------------------------------


def _packs(arguments: argparse.Namespace) -> list[KernelPack]:
    files = _pack_files(arguments.sources)
    if files is not None:
        return _read(files, arguments)
    from kernelpack.opgen.workers.compile import compile_variants

    variants = _variants(arguments)
    with ProgressLine() as progress:
        packs, _ = compile_variants(variants, jobs=arguments.jobs, progress=progress)
    return list(packs.values())


def _kernels(arguments: argparse.Namespace) -> list[tuple[str, CompiledKernel]]:
    """Returns the kernels that have the stage, by name."""
    from kernelpack.compiled import CompiledKernel
    from kernelpack.opgen.workers.compile import compile_stages

    files = _pack_files(arguments.sources)
    if files is not None:
        packs = _with_stage(_read(files, arguments), arguments.stage, from_packs=True)
        return [
            (
                pack.variant,
                CompiledKernel(
                    pack.symbol, pack.target, pack.options, pack.parameters, pack.facts, pack.image_kind, pack.image
                ),
            )
            for pack in packs
        ]
    variants = _with_stage(_variants(arguments), arguments.stage, from_packs=False)
    with ProgressLine() as progress:
        kernels = compile_stages(variants, until=arguments.stage, jobs=arguments.jobs, progress=progress)
    return [(variant.name, kernels[variant.entry]) for variant in variants]


def _pack_files(sources: Sequence[Path]) -> list[Path] | None:
    """Returns the packs that the sources are or hold; None if they are op files."""
    if all(source.suffix == ".kpack" for source in sources):
        return list(sources)
    folders = [source / "packs" for source in sources if (source / "packs").is_dir()]
    if len(folders) == len(sources):
        return sorted(file for folder in folders for file in folder.glob("*.kpack"))
    if folders:
        raise BuildError("built libraries and other sources are inspected apart", cure="name one kind of them")
    for source in sources:
        if list(source.glob("lib*_ops.so")):
            raise BuildError(
                f"{source} holds a library without its packs",
                cure="name the folder that kernelpack build wrote, or the op files",
            )
    return None


def _read(files: Sequence[Path], arguments: argparse.Namespace) -> list[KernelPack]:
    from kernelpack.pack.format import read_pack

    for file in files:
        if not file.is_file():
            cure = "name op files, packs, or the folder that kernelpack build wrote"
            raise BuildError(f"{file} does not exist", cure=cure)
    packs = [read_pack(file) for file in files]
    return select(packs, arguments, parse_targets(arguments.target) if arguments.target else None)


def _variants(arguments: argparse.Namespace) -> list[KernelVariant]:
    from kernelpack.opgen.build import plan_library

    targets = parse_targets(arguments.target or ["cpu:native"])
    plan = plan_library(arguments.sources, namespace=arguments.namespace, targets=targets)
    return select(plan.variants, arguments, None)


def _name(item: Any) -> str:
    name: str = item.variant if hasattr(item, "variant") else item.name
    return name


def select(items: Iterable[_T], arguments: argparse.Namespace, targets: list[Target] | None) -> list[_T]:
    """Returns the variants that --op, --variant and --target name. Raises BuildError, with the nearest, if there are none."""
    from kernelpack.opgen.sources import check_op_names

    found = list(items)
    if arguments.op:
        check_op_names(arguments.op, itertools.chain.from_iterable(item.ops for item in found))
        found = [item for item in found if not {*arguments.op}.isdisjoint(item.ops)]
    if targets is not None:
        built = sorted({str(item.target) for item in found})
        found = [item for item in found if item.target in targets]
        if not found:
            raise BuildError(
                f"the library has nothing for {', '.join(map(str, targets))}", cure=f"it was built for {', '.join(built)}"
            )
    if arguments.variant is not None:
        names = [_name(item) for item in found]
        found = [item for item in found if _matches(_name(item), arguments.variant)]
        if not found:
            raise BuildError(
                f"no variant has {arguments.variant!r} in its name{did_you_mean(arguments.variant, names)}",
                cure="inspect without --variant lists them",
            )
    return sorted(found, key=lambda item: (str(item.target), _name(item)))


def _matches(name: str, pattern: str) -> bool:
    return pattern in name or fnmatchcase(name, pattern)


# -- stages -----------------------------------------------------------------------------------------------------------------


def stage_names(target: Target, from_packs: bool) -> list[str]:
    """Returns the stages of a target in order: ttir, the backend's own, and the image as text. Packs have the image alone."""
    from kernelpack.options import Options

    backend = backend_of(target)
    return [
        *([backend.image_kind] if from_packs else ["ttir", *backend.stages(target, Options()), *backend.notes]),
        backend.machine_code,
    ]


def _with_stage(items: list[_T], stage: str, *, from_packs: bool) -> list[_T]:
    known: dict[str, list[str]] = {}
    for item in items:
        known[item.target.backend] = stage_names(item.target, from_packs)
    found = [item for item in items if stage in known[item.target.backend]]
    if not found:
        every = list(dict.fromkeys(name for names in known.values() for name in names))
        lists = "; ".join(f"{backend} has {', '.join(names)}" for backend, names in known.items())
        more = "; packs hold images alone, the other stages need the op files" if from_packs else ""
        raise BuildError(f"there is no stage {stage!r}{did_you_mean(stage, every)}", cure=f"{lists}{more}")
    return found


def _stage_value(kernel: CompiledKernel, stage: str) -> str | bytes:
    backend = backend_of(kernel.target)
    if stage == backend.machine_code:
        return backend.disassemble(kernel)
    value: str | bytes = kernel.image if stage == backend.image_kind else kernel.stages[stage]
    return value


def _stage_record(name: str, kernel: CompiledKernel, stage: str) -> dict[str, Any]:
    value = _stage_value(kernel, stage)
    content = {"text": value} if isinstance(value, str) else {"base64": base64.b64encode(value).decode()}
    return {"variant": name, "target": str(kernel.target), "stage": stage, **content}


def _print_stage(kernels: list[tuple[str, CompiledKernel]], stage: str) -> None:
    style = Style(sys.stdout)
    for name, kernel in kernels:
        value = _stage_value(kernel, stage)
        if isinstance(value, bytes):
            if len(kernels) > 1 or is_terminal(sys.stdout):
                those = f", and {len(kernels)} kernels have it" if len(kernels) > 1 else ""
                raise BuildError(
                    f"{stage} is binary{those}",
                    cure=f"write one to a file: --variant {name} --target {kernel.target} > kernel.{stage}; or use --json",
                )
            sys.stdout.buffer.write(value)
            return
        if len(kernels) > 1:
            print(style.bold(f"==== {name} for {kernel.target}: {stage}"))
        print(value.rstrip("\n"))


# -- the table --------------------------------------------------------------------------------------------------------------


def _record(pack: KernelPack) -> dict[str, Any]:
    return {
        "ops": list(pack.ops),
        "variant": pack.variant,
        "target": str(pack.target),
        "entry": pack.entry,
        "image_kind": pack.image_kind,
        "caveat": backend_of(pack.target).caveat(pack.target),
        "bytes": len(pack.image),
        "parameters": [f"{parameter.name}: {parameter.type}" for parameter in pack.parameters],
        "constexprs": dict(pack.constexprs),
        "options": vars(pack.options),
        "facts": [str(fact) for fact in pack.facts],
        "figures": dict(pack.metadata),
        "tools": dict(pack.tools),
    }


def _text(packs: Sequence[KernelPack], from_packs: bool) -> str:
    style = Style(sys.stdout)
    if len(packs) == 1:
        return "\n".join([*packs[0].header(), "", _stages_line([packs[0].target], from_packs)])
    lines: list[str] = []
    for target in dict.fromkeys(pack.target for pack in packs):
        group = [pack for pack in packs if pack.target == target]
        total = size(sum(len(pack.image) for pack in group))
        columns = [name for name in COLUMNS if _worth_showing(name, group)]
        rows = [
            [pack.variant, size(len(pack.image)), *(str(pack.metadata.get(name, "")) for name in columns)] for pack in group
        ]
        body = table(["variant", "size", *(COLUMNS[name][0] for name in columns)], rows, columns=width(sys.stdout))
        lines += [f"{style.bold(str(target))}  {count(len(group), 'kernel')}, {total}", style.dim(body[0]), *body[1:], ""]
    return "\n".join([*lines, _stages_line([pack.target for pack in packs], from_packs)])


def _worth_showing(figure: str, packs: Sequence[KernelPack]) -> bool:
    values = [pack.metadata[figure] for pack in packs if figure in pack.metadata]
    return any(values) if figure in UNUSUAL else bool(values)


def _stages_line(targets: Iterable[Target], from_packs: bool) -> str:
    style = Style(sys.stdout)
    first = {target.backend: target for target in reversed(list(targets))}
    lines = [f"  {name}: {', '.join(stage_names(target, from_packs))}" for name, target in sorted(first.items())]
    return "\n".join([style.dim("stages, for --variant NAME --stage STAGE:"), *lines])
