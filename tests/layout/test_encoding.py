"""Encodings print, and parse to the same layout; what is no layout is refused with its place."""

from __future__ import annotations

import pytest

from kernelpack.errors import ParseError
from kernelpack.ir.text import parse_module
from kernelpack.layout.encoding import LinearEncoding, layout_of
from kernelpack.layout.families import mma_accumulator


def parse(encoding: str) -> str:
    text = "tt.func public @f(%x: tensor<16x8xf32, ENCODING>) {\n  tt.return\n}"
    module = parse_module(text.replace("ENCODING", encoding))
    return str(module.body.operations[0].body.arguments[0].type.encoding)


def test_round_trip() -> None:
    encoding = LinearEncoding(mma_accumulator((16, 8), (1, 1)))
    assert parse(str(encoding)) == str(encoding)


def test_shared_round_trip() -> None:
    text = "!ttg.memdesc<4x4xf32, #ttg.shared_linear<{offset = [[0, 1], [0, 2], [1, 0], [2, 1]]}, alignment = 16>, #ttg.shared_memory>"
    module = parse_module(f"tt.func public @f(%x: {text}) {{\n  tt.return\n}}")
    kind = module.body.operations[0].body.arguments[0].type
    assert layout_of(kind)(offset=12) == (3, 1)
    assert parse_module(str(module)).body.operations[0].body.arguments[0].type == kind


def test_a_buffer_of_one_element_has_no_basis() -> None:
    text = "!ttg.memdesc<1xi64, #ttg.shared_linear<{offset = []}, alignment = 16>, #ttg.shared_memory, mutable>"
    module = parse_module(f"tt.func public @f(%x: {text}) {{\n  tt.return\n}}")
    kind = module.body.operations[0].body.arguments[0].type
    assert layout_of(kind).shape == (1,)
    assert parse_module(str(module)).body.operations[0].body.arguments[0].type == kind


@pytest.mark.parametrize(
    ("encoding", "message"),
    [
        ("#ttg.linear<{register = [[0, 1]], thread = []}>", "no dimension 'thread'"),
        ("#ttg.linear<{register = []}>", "at least one basis"),
    ],
)
def test_refusals(encoding: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        parse(encoding)
