"""The parser: broken text is refused with the place and the reason, and never by another exception."""

from __future__ import annotations

import contextlib
import random

import pytest

from kernelpack.errors import ParseError
from kernelpack.ir.attribute_parser import _TOKEN, MOST_NESTED, parse_float
from kernelpack.ir.text import parse_module
from kernelpack.ir.types import BF16, F8E4M3FN, F8E5M2, F16, F32
from kernelpack.ir.verify import verify
from tests.ir.examples import EXAMPLES, function

REFUSED = {
    # name: (body, line and column in the whole text, message)
    "unknown operation": ("arith.nope %a", "3:5", "unknown operation 'arith.nope'"),
    "unknown generic operation": ('"arith.nope"(%a) : (i32) -> i32', "3:17", "unknown operation 'arith.nope'"),
    "undefined value": ("%0 = arith.addi %a, %b : i32", "3:25", "%b is not defined here"),
    "operand types": ('%0 = "arith.addi"(%a, %a) : (i32, i64) -> i32', "3:33", "the operands have types (i32, i32), the text says (i32, i64)"),
    "number of names": ("%0:2 = arith.addi %a, %a : i32", "3:12", "arith.addi gives 1 results, 2 are named"),
    "unknown type": ("%0 = arith.extsi %a : i32 to int", "3:34", "unknown type 'int'"),
    "unknown element type": ("%0 = tt.splat %a : i32 -> tensor<8xint>", "3:40", "unknown element type 'int'"),
    "unknown dialect type": ("%0 = tt.splat %a : i32 -> !tt.what", "3:31", "unknown type '!tt.what'"),
    "no shape": ("%0 = tt.splat %a : i32 -> tensor<xi32>", "3:38", "expected a shape"),
    "unknown word": ("%0 = arith.cmpi smaller, %a, %a : i32", "3:21", "'smaller' is not one of eq, ne, slt"),
    "enum out of range": ("%0 = tt.load %a {cache = 9 : i32} : i32", "3:30", "9 is none of none, ca"),
    "constant without type": ("%0 = arith.constant 1", "4:5", "expected ':' and the constant's type"),
    "constant out of range": ("%0 = arith.constant 256 : i8", "3:25", "'256' is not a constant of type i8"),
    "fraction as integer": ("%0 = arith.constant 1.5 : i8", "3:25", "'1.5' is not a constant of type i8"),
    "too many bits": ("%0 = arith.constant 0x1FFFF : f16", "3:25", "'0x1FFFF' is not a constant of type f16"),
    "constant pointer": ("%0 = arith.constant 0 : !tt.ptr<f32>", "3:25", "is not a constant of type !tt.ptr<f32>"),
    "structured operation in generic need": ("tt.reduce %a", "3:15", "tt.reduce is written in the generic form"),
    "several blocks": ("scf.if %a {\n^bb0:\n%0 = arith.addi %a, %a : i32\n^bb1:\n}", "6:5", "regions with several blocks"),
    "integer of odd width": ("%0 = arith.constant 7 : i99999999999", "3:29", "unknown type 'i99999999999'"),
    "integer of no width": ("%0 = tt.splat %a : i32 -> tensor<8xi0>", "3:40", "unknown element type 'i0'"),
    "long number": (f"%0 = tt.splat %a : i32 -> tensor<{'1' * 5000}xi32>", "3:38", "expected an integer of 64 bits, found '111"),
    "long line": (f'%0 = arith.addi %a, %a : i32 loc("a":{"1" * 5000}:2)', "3:34", "expected an integer of 64 bits"),
    "many results": ("%0:99999999999 = arith.addi %a, %a : i32", "3:22", "gives 1 results, 99999999999 are named"),
    "no results": ("%0:-1, %1:2 = arith.addi %a, %a : i32", "3:19", "gives 1 results, 1 are named"),
    "deep type": (f"%0 = tt.splat %a : i32 -> {'!tt.ptr<' * 5000}", None, "it is nested too deep: more than 150 regions"),
    "deep attribute": (f"tt.return {{a = {'[' * 5000}", None, "it is nested too deep"),
    "deep location": (f"tt.return loc({'callsite(' * 5000}", None, "it is nested too deep"),
    "deep regions": ("scf.if %a {\n" * 5000, None, "it is nested too deep"),
    "character": ("%0 = arith.addi %a; %a", "3:23", "unexpected character ';'"),
    "unknown encoding": ("%0 = tt.splat %a : i32 -> tensor<8xi32, #nope>", "3:50", "unknown encoding #nope"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refuses(name: str) -> None:
    body, place, message = REFUSED[name]
    with pytest.raises(ParseError) as caught:
        parse_module(function(body, "%a: i32"), "kernel.ttir")
    assert message in caught.value.message
    assert place is None or str(caught.value.location) == f"kernel.ttir:{place}"


def test_text_that_is_nested_as_deep_as_may_be_is_read_verified_and_printed() -> None:
    levels = MOST_NESTED - 2  # one for the function, one for the types inside
    text = function("scf.if %a {\n" * levels + "}\n" * levels, "%a: i1")
    module = parse_module(text)
    verify(module)
    assert str(parse_module(str(module))) == str(module)
    with pytest.raises(ParseError, match="nested too deep"):
        parse_module(function("scf.if %a {\n" * MOST_NESTED + "}\n" * MOST_NESTED, "%a: i1"))


@pytest.mark.parametrize("name", EXAMPLES)
def test_broken_text_gives_nothing_but_parse_errors(name: str) -> None:
    text = EXAMPLES[name]
    tokens = [match for match in _TOKEN.finditer(text) if match.lastgroup != "space"]
    chance = random.Random(name)
    for match in chance.sample(tokens, min(60, len(tokens))):
        other = chance.choice(tokens).group()
        for broken in (text[: match.start()], text[: match.start()] + other + text[match.end() :]):
            with contextlib.suppress(ParseError):
                parse_module(broken)


def test_location_that_names_itself_is_unknown() -> None:
    text = "#loc1 = loc(#loc1)\n" + function("%0 = arith.addi %a, %a : i32 loc(#loc1)", "%a: i32")
    assert parse_module(text).body.operations[0].body.operations[0].location.source is None


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("0x7F800000", F32, float("inf")),
        ("0x3C00", F16, 1.0),
        ("0xC000", BF16, -2.0),
        ("0x38", F8E4M3FN, 1.0),
        ("0x3C", F8E5M2, 1.0),
        ("0x7C", F8E5M2, float("inf")),
        ("0.1", BF16, 0.10009765625),
        ("1e10", F16, float("inf")),
        ("1e-50", F32, 0.0),
    ],
)
def test_floats_are_read_in_their_type(text: str, kind: object, value: float) -> None:
    assert parse_float(text, kind) == value
