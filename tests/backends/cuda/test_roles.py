"""Roles of warps: what the language says becomes mbarriers, named barriers and branches; what does not fit names the line."""

from __future__ import annotations

import re
from typing import Any

import pytest

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.backends.cuda.machine.roles import check_roles
from kernelpack.compiled import CompiledKernel
from kernelpack.compiler.stages import compile_ttir, optimise_ttir
from kernelpack.errors import CompilationError, UnsupportedError
from kernelpack.facts import Fact
from kernelpack.frontend.ast_to_ttir import ast_to_ttir
from kernelpack.ir.core import entry_function
from kernelpack.ir.text import parse_module
from kernelpack.language import hopper
from kernelpack.options import Options
from kernelpack.target import Target
from tests.simt.hopper_kernels import STAGES, advance, produce

POINTERS = {"x": "*bf16", "out": "*fp32", "n": "i32"}


@kp.jit
def consume(copy, out, tiles, full, empty, n):
    stage, phase = 0, 0
    acc = tl.zeros([64, 64], tl.float32)
    for _ in range(n):
        hopper.mbarrier_wait(full[stage], phase)
        acc = hopper.wait_dots(0, hopper.async_dot(tiles[stage], tiles[stage].T, acc))
        hopper.mbarrier_arrive(empty[stage])
        stage, phase = advance(stage, phase)
    r = tl.arange(0, 64)
    tl.store(out + copy * 4096 + r[:, None] * 64 + r[None, :], acc)


@kp.jit
def gram(x, out, n):
    """out[copy] = x x^T, x [64, 64 n]."""
    desc = tl.make_tensor_descriptor(x, [64, n * 64], [n * 64, 1], [64, 64])
    full, empty = hopper.mbarrier_alloc(1, STAGES), hopper.mbarrier_alloc(2, STAGES)
    tiles = hopper.local_alloc([64, 64], tl.bfloat16, STAGES)
    hopper.warp_specialize(
        hopper.role(produce, (desc, tiles, full, empty, n), num_warps=1, registers=40),
        hopper.role(consume, (out, tiles, full, empty, n), num_warps=4, registers=232, copies=2),
    )


def ttir(kernel: Any, signature: dict[str, str] | None = None) -> Any:
    facts = [Fact(name, "tt.divisibility", 16) for name in ("x", "out")]
    return optimise_ttir(ast_to_ttir(kernel, signature or POINTERS, {}, facts))


def compiled(kernel: Any, target: str = "cuda:sm_90a") -> CompiledKernel:
    return compile_ttir(ttir(kernel), Target.parse(target), Options())


def test_text_round_trips() -> None:
    text = str(ttir(gram))
    assert str(parse_module(text)) == text


def test_roles_take_whole_warpgroups() -> None:
    kernel = compiled(gram)
    assert (kernel.metadata["num_warps"], kernel.metadata["threads"], kernel.metadata["spills"]) == (12, 384, 0)
    assert '"nvvm.reqntid"="384" "nvvm.minctasm"="1"' in kernel.stages["llir"]


def test_registers_go_from_the_role_that_loads_to_those_that_multiply() -> None:
    ptx = compiled(gram).stages["ptx"]
    assert re.findall(r"setmaxnreg\.(\w+)\.sync\.aligned\.u32\s+(\d+)", ptx) == [("dec", "40"), ("inc", "232")]


def test_barriers_are_initialised_by_one_thread_and_seen_by_all() -> None:
    ptx = compiled(gram).stages["ptx"]
    before, _, after = ptx.partition("fence.mbarrier_init.release.cluster;")
    assert len(re.findall(r"@%p\d+ mbarrier\.init", before)) == 4
    assert "mbarrier.init" not in after
    assert re.search(r"fence\.proxy\.async\.shared::cta;.*?bar\.sync\s+0;", after, re.DOTALL)


def test_tiles_are_multiplied_where_they_landed() -> None:
    ptx = compiled(gram).stages["ptx"]
    assert len(re.findall(r"wgmma\.mma_async\S*m64n64k16", ptx)) == 4
    assert not re.search(r"(ld|st)\.shared", ptx.partition("wgmma.wait_group")[0])


def test_a_role_waits_at_a_barrier_of_its_own() -> None:
    """Converting the sums for wide stores goes through shared memory: each copy has its own part, and waits for itself."""
    kernel = compiled(gram)
    ttgir = kernel.stages["ttgir"]
    scratch = re.search(r"ttg\.local_alloc %\S+ \{allocation\.offset = (\d+) : i32, allocation\.stride = (\d+) : i32\}", ttgir)
    assert scratch is not None
    assert int(scratch[2]) == 64 * 64 * 4
    assert kernel.metadata["shared"] >= int(scratch[1]) + 2 * int(scratch[2])
    waits = re.findall(r"bar\.sync\s+(%r\d+), 128;", kernel.stages["ptx"])
    assert len(waits) == 1


