"""hoist_descriptors, lower_descriptors, pipeline_tma and rotate_products: the IR before and after, and how the pipeline follows its loop."""

from __future__ import annotations

import textwrap
from unittest import mock

import pytest

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.backends.cuda import ttir_to_ttgir as pipeline
from kernelpack.backends.cuda.context import CudaContext
from kernelpack.backends.cuda.passes.hoist_descriptors import hoist_descriptors
from kernelpack.backends.cuda.schedule.descriptor_loops import schedule_descriptor_loops
from kernelpack.backends.cuda.schedule.lower_descriptors import lower_descriptors
from kernelpack.backends.cuda.schedule.rewrite_loops import rewrite_loops
from kernelpack.backends.cuda.ttir_to_ttgir import TTGIR
from kernelpack.backends.gpu.passes.sink_conversions import sink_conversions
from kernelpack.compiler.stages import optimise_ttir
from kernelpack.facts import Fact
from kernelpack.frontend.ast_to_ttir import ast_to_ttir
from kernelpack.ir.core import Operation, entry_function
from kernelpack.ir.text import parse_module
from kernelpack.ir.verify import verify
from kernelpack.layout.families import Threads, spread, swizzled
from kernelpack.options import Options
from kernelpack.target import Target
from tests.backends.gpu.ttgir import parse, text_of

LAYOUTS = {
    "R": spread((8, 64), 8, (1, 0), Threads(4, 32)),
    "T": spread((8, 64), 1, (0, 1), Threads(4, 32)),
    "B": swizzled((1,), (0,)),
}
ARGUMENTS = "%d: !tt.tensordesc<tensor<8x64xf16>>, %i: i32, %j: i32, %n: i32"


def names_of(op: Operation) -> list[str]:
    """Returns the operations inside of another, without constants, views and arithmetic."""
    quiet = ("arith.", "ttg.memdesc", "scf.yield", "tt.return")
    return [inner.name for inner in op.body.operations if not inner.name.startswith(quiet)]


def test_equal_descriptors_are_one_parameter() -> None:
    module = parse_module(
        textwrap.dedent("""
        tt.func public @f(%p: !tt.ptr<f16> {tt.divisibility = 16 : i32}, %n: i32 {tt.divisibility = 16 : i32}) {
          %one = arith.constant 1 : i64
          %s = arith.extsi %n : i32 to i64
          %d = tt.make_tensor_descriptor %p, [%n, %n], [%s, %one] : <f16>, <tensor<8x64xf16>>
          %e = tt.make_tensor_descriptor %p, [%n, %n], [%s, %one] : <f16>, <tensor<8x64xf16>>
          %f = tt.make_tensor_descriptor %p, [%n, %n], [%s, %one] : <f16>, <tensor<8x32xf16>>
          %x = tt.descriptor_load %d[%n, %n] : !tt.tensordesc<tensor<8x64xf16>> -> tensor<8x64xf16>
          tt.descriptor_store %e[%n, %n], %x : !tt.tensordesc<tensor<8x64xf16>>, tensor<8x64xf16>
          %y = tt.descriptor_load %f[%n, %n] : !tt.tensordesc<tensor<8x32xf16>> -> tensor<8x32xf16>
          tt.return
        }
        """)
    )
    function = entry_function(module)
    maps = hoist_descriptors(function)
    verify(module)
    assert [(tensor_map.base, tensor_map.box) for tensor_map in maps] == [("p", (8, 64)), ("p", (8, 32))]
    assert [argument.name for argument in function.body.arguments] == ["p", "n", "p_map", "p_map1"]
    assert len(function.attributes["arg_attrs"]) == 4
    assert "tt.make_tensor_descriptor" not in str(module)


