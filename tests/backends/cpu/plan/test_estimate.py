"""The estimated time of a program, by which launches decide about threads, sees through the loops that kernels have."""

from __future__ import annotations

import pytest

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.backends.cpu.facts.features import Level
from kernelpack.backends.cpu.plan.estimate import program_nanoseconds
from kernelpack.backends.cpu.plan.ttir_to_tiles import ttir_to_tiles
from kernelpack.backends.cpu.ttir.prefetch_streams import prefetch_streams
from kernelpack.compiler.stages import compile_ttir, optimise_ttir
from kernelpack.frontend.ast_to_ttir import ast_to_ttir
from kernelpack.options import Options
from kernelpack.target import Target
from tests.backends.cpu.plan.plans import V3, V4, ttir


@kp.jit
def whole_loop(x, n, CHUNK: tl.constexpr, BLOCK: tl.constexpr):
    for begin in range(0, CHUNK, BLOCK):
        offsets = begin + tl.arange(0, BLOCK)
        tl.store(x + offsets, tl.load(x + offsets) * 2.0)


@kp.jit
def chunk(x, n, CHUNK: tl.constexpr, BLOCK: tl.constexpr):
    first = tl.program_id(0) * CHUNK
    for begin in range(first, tl.minimum(first + CHUNK, n), BLOCK):
        offsets = begin + tl.arange(0, BLOCK)
        tl.store(x + offsets, tl.load(x + offsets, mask=offsets < n) * 2.0, mask=offsets < n)


@kp.jit
def unknown(x, n, CHUNK: tl.constexpr, BLOCK: tl.constexpr):
    for begin in range(0, n, BLOCK):
        offsets = begin + tl.arange(0, BLOCK)
        tl.store(x + offsets, tl.load(x + offsets, mask=offsets < n) * 2.0, mask=offsets < n)


def nanoseconds(kernel: kp.JITFunction, chunk: int, block: int) -> int:
    module = optimise_ttir(ast_to_ttir(kernel, {"x": "*fp32", "n": "i32"}, {"CHUNK": chunk, "BLOCK": block}, ()))
    return compile_ttir(module, Target.parse("cpu:x86-64-v3"), Options()).metadata["program_ns"]


@pytest.mark.parametrize("kernel", [whole_loop, chunk])
def test_a_chunk_costs_what_its_elements_cost(kernel: kp.JITFunction) -> None:
    assert nanoseconds(kernel, 4096, 64) == pytest.approx(4 * nanoseconds(kernel, 1024, 64), rel=0.1)
    assert nanoseconds(kernel, 4096, 64) == pytest.approx(nanoseconds(kernel, 4096, 256), rel=0.2)


def test_a_loop_of_unknown_length_walks_a_thousand_elements_or_four_blocks() -> None:
    assert nanoseconds(unknown, 0, 64) == pytest.approx(nanoseconds(whole_loop, 1024, 64), rel=0.1)
    assert nanoseconds(unknown, 0, 4096) == pytest.approx(nanoseconds(whole_loop, 4 * 4096, 4096), rel=0.1)


def estimate(kernel: kp.JITFunction, level: Level = V3, **types: str | int) -> int:
    return program_nanoseconds(ttir_to_tiles(ttir(kernel, **types), level), level)


@kp.jit
def copies(x, out, S: tl.constexpr):
    i = tl.arange(0, S)
    tl.store(out + i, tl.load(x + i))
    tl.store(out + S + i, tl.load(x + S + i))


def test_a_nest_costs_two_nanoseconds_for_each_vector_of_each_root() -> None:
    assert estimate(copies, S=64) == pytest.approx(2 * 64 / 8 * 2, abs=2)  # four scalars cost half a nanosecond each
    assert estimate(copies, V4, S=64) == pytest.approx(2 * 64 / 16 * 2, abs=2)


@kp.jit
def turned(x, out, ROWS: tl.constexpr, S: tl.constexpr, OF_ROWS: tl.constexpr):
    row, i = tl.arange(0, ROWS)[:, None], tl.arange(0, S)[None, :]
    angle = tl.load(x + row)
    if OF_ROWS:
        value = tl.load(x + row * S + i) * tl.sin(angle)
    else:
        value = tl.sin(tl.load(x + row * S + i) * angle)
    tl.store(out + row * S + i, value)


def test_functions_cost_what_they_take_for_each_element_that_they_are_of() -> None:
    sine = 40 * 0.2
    vectors = 16 * 256 / 8
    assert estimate(turned, ROWS=16, S=256, OF_ROWS=0) == pytest.approx(vectors * (2 + sine), rel=0.02)
    assert estimate(turned, ROWS=16, S=256, OF_ROWS=1) == pytest.approx(vectors * 2 + 16 / 8 * sine, rel=0.02)


