"""Which layout an access of global memory would like, which one accesses share, and what an access costs in a given one."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kernelpack.analysis.axis_info import AxisInfoAnalysis
from kernelpack.backends.gpu.facts.conversion_cost import BARRIER, layout_cost
from kernelpack.backends.gpu.facts.memory_layouts import (
    access_order,
    accesses,
    adds_vectors,
    boundary_layout,
    choose_memory_layouts,
    default_layout,
    element_bits,
    global_cost,
    memory_bits,
    vectorise,
)
from kernelpack.ir.core import Operation, entry_function
from kernelpack.ir.types import BF16, F32, F64, I1, I32, PointerType, TensorType
from kernelpack.layout.families import Threads, scan, spread
from kernelpack.layout.linear import LinearLayout
from tests.backends.gpu.ttgir import parse

ALIGNED = "{tt.divisibility = 16 : i32}"


def function(body: str, arguments: str, layouts: Mapping[str, LinearLayout] | None = None) -> Operation:
    return entry_function(parse(body, arguments, layouts or {}))


def line(name: str, pointer: str, size: int, element: str) -> str:
    """Returns pointers `%name` to `size` neighbours."""
    kind = f"tensor<{size}x!tt.ptr<{element}>>"
    return f"""
    %{name}r = tt.make_range {{end = {size} : i32, start = 0 : i32}} : tensor<{size}xi32>
    %{name}s = tt.splat %{pointer} : !tt.ptr<{element}> -> {kind}
    %{name} = tt.addptr %{name}s, %{name}r : {kind}, tensor<{size}xi32>
    """


def plane(rows: int, columns: int, along: int, element: str = "f32", vector: str = "n") -> str:
    """Returns pointers `%q` to a tile whose neighbours lie along one dimension, and rows of them `%n` elements apart."""
    shapes = {0: (rows, f"{rows}x1"), 1: (columns, f"1x{columns}")}
    (fast, fast_shape), (slow, slow_shape) = shapes[along], shapes[1 - along]
    tile = f"{rows}x{columns}"
    return f"""
    %f = tt.make_range {{end = {fast} : i32, start = 0 : i32}} : tensor<{fast}xi32>
    %f2 = tt.expand_dims %f {{axis = {1 - along} : i32}} : tensor<{fast}xi32> -> tensor<{fast_shape}xi32>
    %f3 = tt.broadcast %f2 : tensor<{fast_shape}xi32> -> tensor<{tile}xi32>
    %g = tt.make_range {{end = {slow} : i32, start = 0 : i32}} : tensor<{slow}xi32>
    %g2 = tt.expand_dims %g {{axis = {along} : i32}} : tensor<{slow}xi32> -> tensor<{slow_shape}xi32>
    %g3 = tt.broadcast %g2 : tensor<{slow_shape}xi32> -> tensor<{tile}xi32>
    %m = tt.splat %{vector} : i32 -> tensor<{tile}xi32>
    %g4 = arith.muli %g3, %m : tensor<{tile}xi32>
    %o = arith.addi %f3, %g4 : tensor<{tile}xi32>
    %b = tt.splat %p : !tt.ptr<{element}> -> tensor<{tile}x!tt.ptr<{element}>>
    %q = tt.addptr %b, %o : tensor<{tile}x!tt.ptr<{element}>>, tensor<{tile}xi32>
    %x = tt.load %q : tensor<{tile}x!tt.ptr<{element}>>
    """


PLANE = f"%p: !tt.ptr<f32> {ALIGNED}, %n: i32 {ALIGNED}"


def chosen(body: str, arguments: str, num_warps: int = 4, adds_neighbours: bool = False) -> list[LinearLayout]:
    """Returns the layouts of a function's accesses in order."""
    root = function(body, arguments)
    layouts = choose_memory_layouts(root, AxisInfoAnalysis(root), Threads(num_warps, 32), adds_neighbours)
    return [layouts[op] for op in root.walk() if op in layouts]


# ---- what an access moves ----


def test_a_boolean_takes_a_byte() -> None:
    assert [memory_bits(kind) for kind in (I1, BF16, F64, TensorType((4,), I1))] == [8, 16, 64, 8]


