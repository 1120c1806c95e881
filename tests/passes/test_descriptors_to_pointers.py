"""descriptors_to_pointers: the IR before and after, what stays, and that the meaning stays the same."""

from __future__ import annotations

import pytest
import torch

from kernelpack.analysis.axis_info import AxisInfoAnalysis
from kernelpack.compiled import DESCRIPTOR, POINTERS, DescriptorForm
from kernelpack.ir.core import Operation
from kernelpack.ir.interpret import launch
from kernelpack.ir.verify import verify
from kernelpack.passes.descriptors_to_pointers import descriptors_to_pointers
from tests.ir.examples import function, parse
from tests.passes.before_after import check, stays

ARGUMENTS = "%p: !tt.ptr<f16>, %n: i32, %i: i32"


def test_a_load_is_masked_where_it_may_leave_the_tensor() -> None:
    check(
        descriptors_to_pointers,
        ARGUMENTS,
        """
        %one = arith.constant 1 : i64
        %d = tt.make_tensor_descriptor %p, [%n], [%one] {padding = "nan"} : <f16>, <tensor<8xf16>>
        %x = tt.descriptor_load %d[%i] cacheModifier = cg : !tt.tensordesc<tensor<8xf16>> -> tensor<8xf16>
        tt.return %x : tensor<8xf16>
        """,
        """
        %one = arith.constant 1 : i64
        %nan = arith.constant dense<0x7E00> : tensor<8xf16>
        %0 = tt.make_range {end = 8 : i32, start = 0 : i32} : tensor<8xi32>
        %1 = arith.extsi %0 : tensor<8xi32> to tensor<8xi64>
        %2 = tt.splat %one : i64 -> tensor<8xi64>
        %3 = arith.muli %1, %2 : tensor<8xi64>
        %4 = arith.subi %n, %i : i32
        %5 = tt.make_range {end = 8 : i32, start = 0 : i32} : tensor<8xi32>
        %6 = tt.splat %4 : i32 -> tensor<8xi32>
        %7 = arith.cmpi slt, %5, %6 : tensor<8xi32>
        %zero = arith.constant 0 : i32
        %8 = arith.subi %zero, %i : i32
        %9 = tt.splat %8 : i32 -> tensor<8xi32>
        %10 = arith.cmpi sge, %5, %9 : tensor<8xi32>
        %11 = arith.extsi %i : i32 to i64
        %12 = arith.muli %11, %one : i64
        %13 = tt.addptr %p, %12 : !tt.ptr<f16>, i64
        %14 = tt.splat %13 : !tt.ptr<f16> -> tensor<8x!tt.ptr<f16>>
        %15 = tt.addptr %14, %3 : tensor<8x!tt.ptr<f16>>, tensor<8xi64>
        %16 = arith.andi %7, %10 : tensor<8xi1>
        %x = tt.load %15, %16, %nan cacheModifier = cg : tensor<8x!tt.ptr<f16>>
        tt.return %x : tensor<8xf16>
        """,
    )


def test_no_lower_bound_for_what_cannot_be_negative() -> None:
    module = parse(
        function(
            """
            %one = arith.constant 1 : i64
            %c8 = arith.constant 8 : i32
            %pid = tt.get_program_id x : i32
            %at = arith.muli %pid, %c8 : i32
            %d = tt.make_tensor_descriptor %p, [%n], [%one] : <f16>, <tensor<8xf16>>
            %x = tt.descriptor_load %d[%at] : !tt.tensordesc<tensor<8xf16>> -> tensor<8xf16>
            """,
            ARGUMENTS,
        )
    )
    descriptors_to_pointers(module)
    predicates = [op.attributes["predicate"] for op in module.walk() if op.name == "arith.cmpi"]
    assert predicates == ["slt"]


LOAD_AND_STORE = """
    %one = arith.constant 1 : i64
    %d = tt.make_tensor_descriptor %p, [%n], [%one] : <f16>, <tensor<8xf16>>
    %x = tt.descriptor_load %d[%i] : !tt.tensordesc<tensor<8xf16>> -> tensor<8xf16>
    tt.descriptor_store %d[%n], %x : !tt.tensordesc<tensor<8xf16>>, tensor<8xf16>
    tt.return
"""


def test_what_the_target_does_itself_stays() -> None:
    def run(module: object) -> None:
        descriptors_to_pointers(module, lambda access, facts: DESCRIPTOR)

    stays(run, ARGUMENTS, LOAD_AND_STORE)
    module = parse(function(LOAD_AND_STORE, ARGUMENTS))
    forms = {"tt.descriptor_load": DESCRIPTOR, "tt.descriptor_store": POINTERS}
    descriptors_to_pointers(module, lambda access, facts: forms[access.name])
    names = {op.name for op in module.walk()}
    assert {"tt.make_tensor_descriptor", "tt.descriptor_load", "tt.store"} <= names
    assert "tt.descriptor_store" not in names


