"""IR text: parsed, verified, printed and, if it is valid, optimised."""

from __future__ import annotations

import re
from pathlib import Path

from kernelpack.compiler.stages import optimise_ttir
from kernelpack.ir.dialect import _TABLE
from kernelpack.ir.text import parse_module, print_op
from kernelpack.ir.verify import verify
from tests.fuzz.subject import Subject
from tests.ir.examples import EXAMPLES


def _seeds() -> list[bytes]:
    return [text.encode() for text in EXAMPLES.values()]


def _run(data: bytes, folder: Path) -> None:
    module = parse_module(data.decode("utf-8", "replace"), "fuzz.ttir")
    verify(module)
    text = print_op(module, locations=True)
    verify(parse_module(text))
    verify(optimise_ttir(module))


_WORDS = {word for text in EXAMPLES.values() for word in re.findall(r"[\w.$%@#!<>-]+", text)}
TOKENS = [
    *(word.encode() for word in sorted(_WORDS | set(_TABLE))), b"tensor<8x8xf32>", b"i99999999999", b"tensor<1048576xi64>", b"loc(", b"{a = [",
    b"scf.if %c {", b"!tt.ptr<", b" : ", b" -> ", b"dense<",
]  # fmt: skip
SUBJECT = Subject(_seeds, _run, tokens=TOKENS)
