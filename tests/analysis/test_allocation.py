"""Buffers that are needed at the same time lie apart; others share their bytes."""

from __future__ import annotations

from kernelpack.analysis.allocation import Allocation, allocate
from kernelpack.backends.cuda.passes.place_shared import bytes_of
from tests.analysis.ttgir import function

ALLOC = "%{0} = ttg.local_alloc %x : ($T) -> $B\n"
LOAD = "%{0}_read = ttg.local_load %{0} : $B -> $T\n"


def place(body: str) -> tuple[Allocation, dict[str, int]]:
    found = allocate(function(body), bytes_of)
    return found, {op.result.name: offset for op, offset in found.offsets.items()}


def alloc(name: str) -> str:
    return ALLOC.format(name)


def load(name: str) -> str:
    return LOAD.format(name)


def test_one_after_the_other_share() -> None:
    found, offsets = place(alloc("a") + load("a") + alloc("b") + load("b"))
    assert offsets == {"a": 0, "b": 0}
    assert found.size == 1024


def test_together_lie_apart() -> None:
    found, offsets = place(alloc("a") + alloc("b") + load("a") + load("b"))
    assert sorted(offsets.values()) == [0, 1024]
    assert found.size == 2048


def test_what_a_loop_reads_lives_through_it() -> None:
    loop = "%z = arith.constant 0 : i32\nscf.for %i = %z to %n step %n  : i32 {\n" + load("a") + alloc("b") + load("b") + "}\n"
    _, offsets = place(alloc("a") + loop)
    assert offsets["a"] != offsets["b"]


def test_views_and_loop_carried_buffers_keep_their_source_alive() -> None:
    body = """
        %a = ttg.local_alloc : () -> $M
        %z = arith.constant 0 : i32
        %last = scf.for %i = %z to %n step %n iter_args(%buffer = %a) -> ($M)  : i32 {
          scf.yield %buffer : $M
        }
    """
    _, offsets = place(body + alloc("b") + "%r = ttg.local_load %last : $M -> $T\n" + load("b"))
    assert offsets["a"] != offsets["b"]


def test_gaps_are_filled() -> None:
    body = alloc("a") + alloc("b") + load("a") + alloc("c") + load("b") + load("c")
    found, offsets = place(body)
    assert found.size == 2048
    assert offsets["c"] == offsets["a"]
