"""What operations of sm_90a do to shared memory, which of them need no barrier in between, and what they take of it."""

from __future__ import annotations

import pytest

from kernelpack.analysis.membar import NONE
from kernelpack.backends.cuda.machine.shared_uses import SHARED_USES
from kernelpack.backends.gpu.facts.scratch import alignment_of, bytes_of
from kernelpack.backends.gpu.facts.shared_accesses import SharedAccesses
from kernelpack.ir.core import Operation, entry_function
from kernelpack.ir.dialect import definition
from tests.backends.gpu.facts.told import ARGUMENTS, BLOCK, BYTES, LAYOUTS, ONE, placed, told
from tests.backends.gpu.ttgir import parse


def test_every_row_is_an_operation_whose_operands_are_called_so() -> None:
    for name, use in SHARED_USES.items():
        operands = {each.name for each in definition(name).operands}
        assert {*use.reads, *use.writes, *use.late_writes} <= operands
        assert not use.finishes or definition(use.finishes).name == use.finishes


def test_a_block_that_is_copied_waits_at_its_barrier() -> None:
    found = told(
        f"""
    %m = ttg.local_alloc : () -> {ONE}
    %a = ttg.local_alloc : () -> {BYTES}
    ttng.init_barrier %m, 1 : {ONE}
    ttng.barrier_expect %m, 1024, %yes : {ONE}
    ttng.async_tma_copy_global_to_local %d[%i, %i] %a, %m, %yes : {BLOCK}, {ONE} -> {BYTES}
    ttng.wait_barrier %m, %i : {ONE}
    ttng.inval_barrier %m : {ONE}
    gpu.barrier
    """,
        SHARED_USES,
    )
    barrier, tile = "[1024, 1032)", "[0, 1024)"
    assert found["async_tma_copy_global_to_local"] == f"R{barrier} A{tile}"
    assert {found[name] for name in ("init_barrier", "inval_barrier")} == {f"W{barrier}"}
    assert {found[name] for name in ("barrier_expect", "wait_barrier")} == {f"R{barrier}"}
    assert found["barrier"] == "|"


def test_what_reads_late_reads_until_it_is_waited_for() -> None:
    found = told(
        f"""
    %a = ttg.local_alloc : () -> {BYTES}
    ttng.async_tma_copy_local_to_global %d[%i, %i] %a : {BLOCK}, {BYTES}
    ttng.async_tma_store_wait 0
    """,
        SHARED_USES,
    )
    assert found["async_tma_copy_local_to_global"] == found["async_tma_store_wait"] == "R[0, 1024)"


@pytest.mark.parametrize(
    ("first", "second", "needed"),
    [
        ("ttg.local_store", "ttg.local_load", True),
        ("ttng.init_barrier", "ttng.inval_barrier", False),  # one thread does both
        ("ttng.init_barrier", "ttng.wait_barrier", True),
        ("tt.make_tensor_descriptor", "tt.make_tensor_descriptor", False),  # one warp does both
        ("tt.make_tensor_descriptor", "ttg.local_store", True),
        ("ttg.local_store", "tt.make_tensor_descriptor", True),
        ("ttg.local_store", "ttng.async_tma_store_wait", False),  # what it waits for began after the store
        ("ttng.async_tma_store_wait", "ttg.local_store", True),
        ("ttg.local_load", "ttg.async_copy_global_to_local", True),
    ],
)
def test_pairs_that_the_hardware_orders_need_no_barrier(first: str, second: str, needed: bool) -> None:
    root = entry_function(parse("", ARGUMENTS, LAYOUTS))
    accesses = SharedAccesses(root, placed(root, SHARED_USES), lambda op: NONE, SHARED_USES)
    assert accesses.needs_barrier(Operation(first, (), ()), Operation(second, (), ())) is needed


def test_a_tensor_map_takes_128_aligned_bytes() -> None:
    root = entry_function(
        parse(
            "%d = tt.make_tensor_descriptor %p, [%n, %n], [%s, %s] : !tt.ptr<f16>, !tt.tensordesc<tensor<64x64xf16>>",
            "%p: !tt.ptr<f16>, %n: i32, %s: i64",
            {},
        )
    )
    made = root.body.operations[0]
    assert (bytes_of(made, SHARED_USES), alignment_of(made, SHARED_USES)) == (128, 128)
