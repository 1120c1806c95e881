"""Kernels of the CUDA test cases, compiled on a machine without a GPU and carried to one: `python -m tests.gpu.packs FOLDER`."""

from __future__ import annotations

import argparse
import functools
import hashlib
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

from kernelpack.backends.cuda import CUDABackend
from kernelpack.backends.cuda.assemble.ptx_to_cubin import assemble
from kernelpack.compiled import CompiledKernel
from kernelpack.pack.format import KernelPack, parse_pack
from kernelpack.target import Target
from tests.backends.cuda.cases import cases
from tests.backends.cuda.elementwise import KINDS, Elementwise
from tests.backends.cuda.launch import Case


def jobs() -> dict[str, Callable[[str], CompiledKernel]]:
    """Returns what compiles each kernel for a target, by name."""
    found: dict[str, Callable[[str], CompiledKernel]] = {case.name: functools.partial(_compile, case) for case in cases()}
    return found | {f"elementwise-{kind}": Elementwise(kind).compile for kind in KINDS}


def _compile(case: Case, target: str) -> CompiledKernel:
    return case.launch().compile(target)


def pack_file(folder: Path, name: str) -> Path:
    return folder / f"{hashlib.sha256(name.encode()).hexdigest()[:16]}.kpack"


def write_pack(folder: Path, name: str, target: str, arch: str | None) -> str:
    """Compiles a kernel into the folder and returns what to say about it. PTX images are assembled for `arch`, if given."""
    kernel = jobs()[name](target)
    if arch is not None:
        kernel = replace(kernel, image=assemble(kernel.image.decode().rstrip("\0"), arch).image, image_kind="cubin")
    figures = {name: value for name, value in kernel.metadata.items() if isinstance(value, int)}
    pack = KernelPack(
        ops=(name,), variant=name, target=kernel.target, image_kind=kernel.image_kind, entry=kernel.entry,
        parameters=kernel.parameters, constexprs={}, options=kernel.options, facts=kernel.facts, metadata=figures, tools={},
        image=kernel.image,
    )  # fmt: skip
    pack_file(folder, name).write_text(str(pack))
    return f"{name}: {figures}"


def kernel_of(name: str, folder: Path | None) -> CompiledKernel:
    """Returns the kernel that `write_pack` wrote; without a folder, one that is compiled now for this machine's GPU."""
    if folder is None:
        return jobs()[name](str(CUDABackend().resolve_target(Target("cuda", "native"))))
    file = pack_file(folder, name)
    pack = parse_pack(file.read_text(), str(file))
    return CompiledKernel(
        pack.entry, pack.target, pack.options, pack.parameters, pack.facts, pack.image_kind, pack.image, dict(pack.metadata)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--target", default="cuda:sm_90a")
    parser.add_argument("--assemble", metavar="ARCH", help="with --target cuda:sm_80+ptx: run the code of sm_80 on another GPU")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    names = list(jobs())
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        write = functools.partial(write_pack, arguments.folder, target=arguments.target, arch=arguments.assemble)
        for line in pool.map(write, names, chunksize=4):
            print(line)


if __name__ == "__main__":
    main()