def test_a_load_waits_for_its_copy_and_a_store_for_its_own() -> None:
    module = parse(
        """
        %x = tt.descriptor_load %d[%i, %j] : !tt.tensordesc<tensor<8x64xf16>> -> tensor<8x64xf16, $R>
        tt.descriptor_store %d[%j, %i], %x : !tt.tensordesc<tensor<8x64xf16>>, tensor<8x64xf16, $R>
        """,
        ARGUMENTS,
        LAYOUTS,
    )
    function = entry_function(module)
    lower_descriptors(function)
    verify(module)
    assert names_of(function) == [
        "ttg.local_alloc",  # the barrier
        "ttng.init_barrier",
        "ttg.local_alloc",
        "ttng.inval_barrier",
        "ttng.init_barrier",
        "ttng.fence_mbarrier_init",
        "ttng.barrier_expect",
        "ttng.async_tma_copy_global_to_local",
        "ttng.wait_barrier",
        "ttg.local_load",
        "ttg.local_alloc",
        "ttg.local_store",
        "ttng.async_tma_copy_local_to_global",
        "ttng.async_tma_store_wait",
        "ttng.inval_barrier",
    ]
    text = text_of(module, LAYOUTS)
    assert "ttng.barrier_expect %0, 1024 :" in text
    assert "[%i, %j] %1, %0, %true" in text
    assert "ttng.async_tma_copy_local_to_global %d[%j, %i]" in text


@pytest.mark.parametrize("shared_bytes", [4096, 1024])
def test_stores_by_maps_of_the_kernel_are_waited_for_where_their_memory_is_written_again(shared_bytes: int) -> None:
    module = parse(
        """
        %one = arith.constant 1 : i64
        %s = arith.constant 64 : i64
        %d = tt.make_tensor_descriptor %p, [%n, %n], [%s, %one] : <f16>, <tensor<8x64xf16>>
        scf.for %k = %i to %n step %i : i32 {
          tt.descriptor_store %d[%k, %i], %x : !tt.tensordesc<tensor<8x64xf16>>, tensor<8x64xf16, $R>
        }
        """,
        "%p: !tt.ptr<f16>, %n: i32, %i: i32, %x: tensor<8x64xf16, $R>",
        LAYOUTS,
    )
    function = entry_function(module)
    lower_descriptors(function, shared_bytes=shared_bytes)
    verify(module)
    wait, write, copy = "ttng.async_tma_store_wait", "ttg.local_store", "ttng.async_tma_copy_local_to_global"
    around, inside = names_of(function), names_of(loop_of(module))
    if shared_bytes == 4096:
        assert around == ["ttg.local_alloc", wait, "tt.make_tensor_descriptor", "scf.for", wait]
        assert inside == [wait, write, copy]
    else:
        assert inside == ["ttg.local_alloc", write, copy, wait]


def test_what_only_the_pointers_of_a_store_need_is_converted_there() -> None:
    module = parse(
        """
        %y = ttg.convert_layout %x : tensor<8x64xf16, $R> -> tensor<8x64xf16, $T>
        scf.if %whole {
          tt.descriptor_store %d[%i, %j], %x : !tt.tensordesc<tensor<8x64xf16>>, tensor<8x64xf16, $R>
        } else {
          tt.store %p, %y : tensor<8x64x!tt.ptr<f16>, $T>
        }
        """,
        "%d: !tt.tensordesc<tensor<8x64xf16>>, %i: i32, %j: i32, %whole: i1, %x: tensor<8x64xf16, $R>, "
        "%p: tensor<8x64x!tt.ptr<f16>, $T>",
        LAYOUTS,
    )
    sink_conversions(entry_function(module))
    verify(module)
    (branch,) = (op for op in module.walk() if op.name == "scf.if")
    assert names_of(entry_function(module)) == ["scf.if"]
    assert [op.name for op in branch.regions[1].block.operations][:2] == ["ttg.convert_layout", "tt.store"]


