"""Readers of csrc, compiled with AddressSanitizer and UndefinedBehaviorSanitizer, in a process of their own.

The first byte of an input says which: (i)mages that are compressed, tensor (m)aps, (t)argets, (c)onfigs that a variable asks for, t(r)aces.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import re
import select
import struct
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from random import Random

from kernelpack.descriptors import launcher_text
from kernelpack.opgen.trace import read_trace
from kernelpack.pack.compress import compress
from kernelpack.pack.ninja import torch_dir
from tests.fuzz.mutate import mutated
from tests.fuzz.subject import ROOT, Subject
from tests.fuzz.subjects.packs import PACK

CSRC = ROOT / "csrc"
HERE = ROOT / "tests" / "fuzz" / "cpp"
FOLDER = ROOT / "build" / "fuzz" / ".cpp"
ANSWERS_S = 20.0
"""A reader that takes longer hangs."""
_SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
_MAP = (
    "f16; base: o; sizes: rows, columns 2 /; strides: stride; box: 128, 64; swizzle: 128; padding: nan",
    "i8; base: o; sizes: 1, 2 rows +, rows columns >?, columns 3 %; strides: 0, 5, rows columns -; box: 1, 2, 4, 8; swizzle: 0; padding: zero",
)


class Crash(BaseException):
    """The readers' process ended. `place` is where."""

    def __init__(self, report: str) -> None:
        self.place = _place(report)
        super().__init__(f"{report[-6000:]}\n{self.place}")


def _place(report: str) -> str:
    """Returns the kind of an error and the line of csrc, as sanitizers report them."""
    kind = re.search(
        r"runtime error: ([^:;\n]*?)(?: [-\d]|$)|Sanitizer: ([\w-]+)|what\(\):|terminate called after[^\n]*", report, re.M
    )
    line = re.search(r"(?<!tests/)csrc/([\w/.]+:\d+)", report)
    return f"{kind[0] if kind else '?'} {line[1] if line else '?'}"


@functools.cache
def built() -> Path:
    """Returns the folder with the program and a driver without a GPU, built from the sources as they are."""
    home = torch_dir()  # not imported: that takes longer than an input may
    sources = [*sorted((CSRC / "kernels").glob("*.cpp")), *sorted((CSRC / "ops").glob("*.cpp")), HERE / "readers.cpp"]
    own = [HERE / "coverage.cpp", ROOT / "tests" / "csrc" / "mock_cuda.cpp"]
    headers = [*(CSRC / "kernels").glob("*.h"), *(CSRC / "ops").glob("*.h"), HERE / "coverage.h", Path(__file__)]
    digest = hashlib.sha256(version("torch").encode())
    for path in [*sources, *own, *sorted(headers)]:
        digest.update(path.read_bytes())
    folder = FOLDER / digest.hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            flags = [
                "g++",
                "-std=c++20",
                "-O1",
                "-g1",
                "-fPIC",
                f"-I{CSRC}",
                f"-I{CSRC / 'kernels'}",
                f"-I{HERE}",
                f"-I{home / 'include'}",
            ]
            counted = [*flags, *_SANITIZERS, "-fsanitize-coverage=trace-pc"]
            commands = [[*counted, "-c", str(path), "-o", f"{path.stem}.o"] for path in sources]
            commands += [[*flags, "-c", str(own[0]), "-o", "coverage.o"], [*flags, "-shared", str(own[1]), "-o", "mock.so"]]
            with ThreadPoolExecutor(2) as pool:
                list(pool.map(functools.partial(_compile, folder), commands))
            objects = [*(f"{path.stem}.o" for path in sources), "coverage.o"]
            libraries = [
                f"-L{home / 'lib'}",
                f"-Wl,-rpath,{home / 'lib'}",
                "-Wl,--no-as-needed",
                "-ltorch_cpu",
                "-ltorch",
                "-lc10",
                "-l:libzstd.a",
                "-ldl",
            ]
            _compile(folder, ["g++", *_SANITIZERS, *objects, *libraries, "-lpthread", "-o", "readers"])
            (folder / "done").touch()
    return folder


def _compile(folder: Path, command: Sequence[str]) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\n{done.stderr}")


class _Readers:
    """The process, started anew after each crash."""

    def __init__(self, trace: Path) -> None:
        folder = built()
        self.log = trace.with_suffix(".log").open("w+b")
        environment = {
            **os.environ, "KERNELPACK_LIBCUDA": str(folder / "mock.so"), "KERNELPACK_TRACE": str(trace), "UBSAN_OPTIONS": "print_stacktrace=1",
            "ASAN_OPTIONS": "detect_leaks=0:max_allocation_size_mb=1024",
        }  # fmt: skip
        # AddressSanitizer reserves more addresses than a worker may have
        command = ["sh", "-c", 'ulimit -S -v unlimited; exec "$0"', str(folder / "readers")]
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log
        )

    def give(self, data: bytes) -> int:
        """Has an input read, and returns how many branches all inputs have reached. Raises Crash."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(struct.pack("<I", len(data)) + data)
            self.process.stdin.flush()
            ready, _, _ = select.select([self.process.stdout], [], [], ANSWERS_S)
            answer = self.process.stdout.read(5) if ready else None
        except BrokenPipeError:
            answer = b""
        if answer is not None and len(answer) == 5:
            return int(struct.unpack("<BI", answer)[1])
        self.process.kill()
        code = self.process.wait()
        self.log.seek(0)
        report = self.log.read().decode(errors="replace")
        raise Crash(report if answer is not None else f"Sanitizer: hang {report}\nit ended with {code}")


_running: dict[Path, _Readers] = {}


def _run(data: bytes, folder: Path) -> range:
    trace = folder / "calls.trace"
    if folder not in _running:
        _running[folder] = _Readers(trace)
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
