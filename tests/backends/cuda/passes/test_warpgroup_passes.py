"""The passes that make products of warpgroups: selection, layouts, waits, fences, before and after."""

from __future__ import annotations

import re

import pytest

from kernelpack.backends.cuda.passes.fence_proxies import fence_proxies
from kernelpack.backends.cuda.passes.select_warpgroup_products import select_warpgroup_dots
from kernelpack.backends.cuda.schedule.loop_schedule import Arrival, LoopSchedule
from kernelpack.backends.cuda.schedule.pointer_loops import schedule_pointer_loops
from kernelpack.backends.cuda.schedule.rewrite_loops import rewrite_loops
from kernelpack.backends.gpu.passes.assign_layouts import assign_layouts
from kernelpack.backends.gpu.passes.place_shared import place_shared
from kernelpack.ir.core import Operation, entry_function
from kernelpack.ir.types import MemDescType
from kernelpack.ir.verify import verify
from kernelpack.layout.encoding import layout_of, tma_encoding
from kernelpack.layout.families import Threads, spread, tma_tile, warpgroup_accumulator, warpgroup_operand
from kernelpack.layout.linear import LinearLayout
from kernelpack.layout.transfer import insert_dim, remove_dim
from tests.analysis.ttgir import gpu
from tests.backends.gpu.ttgir import parse

# ---- select_warpgroup_dots ----

POINTERS = """
    %i = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32>
    %row = tt.expand_dims %i {axis = 1 : i32} : tensor<64xi32> -> tensor<64x1xi32>
    %column = tt.expand_dims %i {axis = 0 : i32} : tensor<64xi32> -> tensor<1x64xi32>
    %stride = tt.splat %n : i32 -> tensor<64x1xi32>
    %start = arith.muli %row, %stride : tensor<64x1xi32>
    %rows = tt.broadcast %start : tensor<64x1xi32> -> tensor<64x64xi32>
    %columns = tt.broadcast %column : tensor<1x64xi32> -> tensor<64x64xi32>
    %offset = arith.addi %rows, %columns : tensor<64x64xi32>
    %base = tt.splat %p : !tt.ptr<KIND> -> tensor<64x64x!tt.ptr<KIND>>
    %at = tt.addptr %base, %offset : tensor<64x64x!tt.ptr<KIND>>, tensor<64x64xi32>
    %x = tt.load %at : tensor<64x64x!tt.ptr<KIND>>
"""
DOT = "    %d = tt.dot %x, %y, %c, inputPrecision = tf32 : tensor<64x64xKIND> * tensor<64x64xKIND> -> tensor<64x64xf32>\n"


def select(body: str, kind: str = "bf16", num_warps: int = 4) -> Operation:
    arguments = "%p: !tt.ptr<KIND> {tt.divisibility = 16 : i32}, %n: i32 {tt.divisibility = 16 : i32}, %c: tensor<64x64xf32>"
    module = parse((POINTERS + body).replace("KIND", kind), arguments.replace("KIND", kind), {})
    select_warpgroup_dots(entry_function(module), num_warps)
    verify(module)
    return module


def product_of(module: Operation) -> Operation:
    return next(op for op in module.walk() if op.name == "ttng.warp_group_dot")


def test_loaded_tiles_lie_in_shared_memory_as_in_global_memory() -> None:
    product = product_of(select(DOT.replace("%y", "%x")))
    a, b = product.operands[:2]
    # A is read along its rows, K-major; B along its rows too, which is MN-major: one buffer serves both
    assert a is b
    assert layout_of(a) == tma_tile((64, 64), 16)
    assert a.defining_op is not None
    assert a.defining_op.operands[0].defining_op is not None
    assert a.defining_op.operands[0].defining_op.name == "tt.load"
    assert isinstance(a.type, MemDescType)
    assert a.type.encoding == tma_encoding((64, 64), 16)


def test_a_transposed_tile_is_a_view_of_the_one_that_was_loaded() -> None:
    turned = "    %y = tt.trans %x {order = array<i32: 1, 0>} : tensor<64x64xKIND> -> tensor<64x64xKIND>\n"
    a, b = product_of(select(turned + DOT)).operands[:2]
    assert b.defining_op is not None
    assert b.defining_op.name == "ttg.memdesc_trans"
    assert b.defining_op.operands[0] is a
    assert layout_of(b) == tma_tile((64, 64), 16, (0, 1))


