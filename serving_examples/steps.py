"""How demos look: titles of steps, what one waits for, verdicts, tables, and times of calls in turn."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kernelpack.cli.terminal import Style, is_terminal, table

WIDTH = 80
STYLE = Style(sys.stdout)


def heading(text: str) -> None:
    """Prints a step's title in a line that spans the terminal."""
    print(f"\n{STYLE.bold(text)} {STYLE.dim('─' * (WIDTH - len(text) - 1))}", flush=True)


@contextmanager
def timed(label: str) -> Iterator[None]:
    """Prints how long a block took; on a terminal it says beforehand what one waits for."""
    if is_terminal(sys.stdout):
        print(f"  {label} ...", end="\r", flush=True)
    start = time.perf_counter()
    yield
    print(f"  {label:<{WIDTH - 14}}{time.perf_counter() - start:>8.1f} s", flush=True)


def verdict(good: bool, yes: str, no: str) -> bool:
    """Prints which of both is true, and returns whether it is the good one."""
    print(f"  {STYLE.green('agrees:')} {yes}" if good else f"  {STYLE.red('DISAGREES:')} {no}", flush=True)
    return good


def print_table(head: list[str], rows: list[list[str]]) -> None:
    first, *others = table(head, rows, columns=WIDTH)
    print("\n".join([STYLE.dim(first), *others, ""]))


def alternate(first: Callable[[], object], second: Callable[[], object], seconds: float = 1.0) -> tuple[float, float]:
    """Returns the median times of two calls in milliseconds, measured in turn for about `seconds`."""
    times: tuple[list[float], list[float]] = ([], [])
    first(), second()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[0]) < 5:
        for call, list_ in zip((first, second), times, strict=True):
            start = time.perf_counter()
            call()
            list_.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times[0]), statistics.median(times[1])
