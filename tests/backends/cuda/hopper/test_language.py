"""What kernels for sm_90a say becomes the operations of its hardware, in the order in which it is said."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.backends.cuda.hopper import language
from kernelpack.errors import CompilationError
from kernelpack.frontend.ast_to_ttir import ast_to_ttir
from kernelpack.ir.core import Operation
from kernelpack.ir.verify import verify
from kernelpack.kernel.jit import JITFunction
from kernelpack.language import hopper
from kernelpack.options import Options


def ttir(fn: JITFunction, types: dict[str, str], **constexprs: Any) -> Operation:
    module = ast_to_ttir(fn, types, constexprs, (), Options())
    verify(module)
    return module


def said(module: Operation) -> list[str]:
    """Returns the names of what only sm_90a has, in order, and where roles begin."""
    names = (op.name for op in module.walk())
    return [name.partition(".")[2] for name in names if name.startswith(("ttng.", "ttg.role"))]


@kp.jit
def produce(copy, x, rows, tiles, full):
    block = tl.make_tensor_descriptor(x, [rows, 64], [64, 1], [64, 64])
    hopper.mbarrier_expect(full, tiles.nbytes)
    hopper.async_load(block, [0, 0], tiles, full)


@kp.jit
def consume(copy, out, rows, tiles, full):
    block = tl.make_tensor_descriptor(out, [rows, 64], [64, 1], [64, 64])
    hopper.mbarrier_wait(full, 0)
    value = hopper.local_load(tiles)
    hopper.named_barrier_arrive(copy, 128)
    hopper.named_barrier_wait(copy, 128)
    hopper.local_store(tiles, value * 2)
    hopper.fence_async_shared()
    hopper.async_store(block, [0, 0], tiles)
    hopper.async_store_wait(0)
    hopper.mbarrier_arrive(full)


@kp.jit
def doubled(x, out, rows):
    full = hopper.mbarrier_alloc(1)
    tiles = hopper.local_alloc([64, 64], tl.float16)
    hopper.warp_specialize(
        hopper.role(produce, (x, rows, tiles, full), num_warps=1, registers=40),
        hopper.role(consume, (out, rows, tiles, full), num_warps=4, registers=232, copies=2),
    )


POINTERS = {"x": "*fp16", "out": "*fp16", "rows": "i32"}


def test_roles_say_what_their_warps_do() -> None:
    module = ttir(doubled, POINTERS)
    assert said(module) == [
        "init_barrier",
        "role",
        "barrier_expect",
        "async_tma_copy_global_to_local",
        "role",
        "wait_barrier",
        "arrive_barrier_named",
        "wait_barrier_named",
        "fence_async_shared",
        "async_tma_copy_local_to_global",
        "async_tma_store_wait",
        "arrive_barrier",
    ]
    roles = [op.attributes for op in module.walk() if op.name == "ttg.role"]
    assert [(row["num_warps"], row["registers"], row["copies"]) for row in roles] == [(1, 40, 1), (4, 232, 2)]
    (expected,) = (op for op in module.walk() if op.name == "ttng.barrier_expect")
    assert expected.attributes["size"] == 64 * 64 * 2


@kp.jit
def multiplies(out):
    a, b = hopper.local_alloc([64, 32], tl.bfloat16), hopper.local_alloc([64, 32], tl.bfloat16, stages=2)
    acc = hopper.async_dot(a, b[1].T, tl.zeros([64, 64], tl.float32))
    acc = hopper.wait_dots(0, acc)
    i = tl.arange(0, 64)
    tl.store(out + i[:, None] * 64 + i[None, :], acc)


def test_products_are_of_tiles_in_shared_memory() -> None:
    module = ttir(multiplies, {"out": "*fp32"})
    assert said(module) == ["warp_group_dot", "warp_group_dot_wait"]
    (product,) = (op for op in module.walk() if op.name == "ttng.warp_group_dot")
    assert product.operands[1].defining_op.name == "ttg.memdesc_trans"


@kp.jit
def asks_early(x):
    hopper.prefetch(x + tl.arange(0, 32) * 32)


def test_a_prefetch_is_an_instruction_for_each_pointer() -> None:
    text = str(ttir(asks_early, {"x": "*fp32"}))
    (line,) = (line for line in text.splitlines() if "elementwise_inline_asm" in line)
    assert "prefetch.global.L2 [$1]" in line
    assert line.endswith(": (tensor<32x!tt.ptr<f32>>) -> tensor<32xi32>")


@kp.jit
def returns(copy):
    return copy


@kp.jit
def role_that_returns(x):
    hopper.warp_specialize(hopper.role(returns, ()))


@kp.jit
def wrong_ring(x):
    hopper.local_load(hopper.local_alloc([64, 64], tl.float16, stages=2))


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (role_that_returns, "the function of a role returns nothing"),
        (wrong_ring, r"a tile in shared memory can be used here"),
    ],
)
def test_errors_are_at_the_kernel_s_line(fn: JITFunction, message: str) -> None:
    with pytest.raises(CompilationError, match=message) as refused:
        ttir(fn, {"x": "*fp32"})
    assert refused.value.location is not None
    assert refused.value.location.file == __file__


def test_every_name_is_documented_and_handed_on() -> None:
    for name in language.__all__:
        assert getattr(language, name).__doc__
        assert getattr(hopper, name) is getattr(language, name)


def test_its_operations_are_known_wherever_it_is_imported() -> None:
    """`kernelpack verify` makes ttir before anything imports what compiles it."""
    code = (
        "import kernelpack.language.hopper; from kernelpack.ir.dialect import definition; "
        "print(definition('ttg.warp_return').name, definition('ttng.fence_async_shared').name)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "ttg.warp_return ttng.fence_async_shared\n", done.stderr
