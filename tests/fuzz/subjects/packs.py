"""Kernel packs: their text, and what builds, `inspect` and verification make of one that was read."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

from kernelpack.cli.inspect import _record, _text
from kernelpack.compiled import Parameter
from kernelpack.facts import Fact
from kernelpack.options import Options
from kernelpack.pack.embed import image_kernels, images_source
from kernelpack.pack.format import KernelPack, parse_pack, read_pack
from kernelpack.pack.lock import lock_text, parse_lock
from kernelpack.target import Target
from tests.fuzz.mutate import mutated
from tests.fuzz.subject import Subject

PACK = KernelPack(
    ops=("scale", "scale_"),
    variant="scale_kernel-f32.aligned",
    target=Target.parse("cuda:sm_90a"),
    image_kind="cubin",
    entry="my_scale_kernel",
    parameters=(Parameter("x", "!tt.ptr<f32>"), Parameter("n", "i32")),
    constexprs={"BLOCK": "1024", "bias": "None"},
    options=Options(num_warps=8, maxnreg=128),
    facts=(Fact("n", "tt.divisibility", 16), Fact("x", "tt.divisibility", 16)),
    metadata={"registers": 32, "program_ns": 12.5, "shared": 4096, "num_warps": 8},
    tools={"llvm": "22.1", "assembler": "ptxas 13.5"},
    image=bytes(range(200)),
    code_sha256="ab" * 32,
    descriptors=("f32; base: x; sizes: n; strides: ; box: 64; swizzle: 0; padding: zero",),
)


def _seeds() -> list[bytes]:
    on_cpu = replace(PACK, target=Target.parse("cpu:x86-64-v3"), image_kind="object", descriptors=(), facts=(), metadata={})
    plain = replace(PACK, options=Options(default_dot_input_precision="ieee", debug=True, launch_pdl=True), descriptors=())
    return [str(pack).encode() for pack in (PACK, on_cpu, plain)]


def _mend(data: bytes) -> bytes:
    """Makes the hashes and sizes fit what they are of."""
    head, found, image = data.partition(b"\nimage:\n")
    lines = [line for line in head.split(b"\n") if not line.startswith(b"header sha256: ")]
    if not found or len(lines) < 2:
        return data
    digest = hashlib.sha256(b"\n".join(lines[1:])).hexdigest().encode()
    return b"\n".join([*lines, b"header sha256: " + digest]) + found + image


def _mutate(data: bytes, random: Random, others: Sequence[bytes]) -> bytes:
    """Changes the header more often than the image, and figures more often than hashes."""
    head, found, image = data.partition(b"\nimage:\n")
    if random.random() < 0.2:
        return mutated(data, random, others, TOKENS)
    lines = head.split(b"\n")
    at = random.randrange(len(lines))
    lines[at] = mutated(lines[at], random, [line for other in others[:8] for line in other.split(b"\n")[:20]], TOKENS)
    return b"\n".join(lines) + found + image


def _run(data: bytes, folder: Path) -> None:
    file = folder / "kernel.kpack"
    file.write_bytes(data)
    pack = read_pack(file)
    assert parse_pack(str(pack)) == pack
    image_kernels("fuzz", "cuda", [pack])
    images_source("fuzz", "cuda", [pack.image], "kernelpack::cuda_launcher")
    parse_lock(lock_text([pack]))
    _record(pack)
    _text([pack, pack], from_packs=True)
    _text([pack], from_packs=True)


TOKENS = [
    *(word for word in re.split(rb"([^\n ]+)", str(PACK).encode()[:1500]) if word.strip()), b"None", b"True", b"\nfact: ", b"\nfigure: ",
    b"\noption: ", b" = ",
]  # fmt: skip
SUBJECT = Subject(_seeds, _run, mend=_mend, mutate=_mutate)