def test_what_comes_from_a_product_stays_in_registers() -> None:
    chained = DOT.replace("%y", "%x") + (
        "    %z = arith.truncf %d : tensor<64x64xf32> to tensor<64x64xKIND>\n" + DOT.replace("%d", "%e").replace("%x", "%z")
    ).replace("%y", "%x")
    module = select(chained)
    second = [op for op in module.walk() if op.name == "ttng.warp_group_dot"][1]
    assert not isinstance(second.operands[0].type, MemDescType)
    assign_layouts(entry_function(module), 4, gpu())
    assert layout_of(second.operands[0]) == warpgroup_operand((64, 64), 16, (4, 1))
    assert layout_of(second.result) == warpgroup_accumulator((64, 64), (4, 1))


@pytest.mark.parametrize(
    ("kind", "num_warps", "selected"),
    [
        ("bf16", 4, True),
        ("bf16", 8, True),
        ("bf16", 2, False),  # no whole warpgroup
        ("f32", 4, False),  # tf32 must lie along K, B's rows lie along N
    ],
)
def test_other_dots_stay(kind: str, num_warps: int, selected: bool) -> None:
    module = select(DOT.replace("%y", "%x"), kind, num_warps)
    assert any(op.name == "ttng.warp_group_dot" for op in module.walk()) == selected
    assert any(op.name == "tt.dot" for op in module.walk()) != selected


def test_dots_that_want_too_many_registers_together_stay() -> None:
    """Attention of 128 x 128 by four warps: 128 registers for the scores, or 64 for them in 16 bits, and as many for the result."""
    text = """
        %d = tt.dot %q, %k, %z : tensor<128x64xbf16> * tensor<64x{n}xbf16> -> tensor<128x{n}xf32>
        %p = arith.truncf %d : tensor<128x{n}xf32> to tensor<128x{n}xbf16>
        %e = tt.dot %p, %v, %c : tensor<128x{n}xbf16> * tensor<{n}x{m}xbf16> -> tensor<128x{m}xf32>
    """
    arguments = "%q: tensor<128x64xbf16>, %k: tensor<64x{n}xbf16>, %v: tensor<{n}x{m}xbf16>, %z: tensor<128x{n}xf32>, %c: tensor<128x{m}xf32>"
    for keys, columns, warps, count in ((128, 128, 4, 0), (128, 128, 8, 2), (64, 128, 4, 2), (128, 64, 4, 2)):
        module = parse(text.format(n=keys, m=columns), arguments.format(n=keys, m=columns), {})
        select_warpgroup_dots(entry_function(module), warps)
        assert [op.name for op in module.walk()].count("ttng.warp_group_dot") == count


@pytest.mark.parametrize(("keys", "count"), [(64, 8), (128, 0)])
def test_trips_of_an_unrolled_loop_take_their_registers_one_after_another(keys: int, count: int) -> None:
    """Attention of 128 rows by four warps, four trips in one: 128 registers for the sums, and the scores of one trip at a time."""
    trip = """
        %d{i} = tt.dot %q, %k, %z : tensor<128x64xbf16> * tensor<64x{n}xbf16> -> tensor<128x{n}xf32>
        %m{i} = "tt.reduce"(%d{i}) <{{axis = 1 : i32}}> ({{
        ^bb0(%x{i}: f32, %y{i}: f32):
          %r{i} = arith.maxnumf %x{i}, %y{i} : f32
          tt.reduce.return %r{i} : f32
        }}) : (tensor<128x{n}xf32>) -> tensor<128xf32>
        %w{i} = arith.maxnumf %m{before}, %m{i} : tensor<128xf32>
        %f{i} = tt.expand_dims %w{i} {{axis = 1 : i32}} : tensor<128xf32> -> tensor<128x1xf32>
        %g{i} = tt.broadcast %f{i} : tensor<128x1xf32> -> tensor<128x128xf32>
        %c{i} = arith.mulf %e{before}, %g{i} : tensor<128x128xf32>
        %p{i} = arith.truncf %d{i} : tensor<128x{n}xf32> to tensor<128x{n}xbf16>
        %e{i} = tt.dot %p{i}, %v, %c{i} : tensor<128x{n}xbf16> * tensor<{n}x128xbf16> -> tensor<128x128xf32>
    """
    arguments = f"%q: tensor<128x64xbf16>, %k: tensor<64x{keys}xbf16>, %v: tensor<{keys}x128xbf16>, %e0: tensor<128x128xf32>, %m0: tensor<128xf32>"
    zero = f"    %z = arith.constant dense<0.0> : tensor<128x{keys}xf32>\n"
    body = zero + "".join(trip.format(i=i, before=i - 1, n=keys) for i in range(1, 5))
    module = parse(body, arguments, {})
    select_warpgroup_dots(entry_function(module), 4)
    assert [op.name for op in module.walk()].count("ttng.warp_group_dot") == count


