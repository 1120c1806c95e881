"""What operations do to shared memory: bytes read and written, at once or later, and which pairs need no barrier."""

from __future__ import annotations

import pytest

from kernelpack.analysis.allocation import allocate
from kernelpack.analysis.membar import BARRIER, NONE, Accesses
from kernelpack.backends.gpu.facts.scratch import alignment_of, bytes_of
from kernelpack.backends.gpu.facts.shared_accesses import SharedAccesses, needs_barrier
from kernelpack.ir.core import Operation, entry_function
from kernelpack.layout.encoding import tma_encoding
from kernelpack.layout.families import Threads, spread, swizzled
from tests.backends.gpu.ttgir import parse

LAYOUTS = {
    "R": spread((16, 16), 1, (1, 0), Threads(1, 32)),
    "I": spread((16,), 1, (0,), Threads(1, 32)),
    "S": swizzled((16, 16), (1, 0)),
    "Z": swizzled((2, 16, 16), (2, 1, 0)),
    "B": swizzled((1,), (0,)),
}
TILE, BUFFER = "tensor<16x16xf32, $R>", "!ttg.memdesc<16x16xf32, $S, #ttg.shared_memory, mutable>"
TWO, ONE = "!ttg.memdesc<2x16x16xf32, $Z, #ttg.shared_memory, mutable>", "!ttg.memdesc<1xi64, $B, #ttg.shared_memory, mutable>"
BLOCK, BYTES = (
    "!tt.tensordesc<tensor<16x16xf32>>",
    f"!ttg.memdesc<16x16xf32, {tma_encoding((16, 16), 32)}, #ttg.shared_memory, mutable>",
)
ARGUMENTS = f"%x: {TILE}, %p: tensor<16x16x!tt.ptr<f32>, $R>, %i: i32, %v: tensor<16xi32, $I>, %w: tensor<16xf32, $I>, %d: {BLOCK}, %yes: i1"


def told(body: str) -> dict[str, str]:
    """Returns what each operation does: `R` reads, `W` writes, `A` writes later; `|` a barrier, before and behind it."""
    root = entry_function(parse(body, ARGUMENTS, LAYOUTS))
    accesses = SharedAccesses(root, allocate(root, bytes_of, alignment_of), lambda op: BARRIER)
    return {op.name.partition(".")[2]: text(accesses(op)) for op in root.walk() if op is not root}


def text(accesses: Accesses) -> str:
    def side(pending: object) -> str:
        kinds = {"R": pending.reads, "W": pending.writes, "A": pending.async_writes}
        return " ".join(f"{kind}[{each.start}, {each.end})" for kind, found in kinds.items() for each in sorted(found, key=str))

    before, behind = side(accesses.before), side(accesses.behind)
    if accesses.fenced:
        return f"{before} | {behind}".strip()
    return before if before == behind else f"{before} -> {behind}".strip()


def test_buffers_are_read_and_written_where_they_lie() -> None:
    found = told(f"""
    %a = ttg.local_alloc %x : ({TILE}) -> {BUFFER}
    ttg.local_store %x, %a : {TILE} -> {BUFFER}
    %y = ttg.local_load %a : {BUFFER} -> {TILE}
    %z = arith.addf %y, %y : {TILE}
    """)
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
    known = told(f"{start}%one = ttg.memdesc_index %a[%k] : {TWO} -> {BUFFER}\n{load}")
    assert (known["local_load"], known["local_alloc"]) == ("R[1024, 2048)", "")
    assert told(f"{start}%one = ttg.memdesc_index %a[%i] : {TWO} -> {BUFFER}\n{load}")["local_load"] == "R[0, 2048)"


def test_what_threads_exchange_is_written_before_a_barrier_and_read_behind_it() -> None:
    found = told("%h = tt.gather %w[%v] {axis = 0 : i32} : (tensor<16xf32, $I>, tensor<16xi32, $I>) -> tensor<16xf32, $I>")
    assert found["gather"] == "W[0, 64) | R[0, 64)"


