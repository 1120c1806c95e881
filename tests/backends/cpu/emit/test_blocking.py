"""How nests are cut into iterations: lanes of a vector, vectors of an iteration, blocks that are turned."""

from __future__ import annotations

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.backends.cpu.emit.blocking import Blocking, blocking_of
from kernelpack.backends.cpu.emit.places import Place
from kernelpack.backends.cpu.facts.features import Level
from kernelpack.backends.cpu.plan.tile_program import Nest, walk
from kernelpack.backends.cpu.plan.ttir_to_tiles import ttir_to_tiles
from kernelpack.kernel.jit import JITFunction
from tests.backends.cpu.plan.plans import BF16, V3, V4, ttir
from tests.backends.cpu.plan.test_plan_product import masked, product


def cut(kernel: JITFunction, level: Level = V3, **types: str | int | bool) -> list[tuple[int, dict[int, int]]]:
    """The lanes of each nest, and how many elements along each axis an iteration covers."""
    return [(blocking.width, dict(blocking.tile)) for blocking in blockings(kernel, level, **types)]


def blockings(kernel: JITFunction, level: Level = V3, reloads: bool = False, **types: str | int | bool) -> list[Blocking]:
    made = ttir_to_tiles(ttir(kernel, **types), level)
    nests = [statement for statement in walk(made.statements) if isinstance(statement, Nest)]
    return [blocking_of(nest, level, made.plain, made.observed, reloads) for nest in nests]


@kp.jit
def copy(x, out, S: tl.constexpr):
    i = tl.arange(0, S)
    tl.store(out + i, tl.load(x + i))


def test_an_iteration_works_on_four_vectors() -> None:
    assert cut(copy, S=1024) == [(8, {0: 32})]
    assert cut(copy, V4, S=1024) == [(16, {0: 64})]


def test_eight_vectors_need_no_loop() -> None:
    assert cut(copy, S=64) == [(8, {0: 64})]
    assert cut(copy, S=128) == [(8, {0: 32})]


def test_vectors_are_no_wider_than_the_tile() -> None:
    assert cut(copy, S=4) == [(4, {0: 4})]


@kp.jit
def plane(x, out, S: tl.constexpr, T: tl.constexpr):
    i = tl.arange(0, S)[:, None] * T + tl.arange(0, T)[None, :]
    tl.store(out + i, tl.load(x + i))


def test_small_planes_are_straight_line_code() -> None:
    assert cut(plane, S=4, T=16) == [(8, {0: 4, 1: 16})]
    assert cut(plane, S=64, T=64) == [(8, {0: 1, 1: 64})]
    assert cut(plane, S=64, T=256) == [(8, {0: 1, 1: 32})]


@kp.jit
def turned(x, out, S: tl.constexpr, T: tl.constexpr):
    down, along = tl.arange(0, S)[:, None], tl.arange(0, T)[None, :]
    tl.store(out + down + along * S, tl.load(x + down * T + along))


def test_what_turns_is_cut_into_squares() -> None:
    (blocking,) = blockings(turned, S=64, T=64)
    assert (blocking.lane, blocking.turned, blocking.width, dict(blocking.tile)) == (1, 0, 8, {0: 8, 1: 8})
    assert cut(turned, S=4, T=64) == [(4, {0: 4, 1: 4})]


@kp.jit
def sums(x, out, S: tl.constexpr, T: tl.constexpr, AXIS: tl.constexpr):
    i = tl.arange(0, S)[:, None] * T + tl.arange(0, T)[None, :]
    tl.store(out + tl.arange(0, T if AXIS == 0 else S), tl.sum(tl.load(x + i), AXIS))


def test_reductions_have_four_accumulators_along_their_axis() -> None:
    down, _ = blockings(sums, S=64, T=64, AXIS=0)
    assert (down.reduced, down.lane, dict(down.tile)) == (0, 1, {0: 4, 1: 8})
    along, _ = blockings(sums, S=64, T=256, AXIS=1)
    assert (along.reduced, along.lane, dict(along.tile)) == (1, 1, {0: 1, 1: 32})


@kp.jit
def polynomial(x, out, S: tl.constexpr, TERMS: tl.constexpr, KEPT: tl.constexpr):
    i = tl.arange(0, S)
    a = tl.load(x + i)
    b = a
    for k in tl.static_range(TERMS):
        b = b * a + (k % 20 + 0.5)
    tl.store(out + i, b)
    if KEPT:
        tl.store(out + S + i, tl.flip(b) + 1.5)