def test_tf32_along_k_goes_to_warpgroups() -> None:
    turned = "    %y = tt.trans %x {order = array<i32: 1, 0>} : tensor<64x64xf32> -> tensor<64x64xf32>\n"
    assert product_of(select(turned + DOT, "f32")).attributes["inputPrecision"] == "tf32"
    module = select(turned + DOT.replace("tf32", "ieee"), "f32")
    assert any(op.name == "tt.dot" for op in module.walk())


# ---- loops that copy through pointers, fence_proxies ----

TILE = "!ttg.memdesc<64x64xbf16, $T, #ttg.shared_memory>"
LOOP = f"""
    %zero = arith.constant 0 : i32
    %one = arith.constant 1 : i32
    %none = arith.constant dense<0.0> : tensor<64x64xf32, $acc>
    %j = tt.make_range {{end = 64 : i32, start = 0 : i32}} : tensor<64xi32, $j>
    %je = tt.expand_dims %j {{axis = 0 : i32}} : tensor<64xi32, $j> -> tensor<1x64xi32, $k>
    %jb = tt.broadcast %je : tensor<1x64xi32, $k> -> tensor<64x64xi32, $x>
    %base = tt.splat %p : !tt.ptr<bf16> -> tensor<64x64x!tt.ptr<bf16>, $x>
    %start = tt.addptr %base, %jb : tensor<64x64x!tt.ptr<bf16>, $x>, tensor<64x64xi32, $x>
    %by = arith.constant dense<64> : tensor<64x64xi32, $x>
    %r:2 = scf.for %i = %zero to %n step %one iter_args(%at = %start, %sum = %c) -> (tensor<64x64x!tt.ptr<bf16>, $x>, tensor<64x64xf32, $acc>)  : i32 {{
      %v = tt.load %at : tensor<64x64x!tt.ptr<bf16>, $x>
      %m = ttg.local_alloc %v : (tensor<64x64xbf16, $x>) -> {TILE}
      BODY
      %next = tt.addptr %at, %by : tensor<64x64x!tt.ptr<bf16>, $x>, tensor<64x64xi32, $x>
      scf.yield %next, %t : tensor<64x64x!tt.ptr<bf16>, $x>, tensor<64x64xf32, $acc>
    }}
    %end = arith.negf %r#1 : tensor<64x64xf32, $acc>
"""
SUM = f"%t = ttng.warp_group_dot %m, %m, %sum : {TILE} * {TILE} -> tensor<64x64xf32, $acc>"
ATTENTION = f"""
      %s = ttng.warp_group_dot %m, %m, %none : {TILE} * {TILE} -> tensor<64x64xf32, $acc>
      %f = math.exp2 %s : tensor<64x64xf32, $acc>
      %g = arith.mulf %sum, %f : tensor<64x64xf32, $acc>
      %w = arith.truncf %f : tensor<64x64xf32, $acc> to tensor<64x64xbf16, $acc>
      %t = ttng.warp_group_dot %w, %m, %g : tensor<64x64xbf16, $acc> * {TILE} -> tensor<64x64xf32, $acc>
"""


