"""Buffer values refer to the bytes that they came from, through views, loops and branches."""

from __future__ import annotations

import pytest

from kernelpack.analysis.alias import buffer_aliases, buffer_parts
from kernelpack.ir.core import Value
from tests.analysis.test_membar import shape_of
from tests.analysis.ttgir import function

ALLOC = "%{0} = ttg.local_alloc : () -> $M\n"
_OFFSETS = "[0, 1], [0, 2], [0, 4], [0, 8], [0, 16], [0, 32], [0, 64], [0, 128], [1, 0], [2, 0]"
RINGS = f"!ttg.memdesc<4x256xf32, #ttg.shared_linear<{{offset = [{_OFFSETS}]}}, alignment = 16>, #ttg.shared_memory, mutable>"
ALLOC_RING = f"%ring = ttg.local_alloc : () -> {RINGS}\n"
INDICES = "%i0 = arith.constant 0 : i32\n%i2 = arith.constant 2 : i32\n"


def view(name: str, index: str) -> str:
    return f"%{name} = ttg.memdesc_index %ring[%{index}] : {RINGS} -> $M\n"


def parts(body: str) -> dict[str, set[tuple[str, int, int]]]:
    """Returns what named values refer to: the name of the allocated buffer, first and last byte."""
    root = function(body)
    return {
        value.name: {(part.op.result.name, part.start, part.end) for part in found}
        for value, found in buffer_parts(root).items()
        if value.name
    }


def test_views_at_constants_are_parts() -> None:
    found = parts(ALLOC_RING + INDICES + view("a", "i0") + view("b", "i2") + view("c", "n"))
    assert found["a"] == {("ring", 0, 1024)}
    assert found["b"] == {("ring", 2048, 3072)}
    assert found["c"] == {("ring", 0, 4096)}  # any of them


def test_branches_join_and_loops_carry() -> None:
    body = (
        ALLOC.format("a") + ALLOC.format("b") + "%z = arith.constant 0 : i32\n"
        "%either = scf.if %c -> ($M) {\nscf.yield %a : $M\n} else {\nscf.yield %b : $M\n}\n"
        "%last = scf.for %i = %z to %n step %n iter_args(%now = %a) -> ($M)  : i32 {\nscf.yield %b : $M\n}\n"
    )
    found = parts(body)
    assert found["either"] == found["last"] == found["now"] == {("a", 0, 1024), ("b", 0, 1024)}


def test_conditions_of_loops_pass_buffers_on() -> None:
    body = (
        ALLOC.format("a")
        + ALLOC.format("b")
        + "%last = scf.while (%seen = %a) : ($M) -> $M {\nscf.condition(%c) %seen : $M\n} do {\n"
        "^bb0(%now: $M):\nscf.yield %b : $M\n}\n"
    )
    found = parts(body)
    assert found["seen"] == found["now"] == found["last"] == {("a", 0, 1024), ("b", 0, 1024)}


def test_aliases_are_the_allocations() -> None:
    root = function(ALLOC_RING + INDICES + view("a", "i0"))
    named: dict[str, Value] = {value.name: value for op in root.walk() for value in op.results}
    assert buffer_aliases(root)[named["a"]] == {named["ring"].defining_op}


@pytest.mark.parametrize(("second", "expected"), [("i2", "WR"), ("i0", "W|R"), ("n", "W|R")])
def test_no_barrier_between_disjoint_parts_of_a_buffer(second: str, expected: str) -> None:
    body = ALLOC_RING + INDICES + view("a", "i0") + view("b", second)
    assert shape_of(body + "ttg.local_store %x, %a : $T -> $M\n%r = ttg.local_load %b : $M -> $T\n") == expected
