"""Readers of csrc, compiled with AddressSanitizer and UndefinedBehaviorSanitizer, in a process of their own.

The first byte of an input says which: (i)mages that are compressed, tensor (m)aps, (t)argets, (c)onfigs that a variable asks for, t(r)aces.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from random import Random

from kernelpack.descriptors import launcher_text
from kernelpack.opgen.trace import read_trace
from kernelpack.pack.compress import compress
from kernelpack.pack.ninja import torch_dir
from tests.fuzz.mutate import mutated
from tests.fuzz.sanitized import HERE, Crash, Readers, build
from tests.fuzz.subject import ROOT, Subject
from tests.fuzz.subjects.packs import PACK

CSRC = ROOT / "csrc"
_MAP = (
    "f16; base: o; sizes: rows, columns 2 /; strides: stride; box: 128, 64; swizzle: 128; padding: nan",
    "i8; base: o; sizes: 1, 2 rows +, rows columns >?, columns 3 %; strides: 0, 5, rows columns -; box: 1, 2, 4, 8; swizzle: 0; padding: zero",
)


@functools.cache
def built() -> Path:
    """Returns the folder with the program and a driver without a GPU, built from the sources as they are."""
    home = torch_dir()  # not imported: that takes longer than an input may
    mock = ROOT / "tests" / "csrc" / "mock_cuda.cpp"
    sources = [*sorted((CSRC / "kernels").glob("*.cpp")), *sorted((CSRC / "ops").glob("*.cpp")), HERE / "readers.cpp"]
    headers = [*(CSRC / "kernels").glob("*.h"), *(CSRC / "ops").glob("*.h"), Path(__file__), mock]
    libraries = [
        f"-L{home / 'lib'}",
        f"-Wl,-rpath,{home / 'lib'}",
        "-Wl,--no-as-needed",
        "-ltorch_cpu",
        "-ltorch",
        "-lc10",
        "-l:libzstd.a",
        "-ldl",
        "-lpthread",
    ]
    includes = [f"-I{CSRC}", f"-I{CSRC / 'kernels'}", f"-I{home / 'include'}"]
    return build("readers", sources, headers, includes, libraries, [["-shared", str(mock), "-o", "mock.so"]], version("torch"))


_running: dict[Path, Readers] = {}


def _run(data: bytes, folder: Path) -> range:
    trace = folder / "calls.trace"
    if folder not in _running:
        settings = {"KERNELPACK_LIBCUDA": str(built() / "mock.so"), "KERNELPACK_TRACE": str(trace)}
        _running[folder] = Readers(built() / "readers", trace.with_suffix(".log"), settings)
    trace.unlink(missing_ok=True)
    if data[:1] == b"r":  # what Python says of a call is UTF-8
        data = data.decode(errors="replace").encode()
    try:
        reached = _running[folder].give(data)
    except Crash:
        del _running[folder]
        raise
    if trace.exists() and trace.stat().st_size:
        read_trace(trace)
    return range(reached)


def _seeds() -> list[bytes]:
    image = compress([PACK.image])[0].data
    maps = [
        launcher_text(
            [text.replace("o;", "x;").replace("rows", "n").replace("columns", "n").replace("stride;", "n;")], PACK.parameters
        )
        for text in _MAP
    ]
    return [
        b"i200\n" + image, b"i4\n" + compress([bytes(4)])[0].data, b"i0\n",
        *(b"m4096 256\n" + text.encode() for text in maps), b"m0 0\n" + maps[0].encode(), b"m16 9223372036854775807\n" + maps[0].replace("$1 2 /", "$1 9 * -7 + -1 % $0 $1 <?").encode(), b"m16 -9\npl\n" + maps[1].split("\n")[1].encode(),
        b"tcpu:x86-64\ncpu:x86-64\ncpu:x86-64-v3\ncpu:x86-64-v4+avx512bf16", b"t\ncuda:sm_90a\ncuda:sm_80+ptx\ncuda:sm_75\ncpu:x86-64-v2",
        b"cmha_fwd=3,matmul=0\n5", b"c\n1000", b"cother=1", b"cmha_fwd=12\n-1", b"rx must have 2 dimensions\n  to fix: \"transpose\" it \\",
    ]  # fmt: skip


def _mutate(data: bytes, random: Random, others: Sequence[bytes]) -> bytes:
    alike = [other[1:] for other in others if other[:1] == data[:1]]
    return data[:1] + mutated(data[1:], random, alike, _TOKENS.get(data[:1], ()))


_TOKENS = {
    b"i": [b"\x28\xb5\x2f\xfd", b"\0", b"\n", b"\xff"],
    b"m": [b"$0", b"$1", b"$2", b"$-1", b" ", b"+", b"-", b"*", b"/", b"%", b">?", b"<?", b"; ", b"sizes:", b"base:", b",", b"p", b"l", b"\n", b"-1"],
    b"t": [b"cpu:", b"cuda:sm_", b"+", b"+ptx", b"a", b"x86-64", b"\n", b"aarch64", b"avx512vnni"],
    b"c": [b"mha_fwd", b"=", b",", b"matmul", b"12", b"3"],
    b"r": [bytes([value]) for value in range(32)] + [b'"', b"\\", b"\x7f", b"\xc3\xa9", b"\xe2\x80\xa8"],
}  # fmt: skip
SUBJECT = Subject(_seeds, _run, mutate=_mutate, refusals=())