def layouts(num_warps: int) -> dict[str, LinearLayout]:
    x = spread((64, 64), 8, (1, 0), Threads(num_warps, 32))
    columns = remove_dim(x, 0)
    return {"x": x, "j": columns, "k": insert_dim(columns, 0), "acc": warpgroup_accumulator((64, 64), (4, num_warps // 4))}


PRODUCT, WAIT, COPY = "ttng.warp_group_dot", "ttng.warp_group_dot_wait", "ttg.async_copy_global_to_local"


def scheduled(body: str, stages: int, shared_bytes: int = 1 << 18, num_warps: int = 4) -> tuple[Operation, list[LoopSchedule]]:
    """Returns a module, and what is decided of its loop."""
    text = LOOP.replace("BODY", body).replace("$T", str(tma_encoding((64, 64), 16)))
    arguments = "%p: !tt.ptr<bf16> {tt.divisibility = 16 : i32}, %n: i32, %c: tensor<64x64xf32, $acc>"
    module = parse(text, arguments, layouts(num_warps))
    return module, schedule_pointer_loops(entry_function(module), stages, {}, shared_bytes)


def pipelined(body: str, stages: int, shared_bytes: int = 1 << 18, num_warps: int = 4) -> tuple[Operation, Operation]:
    """Returns the module and its loop after the passes."""
    module, schedules = scheduled(body, stages, shared_bytes, num_warps)
    rewrite_loops(schedules)
    fence_proxies(entry_function(module))
    verify(module)
    return module, next(op for op in module.walk() if op.name == "scf.for")


def names(loop: Operation) -> list[str]:
    """The operations of a loop that order others, with what they wait for."""
    shown = (PRODUCT, WAIT, COPY, "ttg.async_wait", "gpu.barrier", "ttng.fence_async_shared", "math.exp2", "arith.mulf")
    shown += ("ttng.wait_turn", "ttng.arrive_turn")
    short = {COPY: "copy", PRODUCT: "product", WAIT: "wait", "ttg.async_wait": "arrive", "ttng.fence_async_shared": "fence"}

    def name(op: Operation) -> str:
        pendings = op.attributes.get("pendings", op.attributes.get("num"))
        return short.get(op.name, op.name.rsplit(".", 1)[-1]) + (f" {pendings}" if pendings is not None else "")

    return [name(op) for op in loop.body.operations if op.name in shown]


def ring_of(module: Operation) -> tuple[int, ...]:
    kind = next(op for op in module.walk() if op.name == "ttg.local_alloc").result.type
    assert isinstance(kind, MemDescType)
    return kind.shape


def is_awaited_on_the_way_out(loop: Operation) -> bool:
    """Whether products in flight are waited for after the last iteration, where sums of no iteration do not come by."""
    assert loop.parent is not None
    assert loop.parent_op is not None
    after = loop.parent.operations[loop.parent.operations.index(loop) + 1 :]
    return (
        loop.parent_op.name == "scf.if"
        and [op.name for op in after] == [WAIT, "scf.yield"]
        and after[0].attributes["pendings"] == 0
        and all(value in after[1].operands for value in after[0].results)
    )


def test_sums_stay_in_flight_until_the_next_product_was_issued() -> None:
    module, loop = pipelined(SUM, 3)
    # two tiles on their way, one being read by this product, one by the last
    assert ring_of(module) == (4, 64, 64)
    assert names(loop) == ["arrive 1", "fence", "barrier", "product", "copy", "wait 1"]
    product = next(op for op in loop.body.operations if op.name == PRODUCT)
    assert product.attributes["isAsync"]
    copy = next(op for op in loop.body.operations if op.name == COPY)
    assert copy.attributes["free"]
    assert is_awaited_on_the_way_out(loop)


def test_each_product_is_waited_for_where_its_result_is_read() -> None:
    module, loop = pipelined(ATTENTION, 3)
    assert ring_of(module) == (4, 64, 64)
    assert names(loop) == ["arrive 1", "fence", "barrier", "product", "copy", "wait 0", "exp2", "wait 1", "mulf", "product"]
    assert all(op.attributes["isAsync"] for op in loop.body.operations if op.name == PRODUCT)
    assert is_awaited_on_the_way_out(loop)


def test_where_buffers_are_short_less_is_loaded_ahead() -> None:
    tile = 64 * 64 * 2
    module, loop = pipelined(ATTENTION, 3, 3 * tile + 1024)
    assert ring_of(module) == (3, 64, 64)
    assert names(loop)[:5] == ["arrive 0", "fence", "barrier", "product", "copy"]


@pytest.mark.parametrize("stages", [2, 3])
def test_sums_do_without_a_buffer_after_another_barrier(stages: int) -> None:
    module, loop = pipelined(SUM, stages, stages * 64 * 64 * 2 + 1024)
    assert ring_of(module) == (stages, 64, 64)
    assert names(loop) == [f"arrive {stages - 2}", "fence", "product", "wait 1", "copy"]
    place_shared(module, gpu(1 << 18))
    assert names(loop) == [f"arrive {stages - 2}", "fence", "barrier", "product", "wait 1", "barrier", "copy"]


def test_buffers_for_products_in_flight_do_not_cost_a_block() -> None:
    tile = 64 * 64 * 2
    # two blocks of three tiles fit on a multiprocessor, two of four do not
    module, _ = pipelined(SUM, 3, 2 * (3 * tile + 1024))
    assert ring_of(module) == (3, 64, 64)


def test_one_stage_neither_loads_ahead_nor_keeps_products_in_flight() -> None:
    module, loop = pipelined(SUM, 1)
    assert names(loop) == ["fence", "product"]
    place_shared(module, gpu(1 << 18))
    # written, fenced, then read after a barrier; and the next tile after another one
    assert names(loop) == ["barrier", "fence", "barrier", "product"]


def test_fences_are_not_doubled() -> None:
    module, _ = pipelined(SUM, 3)
    before = str(module)
    fence_proxies(entry_function(module))
    assert str(module) == before


def test_free_copies_need_no_barrier_of_their_own() -> None:
    module, loop = pipelined(ATTENTION, 3)
    place_shared(module, gpu(1 << 18))
    assert names(loop).count("barrier") == 1


def test_warpgroups_of_attention_take_turns_instead_of_meeting() -> None:
    module, loop = pipelined(ATTENTION, 3, num_warps=8)
    body = ["wait_turn", "product", "copy", "wait 0", "arrive 1", "fence", "arrive_turn", "exp2", "wait 1", "mulf", "product"]
    assert names(loop) == body
    assert loop.parent is not None
    around = [op.name for op in loop.parent.operations if op.name.startswith(("tt", "scf.for", "gpu"))]
    announced = ["ttg.async_wait", "ttng.fence_async_shared", "ttng.arrive_turn"]
    assert around == [*announced, "scf.for", "ttng.wait_turn", "gpu.barrier", WAIT]
    place_shared(module, gpu(1 << 18))
    assert names(loop) == body
    turn = loop.body.arguments[-1]
    assert [user.name for user in turn.users()] == ["ttng.wait_turn", "arith.xori"]


@pytest.mark.parametrize(("body", "stages"), [(SUM, 3), (ATTENTION, 2)])
def test_other_loops_keep_their_barrier(body: str, stages: int) -> None:
    """Sums alone leave nothing to compute meanwhile; of tiles loaded one iteration ahead, none is there in the middle of it."""
    _, loop = pipelined(body, stages, num_warps=8)
    assert "barrier" in names(loop)
    assert "wait_turn" not in names(loop)


def shown(body: str, stages: int, **given: int) -> list[str]:
    """What a loop's schedule says, without the places of operations, which text does not have."""
    module, (schedule,) = scheduled(body, stages, **given)
    before = str(module)
    text = re.sub(r" at \?| \?", "", str(schedule))
    assert str(module) == before  # nothing is rewritten until everything is decided
    return text.splitlines()


def test_a_schedule_says_what_was_decided() -> None:
    groups = "cp.async groups, counted by each thread, then a barrier"
    assert shown(SUM, 3) == [
        f"loop: copies 2 iterations ahead into rings of 4 slots; {groups}",
        "  copy: 64x64xbf16",
        "  copies are issued after ttng.warp_group_dot",
        "  product: ends in the next iteration",
    ]
    waits = [
        "  product: ends in the next iteration",
        "  wait for product before math.exp2, 0 issued after it may be in flight",
        "  wait for product before arith.mulf, 1 issued after it may be in flight",
    ]
    assert shown(ATTENTION, 3)[3:] == waits
    turns = shown(ATTENTION, 3, num_warps=8)
    assert turns[0].endswith(f"; {Arrival.TURNS.value}")
    assert turns[3:] == waits
    tile = 64 * 64 * 2
    short = shown(ATTENTION, 3, shared_bytes=3 * tile + 1024)
    assert short[0] == f"loop: copies 1 iteration ahead into rings of 3 slots; {groups}"