@pytest.mark.parametrize(("tensor", "runs_ahead"), [("x", False), ("y", True)])
def test_loads_run_ahead_of_stores_to_other_tensors(tensor: str, runs_ahead: bool) -> None:
    kind = "!tt.tensordesc<tensor<8x64xf16>>"
    module = parse(
        f"""
        %c0 = arith.constant 0 : i32
        scf.for %k = %c0 to %n step %i : i32 {{
          %x = tt.descriptor_load %d[%k, %j] : {kind} -> tensor<8x64xf16, $R>
          tt.descriptor_store %e[%j, %k], %x : {kind}, tensor<8x64xf16, $R>
        }}
        """,
        f"{ARGUMENTS}, %e: {kind}",
        LAYOUTS,
    )
    function, before = entry_function(module), str(module)
    arguments = {argument.name: argument for argument in function.body.arguments}
    rewrite_loops(schedule_descriptor_loops(function, 3, {arguments["d"]: "x", arguments["e"]: tensor}))
    assert (str(module) != before) == runs_ahead
    assert ("tt.descriptor_load" not in names_of(loop_of(module))) == runs_ahead


# ---- whole kernels ----


@kp.jit
def product(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, LATER: tl.constexpr):
    da = tl.make_tensor_descriptor(a, [m, k], [k, 1], [BM, BK])
    db = tl.make_tensor_descriptor(b, [n, k], [k, 1], [BN, BK])
    dc = tl.make_tensor_descriptor(c, [m, n], [n, 1], [BM, BN])
    acc = tl.zeros([BM, BN], tl.float32)
    at = 0
    for _ in range(0, k, BK):
        x = da.load([tl.program_id(0) * BM, at])
        y = db.load([tl.program_id(1) * BN, at])
        if LATER:
            acc = tl.dot(x, y.T, acc) * 2
        else:
            acc = tl.dot(x, y.T, acc)
        at += BK
    dc.store([tl.program_id(0) * BM, tl.program_id(1) * BN], acc.to(c.dtype.element_ty))


def ttgir_of(stages: int, later: bool = False, **blocks: int) -> tuple[Operation, CudaContext]:
    facts = tuple(Fact(name, "tt.divisibility", 16) for name in "abcmnk")
    types = {**dict.fromkeys("abc", "*bf16"), **dict.fromkeys("mnk", "i32")}
    module = ast_to_ttir(product, types, {"BM": 128, "BN": 256, "BK": 64, "LATER": later, **blocks}, facts)
    lowered = CudaContext(Target.parse("cuda:sm_90a"), Options(num_warps=8, num_stages=stages), "product")
    ttgir = TTGIR(optimise_ttir(module), lowered)
    verify(ttgir)
    return ttgir, lowered


def loop_of(module: Operation) -> Operation:
    return next(op for op in module.walk() if op.name == "scf.for")


def test_products_that_are_summed_stay_in_flight_for_an_iteration() -> None:
    module, lowered = ttgir_of(4)
    loop = loop_of(module)
    assert names_of(loop) == [
        "ttng.wait_barrier",
        "ttng.warp_group_dot",
        "ttng.warp_group_dot_wait",
        "ttng.barrier_expect",
        "gpu.barrier",  # the buffer of the iteration before has been read
        "ttng.async_tma_copy_global_to_local",
        "ttng.async_tma_copy_global_to_local",
    ]
    (wait,) = (op for op in loop.walk() if op.name == "ttng.warp_group_dot_wait")
    assert wait.attributes["pendings"] == 1
    before = [op.name for op in module.walk() if op.name.startswith("ttng.async_tma_copy_global")]
    assert len(before) == 2 * 3 + 2  # three of four buffers are filled ahead, the fourth is read for an iteration longer
    assert lowered.figures["shared"] == 4 * (128 + 256) * 64 * 2 + 4 * 8


def test_products_that_are_read_at_once_leave_their_buffer_to_the_next_copy() -> None:
    module, _ = ttgir_of(3, later=True)
    copies = [op for op in module.walk() if op.name.startswith("ttng.async_tma_copy_global")]
    assert len(copies) == 2 * 3 + 2


def test_rings_have_as_many_buffers_as_fit() -> None:
    _, lowered = ttgir_of(9)
    assert lowered.figures["shared"] == 4 * (128 + 256) * 64 * 2 + 4 * 8


