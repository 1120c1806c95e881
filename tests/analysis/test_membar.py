"""A barrier for each hazard in shared memory, and none without one."""

from __future__ import annotations

import pytest

from kernelpack.backends.gpu.passes.place_shared import place_shared
from kernelpack.ir.core import Operation, functions
from kernelpack.ir.verify import verify
from tests.analysis.ttgir import function, gpu

ALLOC = "%{0} = ttg.local_alloc %x : ($T) -> $B\n"
EMPTY = "%{0} = ttg.local_alloc : () -> $M\n"
STORE = "ttg.local_store %x, %{0} : $T -> $M\n"
READ = "%{0}_{1} = ttg.local_load %{0} : $M -> $T\n"
LOOP = "%z = arith.constant 0 : i32\nscf.for %i = %z to %n step %n  : i32 {{\n{0}}}\n"


LETTERS = {
    "ttg.local_store": "W",
    "ttg.local_load": "R",
    "gpu.barrier": "|",
    "ttg.async_wait": "A",
    "tt.call": "C",
    "ttng.init_barrier": "I",
    "ttng.inval_barrier": "D",
    "ttng.barrier_expect": "E",
    "ttng.wait_barrier": "S",
    "ttng.async_tma_copy_global_to_local": "T",
}


def shape_of(body: str, callee: str | None = None) -> str:
    """Returns the operations that matter in order: W(rite), R(ead), C(all), | for barriers, { } for a loop or branch.

    `callee` is the body of @g(%x: $T), which `body` calls; its operations come after a colon.
    """
    root = function(body, callee)
    module = root.parent_op
    assert module is not None
    place_shared(module, gpu())
    verify(module)
    return ":".join(letters_of(root) for root in functions(module))


def letters_of(root: Operation) -> str:
    text = ""

    def visit(op: object) -> None:
        nonlocal text
        name = op.name
        if name == "ttg.local_alloc" and op.operands:
            text += "W"
        text += LETTERS.get(name, "")
        for region in op.regions:
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
    # what every iteration meets once is waited for before the first
    assert shape_of(EMPTY.format("a") + STORE.format("a") + LOOP.format(READ.format("a", 0))) == "W|{R}"
    # not if the loop has a barrier there for its own sake
    both = EMPTY.format("a") + STORE.format("a") + LOOP.format(READ.format("a", 0) + STORE.format("a"))
    assert shape_of(both) == "W{|R|W}"
    inside = "gpu.barrier\n" + READ.format("a", 0)
    assert shape_of(EMPTY.format("a") + STORE.format("a") + LOOP.format(inside)) == "W{|R}"


def test_a_barrier_of_the_user_counts() -> None:
    assert shape_of(EMPTY.format("a") + STORE.format("a") + "gpu.barrier\n" + READ.format("a", 0)) == "W|R"


def test_branches_join() -> None:
    body = EMPTY.format("a") + "scf.if %c {\n" + STORE.format("a") + "}\n" + READ.format("a", 0)
    assert shape_of(body) == "{W}{}|R"


def test_copies_that_have_arrived_are_seen_by_others_after_a_barrier() -> None:
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


# ---- loops ----


def test_what_a_condition_reads_last_is_known_after_its_loop() -> None:
    body = (
        EMPTY.format("a")
        + "scf.while : () -> () {\n"
        + READ.format("a", 0)
        + "scf.condition(%c)\n} do {\ngpu.barrier\nscf.yield\n}\n"
        + STORE.format("a")
    )
    assert shape_of(body) == "{R}{|}|W"


# ---- calls ----

CALL = "tt.call @g(%x) : ($T) -> ()\n"
CALLEE_WRITES = EMPTY.format("b") + STORE.format("b")
CALLEE_WRITES_AND_READS = CALLEE_WRITES + READ.format("b", 0)


def test_a_caller_waits_before_its_bytes_are_a_callee_s() -> None:
    body = EMPTY.format("a") + STORE.format("a") + READ.format("a", 0) + CALL
    assert shape_of(body, CALLEE_WRITES) == "W|R|C:W"
    # a callee that begins with a barrier of its own needs none
    assert shape_of(body, "gpu.barrier\n" + CALLEE_WRITES) == "W|RC:|W"


def test_what_a_callee_leaves_unsynchronised_is_known_to_its_caller() -> None:
    after = EMPTY.format("a") + STORE.format("a")
    assert shape_of(CALL + after, CALLEE_WRITES_AND_READS) == "C|W:W|R"
    assert shape_of(CALL + after, CALLEE_WRITES_AND_READS + "gpu.barrier\n") == "CW:W|R|"


