"""What operations do to shared memory: bytes read and written, at once or later, and which pairs need no barrier."""

from __future__ import annotations

import pytest

from kernelpack.analysis.membar import NONE, Accesses
from kernelpack.backends.gpu.facts.shared_accesses import SharedAccesses
from kernelpack.backends.gpu.machine import SharedUse, SharedUses
from kernelpack.ir.core import Operation, entry_function
from tests.backends.gpu.facts.told import ARGUMENTS, BUFFER, LAYOUTS, TILE, TWO, placed, told
from tests.backends.gpu.ttgir import parse


def test_buffers_are_read_and_written_where_they_lie() -> None:
    found = told(
        f"""
    %a = ttg.local_alloc %x : ({TILE}) -> {BUFFER}
    ttg.local_store %x, %a : {TILE} -> {BUFFER}
    %y = ttg.local_load %a : {BUFFER} -> {TILE}
    %z = arith.addf %y, %y : {TILE}
    """,
        {},
    )
    assert found == {
        "local_alloc": "W[0, 1024)",
        "local_store": "W[0, 1024)",
        "local_load": "R[0, 1024)",
        "addf": "",
        "return": "",
    }


def test_one_of_several_buffers_is_told_from_the_others_where_its_number_is_known() -> None:
    load = f"%y = ttg.local_load %one : {BUFFER} -> {TILE}"
    start = f"%a = ttg.local_alloc : () -> {TWO}\n%k = arith.constant 1 : i32\n"
    known = told(f"{start}%one = ttg.memdesc_index %a[%k] : {TWO} -> {BUFFER}\n{load}", {})
    assert (known["local_load"], known["local_alloc"]) == ("R[1024, 2048)", "")
    assert told(f"{start}%one = ttg.memdesc_index %a[%i] : {TWO} -> {BUFFER}\n{load}", {})["local_load"] == "R[0, 2048)"


def test_what_threads_exchange_is_written_before_a_barrier_and_read_after_it() -> None:
    found = told("%h = tt.gather %w[%v] {axis = 0 : i32} : (tensor<16xf32, $I>, tensor<16xi32, $I>) -> tensor<16xf32, $I>", {})
    assert found["gather"] == "W[0, 64) | R[0, 64)"


@pytest.mark.parametrize(("early", "wait"), [("", "-> W[0, 1024)"), (", early = true", "")])
def test_a_copy_is_complete_for_its_own_thread_after_a_wait(early: str, wait: str) -> None:
    found = told(
        f"""
    %a = ttg.local_alloc : () -> {BUFFER}
    %t = ttg.async_copy_global_to_local %p, %a : tensor<16x16x!tt.ptr<f32>, $R> -> {BUFFER}
    %g = ttg.async_commit_group tokens %t
    %u = ttg.async_wait %g {{num = 0 : i32{early}}}
    """,
        {},
    )
    assert (found["async_copy_global_to_local"], found["async_wait"], found["async_commit_group"]) == ("A[0, 1024)", wait, "")


GATHER = "%h = tt.gather %w[%v] {axis = 0 : i32} : (tensor<16xf32, $I>, tensor<16xi32, $I>) -> tensor<16xf32, $I>"
STORE = f"%a = ttg.local_alloc : () -> {BUFFER}\nttg.local_store %x, %a : {TILE} -> {BUFFER}"


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        (SharedUse(reads=("dst",)), "R[0, 1024)"),
        (SharedUse(writes=("dst",)), "W[0, 1024)"),
        (SharedUse(late_writes=("dst",)), "A[0, 1024)"),
        (SharedUse(meets=True), "|"),
    ],
)
def test_a_machine_says_what_its_own_operations_do(use: SharedUse, expected: str) -> None:
    assert told(STORE, {"ttg.local_store": use})["local_store"] == expected


def test_late_writes_and_late_reads_end_where_the_machine_says() -> None:
    body = f"{STORE}\n%y = ttg.local_load %a : {BUFFER} -> {TILE}"
    finishes = SharedUse(finishes="ttg.local_store")
    late = told(body, {"ttg.local_store": SharedUse(late_writes=("dst",)), "ttg.local_load": finishes})
    assert late["local_load"] == "-> W[0, 1024)"  # who comes after may count on what arrived
    assert told(body, {"ttg.local_store": SharedUse(reads=("dst",)), "ttg.local_load": finishes})["local_load"] == "R[0, 1024)"


def test_a_call_does_what_its_function_does() -> None:
    root = entry_function(parse("%a = ttg.local_alloc : () -> " + BUFFER, ARGUMENTS, LAYOUTS))
    call = Operation("tt.call", (), (), {"callee": "g"})
    asked: list[Operation] = []

    def called(op: Operation) -> Accesses:
        asked.append(op)
        return NONE

    assert SharedAccesses(root, placed(root, {}), called, {})(call) is NONE
    assert asked == [call]


USES: SharedUses = {
    "ttg.local_alloc": SharedUse(order="one"),
    "ttg.local_dealloc": SharedUse(order="one"),
    "ttg.memdesc_index": SharedUse(order="other"),
    "ttg.local_load": SharedUse(finishes="ttg.local_store"),
}


def needed(first: Operation, second: Operation, uses: SharedUses) -> bool:
    root = entry_function(parse("", ARGUMENTS, LAYOUTS))
    return SharedAccesses(root, placed(root, uses), lambda op: NONE, uses).needs_barrier(first, second)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("ttg.local_store", "ttg.async_copy_global_to_local", True),
        ("ttg.local_alloc", "ttg.local_dealloc", False),  # one thread does both
        ("ttg.local_alloc", "ttg.local_alloc", False),
        ("ttg.local_alloc", "ttg.memdesc_index", True),  # each is done by one, but not by the same one
        ("ttg.local_alloc", "ttg.local_store", True),
        ("ttg.local_store", "ttg.local_alloc", True),
        ("ttg.local_store", "ttg.local_load", False),  # what it waits for began after the store
        ("ttg.local_load", "ttg.local_store", True),
    ],
)
def test_pairs_that_the_machine_orders_need_no_barrier(first: str, second: str, expected: bool) -> None:
    assert needed(Operation(first, (), ()), Operation(second, (), ()), USES) is expected


def test_a_copy_into_a_free_buffer_needs_no_barrier() -> None:
    copy = Operation("ttg.async_copy_global_to_local", (), (), {"free": True})
    assert not needed(Operation("ttg.local_load", (), ()), copy, {})
    assert needed(copy, Operation("ttg.local_load", (), ()), {})