def test_accesses_of_tiles_are_found_and_scalars_are_not() -> None:
    load = "%x = tt.load %q : tensor<64x!tt.ptr<i1>>\ntt.store %q, %x : tensor<64x!tt.ptr<i1>>\n%y = tt.load %p : !tt.ptr<i1>"
    found = accesses(function(line("q", "p", 64, "i1") + load, "%p: !tt.ptr<i1>"))
    assert [(op.name, element_bits(op)) for op in found] == [("tt.load", 8), ("tt.store", 8)]


@pytest.mark.parametrize(("along", "order"), [(1, (1, 0)), (0, (0, 1))])
def test_the_dimension_of_neighbours_is_the_fastest(along: int, order: tuple[int, ...]) -> None:
    for arguments in (PLANE, "%p: !tt.ptr<f32>, %n: i32"):  # aligned or not
        root = function(plane(32, 32, along), arguments)
        assert access_order(accesses(root)[0], AxisInfoAnalysis(root)) == order


@pytest.mark.parametrize(
    ("kind", "element", "able", "expected"),
    [
        ("fadd", "f32", True, True),
        ("fadd", "bf16", True, True),
        ("fadd", "f64", True, False),
        ("add", "i32", True, False),
        ("fadd", "f32", False, False),
    ],
)
def test_an_atomic_adds_vectors_of_floats_of_up_to_32_bits(kind: str, element: str, able: bool, expected: bool) -> None:
    tile = f"tensor<64x!tt.ptr<{element}>>"
    text = f"%y = tt.atomic_rmw {kind}, acq_rel, gpu, %q, %x : ({tile}, tensor<64x{element}>) -> tensor<64x{element}>"
    (op,) = accesses(function(text, f"%q: {tile}, %x: tensor<64x{element}>"))
    assert adds_vectors(op, able) is expected


# ---- layouts ----


def load(name: str, pointer: str, size: int, element: str) -> str:
    return f"%{name} = tt.load %{pointer} : tensor<{size}x!tt.ptr<{element}>>\n"


@pytest.mark.parametrize(
    ("element", "size", "aligned", "vector"),
    [
        ("f32", 1024, True, 4),  # 16 bytes
        ("bf16", 1024, True, 8),
        ("i8", 4096, True, 16),
        ("f64", 1024, True, 2),
        ("f32", 256, True, 2),  # no more than a thread's share
        ("f32", 64, True, 1),
        ("f32", 1024, False, 1),  # alignment unknown
    ],
)
def test_a_load_has_vectors_of_16_bytes_at_most(element: str, size: int, aligned: bool, vector: int) -> None:
    arguments = f"%p: !tt.ptr<{element}>{f' {ALIGNED}' if aligned else ''}"
    assert chosen(line("q", "p", size, element) + load("x", "q", size, element), arguments) == [
        spread((size,), vector, (0,), Threads(4, 32))
    ]


def test_accesses_of_one_shape_share_a_layout() -> None:
    text = (
        line("q", "p", 1024, "bf16") + line("t", "u", 1024, "f32") + load("x", "q", 1024, "bf16") + load("y", "t", 1024, "f32")
    )
    # the widest element fits 16 bytes
    layouts = chosen(text, f"%p: !tt.ptr<bf16> {ALIGNED}, %u: !tt.ptr<f32> {ALIGNED}")
    assert layouts == [spread((1024,), 4, (0,), Threads(4, 32))] * 2


def test_the_innermost_loop_decides() -> None:
    text = line("q", "p", 1024, "bf16") + line("t", "u", 1024, "f32") + load("y", "t", 1024, "f32")
    loop = f"scf.for %i = %n to %n step %n : i32 {{\n{load('x', 'q', 1024, 'bf16')}}}"
    layouts = chosen(text + loop, f"%p: !tt.ptr<bf16> {ALIGNED}, %u: !tt.ptr<f32> {ALIGNED}, %n: i32")
    assert layouts == [spread((1024,), 8, (0,), Threads(4, 32))] * 2