@kp.jit
def polynomial(x, out, S: tl.constexpr, DEGREE: tl.constexpr):
    i = tl.arange(0, S)
    value = tl.load(x + i)
    total = value
    for _ in tl.static_range(DEGREE):
        total = tl.fma(total, value, 1.0)
    tl.store(out + i, total)


def test_a_dozen_operations_are_in_the_price_of_a_vector() -> None:
    vectors = 1024 / 8
    assert estimate(polynomial, S=1024, DEGREE=12) == pytest.approx(vectors * 2, rel=0.02)
    assert estimate(polynomial, S=1024, DEGREE=52) == pytest.approx(vectors * (2 + 40 * 0.1), rel=0.02)


@kp.jit
def twice(x, out, S: tl.constexpr):
    i = tl.arange(0, S)
    grown = tl.exp(tl.load(x + i))
    tl.store(out + i, grown / tl.sum(grown, 0))


def test_a_function_that_two_nests_share_counts_once() -> None:
    exp, divide = 12 * 0.2, 6 * 0.2
    vectors = 1024 / 8
    assert estimate(twice, S=1024) == pytest.approx(vectors * (3 * 2 + exp + divide), rel=0.02)


@kp.jit
def product(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :], tl.arange(0, K)
    x, y = tl.load(a + m * K + k[None, :]), tl.load(b + k[:, None] * N + n)
    tl.store(c + m * N + n, tl.dot(x, y, input_precision="ieee"))


def test_a_product_costs_its_multiplications() -> None:
    packing_and_storing = (64 * 256 + 64 * 64) / 8 * 2
    multiplying = 64 * 64 * 256 / 8 * 0.15
    assert estimate(product, M=64, N=64, K=256) == pytest.approx(packing_and_storing + multiplying, rel=0.01)


@kp.jit
def branches(x, n, S: tl.constexpr, T: tl.constexpr):
    if n > 1:
        tl.store(x + tl.arange(0, S), 0.0)
    else:
        tl.store(x + tl.arange(0, T), 1.0)


def test_of_two_branches_the_longer_counts() -> None:
    assert estimate(branches, n="i32", S=64, T=1024) == estimate(branches, n="i32", S=1024, T=64)
    assert estimate(branches, n="i32", S=64, T=1024) == pytest.approx(1024 / 8 * 2, abs=2)


@kp.jit
def halvings(x, n, S: tl.constexpr):
    i = tl.arange(0, S)
    while n > 0:
        tl.store(x + i, 0.0)
        n -= 1


def test_a_while_loop_is_taken_to_run_four_times() -> None:
    assert estimate(halvings, n="i32", S=1024) == pytest.approx(4 * 1024 / 8 * 2, abs=8)


@kp.jit
def steps(x, n, S: tl.constexpr, FIRST: tl.constexpr, LAST: tl.constexpr, STEP: tl.constexpr):
    for k in range(FIRST, LAST, STEP):
        tl.store(x + k + tl.arange(0, S), 0.0)


@pytest.mark.parametrize(("bounds", "trips"), [((0, 10, 1), 10), ((2, 10, 3), 3), ((10, 2, 1), 0), ((5, 5, 1), 0)], ids=str)
def test_known_loops_run_as_often_as_they_do(bounds: tuple[int, int, int], trips: int) -> None:
    first, last, step = bounds
    got = estimate(steps, n="i32", S=1024, FIRST=first, LAST=last, STEP=step)
    assert got == pytest.approx(max(1, trips * 1024 / 8 * 2), abs=8)


@kp.jit
def nothing(x, n):
    pass


def test_no_program_takes_no_time() -> None:
    assert estimate(nothing, n="i32") == 1


@kp.jit
def sum_of_rows(x, out, n, ROWS: tl.constexpr, ONCE: tl.constexpr):
    lanes = tl.arange(0, 64)
    total = tl.zeros([64], tl.int32)
    for block in range(n):
        for row in tl.static_range(ROWS):
            total += tl.load(x + (block * ROWS + row) * 64 + lanes, eviction_policy="evict_first" if ONCE else "")
    tl.store(out + lanes, total)


def test_what_is_passed_over_once_costs_its_way_from_memory() -> None:
    types: dict[str, str | int] = {"x": "*i32", "out": "*i32", "n": "i32", "ROWS": 4}
    asked = prefetch_streams(ttir(sum_of_rows, ONCE=1, **types))
    blocks = 1024 // 64  # of a kB each
    once = program_nanoseconds(ttir_to_tiles(asked, V3), V3)
    assert once - estimate(sum_of_rows, ONCE=0, **types) == pytest.approx(blocks * 1024 * 0.1, rel=0.1)
