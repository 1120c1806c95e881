"""Kernel packs: one compiled kernel as text, a header that a person reads and the image in base64."""

from __future__ import annotations

import base64
import binascii
import functools
import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernelpack.compiled import Parameter
from kernelpack.descriptors import launcher_text
from kernelpack.errors import PackError, TargetError
from kernelpack.facts import Fact
from kernelpack.files.document import checked
from kernelpack.options import OPTION_TYPES, TEXT_OPTIONS, Options
from kernelpack.target import Target

VERSION = 1
_FIRST_LINE = f"kernelpack kernel pack, version {VERSION}"
_IMAGE_LINE = "image:"
_WIDTH = 120
"""Characters of base64 in a line; a multiple of four."""

_LATER = {"enable_reflect_ftz": True, "sanitize_overflow": True, "default_dot_input_precision": None, "checked": False}
"""What options are in packs that do not name them: only what differs is said."""

Number = int | float


@dataclass(frozen=True)
class KernelPack:
    """A compiled kernel with everything a launcher, a guard and a reader need. `str()` and `parse_pack` are inverse.

    `ops` are the names of the ops that launch it, `constexprs` what it was compiled for, as text, `metadata` the backend's figures
    (shared, num_warps, registers, spills, program_ns, ...), `tools` the versions of what made the image. `code_sha256` is the hash of
    the image's assembly, whatever its entry is called ("" if there is none), `descriptors` are
    those of tensors that its launcher makes at each launch. `code_of` is the entry whose name its code bears in the image, where it is that of
    a lower target.
    """

    ops: tuple[str, ...]
    variant: str
    target: Target
    image_kind: str
    entry: str
    parameters: tuple[Parameter, ...]
    constexprs: Mapping[str, str]
    options: Options
    facts: tuple[Fact, ...]
    metadata: Mapping[str, Number]
    tools: Mapping[str, str]
    image: bytes = field(repr=False)
    code_sha256: str = ""
    descriptors: tuple[str, ...] = ()
    code_of: str = ""

    @property
    def symbol(self) -> str:
        """What its code is called in the image."""
        return self.code_of or self.entry

    @property
    def file_name(self) -> str:
        return f"{self.variant}.{self.target.slug}.kpack"

    @property
    def sha256(self) -> str:
        """The hash of the image."""
        return hashlib.sha256(self.image).hexdigest()

    def header(self) -> list[str]:
        """Returns the lines before the image, without the hash over them."""
        lines = [
            f"op: {', '.join(self.ops)}",
            f"variant: {self.variant}",
            f"target: {self.target}",
            f"image kind: {self.image_kind}",
            f"entry: {self.entry}",
        ]
        lines += [f"code of: {self.code_of}"] if self.code_of else []
        lines += [f"parameter: {parameter.name} {parameter.type}" for parameter in self.parameters]
        lines += [f"constexpr: {name} = {value}" for name, value in self.constexprs.items()]
        options = vars(self.options)
        lines += [
            f"option: {name} = {options[name]}" for name in options if name not in _LATER or options[name] != _LATER[name]
        ]
        lines += [f"fact: {fact}" for fact in self.facts]
        lines += [f"tensor map: {text}" for text in self.descriptors]
        lines += [f"figure: {name} = {self.metadata[name]!r}" for name in sorted(self.metadata)]
        lines += [f"tool: {name} = {self.tools[name]}" for name in sorted(self.tools)]
        lines += [f"code sha256: {self.code_sha256}", f"image bytes: {len(self.image)}", f"image sha256: {self.sha256}"]
        return lines

    def __str__(self) -> str:
        return self._text

    @functools.cached_property
    def _text(self) -> str:
        header = self.header()
        text = base64.b64encode(self.image).decode()
        rows = [text[start : start + _WIDTH] for start in range(0, len(text), _WIDTH)]
        return "\n".join([_FIRST_LINE, *header, f"header sha256: {_hash(header)}", _IMAGE_LINE, *rows]) + "\n"


