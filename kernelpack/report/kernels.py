"""Which kernels a report shows: the variants of op files or of a built folder, and the stages of some of them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelpack.errors import BuildError
from kernelpack.opgen.build import plan_library
from kernelpack.opgen.variants.plan import KernelVariant
from kernelpack.opgen.workers.compile import ProgressCallback, compile_stages, compile_variants
from kernelpack.pack.format import KernelPack, read_pack
from kernelpack.report.stages import Staged, stages_of, stages_of_pack
from kernelpack.target import Target


@dataclass(frozen=True)
class Kernels:
    """All kernels as packs, and by entry what compiles them; that is empty where no op files were named."""

    namespace: str
    packs: tuple[KernelPack, ...]
    variants: dict[str, KernelVariant]


def kernels_of_files(
    sources: Sequence[Path], *, namespace: str, targets: Sequence[Target], jobs: int | None, progress: ProgressCallback
) -> Kernels:
    """Returns the kernels that op files compile to. Raises KernelpackError."""
    variants = plan_library(sources, namespace=namespace, targets=targets).variants
    packs, _ = compile_variants(variants, jobs=jobs, progress=progress)
    return Kernels(namespace, tuple(packs.values()), {variant.entry: variant for variant in variants})


def kernels_of_folder(folder: Path, sources: Sequence[Path], targets: Sequence[Target] | None) -> Kernels:
    """Returns the kernels of a folder that `kernelpack build` wrote; `sources` are the op files that it was built from, or none of them.
    Raises BuildError for another folder, and for op files whose kernels are others, PackError for a damaged pack."""
    libraries = sorted(folder.glob("lib*_ops.so"))
    packs = [read_pack(path) for path in sorted((folder / "packs").glob("*.kpack"))]
    if len(libraries) != 1 or not packs:
        raise BuildError(f"{folder} is no folder that kernelpack build wrote", cure="name the folder of a built library")
    namespace = libraries[0].name.removeprefix("lib").removesuffix("_ops.so")
    built = list(dict.fromkeys(pack.target for pack in packs))
    if targets is not None:
        packs = [pack for pack in packs if pack.target in targets]
    if not packs:
        raise BuildError(
            f"{folder} has nothing for {', '.join(map(str, targets or ()))}",
            cure=f"it was built for {', '.join(map(str, built))}",
        )
    kept = list(dict.fromkeys(pack.target for pack in packs))
    variants = plan_library(sources, namespace=namespace, targets=kept).variants if sources else ()
    found = {variant.entry: variant for variant in variants}
    if sources and not any(pack.entry in found for pack in packs):
        raise BuildError(
            f"no kernel of {folder} comes from {' '.join(map(str, sources))}", cure="name the op files that it was built from"
        )
    return Kernels(namespace, tuple(packs), found)


def choose(packs: Sequence[KernelPack], limit: int) -> list[KernelPack]:
    """Returns at most `limit` packs whose stages are shown: one of each kernel before a second of any, the targets in turn, and first those
    that assume something of their arguments, as most calls run them."""
    groups: dict[tuple[str, str], dict[str, list[KernelPack]]] = {}
    for pack in sorted(packs, key=lambda pack: (pack.variant.endswith(".any"), pack.variant)):
        kernel = re.split(r"[-.]", pack.variant, maxsplit=1)[0]
        groups.setdefault((", ".join(pack.ops), kernel), {}).setdefault(str(pack.target), []).append(pack)
    ordered = []
    for number, key in enumerate(sorted(groups)):
        targets = sorted(groups[key])
        first = number % len(targets)  # another target for the next kernel
        ordered.append(_in_turn([groups[key][target] for target in (*targets[first:], *targets[:first])]))
    return _in_turn(ordered)[:limit]


def _in_turn(lists: Sequence[Sequence[KernelPack]]) -> list[KernelPack]:
    """Returns the first of each list, then the second of each, and so on."""
    return [pack for turn in itertools.zip_longest(*lists) for pack in turn if pack is not None]


def staged(kernels: Kernels, packs: Sequence[KernelPack], jobs: int | None, progress: ProgressCallback) -> dict[str, Staged]:
    """Returns the stages of packs by entry: all of them where the op files are known, else machine code. Raises KernelpackError."""
    compiled = compile_stages(
        [kernels.variants[pack.entry] for pack in packs if pack.entry in kernels.variants], jobs=jobs, progress=progress
    )
    found = {}
    for pack in packs:
        kernel = compiled.get(pack.entry)
        if kernel is not None and kernel.image == pack.image:
            found[pack.entry] = stages_of(kernels.variants[pack.entry], kernel)
        else:
            found[pack.entry] = stages_of_pack(pack)
    return found
