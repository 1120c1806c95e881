"""What is fuzzed: a subject reads bytes. It passes if it returns, or raises an error that the product means to raise."""

from __future__ import annotations

import hashlib
import resource
import signal
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import FrameType

from kernelpack.errors import KernelpackError
from tests.fuzz.mutate import mutated

ROOT = Path(__file__).parents[2]
LIMIT_S = 2.0
"""The processor time that one small input may take."""
LIMIT_BYTES = 1 << 30
"""The memory that one small input may take."""

Mutate = Callable[[bytes, Random, Sequence[bytes]], bytes]


@dataclass(frozen=True)
class Subject:
    """`run` reads an input; it may write below the folder that it gets, which is the worker's own.

    `seeds` are made by what writes such files. `mutate` gets an input, random numbers, and inputs to splice with. What `run`
    returns, if anything, are features that tell inputs apart; else the place where an input is refused does.
    """

    seeds: Callable[[], list[bytes]]
    run: Callable[[bytes, Path], Iterable[int] | None]
    tokens: Sequence[bytes] = ()
    mend: Callable[[bytes], bytes] | None = None
    """Makes sums over an input fit again, so that what they guard is reached."""
    mutate: Mutate | None = None
    refusals: tuple[type[BaseException], ...] = (KernelpackError,)

    def mutated(self, data: bytes, random: Random, others: Sequence[bytes]) -> bytes:
        """Returns an input like another one."""
        change = self.mutate or (lambda data, random, others: mutated(data, random, others, self.tokens))
        changed = change(data, random, others)
        return self.mend(changed) if self.mend is not None and random.random() < 0.9 else changed


@dataclass(frozen=True)
class Finding:
    """An input that did not pass: what was raised, and where."""

    kind: str
    place: str
    text: str

    @property
    def name(self) -> str:
        """A file name: equal for inputs that fail alike."""
        return f"{self.kind}-{hashlib.sha256(self.place.encode()).hexdigest()[:10]}"


class TooSlow(BaseException):
    """An input takes more than its share of processor time. No `except Exception` of a reader holds it."""


@contextmanager
def processor_limit(seconds: float) -> Iterator[None]:
    """Raises TooSlow inside after so much processor time of this process."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TooSlow(f"more than {seconds} s of processor time")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def limit_memory() -> None:
    """Lets this process take LIMIT_BYTES more than it has: further allocations are a MemoryError."""
    status = Path("/proc/self/statm").read_text().split()
    held = int(status[0]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (held + LIMIT_BYTES, hard))


Outcome = tuple[Finding | None, frozenset[int]]


def run_one(subject: Subject, data: bytes, folder: Path, seconds: float = LIMIT_S) -> Outcome:
    """Runs an input. Returns the finding, if it is one, and the input's features."""
    try:
        with processor_limit(seconds):
            try:
                features = subject.run(data, folder)
            except subject.refusals as refusal:
                str(refusal)  # shows the place in the user's source, too
                return None, frozenset({hash(tuple(_frames(refusal)[-3:]))})
    except KeyboardInterrupt:
        raise
    except BaseException as problem:
        frames = _frames(problem)
        place = getattr(problem, "place", None) or _place(problem, frames)
        text = "".join(traceback.format_exception(problem, limit=-12))
        return Finding(type(problem).__name__, place, text), frozenset({hash(place)})
    return None, frozenset(features if features is not None else (0,))


def _frames(problem: BaseException) -> list[str]:
    """Returns the lines of the product that an error passed, the innermost last."""
    frames = traceback.extract_tb(problem.__traceback__)
    product = [frame for frame in frames if "/kernelpack/" in frame.filename and "/tests/" not in frame.filename]
    return [f"{frame.filename}:{frame.lineno}" for frame in product or frames]


def _place(problem: BaseException, frames: Sequence[str]) -> str:
    """Returns where an error arose; where the product was entered if it is chance where it was stopped."""
    if isinstance(problem, (RecursionError, TooSlow, MemoryError)):
        frames = [" ".join(frames[:2])]
    return frames[-1] if frames else "?"