def test_a_callee_that_touches_nothing_is_no_hazard() -> None:
    body = EMPTY.format("a") + STORE.format("a") + CALL + READ.format("a", 0)
    assert shape_of(body, "") == "WC|R:"
    assert shape_of(body, "gpu.barrier\n") == "WCR:|"
    # a barrier on one path only orders nothing
    assert shape_of(body, "scf.if %c {\ngpu.barrier\n}\n") == "WC|R:{|}{}"


def test_buffers_that_live_across_a_call_are_not_the_callee_s() -> None:
    body = EMPTY.format("a") + STORE.format("a") + CALL + READ.format("a", 0)
    assert shape_of(body, CALLEE_WRITES) == "WC|R:W"


def test_a_call_in_a_loop_meets_its_next_iteration() -> None:
    assert shape_of(LOOP.format(CALL), CALLEE_WRITES) == "{|C}:W"
    assert shape_of(LOOP.format(CALL), CALLEE_WRITES_AND_READS) == "{|C}:W|R"
    assert shape_of(LOOP.format(CALL), CALLEE_WRITES_AND_READS + "gpu.barrier\n") == "{C}:W|R|"


# ---- roles ----


def roles(*bodies: str) -> str:
    """Returns roles of four warps each, which end a kernel."""
    each = "".join(
        f'"ttg.role"() <{{num_warps = 4 : i32, copies = 1 : i32, registers = 0 : i32}}> ({{\n^bb0(%copy{number}: i32):\n{body}'
        "ttg.warp_return\n}) : () -> ()\n"
        for number, body in enumerate(bodies)
    )
    return f'"ttg.warp_specialize"() ({{\n{each}ttg.warp_return\n}}) : () -> ()\n'


def test_hazards_inside_a_role_get_barriers_of_its_own() -> None:
    tile = "%t = arith.constant dense<1.0> : $T\n"
    write, read = STORE.replace("%x", "%t"), READ
    inside = tile + write.format("a") + read.format("a", 0)
    assert shape_of(EMPTY.format("a") + roles(inside)) == "{{W|R}}"


def test_roles_order_each_other_themselves_and_start_after_a_barrier() -> None:
    tile = "%t = arith.constant dense<1.0> : $T\n"
    write = tile + STORE.replace("%x", "%t").format("a")
    read = READ.format("a", 0)
    assert shape_of(EMPTY.format("a") + roles(write, read)) == "{{W}{R}}"
    assert shape_of(EMPTY.format("a") + STORE.format("a") + roles(read)) == "W{{R}}"


# ---- asynchronous copies that arrive at mbarriers ----

LAYOUT_OF_ONE = "#ttg.shared_linear<{offset = []}, alignment = 16>"
MBARRIER = f"!ttg.memdesc<1xi64, {LAYOUT_OF_ONE}, #ttg.shared_memory, mutable>"
NEW = f'%bar = ttg.local_alloc : () -> {MBARRIER}\n"ttng.init_barrier"(%bar) <{{count = 1 : i32}}> : ({MBARRIER}) -> ()\n'
WAIT = f'%p0 = arith.constant 0 : i32\n"ttng.wait_barrier"(%bar, %p0) : ({MBARRIER}, i32) -> ()\n'
EXPECT = f'"ttng.barrier_expect"(%bar) <{{size = 1024 : i32}}> : ({MBARRIER}) -> ()\n'
END = f"ttng.inval_barrier %bar : {MBARRIER}\n"


def test_uses_of_an_mbarrier_meet_its_beginning_and_its_end_only() -> None:
    assert shape_of(NEW + EXPECT + WAIT + EXPECT + END) == "I|ESE|D"
    assert shape_of(NEW + LOOP.format(EXPECT + WAIT) + END) == "I|{ES}|D"


def test_one_thread_begins_and_ends_the_lives_of_mbarriers() -> None:
    again = f'"ttng.init_barrier"(%bar) <{{count = 2 : i32}}> : ({MBARRIER}) -> ()\n'
    assert shape_of(NEW + END + again + WAIT) == "IDI|S"


def test_bytes_of_a_tile_become_an_mbarrier_after_a_barrier() -> None:
    assert shape_of(ALLOC.format("a") + "%r = ttg.local_load %a : $B -> $T\n" + NEW) == "W|R|I"