def _hash(lines: list[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def read_pack(path: Path) -> KernelPack:
    """Reads a pack file. Raises OSError, and PackError with file and line."""
    data = path.read_bytes()
    try:
        return parse_pack(data.decode(), str(path))
    except UnicodeDecodeError as problem:
        line = data.count(b"\n", 0, problem.start) + 1
        raise PackError(f"{path}:{line}: the pack is not text", cure=_CURE) from None


_CURE = "build it again: kernelpack build"


def parse_pack(text: str, name: str = "pack") -> KernelPack:
    """Parses the text of a pack. Raises PackError, with the line, for anything that a build did not write."""
    reader = _Reader(text, name)
    first = reader.take()
    if first != _FIRST_LINE:
        other = re.fullmatch(r"kernelpack kernel pack, version (\d{1,9})", first)
        version = f"the pack has version {other[1]}, this kernelpack reads version {VERSION}" if other else ""
        raise reader.fail(version or "it is no kernel pack")
    start = reader.line
    ops, variant = tuple(reader.field("op").split(", ")), reader.field("variant")
    target = _target(reader, reader.field("target"))
    image_kind, entry = reader.field("image kind"), reader.field("entry")
    code_of = next(reader.fields("code of"), "")
    parameters = []
    for value in reader.fields("parameter"):
        parameter, _, kind = value.partition(" ")
        parameters.append(Parameter(parameter, kind))
    constexprs = dict(_pair(reader, value) for value in reader.fields("constexpr"))
    given = dict(_pair(reader, value) for value in reader.fields("option"))
    facts = tuple(_fact(reader, value) for value in reader.fields("fact"))
    descriptors = tuple(reader.fields("tensor map"))
    figures = {key: _number(reader, value) for key, value in (_pair(reader, v) for v in reader.fields("figure"))}
    tools = dict(_pair(reader, value) for value in reader.fields("tool"))
    code_hash, size, image_hash = (reader.field(key) for key in ("code sha256", "image bytes", "image sha256"))
    header = reader.lines[start : reader.line]
    if reader.field("header sha256") != _hash(header):
        raise reader.fail("the header was altered: its SHA-256 does not fit")
    reader.exactly(_IMAGE_LINE, "the image is missing")
    body = reader.lines[reader.line :]
    try:
        image = base64.b64decode("".join(body), validate=True)
    except (binascii.Error, ValueError):
        raise reader.fail("the image is not base64") from None
    if str(len(image)) != size or hashlib.sha256(image).hexdigest() != image_hash:
        raise reader.fail("the image was altered: its size or SHA-256 does not fit")
    try:
        launcher_text(descriptors, parameters)
    except PackError as problem:
        raise reader.fail(problem.message) from None
    pack = KernelPack(
        ops=ops,
        variant=variant,
        target=target,
        image_kind=image_kind,
        entry=entry,
        parameters=tuple(parameters),
        constexprs=constexprs,
        options=_options(reader, given),
        facts=facts,
        metadata=figures,
        tools=tools,
        image=image,
        code_sha256=code_hash,
        descriptors=descriptors,
        code_of=code_of,
    )
    if str(pack) != text:  # e.g. another order, other line breaks, base64 with other padding bits
        raise reader.fail("the text is not in the one form that a build writes")
    return pack


class _Reader:
    def __init__(self, text: str, name: str) -> None:
        self.name = name
        self.lines = text.split("\n")
        if self.lines[-1] == "":
            self.lines.pop()
        self.line = 0

    def fail(self, message: str) -> PackError:
        return PackError(f"{self.name}:{self.line}: {message}", cure=_CURE)

    def take(self) -> str:
        if self.line >= len(self.lines):
            raise self.fail("the pack ends early")
        self.line += 1
        return self.lines[self.line - 1]

    def exactly(self, expected: str, message: str) -> None:
        if self.take() != expected:
            raise self.fail(message)

    def field(self, key: str) -> str:
        text = self.take()
        if not text.startswith(f"{key}: "):
            raise self.fail(f"expected {key!r}, found {text[:40]!r}")
        return text[len(key) + 2 :]

    def fields(self, key: str) -> Iterator[str]:
        while self.line < len(self.lines) and self.lines[self.line].startswith(f"{key}: "):
            yield self.field(key)


def _target(reader: _Reader, text: str) -> Target:
    try:
        return Target.parse(text)
    except TargetError as error:
        raise reader.fail(error.message) from None


def _pair(reader: _Reader, text: str) -> tuple[str, str]:
    name, separator, value = text.partition(" = ")
    if not separator:
        raise reader.fail(f"expected name = value, found {text!r}")
    return name, value


def _fact(reader: _Reader, text: str) -> Fact:
    match = re.fullmatch(r"(\w+):([\w.]+)=(-?\d+)", text)
    if match is None:
        raise reader.fail(f"expected parameter:property=value, found {text!r}")
    return Fact(match[1], match[2], int(_number(reader, match[3])))


def _number(reader: _Reader, text: str) -> Number:
    try:
        number = int(text) if re.fullmatch(r"-?\d+", text) else float(text)
        if -(2**63) <= number < 2**63:
            return number
    except ValueError:
        pass
    raise reader.fail(f"expected a number of 64 bits, found {text[:80]!r}")


def _options(reader: _Reader, given: Mapping[str, str]) -> Options:
    words = {"None": None, "True": True, "False": False}
    values: dict[str, Any] = {
        name: words[text] if text in words else text if name in TEXT_OPTIONS else _number(reader, text)
        for name, text in given.items()
    }
    try:
        return Options(**checked(values, {f"{name}?": kind for name, kind in OPTION_TYPES.items()}))
    except ValueError as problem:
        raise reader.fail(f"option {problem}") from None
