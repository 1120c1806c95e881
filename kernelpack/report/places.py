"""Which line of Python each line of a stage comes from, read from what that stage says: IR locations, !dbg, .loc, nvdisasm's remarks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from posixpath import join

from kernelpack.ir.locations import is_of_language, relative_name

Line = tuple[str, int]
"""A file, by its name in line information, and a line of it that counts from 1."""
Chain = tuple[Line, ...]
"""Where a line comes from: the innermost line first, then those that called it."""


@dataclass(frozen=True)
class Text:
    """A stage as text, with the chain of each of its lines; empty where the stage does not say it."""

    lines: tuple[str, ...]
    chains: tuple[Chain, ...]


@dataclass
class Places:
    """The places of a kernel, each once: file, line, and the number of the place that called it (0: none). Numbers start at 1."""

    files: list[str] = field(default_factory=list)
    rows: list[tuple[int, int, int]] = field(default_factory=list)
    _numbers: dict[tuple[int, int, int], int] = field(default_factory=dict)

    def number(self, chain: Chain) -> int:
        """Returns the number of a chain's innermost place; 0 for an empty chain."""
        caller = 0
        for name, line in reversed(chain):
            if name not in self.files:
                self.files.append(name)
            row = (self.files.index(name), line, caller)
            if row not in self._numbers:
                self.rows.append(row)
                self._numbers[row] = len(self.rows)
            caller = self._numbers[row]
        return caller


def with_callers(text: Text, known: Iterable[Chain]) -> Text:
    """Returns a text whose chains go on to their callers, as those in `known` do: machine code says the innermost line alone. Lines that
    were called from several places stay as they are."""
    longer: dict[Line, set[Chain]] = {}
    for chain in known:
        longer.setdefault(chain[0], set()).add(chain)

    def whole(chain: Chain) -> Chain:
        found = longer.get(chain[0], set()) if len(chain) == 1 else set()
        return next(iter(found)) if len(found) == 1 else chain

    return Text(text.lines, tuple(whole(chain) if chain else () for chain in text.chains))


def without_lines(text: str) -> Text:
    """Returns a text of which nobody knows where it comes from."""
    lines = tuple(text.rstrip("\n").split("\n"))
    return Text(lines, ((),) * len(lines))


# -- IR ---------------------------------------------------------------------------------------------------------------------

_LOCATION = re.compile(r'"(.*?)":(\d+):\d+')


def ir_lines(plain: str, located: str) -> Text:
    """Returns the text of IR, printed without locations and with them; what the second has more is the location of the line."""
    lines = plain.rstrip("\n").split("\n")
    more = located.rstrip("\n").split("\n")
    chains = tuple(_ir_chain(full[len(line) :]) for line, full in zip(lines, more, strict=True))
    return Text(tuple(lines), chains)


def _ir_chain(location: str) -> Chain:
    found = [(file, int(line)) for file, line in _LOCATION.findall(location)]
    while len(found) > 1 and is_of_language(found[0][0]):  # what tl.sum computes is shown at the line that calls it
        found.pop(0)
    return tuple((relative_name(file), line) for file, line in found)


# -- LLVM IR ----------------------------------------------------------------------------------------------------------------

_METADATA = re.compile(r"^!(\d+) = (?:distinct )?!(\w+)\((.*)\)$")
_FIELD = re.compile(r'(\w+): (?:"((?:[^"\\]|\\.)*)"|!?([\w.]+))')
_ATTACHED = re.compile(r", !dbg !(\d+)$")
_FUNCTION = re.compile(r"^define .* !dbg !(\d+)")


def llvm_lines(text: str) -> Text:
    """Returns LLVM IR with the lines that its !dbg attachments name, without these and without the metadata."""
    known: dict[str, tuple[str, dict[str, str]]] = {}
    for line in text.split("\n"):
        if (found := _METADATA.match(line)) is not None:
            fields = {name: quoted or word for name, quoted, word in _FIELD.findall(found[3])}
            known[found[1]] = (found[2], fields)

    def file_of(number: str) -> str:
        kind, fields = known[number]
        if kind == "DIFile":
            return fields["filename"]
        return file_of(fields["file"] if "file" in fields else fields["scope"])

    def chain(number: str) -> Chain:
        kind, fields = known[number]
        scope = number if kind == "DISubprogram" else fields["scope"]
        here = (file_of(scope), int(fields["line"]))
        return (here, *(chain(fields["inlinedAt"]) if "inlinedAt" in fields else ()))

    def stated(number: str) -> Chain:
        try:
            return chain(number)
        except KeyError:  # a backend of others writes what it likes
            return ()

    lines, chains = [], []
    for line in text.rstrip("\n").split("\n"):
        if _METADATA.match(line) is not None:
            continue
        at = _ATTACHED.search(line) or _FUNCTION.match(line)
        lines.append(_ATTACHED.sub("", line))
        chains.append(stated(at[1]) if at is not None else ())
    return Text(tuple(lines), tuple(chains))


