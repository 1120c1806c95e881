"""Buffers that are needed at the same time lie apart; others share their bytes."""

from __future__ import annotations

from functools import partial

from kernelpack.analysis.allocation import Allocation, allocate
from kernelpack.backends.gpu.facts.scratch import bytes_of
from kernelpack.backends.gpu.passes.place_shared import place_shared
from kernelpack.ir.core import functions
from tests.analysis.ttgir import function, gpu

ALLOC = "%{0} = ttg.local_alloc %x : ($T) -> $B\n"
LOAD = "%{0}_read = ttg.local_load %{0} : $B -> $T\n"


def place(body: str) -> tuple[Allocation, dict[str, int]]:
    found = allocate(function(body), partial(bytes_of, uses={}))
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


CALL = "tt.call @g(%x) : ($T) -> ()\n"


def place_calls(body: str, callee: str) -> tuple[int, dict[str, list[int]]]:
    """Returns what a kernel needs, and the offsets in each function: of buffers, and of what calls hand down."""
    kernel = function(body, callee)
    module = kernel.parent_op
    assert module is not None
    size = place_shared(module, gpu())
    offsets = {
        root.attributes["sym_name"]: [
            op.attributes["allocation.offset"] for op in root.walk() if "allocation.offset" in op.attributes
        ]
        for root in functions(module)
    }
    return size, offsets


def test_a_call_needs_what_the_called_function_does() -> None:
    size, offsets = place_calls(CALL, alloc("a") + alloc("b") + load("a") + load("b"))
    assert size == 2048
    assert offsets["f"] == [0]
    assert sorted(offsets["g"]) == [0, 1024]


def test_a_callee_s_memory_lies_apart_from_what_lives_across_its_call() -> None:
    size, offsets = place_calls(alloc("a") + CALL + load("a"), alloc("b") + load("b"))
    assert size == 2048
    assert sorted(offsets["f"]) == [0, 1024]
    assert offsets["g"] == [0]  # from where the caller says


def test_two_calls_one_after_the_other_share() -> None:
    size, offsets = place_calls(CALL + CALL, alloc("b") + load("b"))
    assert (size, offsets["f"]) == (1024, [0, 0])


def test_functions_without_shared_memory_cost_none() -> None:
    assert place_calls(CALL, "") == (0, {"f": [], "g": []})


def test_what_roles_hold_at_the_same_time_lies_apart() -> None:
    tile = "%{0}_t = arith.constant dense<1.0> : $T\n%{0} = ttg.local_alloc %{0}_t : ($T) -> $B\n"
    role = (
        '"ttg.role"() <{{num_warps = 4 : i32, copies = {1} : i32, registers = 0 : i32}}> ({{\n^bb0(%{0}_copy: i32):\n{2}'
        "ttg.warp_return\n}}) : () -> ()\n"
    )
    both = "".join(role.format(name, copies, tile.format(name) + load(name)) for name, copies in (("a", 1), ("b", 2)))
    kernel = function(f'"ttg.warp_specialize"() ({{\n{both}ttg.warp_return\n}}) : () -> ()\n')
    module = kernel.parent_op
    assert module is not None
    assert place_shared(module, gpu()) == 3072