@kp.jit
def scale(copy, x_desc, out_desc, tile, full):
    hopper.mbarrier_wait(full, 0)
    hopper.local_store(tile, hopper.local_load(tile).to(tl.float32) * 2.0)
    hopper.async_store(out_desc, [0, 0], tile)
    hopper.async_store_wait(0)


@kp.jit
def fetch(copy, x_desc, out_desc, tile, full):
    hopper.mbarrier_expect(full, tile.nbytes)
    hopper.async_load(x_desc, [0, 0], tile, full)


@kp.jit
def doubled(x, out, n):
    strides = [n * 64, 1]
    x_desc = tl.make_tensor_descriptor(x, [64, n * 64], strides, [64, 64])
    out_desc = tl.make_tensor_descriptor(out, [64, n * 64], strides, [64, 64])
    tile, full = hopper.local_alloc([64, 64], tl.bfloat16), hopper.mbarrier_alloc(1)
    arguments = (x_desc, out_desc, tile, full)
    hopper.warp_specialize(hopper.role(fetch, arguments, num_warps=1), hopper.role(scale, arguments, num_warps=4))


def test_what_threads_store_is_fenced_and_waited_for_before_tma_reads_it() -> None:
    kernel = compile_ttir(ttir(doubled, {"x": "*bf16", "out": "*bf16", "n": "i32"}), Target.parse("cuda:sm_90a"), Options())
    ptx = kernel.stages["ptx"]
    order = [r"ld\.shared|ldmatrix", r"bar\.sync\s+\S+, 128", r"st\.shared|stmatrix", r"fence\.proxy\.async",
             r"bar\.sync\s+\S+, 128", r"cp\.async\.bulk\.tensor\.2d\.global", r"bulk\.wait_group\.read 0"]  # fmt: skip
    assert re.search(".*?".join(f"(?:{step})" for step in order), ptx.partition("mbarrier.try_wait")[2], re.DOTALL)


def test_tensor_maps_are_fetched_before_they_are_needed() -> None:
    kernel = compile_ttir(ttir(doubled, {"x": "*bf16", "out": "*bf16", "n": "i32"}), Target.parse("cuda:sm_90a"), Options())
    before, _, _ = kernel.stages["ptx"].partition("bar.sync")
    assert len(re.findall(r"@%p\d+ prefetch\.tensormap", before)) == 2


@kp.jit
def pick(copy, x, out):
    number, place = tl.max(tl.load(x + tl.arange(0, 64)).to(tl.int32), 0, return_indices=True)
    tl.store(out + place, number)


@kp.jit
def picks(x, out, n):
    hopper.warp_specialize(hopper.role(pick, (x, out), num_warps=1))


def test_each_number_of_a_reduction_is_made_the_same_for_a_warp() -> None:
    ptx = compiled(picks).stages["ptx"]
    reduced = ptx.rpartition("shfl.sync.bfly.b32")[2]
    assert len(re.findall(r"shfl\.sync\.idx\.b32\s+%r\d+, %r\d+, 0, 31, -1;", reduced)) == 2


@kp.jit
def take_turns(copy, out):
    hopper.named_barrier_wait(copy, 256)
    hopper.named_barrier_arrive(1 - copy, 256)
    tl.store(out + copy, 1.0)


@kp.jit
def turns(x, out, n):
    hopper.warp_specialize(hopper.role(take_turns, (out,), num_warps=4, copies=2))


def test_named_barriers_lie_above_those_of_roles() -> None:
    llir = compiled(turns).stages["llir"]
    assert re.search(r"(%\w+) = add i32 %\w+, 8,.*\n.*barrier\.cta\.sync\.aligned\.count\(i32 \1, i32 256\)", llir)
    assert "setmaxnreg" not in llir
    assert "minctasm" in llir


def test_other_architectures_are_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"test_roles\.py:\d+:\d+: ttng\.init_barrier .*needs cuda:sm_90a"):
        compiled(gram, "cuda:sm_80")
    with pytest.raises(UnsupportedError, match="cannot be compiled for cpu"):
        compiled(gram, "cpu:x86-64-v3")


# ---- errors name the line and the cure ----


def refusal(kernel: Any) -> str:
    with pytest.raises(CompilationError) as caught:
        compiled(kernel)
    return str(caught.value)