def test_accesses_of_other_orders_have_another_layout() -> None:
    assert chosen(plane(64, 64, 1), PLANE) == [spread((64, 64), 4, (1, 0), Threads(4, 32))]
    assert chosen(plane(64, 64, 0), PLANE) == [spread((64, 64), 4, (0, 1), Threads(4, 32))]


@pytest.mark.parametrize(("axis", "kept"), [(0, frozenset({0})), (1, frozenset())])
def test_warps_stay_off_the_axis_that_is_reduced(axis: int, kept: frozenset[int]) -> None:
    total = f"""
    %r = "tt.reduce"(%x) <{{axis = {axis} : i32}}> ({{
    ^bb0(%a: f32, %c: f32):
    %s = arith.addf %a, %c : f32
    tt.reduce.return %s : f32
    }}) : (tensor<64x256xf32>) -> tensor<{256 if axis == 0 else 64}xf32>
    """
    assert chosen(plane(64, 256, 1) + total, PLANE, 2) == [spread((64, 256), 4, (1, 0), Threads(2, 32), kept)]


ADD = "%y = tt.atomic_rmw fadd, relaxed, gpu, %q, %x : (tensor<1024x!tt.ptr<f32>>, tensor<1024xf32>) -> tensor<1024xf32>"


def test_an_atomic_has_one_element_a_thread_unless_the_hardware_adds_vectors() -> None:
    text = line("q", "p", 1024, "f32") + load("x", "q", 1024, "f32") + ADD
    arguments = f"%p: !tt.ptr<f32> {ALIGNED}"
    wide, narrow = spread((1024,), 4, (0,), Threads(4, 32)), spread((1024,), 1, (0,), Threads(4, 32))
    assert chosen(text, arguments) == [wide, narrow]  # of neighbours: a layout of its own
    assert chosen(text, arguments, adds_neighbours=True) == [wide, wide]
    # where neighbours are not known to be aligned, one shares what there is
    assert chosen(text, "%p: !tt.ptr<f32>") == [narrow, narrow]


def test_a_block_through_a_descriptor_is_read_row_by_row() -> None:
    text = "%x = tt.descriptor_load %d[%n, %n] : !tt.tensordesc<tensor<64x64xbf16>> -> tensor<64x64xbf16>"
    assert chosen(text, "%d: !tt.tensordesc<tensor<64x64xbf16>>, %n: i32") == [spread((64, 64), 8, (1, 0), Threads(4, 32))]


def test_what_nothing_decides_lies_row_by_row() -> None:
    assert default_layout((16, 64), Threads(4, 32)) == spread((16, 64), 1, (1, 0), Threads(4, 32))


def test_tiles_that_functions_pass_are_vectors_of_the_widest_element() -> None:
    signature = (TensorType((64, 64), BF16), TensorType((64, 64), PointerType(F32)), TensorType((64,), F64), I32)
    assert boundary_layout((64, 64), signature[:1], Threads(4, 32)) == spread((64, 64), 8, (1, 0), Threads(4, 32))
    assert boundary_layout((64, 64), signature, Threads(4, 32)) == spread((64, 64), 4, (1, 0), Threads(4, 32))
    assert boundary_layout((8, 16), (TensorType((8, 16), BF16),), Threads(4, 32)) == spread((8, 16), 1, (1, 0), Threads(4, 32))


# ---- what an access costs ----


def cost(layout: LinearLayout, along: int, name: str = "tt.load", arguments: str = PLANE) -> int:
    rows, columns = layout.shape
    store = f"tt.store %q, %x : tensor<{rows}x{columns}x!tt.ptr<f32>>"
    root = function(plane(rows, columns, along) + store, arguments)
    return global_cost(layout, next(op for op in accesses(root) if op.name == name), AxisInfoAnalysis(root))


def test_lines_of_cache_are_what_an_access_costs() -> None:
    rows = spread((32, 128), 4, (1, 0), Threads(1, 32))
    assert cost(rows, 1) == 32 * 128 * 4 // 128  # each line once
    assert cost(spread((128, 32), 4, (0, 1), Threads(1, 32)), 0) == 32 * 128 * 4 // 128
    assert cost(rows, 0) == 128 * 32 // 4  # each of 128 accesses: 32 lanes, four of which lie in one line


