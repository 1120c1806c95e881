"""Kernels of the CUDA test cases, compiled on a machine without a GPU and carried to one: `python -m tests.gpu.packs FOLDER`."""

from __future__ import annotations

import argparse
import hashlib
import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from kernelpack.compiler import CompiledKernel
from kernelpack.pack.format import KernelPack, parse_pack
from tests.backends.cuda.cases import Case, cases


def pack_file(folder: Path, case: Case) -> Path:
    return folder / f"{hashlib.sha256(case.name.encode()).hexdigest()[:16]}.kpack"


def write_pack(folder: Path, case: Case, target: str) -> str:
    """Compiles a case's kernel into the folder and returns what to say about it."""
    kernel = case.launch().compile(target)
    figures = {name: value for name, value in kernel.metadata.items() if isinstance(value, int)}
    pack = KernelPack(
        op=case.name, variant=case.name, target=kernel.target, image_kind=kernel.image_kind, entry=kernel.entry,
        parameters=kernel.parameters, constexprs={}, options=kernel.options, facts=kernel.facts, metadata=figures, tools={},
        image=kernel.image,
    )  # fmt: skip
    pack_file(folder, case).write_text(str(pack))
    return f"{case.name}: {figures}"


def read_pack(folder: Path, case: Case) -> CompiledKernel:
    """Returns the kernel that `write_pack` wrote."""
    file = pack_file(folder, case)
    pack = parse_pack(file.read_text(), str(file))
    return CompiledKernel(
        pack.entry, pack.target, pack.options, pack.parameters, pack.facts, pack.image_kind, pack.image, dict(pack.metadata)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--target", default="cuda:sm_90a")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    every = cases()
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for line in pool.map(write_pack, [arguments.folder] * len(every), every, [arguments.target] * len(every), chunksize=4):
            print(line)


if __name__ == "__main__":
    main()
