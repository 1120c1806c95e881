"""The C++ readers of files, tokens and texts, in a process of their own under two sanitizers."""

from __future__ import annotations

import fcntl
import struct
import subprocess
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[3]
SERVER = ROOT / "serving_examples" / "language_model" / "server"
SOURCES = [SERVER / name for name in ("gguf.cpp", "tokenizer.cpp", "text.cpp")]


def build(folder: Path, program: str, sources: Sequence[Path], flags: Sequence[str], libraries: Sequence[str]) -> Path:
    """Returns a program in the folder, compiled with warnings as errors unless it is there. Programs of a folder share objects: they have the
    same flags."""
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / program).exists():
            compiler = ["g++", "-std=c++20", "-g1", "-Wall", "-Wextra", "-Werror", f"-I{SERVER}", *flags]
            objects = [f"{source.stem}.o" for source in sources]
            missing = [one for one in zip(sources, objects, strict=True) if not (folder / one[1]).exists()]
            with ThreadPoolExecutor(2) as pool:
                list(pool.map(lambda one: _run([*compiler, "-c", str(one[0]), "-o", one[1]], folder), missing))
            _run([*compiler, *objects, *libraries, "-o", program], folder)
    return folder / program


def _run(command: Sequence[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stderr}\n  to fix: apt-get install libpcre2-dev libcpp-httplib-dev nlohmann-json3-dev"


class Refused(Exception):
    """What the C++ code says of what it does not take."""


class Reader:
    """Asks the process. Raises Refused for what it refuses, and AssertionError with the sanitizers' report if it ends."""

    def __init__(self, program: Path, log: Path) -> None:
        self.log = log.open("w+b")
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log)

    def ask(self, kind: str, question: bytes = b"") -> bytes:
        data = kind.encode() + question
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(struct.pack("<I", len(data)) + data)
            self.process.stdin.flush()
            head = self.process.stdout.read(5)
        except BrokenPipeError:
            head = b""
        if len(head) != 5:
            self.log.seek(0)
            raise AssertionError(f"the readers ended with {self.process.wait()}\n{self.log.read().decode(errors='replace')}")
        refused, size = struct.unpack("<BI", head)
        answer = self.process.stdout.read(size)
        if refused:
            raise Refused(answer.decode())
        return answer

    def open(self, file: Path | bytes) -> None:
        self.ask("b", file) if isinstance(file, bytes) else self.ask("o", str(file).encode())

    def field(self, name: str, kind: str) -> int | float | str | list[int] | list[str]:
        """Returns a field as an (i)nteger, a (n)umber, a (t)ext, or an array of (I)ntegers or (T)exts."""
        answer = self.ask("f", (kind + name).encode())
        if kind in "in":
            return struct.unpack({"i": "<q", "n": "<d"}[kind], answer)[0]
        if kind == "I":
            return list(struct.unpack(f"<{len(answer) // 8}q", answer))
        return answer.decode() if kind == "t" else [text.decode() for text in sized(answer)]

    def tensors(self) -> list[str]:
        return [name.decode(errors="surrogateescape") for name in sized(self.ask("a"))]

    def tensor(self, name: str) -> tuple[int, tuple[int, ...], bytes]:
        """Returns a tensor's format, shape and bytes."""
        answer = self.ask("w", name.encode(errors="surrogateescape"))
        format, dimensions = struct.unpack_from("<iI", answer)
        return format, struct.unpack_from(f"<{dimensions}q", answer, 8), answer[8 + 8 * dimensions :]

    def load_tokenizer(self) -> int:
        """Makes the tokenizer of the open file. Returns the size of its vocabulary."""
        return int(struct.unpack("<i", self.ask("k"))[0])

    def encode(self, text: str | bytes, *, control: bool = False) -> list[int]:
        data = text if isinstance(text, bytes) else text.encode()
        answer = self.ask("c" if control else "e", data)
        return list(struct.unpack(f"<{len(answer) // 4}i", answer))

    def prompt(self, text: str) -> list[int]:
        answer = self.ask("p", text.encode())
        return list(struct.unpack(f"<{len(answer) // 4}i", answer))

    def tokens(self, tokens: Sequence[int]) -> list[tuple[bytes, bool]]:
        """Returns the bytes of each token, and whether it ends a text."""
        answer = self.ask("d", struct.pack(f"<{len(tokens)}i", *tokens))
        return flagged(answer)

    def decode(self, tokens: Sequence[int]) -> bytes:
        return b"".join(data for data, _ in self.tokens(tokens))

    def stream(self, tokens: Iterable[bytes], stops: Sequence[bytes] = ()) -> list[tuple[bytes, bool]]:
        """Returns what each token of a text gave and whether it was stopped then; the last is what came at its end."""
        parts = [struct.pack("<I", len(stops)), *(struct.pack("<I", len(part)) + part for part in (*stops, *tokens))]
        return flagged(self.ask("s", b"".join(parts)))


def sized(answer: bytes) -> list[bytes]:
    parts, at = [], 0
    while at < len(answer):
        (size,) = struct.unpack_from("<I", answer, at)
        parts.append(answer[at + 4 : at + 4 + size])
        at += 4 + size
    return parts


def flagged(answer: bytes) -> list[tuple[bytes, bool]]:
    parts, at = [], 0
    while at < len(answer):
        (size,) = struct.unpack_from("<I", answer, at)
        parts.append((answer[at + 4 : at + 4 + size], answer[at + 4 + size : at + 5 + size] == b"1"))
        at += 5 + size
    return parts