def test_narrow_accesses_are_more() -> None:
    assert cost(spread((32, 128), 1, (1, 0), Threads(1, 32)), 1) == 32 * 128 // 32
    # lanes 16 bytes apart: each access goes to four lines
    assert cost(spread((32, 128), 4, (1, 0), Threads(1, 32)), 1, arguments="%p: !tt.ptr<f32>, %n: i32") == 4 * 32 * 128 // 32


def test_warps_with_copies_load_them_and_do_not_store_them() -> None:
    copies = spread((8, 32), 1, (1, 0), Threads(16, 32))
    assert copies.free_bits("warp")
    assert cost(copies, 1, "tt.load") == 2 * cost(copies, 1, "tt.store")


def test_a_mask_narrows_what_one_access_takes() -> None:
    text = (
        line("q", "p", 1024, "f32")
        + """
    %k = tt.splat %n : i32 -> tensor<1024xi32>
    %some = arith.cmpi slt, %qr, %k : tensor<1024xi32>
    """
        + load("x", "q", 1024, "f32")
    )
    widths = []
    for attributes in ("", f" {ALIGNED}"):
        root = function(text, f"%p: !tt.ptr<f32> {ALIGNED}, %n: i32{attributes}")
        facts, (op,) = AxisInfoAnalysis(root), accesses(root)
        mask = next(found.result for found in root.walk() if found.name == "arith.cmpi")
        layout = spread((1024,), 8, (0,), Threads(1, 32))
        widths.append([vectorise(layout, op.operands[0], which, 32, facts).width for which in (None, mask)])
    assert widths == [[4, 1], [4, 4]]


def test_registers_that_are_no_neighbours_make_no_vector() -> None:
    root = function(line("q", "p", 1024, "f32") + load("x", "q", 1024, "f32"), f"%p: !tt.ptr<f32> {ALIGNED}")
    facts, (op,) = AxisInfoAnalysis(root), accesses(root)
    layout = spread((1024,), 4, (0,), Threads(1, 32))
    first, second, *others = layout.bases("register")
    widths = [
        vectorise(layout.with_bases("register", bases), op.operands[0], None, 32, facts)
        for bases in ((first, second, *others), (second, first, *others), (first, *others, second), (second, *others))
    ]
    assert [(vector.width, vector.bits) for vector in widths] == [(4, (0, 1)), (4, (1, 0)), (4, (0, 4)), (1, ())]


# ---- what layouts of places that are not neighbours cost ----


@pytest.mark.parametrize("along", [0, 1])
def test_without_neighbours_the_dimension_that_is_multiplied_by_least_is_the_fastest(along: int) -> None:
    """Pixels of an image, of which several rows may be in a tile, against channels: their places are multiplied."""
    pixels = plane(32, 32, along).replace(
        "%f2 =", "%w = tt.splat %n : i32 -> tensor<32xi32>\n%fw = arith.remsi %f, %w : tensor<32xi32>\n%f2 ="
    )
    root = function(pixels.replace("tt.expand_dims %f {", "tt.expand_dims %fw {"), "%p: !tt.ptr<f32>, %n: i32")
    assert access_order(accesses(root)[0], AxisInfoAnalysis(root)) == (along, 1 - along)


def test_lanes_that_lie_apart_look_up_lines_of_their_own() -> None:
    root = function(line("q", "p", 1024, "f32") + load("x", "q", 1024, "f32"), "%p: !tt.ptr<f32>")
    (op,), facts = accesses(root), AxisInfoAnalysis(root)
    assert global_cost(spread((1024,), 1, (0,), Threads(4, 32)), op, facts) == 4 * 8
    assert global_cost(scan((1024,), 0, Threads(4, 32)), op, facts) == 4 * 8 * 8, "32 bytes apart: 4 lanes a line"


def test_flat_tiles_pass_through_memory_without_conflicts() -> None:
    threads = Threads(4, 32)
    rows, runs = spread((4096,), 4, (0,), threads), scan((4096,), 0, threads)
    assert layout_cost(rows, runs, 32) == layout_cost(runs, rows, 32) == BARRIER + 2 * 4096 * 4 // 128
