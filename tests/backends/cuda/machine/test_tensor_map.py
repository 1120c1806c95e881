"""Tensor maps as the launcher makes them, in the words of the kernel's parameters; and why there is none."""

from __future__ import annotations

import pytest

from kernelpack.analysis.axis_info import AxisInfoAnalysis
from kernelpack.backends.cuda.machine.tensor_map import (
    TensorMap,
    begins_known,
    ends_known,
    kernel_makes,
    tensor_map_of,
    why_not_copied,
)
from kernelpack.ir.core import Operation
from tests.backends.gpu.lowering.llir import parse

ARGUMENTS = "%p: !tt.ptr<bf16> {tt.divisibility = 16 : i32}, %m: i32, %n: i32 {tt.divisibility = 16 : i32}, %k: i32, %x: f32"


def make(
    before: str = "",
    operands: str = "%p, [%m, %n], [%s, %one]",
    block: str = "<bf16>, <tensor<128x64xbf16>>",
    after: str = "",
    more: str = "",
) -> tuple[Operation, AxisInfoAnalysis]:
    module = parse(
        f"""
        %one = arith.constant 1 : i64
        %s = arith.extsi %n : i32 to i64
        {before}
        %d = tt.make_tensor_descriptor {operands}{more} : {block}
        {after}
        """,
        ARGUMENTS,
    )
    function = module.body.operations[0]
    return next(op for op in function.walk() if op.name == "tt.make_tensor_descriptor"), AxisInfoAnalysis(function)


def test_a_map_is_said_in_the_words_of_parameters() -> None:
    found = tensor_map_of(*make())
    assert isinstance(found, TensorMap)
    assert str(found) == "bf16; base: p; sizes: m, n; strides: n; box: 128, 64; swizzle: 128; padding: zero"
    assert found.tensor == "p"


def test_sizes_are_expressions_in_postfix_form() -> None:
    before = """
    %c16 = arith.constant 16 : i32
    %kn = arith.muli %k, %c16 : i32
    %rest = arith.subi %m, %kn : i32
    %q = tt.addptr %p, %kn : !tt.ptr<bf16>, i32
    %s2 = arith.muli %s, %s : i64
    """
    found = tensor_map_of(*make(before, "%q, [%rest, %kn], [%s2, %one]"))
    assert isinstance(found, TensorMap)
    assert (found.base, found.sizes, found.strides) == ("p k 16 * 2 * +", ("m k 16 * -", "k 16 *"), ("n n *",))


@pytest.mark.parametrize(
    ("before", "operands", "more", "block", "reason"),
    [
        ("", "%p, [%m, %n], [%one, %s]", "", "<bf16>, <tensor<128x64xbf16>>", "the last stride is not 1"),
        (
            "%ks = arith.extsi %k : i32 to i64",
            "%p, [%m, %n], [%ks, %one]",
            "",
            "<bf16>, <tensor<128x64xbf16>>",
            "its strides are not known to be multiples of 16 bytes",
        ),
        (
            "%q = tt.addptr %p, %k : !tt.ptr<bf16>, i32",
            "%q, [%m, %n], [%s, %one]",
            "",
            "<bf16>, <tensor<128x64xbf16>>",
            "the tensor is not known to begin at a multiple of 16 bytes",
        ),
        (
            "%f = arith.fptosi %x : f32 to i32",
            "%p, [%f, %n], [%s, %one]",
            "",
            "<bf16>, <tensor<128x64xbf16>>",
            "its pointer, sizes and strides are not functions of the kernel's arguments",
        ),
        ("", "%p, [%m, %n], [%s, %one]", "", "<bf16>, <tensor<128x4xbf16>>", "TMA cannot copy a block of"),
    ],
)
def test_what_no_map_describes_is_said(before: str, operands: str, more: str, block: str, reason: str) -> None:
    assert str(tensor_map_of(*make(before, operands, block, more=more))).startswith(reason)


LOAD = "%t = tt.descriptor_load %d[%m, {}] : !tt.tensordesc<tensor<128x64xbf16>> -> tensor<128x64xbf16>"
STORE = "%z = arith.constant dense<0.0> : tensor<128x64xbf16>\ntt.descriptor_store %d[%m, {}], %z : !tt.tensordesc<tensor<128x64xbf16>>, tensor<128x64xbf16>"


def access(line: str, column: str, operands: str = "%p, [%m, %n], [%s, %one]") -> tuple[Operation, Operation, AxisInfoAnalysis]:
    descriptor, facts = make(operands=operands, after=line.format(column))
    return descriptor.result.users()[0], descriptor, facts


@pytest.mark.parametrize(("line", "column", "known"), [(LOAD, "%n", True), (LOAD, "%k", False), (STORE, "%n", True)])
def test_a_block_begins_at_sixteen_bytes(line: str, column: str, known: bool) -> None:
    found = access(line, column)
    assert begins_known(*found) is known
    assert (why_not_copied(*found) is None) is known


@pytest.mark.parametrize(("line", "known"), [(LOAD, True), (STORE, False)])
def test_rows_that_are_stored_to_end_at_sixteen_bytes(line: str, known: bool) -> None:
    found = access(line, "%n", "%p, [%m, %k], [%s, %one]")
    assert ends_known(*found) is known
    reason = why_not_copied(*found)
    assert reason is None if known else "not known to end at a multiple of 16 bytes" in str(reason)


LOOP = "scf.for %i = %m to %n step %m  : i32 {{\n{}\n}}"
FROM_MEMORY = "%f = arith.fptosi %x : f32 to i32"
UNKNOWN = "%p, [%f, %n], [%s, %one]"


@pytest.mark.parametrize(
    ("before", "operands", "after", "makes"),
    [
        (FROM_MEMORY, UNKNOWN, LOOP.format(LOAD.format("%n")), True),
        ("", "%p, [%m, %n], [%s, %one]", LOOP.format(LOAD.format("%n")), False),  # the launcher can
        (FROM_MEMORY, UNKNOWN, LOAD.format("%n"), False),  # one copy is no faster than pointers
        (FROM_MEMORY, UNKNOWN, LOOP.format(STORE.format("%n")), False),
    ],
)
def test_a_kernel_makes_maps_for_copies_that_run_ahead(before: str, operands: str, after: str, makes: bool) -> None:
    descriptor, facts = make(before, operands, after=after)
    assert kernel_makes(descriptor, facts) is makes