@pytest.mark.parametrize(("early", "wait"), [("", "-> W[0, 1024)"), (", early = true", "")])
def test_a_copy_is_complete_for_its_own_thread_behind_a_wait(early: str, wait: str) -> None:
    found = told(f"""
    %a = ttg.local_alloc : () -> {BUFFER}
    %t = ttg.async_copy_global_to_local %p, %a : tensor<16x16x!tt.ptr<f32>, $R> -> {BUFFER}
    %g = ttg.async_commit_group tokens %t
    %u = ttg.async_wait %g {{num = 0 : i32{early}}}
    """)
    assert (found["async_copy_global_to_local"], found["async_wait"], found["async_commit_group"]) == ("A[0, 1024)", wait, "")


def test_a_block_that_is_copied_waits_at_its_barrier() -> None:
    found = told(f"""
    %m = ttg.local_alloc : () -> {ONE}
    %a = ttg.local_alloc : () -> {BYTES}
    ttng.init_barrier %m, 1 : {ONE}
    ttng.barrier_expect %m, 1024, %yes : {ONE}
    ttng.async_tma_copy_global_to_local %d[%i, %i] %a, %m, %yes : {BLOCK}, {ONE} -> {BYTES}
    ttng.wait_barrier %m, %i : {ONE}
    ttng.inval_barrier %m : {ONE}
    gpu.barrier
    """)
    barrier, tile = "[1024, 1032)", "[0, 1024)"
    assert found["async_tma_copy_global_to_local"] == f"R{barrier} A{tile}"
    assert {found[name] for name in ("init_barrier", "inval_barrier")} == {f"W{barrier}"}
    assert {found[name] for name in ("barrier_expect", "wait_barrier")} == {f"R{barrier}"}
    assert found["barrier"] == "|"


def test_what_reads_late_reads_until_it_is_waited_for() -> None:
    found = told(f"""
    %a = ttg.local_alloc : () -> {BYTES}
    ttng.async_tma_copy_local_to_global %d[%i, %i] %a : {BLOCK}, {BYTES}
    ttng.async_tma_store_wait {{num = 0 : i32}}
    """)
    assert found["async_tma_copy_local_to_global"] == found["async_tma_store_wait"] == "R[0, 1024)"


def test_a_call_does_what_its_function_does() -> None:
    root = entry_function(parse("%a = ttg.local_alloc : () -> " + BUFFER, ARGUMENTS, LAYOUTS))
    call = Operation("tt.call", (), (), {"callee": "g"})
    asked: list[Operation] = []

    def called(op: Operation) -> Accesses:
        asked.append(op)
        return NONE

    assert SharedAccesses(root, allocate(root, bytes_of, alignment_of), called)(call) is NONE
    assert asked == [call]


@pytest.mark.parametrize(
    ("first", "second", "needed"),
    [
        ("ttg.local_store", "ttg.local_load", True),
        ("ttng.init_barrier", "ttng.inval_barrier", False),  # one thread does both
        ("ttng.init_barrier", "ttng.wait_barrier", True),
        ("tt.make_tensor_descriptor", "tt.make_tensor_descriptor", False),  # one warp does both
        ("tt.make_tensor_descriptor", "ttg.local_store", True),
        ("ttg.local_store", "tt.make_tensor_descriptor", True),
        ("ttg.local_store", "ttng.async_tma_store_wait", False),  # what it waits for began behind the store
        ("ttng.async_tma_store_wait", "ttg.local_store", True),
        ("ttg.local_load", "ttg.async_copy_global_to_local", True),
    ],
)
def test_pairs_that_the_hardware_orders_need_no_barrier(first: str, second: str, needed: bool) -> None:
    assert needs_barrier(Operation(first, (), ()), Operation(second, (), ())) is needed


def test_a_copy_into_a_free_buffer_needs_no_barrier() -> None:
    copy = Operation("ttg.async_copy_global_to_local", (), (), {"free": True})
    assert not needs_barrier(Operation("ttg.local_load", (), ()), copy)
    assert needs_barrier(copy, Operation("ttg.local_load", (), ()))
