"""rewrite_roles: which kernels get a warp that loads, what both roles do, and what keeps a kernel as it is."""

from __future__ import annotations

import pytest

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.backends.cuda import ttir_to_ttgir as pipeline
from kernelpack.backends.cuda.context import CudaContext
from kernelpack.compiler.stages import optimise_ttir
from kernelpack.facts import Fact
from kernelpack.frontend.ast_to_ttir import ast_to_ttir
from kernelpack.ir.core import Operation, entry_function
from kernelpack.ir.verify import verify
from kernelpack.kernel.jit import JITFunction
from kernelpack.options import Options
from kernelpack.target import Target


@kp.jit
def product(a, b, c, n, ASK: tl.constexpr, WALK: tl.constexpr):
    """c = a b^T of n x n, or with WALK by programs that take one block after the other."""
    a_blocks = tl.make_tensor_descriptor(a, [n, n], [n, 1], [128, 64])
    b_blocks = tl.make_tensor_descriptor(b, [n, n], [n, 1], [128, 64])
    c_blocks = tl.make_tensor_descriptor(c, [n, n], [n, 1], [128, 128])
    last = n // 128 if WALK else tl.program_id(0) + 1
    for block in tl.range(tl.program_id(0), last, warp_specialize=ASK):
        acc = tl.zeros([128, 128], tl.float32)
        for at in range(0, n, 64):
            acc = tl.dot(a_blocks.load([block * 128, at]), b_blocks.load([tl.program_id(1) * 128, at]).T, acc)
        c_blocks.store([block * 128, tl.program_id(1) * 128], acc.to(tl.bfloat16))


@kp.jit
def in_place(a, b, c, n, ASK: tl.constexpr, WALK: tl.constexpr):
    """As `product`, but the result of a block is what the next one multiplies."""
    a_blocks = tl.make_tensor_descriptor(a, [n, n], [n, 1], [128, 64])
    b_blocks = tl.make_tensor_descriptor(b, [n, n], [n, 1], [128, 64])
    result = tl.make_tensor_descriptor(a, [n, n], [n, 1], [128, 128])
    for block in tl.range(0, n // 128, warp_specialize=ASK):
        acc = tl.zeros([128, 128], tl.float32)
        for at in range(0, n, 64):
            acc = tl.dot(a_blocks.load([block * 128, at]), b_blocks.load([0, at]).T, acc)
        result.store([block * 128 + 128, 0], acc.to(tl.bfloat16))


@kp.jit
def chain(a, b, c, n, ASK: tl.constexpr, WALK: tl.constexpr):
    """c = (a b^T) b, block by block of b: what is multiplied last was computed from a product."""
    a_blocks = tl.make_tensor_descriptor(a, [n, 64], [64, 1], [128, 64])
    b_blocks = tl.make_tensor_descriptor(b, [n, 64], [64, 1], [64, 64])
    c_blocks = tl.make_tensor_descriptor(c, [n, 64], [64, 1], [128, 64])
    rows = a_blocks.load([tl.program_id(0) * 128, 0])
    acc = tl.zeros([128, 64], tl.float32)
    for at in range(0, n, 64):
        block = b_blocks.load([at, 0])
        acc = tl.dot(tl.maximum(tl.dot(rows, block.T), 0.0).to(tl.bfloat16), b_blocks.load([at, 0]), acc)
    c_blocks.store([tl.program_id(0) * 128, 0], acc.to(tl.bfloat16))


def roles_of(kernel: JITFunction, num_warps: int = 8, stages: int = 3, ask: bool = True, walk: bool = False) -> list[Operation]:
    types = {"a": "*bf16", "b": "*bf16", "c": "*bf16", "n": "i32"}
    facts = tuple(Fact(name, "tt.divisibility", 16) for name in types)
    module = ast_to_ttir(kernel, types, {"ASK": ask, "WALK": walk}, facts)
    lowered = CudaContext(Target.parse("cuda:sm_90a"), Options(num_warps=num_warps, num_stages=stages), kernel.__name__)
    ttgir = pipeline.TTGIR(optimise_ttir(module), lowered)
    verify(ttgir)
    roles = [op for op in entry_function(ttgir).walk() if op.name == "ttg.role"]
    assert lowered.figures["num_warps"] == num_warps + 4 * bool(roles)
    return roles


def names_of(op: Operation) -> list[str]:
    return [inner.name for inner in op.walk() if inner.name.startswith("ttng.") or inner.name in ("scf.for", "gpu.barrier")]


def test_one_warp_copies_and_the_others_multiply() -> None:
    loads, multiplies = roles_of(product)
    assert [role.attributes["num_warps"] for role in (loads, multiplies)] == [1, 8]
    assert [role.attributes["registers"] for role in (loads, multiplies)] == [40, 232]
    assert names_of(loads) == [
        "scf.for",
        "scf.for",
        "ttng.wait_barrier",
        "ttng.barrier_expect",
        "ttng.async_tma_copy_global_to_local",
        "ttng.async_tma_copy_global_to_local",
    ]
    assert names_of(multiplies)[:8] == [
        "scf.for",
        "scf.for",
        "ttng.wait_barrier",
        "ttng.warp_group_dot",
        "ttng.warp_group_dot_wait",  # the product of the iteration before is done
        "ttng.arrive_barrier",
        "ttng.warp_group_dot_wait",
        "ttng.arrive_barrier",
    ]
    assert "gpu.barrier" not in names_of(loads)


def test_four_warps_keep_all_registers_that_a_thread_can_have() -> None:
    assert [role.attributes["registers"] for role in roles_of(product, 4)] == [0, 0]


@pytest.mark.parametrize("walk", [False, True])
def test_nobody_who_did_not_ask_for_it_gets_roles_for_one_product(walk: bool) -> None:
    assert not roles_of(product, ask=False, walk=walk)
    assert roles_of(product, walk=walk)


def test_products_of_products_have_roles_unasked_where_warpgroups_share_them() -> None:
    loads, multiplies = roles_of(chain, 8, ask=False)
    assert names_of(loads).count("ttng.async_tma_copy_global_to_local") == 4  # two in the loop, one before, one after
    assert names_of(multiplies).count("ttng.async_tma_copy_global_to_local") == 1  # rows of a
    assert not roles_of(chain, 4, ask=False)


def test_what_a_program_may_have_stored_is_not_loaded_ahead() -> None:
    assert not roles_of(in_place)


def test_kernels_stay_as_they_are_without_room_or_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not roles_of(product, stages=1)
    assert not roles_of(product, num_warps=32)  # a block has 32 warps
    monkeypatch.setattr(pipeline, "find_ptxas", lambda: None)  # nvJitLink drops setmaxnreg
    assert not roles_of(product)