@pytest.mark.parametrize("row_bytes", [16, 64])
def test_what_stays_where_rows_end_at_multiples_of_some_bytes_asks_for_that(row_bytes: int) -> None:
    module = parse(function(LOAD_AND_STORE, ARGUMENTS))
    known: list[bool] = []

    def form(access: Operation, facts: AxisInfoAnalysis) -> DescriptorForm:
        if access.name != "tt.descriptor_store":
            return DESCRIPTOR
        make = access.operands[0].defining_op
        assert make is not None
        known.append(facts[make.operands[1]].every() * 2 % row_bytes == 0)
        return DESCRIPTOR if known[-1] else DescriptorForm(True, row_bytes)

    assert descriptors_to_pointers(module, form)
    assert not descriptors_to_pointers(module, form)
    verify(module)
    assert known == [False, True]
    (branch,) = (op for op in module.walk() if op.name == "scf.if")
    whole, ragged = ([op.name for op in region.block.operations] for region in branch.regions)
    assert whole == ["tt.descriptor_store", "scf.yield"]
    assert ragged[-2:] == ["tt.store", "scf.yield"]


# ---- the meaning ----

SIZES = "%m: i32, %n: i32, %s: i64, %i: i32, %j: i32"
ACCESSES = {
    "load and store": """
        %x = tt.descriptor_load %d[%i, %j] : !tt.tensordesc<tensor<4x8xf32>> -> tensor<4x8xf32>
        tt.descriptor_store %e[%j, %i], %x : !tt.tensordesc<tensor<4x8xf32>>, tensor<4x8xf32>
    """,
    "reduce": """
        %x = tt.descriptor_load %d[%i, %j] : !tt.tensordesc<tensor<4x8xf32>> -> tensor<4x8xf32>
        tt.descriptor_reduce add, %e[%i, %i], %x : !tt.tensordesc<tensor<4x8xf32>>, tensor<4x8xf32>
    """,
    "a block without an axis of one element": """
        %f = tt.make_tensor_descriptor %p, [%m, %n], [%s, %one] : <f32>, <tensor<1x8xf32>>
        %x = tt.descriptor_load %f[%i, %j] : !tt.tensordesc<tensor<1x8xf32>> -> tensor<8xf32>
        %g = tt.make_tensor_descriptor %q, [%m, %n], [%s, %one] : <f32>, <tensor<1x8xf32>>
        tt.descriptor_store %g[%j, %i], %x : !tt.tensordesc<tensor<1x8xf32>>, tensor<8xf32>
    """,
    "gather and scatter": """
        %f = tt.make_tensor_descriptor %p, [%m, %n], [%s, %one] : <f32>, <tensor<1x8xf32>>
        %g = tt.make_tensor_descriptor %q, [%m, %n], [%s, %one] : <f32>, <tensor<1x8xf32>>
        %r = tt.make_range {end = 16 : i32, start = 0 : i32} : tensor<16xi32>
        %is = tt.splat %i : i32 -> tensor<16xi32>
        %rows = arith.addi %r, %is : tensor<16xi32>
        %x = tt.descriptor_gather %f[%rows, %j] : (!tt.tensordesc<tensor<1x8xf32>>, tensor<16xi32>, i32) -> tensor<16x8xf32>
        tt.descriptor_scatter %g[%rows, %i], %x : !tt.tensordesc<tensor<1x8xf32>>, tensor<16xi32>, i32, tensor<16x8xf32>
    """,
}


@pytest.mark.parametrize("name", ACCESSES)
@pytest.mark.parametrize(("i", "j"), [(0, 0), (2, -3), (-1, 6), (-9, 2), (3, 2**31 - 1), (-(2**31), 0)])
def test_both_mean_the_same(name: str, i: int, j: int) -> None:
    text = function(
        """
        %one = arith.constant 1 : i64
        %d = tt.make_tensor_descriptor %p, [%m, %n], [%s, %one] : <f32>, <tensor<4x8xf32>>
        %e = tt.make_tensor_descriptor %q, [%m, %n], [%s, %one] : <f32>, <tensor<4x8xf32>>
        """
        + ACCESSES[name],
        f"%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, {SIZES}",
    )
    x, results = torch.randn(7, 12)[:, :9], []
    for rewritten in (False, True):
        module = parse(text)
        if rewritten:
            assert descriptors_to_pointers(module)
            verify(module)
            assert not any("desc" in op.name for op in module.walk())
        out = torch.zeros(7, 12)[:, :9]
        launch(module, 1, [x, out, 7, 9, 12, i, j])
        results.append(out)
    torch.testing.assert_close(*results, rtol=0, atol=0)