def test_many_constants_leave_registers_for_two_vectors() -> None:
    assert cut(polynomial, S=1024, TERMS=12, KEPT=False) == [(8, {0: 32})]
    assert cut(polynomial, S=1024, TERMS=13, KEPT=False) == [(8, {0: 16})]


def test_long_formulas_are_computed_for_one_vector_at_a_time() -> None:
    assert cut(polynomial, S=1024, TERMS=40, KEPT=False) == [(8, {0: 16})]
    assert cut(polynomial, S=1024, TERMS=70, KEPT=False) == [(8, {0: 8})]


def test_two_vectors_of_a_long_formula_share_the_scalars_that_an_iteration_loads() -> None:
    for size, covered in ((1024, 16), (8, 8)):
        (blocking,) = blockings(polynomial, reloads=True, S=size, TERMS=70, KEPT=False)
        assert dict(blocking.tile) == {0: covered}


def test_what_is_read_from_a_buffer_costs_no_constants() -> None:
    long, short = cut(polynomial, S=1024, TERMS=70, KEPT=True)[-2:]
    assert long == (8, {0: 8})
    assert short == (8, {0: 32})


@kp.jit
def larger(a, b):
    if a > b:
        c = a * 2.0
    else:
        c = b
    return c


@kp.jit
def lane_by_lane(x, out, S: tl.constexpr):
    i = tl.arange(0, S)
    tl.device_print("x", tl.load(x + i))
    tl.store(out + i, tl.associative_scan(tl.load(x + i), 0, larger))
    tl.store(out + i, tl.cumsum(tl.load(x + i)))


def test_branches_and_printing_take_one_element_at_a_time() -> None:
    printed, scanned, _, summed, _ = cut(lane_by_lane, S=64)
    assert printed == scanned == (1, {0: 1})
    assert summed == (8, {0: 8})


@kp.jit
def sum_and_difference(a, b):
    return a + b, a - b


@kp.jit
def swapped(a, b):
    return b, a


@kp.jit
def mapped(x, out, S: tl.constexpr):
    i = tl.arange(0, S)
    a, b = tl.map_elementwise(sum_and_difference, tl.load(x + i), tl.load(x + i))
    tl.store(out + i, tl.map_elementwise(swapped, a * b, pack=2)[0])


def test_maps_take_as_many_elements_as_they_are_given_at_once() -> None:
    single, group, _ = cut(mapped, S=64)
    assert single == (8, {0: 8})
    assert group == (2, {0: 2})


def test_operands_of_products_are_packed_in_pairs_and_squares() -> None:
    assert cut(product, BF16, a="*bf16", b="*bf16", M=16, N=32, K=64, A=True, B=True)[1] == (16, {0: 2, 1: 32})
    # turned as 32-bit units: 32 elements along k are 16 of them
    assert cut(product, BF16, a="*bf16", b="*bf16", M=16, N=32, K=64, A=True, B=False)[1] == (32, {0: 32, 1: 16})
    assert cut(product, V3, a="*bf16", b="*bf16", M=16, N=32, K=64, A=True, B=False)[1] == (8, {0: 8, 1: 8})


def test_packing_can_stop_where_its_product_does() -> None:
    """After 64 units along k, where masks say that the rest is zero; without them an iteration takes the whole row."""
    assert cut(product, V4, M=16, N=32, K=128, A=True, B=False)[0] == (16, {0: 1, 1: 128})
    assert cut(masked, V4, n="i32", K=128)[0] == (16, {0: 1, 1: 64})


def test_an_iteration_has_a_place_for_each_vector() -> None:
    blocking = Blocking((64, 64), 1, None, None, 8, {0: 2, 1: 16}, {})
    points = blocking.points({0: Place("%i", 0, 1), 1: Place("%j", 0, 2)})
    assert points == [(Place("%i", row, 1), Place("%j", column, 2, lanes=True)) for row in range(2) for column in (0, 8)]
    single = Blocking((4,), 0, None, None, 1, {0: 2}, {}).points({0: Place()})
    assert single == [(Place(None, 0),), (Place(None, 1),)]
