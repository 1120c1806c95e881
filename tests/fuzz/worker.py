"""Fuzzes one subject in a process of its own, which may crash: by Atheris where it is installed, else by seeded mutations."""

from __future__ import annotations

import faulthandler
import json
import mmap
import os
import struct
import sys
import time
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz.mutate import MOST
from tests.fuzz.subject import LIMIT_S, ROOT, Finding, Subject, limit_memory, run_one

ATHERIS = ROOT / ".venv" / "fuzz"
"""Where `make fuzz` installs it."""
SLOWER = 4
"""How many times longer code takes that Atheris watches."""
RENEWED = 1000
"""After how many inputs the limit of memory counts from what the process has taken by then."""
_HEAD = struct.Struct("<QQ")
_CURRENT_BYTES = 1 << 20


class Current:
    """The input that is being run, where another process finds it after a crash: how many inputs there were, and the last."""

    def __init__(self, path: Path, *, create: bool = False) -> None:
        if create:
            path.write_bytes(bytes(_CURRENT_BYTES))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _CURRENT_BYTES)

    def set(self, count: int, data: bytes) -> None:
        data = data[: _CURRENT_BYTES - _HEAD.size]
        self._memory[_HEAD.size : _HEAD.size + len(data)] = data
        _HEAD.pack_into(self._memory, 0, count, len(data))

    def get(self) -> tuple[int, bytes]:
        count, size = _HEAD.unpack_from(self._memory)
        return count, self._memory[_HEAD.size : _HEAD.size + size]


@dataclass
class Session:
    """What a worker did: it is written to `folder` as it goes, for the process that waits for it."""

    subject: Subject
    folder: Path
    seconds: float
    limit_s: float = LIMIT_S
    inputs: int = 0
    features: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.scratch = self.folder / f".scratch-{os.getpid()}"
        self.scratch.mkdir(parents=True, exist_ok=True)
        self.current = Current(self.folder / ".current")
        self.deadline = time.monotonic() + self.seconds

    def one(self, data: bytes) -> bool:
        """Runs an input. Returns whether it passed, and did something that none did before."""
        self.inputs += 1
        self.current.set(self.inputs, data)
        if self.inputs % RENEWED == 0:
            limit_memory()  # Atheris itself takes more with each input that it keeps
        finding, features = run_one(self.subject, data, self.scratch, self.limit_s)
        if finding is not None:
            keep(self.folder, finding, data)
            return False
        new = not features <= self.features
        self.features |= features
        return new

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self.deadline

    def report(self) -> None:
        (self.folder / ".report").write_text(json.dumps({"inputs": self.inputs, "features": len(self.features)}))


def keep(folder: Path, finding: Finding, data: bytes) -> None:
    """Writes a failing input under its name, with what was raised beside it, unless a shorter one that fails alike is there."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / finding.name
    if not path.exists() or path.stat().st_size > len(data):
        path.write_bytes(data)
        path.with_suffix(".txt").write_text(finding.text, errors="backslashreplace")


def has_atheris() -> bool:
    """Whether Atheris is installed for this interpreter."""
    return (ATHERIS / "atheris").is_dir() and sys.version_info[:2] == (3, 11)


def load(name: str) -> Subject:
    """Returns a subject by its name."""
    subject: Subject = import_module(f"tests.fuzz.subjects.{name}").SUBJECT
    return subject


def work(name: str, folder: Path, seconds: float, seed: int, *, by_atheris: bool) -> None:
    """Fuzzes a subject for so long. Findings lie in the folder."""
    atheris: Any = None
    if by_atheris:
        sys.path.insert(0, str(ATHERIS))
        atheris = import_module("atheris")
        with atheris.instrument_imports(include=["kernelpack"]):
            subject = load(name)
    else:
        subject = load(name)
    faulthandler.enable()
    random = Random(seed)
    session = Session(subject, folder, seconds, LIMIT_S * (SLOWER if by_atheris else 1))
    seeds = subject.seeds()
    for data in seeds:  # which also imports and fills what is made once
        session.one(data)
    limit_memory()
    if atheris is not None:
        _by_atheris(atheris, session, seeds, random)
    else:
        _by_mutation(session, seeds, random)
    session.report()


def _by_mutation(session: Session, seeds: list[bytes], random: Random) -> None:
    """Changes seeds, and what came of them that was new."""
    corpus = list(seeds)
    while not session.is_over:
        data = session.subject.mutated(random.choice(corpus[-200:] if random.random() < 0.5 else corpus), random, corpus)
        if session.one(data):
            corpus.append(data)
        if session.inputs % 100 == 0:
            session.report()


def _by_atheris(atheris: Any, session: Session, seeds: list[bytes], random: Random) -> None:
    """Lets libFuzzer choose what to change, by the branches of kernelpack that inputs reach. Does not return."""
    corpus = session.folder / ".corpus"
    corpus.mkdir(exist_ok=True)
    for number, data in enumerate(seeds):
        (corpus / f"seed-{number}").write_bytes(data)
    seen = list(seeds)

    def one(data: bytes) -> None:
        if session.one(data) and len(seen) < 5000:
            seen.append(data)
        if session.inputs % 100 == 0:
            session.report()
        if session.is_over:
            session.report()
            sys.stderr.flush()
            os._exit(0)

    def change(data: bytes, most: int, seed: int) -> bytes:
        chance = Random(seed)
        if chance.random() < 0.2:
            data = bytes(atheris.Mutate(data, most))
        return session.subject.mutated(data, chance, seen)[:most]

    options = [
        f"-seed={random.randrange(1, 2**31)}",
        f"-max_len={MOST}",
        "-rss_limit_mb=0",
        "-timeout=1000000",
        "-handle_alrm=0",
    ]
    atheris.Setup([sys.argv[0], *options, f"-artifact_prefix={session.folder}/.", str(corpus)], one, custom_mutator=change)
    atheris.Fuzz()
