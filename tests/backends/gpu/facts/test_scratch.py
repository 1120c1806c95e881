"""The shared memory that operations take for themselves: what threads exchange in it, and how it must be aligned."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kernelpack.backends.gpu.facts.scratch import alignment_of, bytes_of, scan_warps, scratch_bytes
from kernelpack.backends.gpu.machine import SharedUse
from kernelpack.ir.core import Operation, entry_function
from kernelpack.layout.encoding import tma_encoding
from kernelpack.layout.families import Threads, scan, spread, swizzled
from kernelpack.layout.linear import LinearLayout
from tests.backends.gpu.ttgir import parse

SUM = "({\n^bb0(%a: f32, %b: f32):\n%s = arith.addf %a, %b : f32\ntt.scan.return %s : f32\n})"


def last(body: str, arguments: str, layouts: Mapping[str, LinearLayout]) -> Operation:
    return entry_function(parse(body, arguments, layouts)).body.operations[-2]


def scanned(layout: LinearLayout) -> Operation:
    kind = f"tensor<{'x'.join(map(str, layout.shape))}xf32, $L>"
    return last(
        f'%y = "tt.scan"(%x) <{{axis = 0 : i32, reverse = false}}> {SUM} : ({kind}) -> {kind}', f"%x: {kind}", {"L": layout}
    )


@pytest.mark.parametrize(
    ("layout", "warps", "needed"),
    [
        (scan((128,), 0, Threads(1, 32)), 1, 0),
        (scan((128,), 0, Threads(4, 32)), 4, 16),  # one float a warp
        (scan((128, 8), 0, Threads(1, 32)), 1, 0),
        (spread((64, 2), 1, (0, 1), Threads(2, 32), frozenset({1})), 2, 16),  # 2 warps x 2 columns x 4 bytes
        (spread((128, 8), 1, (0, 1), Threads(4, 32), frozenset({1})), 4, 128),  # 4 warps x 8 columns x 4 bytes
    ],
)
def test_warps_of_a_scan_exchange_totals(layout: LinearLayout, warps: int, needed: int) -> None:
    op = scanned(layout)
    assert (scan_warps(op), scratch_bytes(op, {})) == (warps, needed)


ATOMIC = (
    "%y = tt.atomic_rmw fadd, acq_rel, gpu, %p, %x : (tensor<{0}x!tt.ptr<f32>, $L>, tensor<{0}xf32, $L>) -> tensor<{0}xf32, $L>"
)
USE = "\ntt.store %p, %y : tensor<{0}x!tt.ptr<f32>, $L>"


@pytest.mark.parametrize(
    ("size", "used", "needed"),
    [
        (128, True, 0),  # each thread has its own
        (16, True, 64),  # lanes hold copies: one of them does it, and tells the others
        (64, True, 256),  # so do warps
        (16, False, 0),  # nobody asks
    ],
)
def test_an_atomic_tells_its_result_to_threads_with_copies(size: int, used: bool, needed: int) -> None:
    arguments = f"%p: tensor<{size}x!tt.ptr<f32>, $L>, %x: tensor<{size}xf32, $L>"
    body = ATOMIC.format(size) + (USE.format(size) if used else "")
    function = entry_function(parse(body, arguments, {"L": spread((size,), 1, (0,), Threads(4, 32))}))
    assert scratch_bytes(next(op for op in function.walk() if op.name == "tt.atomic_rmw"), {}) == needed


@pytest.mark.parametrize(("element", "needed"), [("f32", 4), ("f64", 8), ("f16", 4)])
def test_an_atomic_of_a_scalar_tells_all_threads(element: str, needed: int) -> None:
    body = f"%y = tt.atomic_rmw fadd, acq_rel, gpu, %p, %x : (!tt.ptr<{element}>, {element}) -> {element}\ntt.store %p, %y : !tt.ptr<{element}>"
    function = entry_function(parse(body, f"%p: !tt.ptr<{element}>, %x: {element}", {}))
    assert scratch_bytes(function.body.operations[0], {}) == needed


def test_a_gather_lays_out_what_it_looks_up_and_a_histogram_its_counts() -> None:
    layouts = {"L": spread((64,), 1, (0,), Threads(1, 32)), "M": spread((16,), 1, (0,), Threads(1, 32))}
    arguments = "%x: tensor<64xf16, $L>, %i: tensor<16xi32, $M>, %v: tensor<64xi32, $L>"
    gather = "%y = tt.gather %x[%i] {axis = 0 : i32} : (tensor<64xf16, $L>, tensor<16xi32, $M>) -> tensor<16xf16, $M>"
    assert scratch_bytes(last(gather, arguments, layouts), {}) == 64 * 2
    exchange = """
    %m = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32, $L>
    %c = arith.constant dense<32> : tensor<64xi32, $L>
    %p = arith.xori %m, %c : tensor<64xi32, $L>
    %y = tt.gather %v[%p] {axis = 0 : i32} : (tensor<64xi32, $L>, tensor<64xi32, $L>) -> tensor<64xi32, $L>
    """
    assert scratch_bytes(last(exchange, arguments, layouts), {}) == 0  # lanes exchange their elements
    count = "%y = tt.histogram %v : tensor<64xi32, $L> -> tensor<16xi32, $M>"
    assert scratch_bytes(last(count, arguments, layouts), {}) == 16 * 4


def test_a_buffer_has_the_bytes_of_its_tile_and_the_alignment_of_its_layout() -> None:
    plain = last(
        "%y = ttg.local_alloc : () -> !ttg.memdesc<16x16xf16, $S, #ttg.shared_memory, mutable>",
        "",
        {"S": swizzled((16, 16), (1, 0))},
    )
    assert (bytes_of(plain, {}), scratch_bytes(plain, {}), alignment_of(plain, {})) == (512, 0, 16)
    block = tma_encoding((64, 64), 16)
    copied = last(f"%y = ttg.local_alloc : () -> !ttg.memdesc<64x64xf16, {block}, #ttg.shared_memory, mutable>", "", {})
    assert (bytes_of(copied, {}), alignment_of(copied, {})) == (8192, block.alignment)
    assert block.alignment == 1024


def test_a_machine_says_what_its_own_operations_take() -> None:
    uses = {"tt.make_tensor_descriptor": SharedUse(scratch=96, alignment=32)}
    made = Operation("tt.make_tensor_descriptor", (), ())
    assert (bytes_of(made, uses), scratch_bytes(made, uses), alignment_of(made, uses)) == (96, 96, 32)
    assert (bytes_of(made, {}), alignment_of(made, {})) == (0, 1)
