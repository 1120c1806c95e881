"""A barrier for each hazard in shared memory, and none without one."""

from __future__ import annotations

import pytest

from kernelpack.backends.cuda.passes.place_shared import place_shared
from tests.analysis.ttgir import function

ALLOC = "%{0} = ttg.local_alloc %x : ($T) -> $B\n"
EMPTY = "%{0} = ttg.local_alloc : () -> $M\n"
STORE = "ttg.local_store %x, %{0} : $T -> $M\n"
READ = "%{0}_{1} = ttg.local_load %{0} : $M -> $T\n"
LOOP = "%z = arith.constant 0 : i32\nscf.for %i = %z to %n step %n  : i32 {{\n{0}}}\n"


def shape_of(body: str) -> str:
    """Returns the operations that matter in order: W(rite), R(ead), | for barriers, { } for a loop or branch."""
    root = function(body)
    place_shared(root, 1 << 20)
    letters = {"ttg.local_store": "W", "ttg.local_load": "R", "gpu.barrier": "|", "ttg.async_wait": "A"}
    text = ""

    def visit(op: object) -> None:
        nonlocal text
        name = op.name  # type: ignore[attr-defined]
        if name == "ttg.local_alloc" and op.operands:  # type: ignore[attr-defined]
            text += "W"
        text += letters.get(name, "")
        for region in op.regions:  # type: ignore[attr-defined]
            text += "{"
            for block in region.blocks:
                for inner in block.operations:
                    visit(inner)
            text += "}"

    for op in root.body.operations:
        visit(op)
    return text


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (EMPTY.format("a") + STORE.format("a") + READ.format("a", 0), "W|R"),
        (EMPTY.format("a") + READ.format("a", 0) + STORE.format("a"), "R|W"),
        (EMPTY.format("a") + STORE.format("a") + STORE.format("a"), "W|W"),
        (EMPTY.format("a") + READ.format("a", 0) + READ.format("a", 1), "RR"),
        (EMPTY.format("a") + STORE.format("a") + READ.format("a", 0) + READ.format("a", 1), "W|RR"),
    ],
)
def test_hazards_on_one_buffer(body: str, expected: str) -> None:
    assert shape_of(body) == expected


def test_no_barrier_between_disjoint_buffers() -> None:
    body = EMPTY.format("a") + EMPTY.format("b") + STORE.format("a") + READ.format("b", 0) + READ.format("a", 0)
    assert shape_of(body) == "WR|R"


def test_buffers_that_share_bytes_are_one() -> None:
    one = ALLOC.format("a") + "%r = ttg.local_load %a : $B -> $T\n"
    assert shape_of(one + one.replace("%a", "%b").replace("%r", "%s")) == "W|R|W|R"


def test_one_barrier_serves_several() -> None:
    body = (
        EMPTY.format("a")
        + EMPTY.format("b")
        + STORE.format("a")
        + STORE.format("b")
        + READ.format("a", 0)
        + READ.format("b", 0)
    )
    assert shape_of(body) == "WW|RR"


def test_the_next_iteration_meets_this_one() -> None:
    assert shape_of(EMPTY.format("a") + LOOP.format(STORE.format("a") + READ.format("a", 0))) == "{|W|R}"
    # only one hazard goes round
    assert shape_of(EMPTY.format("a") + STORE.format("a") + LOOP.format(READ.format("a", 0))) == "W{|R}"


def test_a_barrier_of_the_user_counts() -> None:
    assert shape_of(EMPTY.format("a") + STORE.format("a") + "gpu.barrier\n" + READ.format("a", 0)) == "W|R"


def test_branches_join() -> None:
    body = EMPTY.format("a") + "scf.if %c {\n" + STORE.format("a") + "}\n" + READ.format("a", 0)
    assert shape_of(body) == "{W}{}|R"


def test_copies_that_have_arrived_are_seen_by_others_behind_a_barrier() -> None:
    copy = "%t = ttg.async_copy_global_to_local %p, %a : tensor<256x!tt.ptr<f32>, LAYOUT> -> $M\n"
    layout = "#ttg.linear<{register = [[128]], lane = [[1], [2], [4], [8], [16]], warp = [[32], [64]], block = []}>"
    null = "%z64 = arith.constant 0 : i64\n%q = tt.int_to_ptr %z64 : i64 -> !tt.ptr<f32>\n"
    pointers = f"%p = tt.splat %q : !tt.ptr<f32> -> tensor<256x!tt.ptr<f32>, {layout}>\n"
    wait = "%w = ttg.async_wait {num = 0 : i32}\n"
    body = null + pointers + EMPTY.format("a") + copy.replace("LAYOUT", layout) + wait + READ.format("a", 0)
    assert shape_of(body) == "A|R"
    # the buffer is filled again only when everybody has read it
    again = body + copy.replace("LAYOUT", layout).replace("%t", "%u")
    assert shape_of(again) == "A|R|"