@kp.jit
def tile_outside(x, out, n):
    r = tl.arange(0, 64)
    tl.store(out + r, r.to(tl.float32))
    hopper.warp_specialize(hopper.role(take_turns, (out,), num_warps=4, copies=2))


def test_tiles_outside_of_roles() -> None:
    message = refusal(tile_outside)
    assert "outside of the roles" in message
    assert "test_roles.py" in message


@kp.jit
def more_after(x, out, n):
    hopper.warp_specialize(hopper.role(take_turns, (out,), num_warps=4, copies=2))
    tl.store(out, 1.0)


@kp.jit
def in_a_branch(x, out, n):
    if n > 3:
        hopper.warp_specialize(hopper.role(take_turns, (out,), num_warps=4, copies=2))


@pytest.mark.parametrize("kernel", [more_after, in_a_branch])
def test_roles_are_the_end_of_a_kernel(kernel: Any) -> None:
    assert "must be the last statement of a kernel" in refusal(kernel)


@kp.jit
def greedy(x, out, n):
    hopper.warp_specialize(hopper.role(take_turns, (out,), num_warps=4, copies=3, registers=240))


def test_registers_that_do_not_exist() -> None:
    assert "the roles have 92160 registers together, a multiprocessor has 65536" in refusal(greedy)


def test_registers_that_setmaxnreg_does_not_take() -> None:
    module = parse_module(
        """
        tt.func public @f() {
          "ttg.warp_specialize"() ({
            "ttg.role"() <{num_warps = 4 : i32, copies = 1 : i32, registers = 100 : i32}> ({
            ^bb0(%copy: i32):
              ttg.warp_return
            }) : () -> ()
            ttg.warp_return
          }) : () -> ()
          tt.return
        }
        """
    )
    with pytest.raises(CompilationError, match="a role has 100 registers a thread, which is no multiple of 8 from 24 to 256"):
        check_roles(entry_function(module))


@kp.jit
def no_ring(x, out, n):
    tile = hopper.local_alloc([64, 64], tl.bfloat16)
    hopper.local_load(tile[0])


@kp.jit
def past_the_ring(x, out, n):
    full = hopper.mbarrier_alloc(1, 2)
    hopper.mbarrier_wait(full[2], 0)


@kp.jit
def whole_ring(x, out, n):
    full = hopper.mbarrier_alloc(1, 2)
    hopper.mbarrier_wait(full, 0)


@kp.jit
def no_barrier(x, out, n):
    tile = hopper.local_alloc([64, 64], tl.bfloat16)
    hopper.mbarrier_arrive(tile)


@kp.jit
def arithmetic(x, out, n):
    tile = hopper.local_alloc([64, 64], tl.bfloat16)
    tl.store(out, tile + 1)


@kp.jit
def other_block(x, out, n):
    desc = tl.make_tensor_descriptor(x, [64, n], [n, 1], [64, 32])
    tile = hopper.local_alloc([64, 64], tl.bfloat16)
    hopper.async_load(desc, [0, 0], tile, hopper.mbarrier_alloc(1))


@kp.jit
def shapes(x, out, n):
    a = hopper.local_alloc([64, 64], tl.bfloat16)
    b = hopper.local_alloc([128, 64], tl.bfloat16)
    hopper.async_dot(a, b, tl.zeros([64, 64], tl.float32))


@kp.jit
def few_rows(x, out, n):
    a = hopper.local_alloc([32, 64], tl.bfloat16)
    hopper.async_dot(a, a.T, tl.zeros([32, 32], tl.float32))


@kp.jit
def odd_registers(x, out, n):
    hopper.warp_specialize(hopper.role(take_turns, (out,), registers=100))


@kp.jit
def not_a_role(x, out, n):
    hopper.warp_specialize(take_turns)


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (no_ring, "is no ring"),
        (past_the_ring, "the ring has 2 stages, number 2 is not one of them"),
        (whole_ring, "one barrier is needed, not a ring of 2"),
        (no_barrier, "a barrier is needed"),
        (arithmetic, "does not take buffer"),
        (other_block, r"copies blocks of \[64, 32\] bf16"),
        (shapes, "the shapes of a product do not fit"),
        (few_rows, "the rows of a product are a multiple of 64, not 32"),
        (odd_registers, "the registers of a role are a multiple of 8"),
        (not_a_role, "warp_specialize takes roles"),
    ],
)
def test_mistakes(kernel: Any, message: str) -> None:
    with pytest.raises(CompilationError, match=message) as caught:
        ttir(kernel)
    assert "test_roles.py" in str(caught.value)