# -- assembly ---------------------------------------------------------------------------------------------------------------

_FILE = re.compile(r'^\s*\.file\s+(\d+) (?:"((?:[^"\\]|\\.)*)" )?"((?:[^"\\]|\\.)*)"')
_LOC = re.compile(r"^\s*\.loc\s+(\d+) (\d+)")
_NO_CODE = re.compile(r"^\s*(?:$|[.$#!}{)(]|//|\w[\w$.]*:|define |declare |attributes |source_filename|target )")
"""Lines that are no instruction: directives, labels, remarks, what stands around a function."""


def is_code(line: str) -> bool:
    """Returns whether a line of LLVM IR, of assembly or of a tile program does something."""
    return line.startswith("        /*") or _NO_CODE.match(line) is None


def assembly_lines(text: str) -> Text:
    """Returns assembly as LLVM writes it (PTX, x86, GCN) with the lines that its .loc directives name, without these. Line 0 stands for
    what belongs to no line."""
    names = {found[1]: join(found[2] or "", found[3]) for line in text.split("\n") if (found := _FILE.match(line)) is not None}

    def read() -> Iterator[tuple[str, Chain | None]]:
        for line in text.rstrip("\n").split("\n"):
            if (found := _LOC.match(line)) is not None:
                known = found[1] in names and found[2] != "0"
                yield "", ((names[found[1]], int(found[2])),) if known else ()
            elif not re.match(r"^\s*\.file\s+\d", line) and not re.match(r"^\.?\$?L__tmp\d+:|^\.Ltmp\d+:", line):
                yield line, None

    return _in_force(read())


_REMARK = re.compile(r'^\s*//## File "(.*?)", line (\d+)( inlined at .*)?$')
_INLINED_AT = re.compile(r'inlined at "(.*?)", line (\d+)')


def sass_lines(text: str) -> Text:
    """Returns what `nvdisasm --print-line-info-inline` prints with the lines that its remarks name, without these."""

    def read() -> Iterator[tuple[str, Chain | None]]:
        known: list[Line] = []
        for line in text.rstrip("\n").split("\n"):
            if (found := _REMARK.match(line)) is not None:
                if known and known[-1] != (found[1], int(found[2])):
                    known = []  # a remark for each call of a chain: the caller of one is what the next one begins with
                known = [*known[:-1], (found[1], int(found[2]))]
                known += [(name, int(number)) for name, number in _INLINED_AT.findall(found[3] or "")]
                yield "", tuple(known)
            else:
                known = []
                yield line, None

    return _in_force(read())


def _in_force(read: Iterator[tuple[str, Chain | None]]) -> Text:
    """Returns the lines of code; a chain without a text holds for the instructions after it, up to the next one or a blank line."""
    lines: list[str] = []
    chains: list[Chain] = []
    current: Chain = ()
    for line, chain in read:
        if chain is not None:
            current = chain
            continue
        if line.strip() == "" and lines and lines[-1].strip() == "":
            continue  # what stands between was left out
        if line.startswith(("\t.section", ".section", "//-----")):
            current = ()
        lines.append(line)
        chains.append(current if is_code(line) else ())
    return Text(tuple(lines), tuple(chains))


READERS: dict[str, Callable[[str], Text]] = {
    "llir": llvm_lines,
    "ptx": assembly_lines,
    "amdgcn": assembly_lines,
    "asm": assembly_lines,
    "sass": sass_lines,
}
"""How stages that are text say where their lines come from, by name."""
INNERMOST = frozenset(READERS) - {"llir"}
"""Stages that say the innermost line alone, and not who called it."""