@pytest.mark.parametrize("stages", [1, 2])
def test_fewer_stages(stages: int) -> None:
    module, _ = ttgir_of(stages, BM=64, BN=64)
    copies = [op for op in module.walk() if op.name.startswith("ttng.async_tma_copy_global")]
    assert len(copies) == (2 if stages == 1 else 2 * 1 + 2)


@kp.jit
def attention(q, k, v, out, n, M: tl.constexpr, D: tl.constexpr, BN: tl.constexpr, READ: tl.constexpr):
    q_blocks = tl.make_tensor_descriptor(q, [n, D], [D, 1], [M, D])
    k_blocks = tl.make_tensor_descriptor(k, [n, D], [D, 1], [BN, D])
    v_blocks = tl.make_tensor_descriptor(v, [n, D], [D, 1], [BN, D])
    query = q_blocks.load([0, 0])
    peak, acc = tl.full([M], -float("inf"), tl.float32), tl.zeros([M, D], tl.float32)
    for at in range(0, n, BN):
        scores = tl.dot(query, k_blocks.load([at, 0]).T)
        if READ:  # the sum so far decides the weights: the next product cannot begin before it is there
            scores += tl.sum(acc, 1)[:, None]
        largest = tl.maximum(peak, tl.max(scores, 1))
        acc = tl.dot(
            tl.exp(scores - largest[:, None]).to(tl.bfloat16), v_blocks.load([at, 0]), acc * tl.exp(peak - largest)[:, None]
        )
        peak = largest
    tl.store(out + tl.arange(0, M)[:, None] * D + tl.arange(0, D)[None, :], acc)


def attention_loop(read: bool, warpgroups: int = 2) -> Operation:
    facts = tuple(Fact(name, "tt.divisibility", 16) for name in ("q", "k", "v", "out", "n"))
    types = {**dict.fromkeys(("q", "k", "v"), "*bf16"), "out": "*fp32", "n": "i32"}
    module = ast_to_ttir(attention, types, {"M": 64 * warpgroups, "D": 64, "BN": 64, "READ": read}, facts)
    lowered = CudaContext(Target.parse("cuda:sm_90a"), Options(num_warps=4 * warpgroups, num_stages=2), "attention")
    with mock.patch.object(pipeline, "find_ptxas", return_value=None):  # no roles: nvJitLink cannot give them registers
        ttgir = TTGIR(optimise_ttir(module), lowered)
    verify(ttgir)
    return loop_of(ttgir)


def test_products_of_attention_move_apart() -> None:
    loop = attention_loop(read=False)
    products = [op for op in loop.body.operations if op.name == "ttng.warp_group_dot"]
    waits = [op for op in loop.body.operations if op.name == "ttng.warp_group_dot_wait"]
    assert [op.attributes.get("isAsync") for op in products] == [True, True]
    assert [(op.attributes["pendings"], op.operands[0].defining_op) for op in waits] == [(1, products[0]), (0, products[1])]
    order = [op.name for op in loop.body.operations]
    softmax = max(index for index, name in enumerate(order) if name == "math.exp")
    assert order.index("ttng.warp_group_dot_wait") < order.index("math.exp")
    assert softmax < loop.body.operations.index(waits[1])  # the second product runs under the softmax
    assert loop.body.operations.index(waits[1]) < order.index("ttng.barrier_expect")
    keys, values = (op for op in loop.body.operations if op.name == "ttng.async_tma_copy_global_to_local")
    assert keys.operands[1] != values.operands[1]  # values are those of the iteration before


def test_products_that_depend_on_the_sum_stay_in_order() -> None:
    loop = attention_loop(read=True)
    products = [op for op in loop.body.operations if op.name == "ttng.warp_group_dot"]
    assert [bool(op.attributes.get("isAsync")) for op in products] == [False, False]


def test_products_of_one_warpgroup_stay_in_order() -> None:
    """Other blocks on the multiprocessor compute under them, if there is room for those."""
    products = [op for op in attention_loop(read=False, warpgroups=1).body.operations if op.name == "ttng.warp_group_dot"]
    assert [bool(op.attributes.get("isAsync")) for op in products] == [False, False]
