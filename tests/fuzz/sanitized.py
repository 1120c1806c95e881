"""Readers in C++, compiled with AddressSanitizer and UndefinedBehaviorSanitizer, in a process of their own."""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import re
import select
import struct
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.fuzz.subject import ROOT

HERE = ROOT / "tests" / "fuzz" / "cpp"
FOLDER = ROOT / "build" / "fuzz" / ".cpp"
ANSWERS_S = 20.0
"""A reader that takes longer hangs."""
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


class Crash(BaseException):
    """The readers' process ended. `place` is where."""

    def __init__(self, report: str) -> None:
        self.place = _place(report)
        super().__init__(f"{report[-6000:]}\n{self.place}")


def _place(report: str) -> str:
    """Returns the kind of an error and the line of the product, as sanitizers report them."""
    kind = re.search(
        r"runtime error: ([^:;\n]*?)(?: [-\d]|$)|Sanitizer: ([\w-]+)|what\(\):|terminate called after[^\n]*", report, re.M
    )
    line = re.search(r"(?<!tests/)(?:csrc|language_model/server|fuzz/cpp)/([\w/.]+:\d+)", report)
    return f"{kind[0] if kind else '?'} {line[1] if line else '?'}"


def build(
    program: str,
    sources: Sequence[Path],
    headers: Iterable[Path],
    flags: Sequence[str],
    libraries: Sequence[str],
    more: Sequence[Sequence[str]] = (),
    version: str = "",
) -> Path:
    """Returns the folder with a program, built from the sources as they are. Runs `more` commands of the compiler there, too."""
    own = [HERE / "coverage.cpp", HERE / "coverage.h", HERE / "pipe.h", Path(__file__)]
    digest = hashlib.sha256(repr((version, flags, libraries, more)).encode())
    for path in [*sources, *own, *sorted(headers)]:
        digest.update(path.read_bytes())
    folder = FOLDER / digest.hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            compiler = ["g++", "-std=c++20", "-O1", "-g1", "-fPIC", f"-I{HERE}", *flags]
            counted = [*compiler, *SANITIZERS, "-fsanitize-coverage=trace-pc"]
            commands = [[*counted, "-c", str(path), "-o", f"{path.stem}.o"] for path in sources]
            commands += [[*compiler, "-c", str(own[0]), "-o", "coverage.o"], *([*compiler, *other] for other in more)]
            with ThreadPoolExecutor(2) as pool:
                list(pool.map(functools.partial(_compile, folder), commands))
            objects = [*(f"{path.stem}.o" for path in sources), "coverage.o"]
            _compile(folder, ["g++", *SANITIZERS, *objects, *libraries, "-o", program])
            (folder / "done").touch()
    return folder


def _compile(folder: Path, command: Sequence[str]) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\n{done.stderr}")


class Readers:
    """A process that reads inputs. Whoever gets a Crash starts another."""

    def __init__(self, program: Path, log: Path, environment: Mapping[str, str]) -> None:
        self.log = log.open("w+b")
        settings = {
            "UBSAN_OPTIONS": "print_stacktrace=1",
            "ASAN_OPTIONS": "detect_leaks=0:max_allocation_size_mb=1024:handle_abort=1",
        }
        # AddressSanitizer reserves more addresses than a worker may have
        command = ["sh", "-c", 'ulimit -S -v unlimited; exec "$0"', str(program)]
        self.process = subprocess.Popen(
            command,
            env={**os.environ, **settings, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
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
