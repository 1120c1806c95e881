"""The LLVM IR of small kernels for a CPU: whole, or what one program does, with the kernel's names for its parameters."""

from __future__ import annotations

import re

from kernelpack.backends.cpu.emit.elementwise import Lowering
from kernelpack.backends.cpu.emit.tiles_to_llir import tiles_to_llir
from kernelpack.backends.cpu.facts.features import Level
from kernelpack.backends.cpu.plan.ttir_to_tiles import ttir_to_tiles
from kernelpack.ir.core import Operation
from kernelpack.kernel.jit import JITFunction
from kernelpack.llvm.text import Emitter
from kernelpack.options import Options
from tests.backends.cpu.plan.plans import V3, ttir


def whole(kernel: JITFunction | Operation, level: Level = V3, options: Options | None = None, **types: str | int | bool) -> str:
    """Returns the module of a kernel, given as ttir or with the types of its parameters (float32 pointers where not said)."""
    module = ttir(kernel, **types) if isinstance(kernel, JITFunction) else kernel
    return tiles_to_llir(ttir_to_tiles(module, level), level, options or Options())[0]


def program(
    kernel: JITFunction | Operation, level: Level = V3, options: Options | None = None, **types: str | int | bool
) -> str:
    """Returns the lines of one program, from its number to the next one's. Parameters have the kernel's names: `%x`."""
    module = ttir(kernel, **types) if isinstance(kernel, JITFunction) else kernel
    text = whole(module, level, options)
    arguments = module.body.operations[0].body.arguments
    entry, _, rest = text.partition("br label %program")
    loads = [
        line.split(" = ")[0].strip() for line in entry.splitlines() if re.search(r" = load .*, ptr %v\d+, align \d+$", line)
    ]
    values = loads[1 : 2 * len(arguments) : 2]  # each is found by its address
    end = re.search(r"label %(exit\d+)", rest)
    assert end is not None
    body = rest.partition("\nbody")[2].partition(f"\n{end[1]}:")[0]
    for value, argument in zip(values, arguments, strict=True):
        body = re.sub(re.escape(value) + r"\b", f"%{argument.name}", body)
    return "\n".join(body.splitlines()[8:-3])


def lowering(*, avx512: bool = False, fuse: bool = True, bf16: bool = False) -> Lowering:
    """Returns what lowers operations into an emitter of its own (`.em`)."""
    return Lowering(Emitter(frozenset({"avx512"} if avx512 else ())), fuse=fuse, bf16_hardware=bf16)


def written(em: Emitter) -> str:
    """Returns the lines that an emitter has."""
    return "\n".join(em.lines)
