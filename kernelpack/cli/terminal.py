"""What is printed: colours where a terminal shows them, tables that fit it, a line that shows progress."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from kernelpack.opgen.workers.compile import Progress


def is_terminal(stream: TextIO) -> bool:
    """Returns whether a person watches the stream on a terminal that can move its cursor."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def width(stream: TextIO) -> int | None:
    """Returns how many columns the stream shows; None where nothing limits it (a file, a pipe)."""
    return shutil.get_terminal_size().columns if stream.isatty() else None


class Style:
    """Colours, on a terminal and unless NO_COLOR is set (https://no-color.org)."""

    def __init__(self, stream: TextIO) -> None:
        self.on = is_terminal(stream) and not os.environ.get("NO_COLOR")

    def _code(self, text: str, code: int) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.on else text

    def bold(self, text: str) -> str:
        return self._code(text, 1)

    def dim(self, text: str) -> str:
        return self._code(text, 2)

    def red(self, text: str) -> str:
        return self._code(text, 31)

    def green(self, text: str) -> str:
        return self._code(text, 32)

    def yellow(self, text: str) -> str:
        return self._code(text, 33)


def shorten(text: str, columns: int) -> str:
    """Returns the text cut in its middle, where names differ least, to so many columns."""
    if len(text) <= columns:
        return text
    tail = max(1, (columns - 1) * 3 // 5)
    return text[: max(0, columns - 1 - tail)] + "…" + text[len(text) - tail :]


def table(header: Sequence[str], rows: Sequence[Sequence[str]], *, columns: int | None, indent: int = 2) -> list[str]:
    """Returns aligned lines, the first column left and all others right; the first is shortened to fit `columns`."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    if columns is not None:
        others = indent + sum(other + 2 for other in widths[1:])
        widths[0] = min(widths[0], max(12, columns - others))
    lines = []
    for row in (header, *rows):
        cells = [
            f"{shorten(row[0], widths[0]):{widths[0]}}",
            *(f"{cell:>{w}}" for cell, w in zip(row[1:], widths[1:], strict=True)),
        ]
        lines.append((" " * indent + "  ".join(cells)).rstrip())
    return lines


def size(count: float) -> str:
    """Returns a number of bytes as a person reads it."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def count(number: int, noun: str) -> str:
    """Returns `1 kernel`, `2 kernels`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


class ProgressLine:
    """A line on stderr that shows how far a build is, rewritten in place and gone at the end. Only on a terminal."""

    BAR = 20

    def __init__(self, last_step: str = "") -> None:
        self._stream = sys.stderr
        self._shows = is_terminal(self._stream)
        self._last_step = last_step
        self._style = Style(self._stream)

    def __enter__(self) -> ProgressLine:
        self._write("reading the ops")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._write("")

    def __call__(self, progress: Progress) -> None:
        filled = self.BAR * progress.done // max(1, progress.total)
        bar = "█" * filled + "░" * (self.BAR - filled)
        what = self._last_step if progress.done == progress.total and self._last_step else progress.what
        self._write(f"{bar} {progress.done}/{progress.total}  {progress.seconds:.0f} s  {what}")

    def _write(self, text: str) -> None:
        if self._shows:
            self._stream.write("\r\x1b[K" + text[: shutil.get_terminal_size().columns - 1])
            self._stream.flush()
