"""Gathers, histograms, sorting, functions of elements, loops with conditions, atomics and block pointers: the CPU against the
interpreter, and both against torch."""

import numpy as np
import pytest
import torch

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.errors import RunTimeAssertionFailure
from tests.backends.cpu.agreement import check, ttir_of

RANDOM = torch.Generator().manual_seed(0)


def test_gathers_along_each_axis_with_places_that_wrap() -> None:
    @kp.jit
    def kernel(x, places, rows, columns, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
        at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
        tile = tl.load(x + at)
        few = tl.arange(0, K)[:, None] * N + tl.arange(0, N)[None, :]
        tl.store(rows + few, tl.gather(tile * 2, tl.load(places + few), 0))
        many = tl.arange(0, M)[:, None] * K + tl.arange(0, K)[None, :]
        tl.store(columns + many, tile.gather(tl.load(places + many) - 3, 1))

    m, n, k = 8, 32, 4
    x, places = torch.randn(m, n), torch.randint(0, 64, (m * n,), dtype=torch.int32, generator=RANDOM)
    check(kernel, (1,), x, places, torch.empty(k, n), torch.empty(m, k), M=m, N=n, K=k)


@pytest.mark.parametrize("flag", [0, 2])
def test_branches_give_tiles_that_are_read_elsewhere_than_computed(flag: int) -> None:
    @kp.jit
    def kernel(x, out, flag):
        at = tl.arange(0, 16)
        turned, cube = tl.zeros([16], tl.float32), tl.zeros([2, 2, 4], tl.float32)
        if flag > 0:
            turned = tl.gather(tl.load(x + at) * 2, 15 - at, 0)
            cube = tl.reshape(tl.load(x + at) * 3, [2, 2, 4])
        tl.store(out + at, turned)
        tl.store(out + 16 + at, tl.reshape(tl.sum(cube, 0, keep_dims=True) + cube, [16]))

    check(kernel, (1,), torch.randn(16), torch.empty(32), flag)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.int64])
def test_a_histogram_counts_what_is_in_range_and_not_masked(dtype: torch.dtype) -> None:
    @kp.jit
    def kernel(x, out, n, N: tl.constexpr, BINS: tl.constexpr):
        at = tl.arange(0, N)
        values = tl.load(x + at)
        tl.store(out + tl.arange(0, BINS), tl.histogram(values, BINS, mask=at < n))

    x = torch.randint(-9, 40, (256,), generator=RANDOM).to(dtype)
    out = torch.empty(32, dtype=torch.int32)
    check(kernel, (1,), x, out, 200, N=256, BINS=32)
    kernel[(1,)](x, out, 200, 256, 32)
    inside = x[:200][(x[:200] >= 0) & (x[:200] < 32)]
    assert out.tolist() == torch.bincount(inside.to(torch.int64), minlength=32).tolist()


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("shape", [(1, 64), (4, 16)])
def test_sort_flip_and_topk(shape: tuple[int, int], descending: bool) -> None:
    @kp.jit
    def kernel(x, ordered, turned, most, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, DOWN: tl.constexpr):
        at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
        tile = tl.load(x + at)
        tl.store(ordered + at, tl.sort(tile, descending=DOWN))
        tl.store(turned + at, tl.flip(tile, 0))
        tl.store(most + tl.arange(0, M)[:, None] * K + tl.arange(0, K)[None, :], tl.topk(tile, K))

    m, n = shape
    x = torch.randint(-50, 50, shape, generator=RANDOM).float()
    outs = torch.empty(m, n), torch.empty(m, n), torch.empty(m, 4)
    check(kernel, (1,), x, *outs, M=m, N=n, K=4, DOWN=descending)
    kernel[(1,)](x, *outs, m, n, 4, descending)
    expected = x.sort(dim=1, descending=descending).values, x.flip(0), x.topk(4, dim=1).values
    for ours, theirs in zip(outs, expected, strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("k", [1, 2, 8, 32])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.uint8])
def test_the_k_largest_and_smallest(dtype: torch.dtype, k: int, descending: bool) -> None:
    @kp.jit
    def kernel(x, most, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, DOWN: tl.constexpr):
        tile = tl.load(x + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :])
        tl.store(most + tl.arange(0, M)[:, None] * K + tl.arange(0, K)[None, :], tl.topk(tile, K, descending=DOWN))
        if M == 1:
            tl.device_assert(
                tl.sum(tl.topk(tl.reshape(tile, [N]), K, descending=DOWN) != tl.reshape(tl.topk(tile, K, descending=DOWN), [K]))
                == 0
            )

    for rows in (1, 4):
        x = torch.randint(0, 200, (rows, 32), generator=RANDOM).to(dtype)
        most = torch.empty(rows, k, dtype=dtype)
        kernel[(1,)](x, most, rows, 32, k, descending, debug=True)
        assert torch.equal(most, x.sort(dim=1, descending=descending).values[:, :k])


@kp.jit
def _collatz(n):
    steps = 0
    while n != 1:
        if n % 2 == 0:
            n = n // 2
        else:
            n = 3 * n + 1
        steps += 1
    return steps


@kp.jit
def _order(a, b, c, d):
    """The larger and the sum of both pairs."""
    if c > d:
        c, d = d, c
    return tl.maximum(a, b), tl.minimum(a, b), c + 1, d


def test_functions_of_elements_may_loop_and_take_neighbours() -> None:
    @kp.jit
    def kernel(x, y, steps, first, second, M: tl.constexpr, N: tl.constexpr):
        at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
        tile = tl.load(x + at)
        tl.store(steps + at, tl.map_elementwise(_collatz, tile))
        a, b = tl.map_elementwise(_order, tile, tl.load(y + at), pack=2)
        tl.store(first + at, a)
        tl.store(second + at, b)

    x, y = (torch.randint(1, 99, (4, 16), dtype=torch.int32, generator=RANDOM) for _ in range(2))
    outs = [torch.empty(4, 16, dtype=torch.int32) for _ in range(3)]
    check(kernel, (1,), x, y, *outs, M=4, N=16)
    kernel[(1,)](x, y, *outs, 4, 16)
    pairs = x.view(4, 8, 2)
    assert torch.equal(outs[1].view(4, 8, 2), torch.stack([pairs.amax(2), pairs.amin(2)], 2))
    assert outs[0][x == 27].tolist() == [111] * int((x == 27).sum())


def test_reductions_and_scans_of_functions_that_branch() -> None:
    @kp.jit
    def pick(a, b):
        if a > b:
            a = a - b
        else:
            a = b - a
        return a

    @kp.jit
    def kernel(x, total, running, M: tl.constexpr, N: tl.constexpr):
        at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
        tile = tl.load(x + at)
        tl.store(total + tl.arange(0, N), tl.reduce(tile, 0, pick))
        tl.store(running + at, tl.associative_scan(tile & 1, 1, pick))

    x = torch.randint(0, 2, (8, 16), dtype=torch.int32, generator=RANDOM)
    total, running = torch.empty(16, dtype=torch.int32), torch.empty(8, 16, dtype=torch.int32)
    check(kernel, (1,), x, total, running, M=8, N=16)
    kernel[(1,)](x, total, running, 8, 16)
    assert torch.equal(total, x.sum(0).int() % 2)
    assert torch.equal(running, x.cumsum(1).int() % 2)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.int64], ids=str)
def test_a_loop_adds_the_same_tile_every_time(dtype: torch.dtype) -> None:
    @kp.jit
    def kernel(x, out, turns, N: tl.constexpr):
        at = tl.arange(0, N)
        step = tl.load(x + at)
        total = step
        for _ in range(turns):
            total += step
        tl.store(out + at, total)

    x = torch.arange(16, dtype=dtype) * 11
    for turns in (0, 1, 300):
        check(kernel, (1,), x, torch.zeros_like(x), turns, N=16)


def test_what_a_loop_makes_of_a_carried_tile_does_not_replace_it_before_the_loop_ends() -> None:
    @kp.jit
    def kernel(x, out, turns, N: tl.constexpr):
        at = tl.arange(0, N)
        tile = tl.load(x + at)
        for _ in range(turns):
            total = tile
            for _ in range(turns):
                total += tile
            tile = total
        tl.store(out + at, tile)

    x = torch.arange(16, dtype=torch.float32)
    out = torch.zeros_like(x)
    check(kernel, (1,), x, out, 3, N=16)
    kernel[(1,)](x, out, 3, 16)
    assert torch.equal(out, x * 64)


def test_while_loops_carry_tiles_and_scalars() -> None:
    @kp.jit
    def kernel(x, out, limit, N: tl.constexpr):
        at = tl.arange(0, N)
        a, b = tl.load(x + at), tl.load(x + N - 1 - at)
        turns = 0
        while (tl.sum(a) < limit) & (turns < 20):
            a, b = b, a + b
            inner = 0
            while inner < turns:
                b += 1.0
                inner += 2
            turns += 1
        tl.store(out + at, a + turns)
        tl.store(out + N + at, b)

    check(kernel, (1,), torch.rand(64, generator=RANDOM), torch.empty(128), 5000.0, N=64, rtol=1e-5)
    check(kernel, (1,), torch.rand(64, generator=RANDOM), torch.empty(128), 0.0, N=64)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.float32, torch.float64])
def test_atomics_of_every_kind_under_masks(dtype: torch.dtype) -> None:
    @kp.jit
    def kernel(x, cells, old, n, N: tl.constexpr, CELLS: tl.constexpr, INTEGERS: tl.constexpr):
        at = tl.program_id(0) * N + tl.arange(0, N)
        value, place, on = tl.load(x + at), at % CELLS, at < n
        tl.store(old + at, tl.atomic_add(cells + place, value, mask=on))
        tl.atomic_max(cells + CELLS + place, value, mask=on, sem="relaxed")
        tl.atomic_min(cells + 2 * CELLS + place, value, mask=on, scope="sys")
        tl.atomic_xchg(cells + 3 * CELLS + place, value, mask=on)
        tl.atomic_cas(cells + 4 * CELLS + place, tl.zeros_like(value), value, sem="acquire")
        if INTEGERS:
            tl.atomic_and(cells + 5 * CELLS + place, value, mask=on)
            tl.atomic_or(cells + 6 * CELLS + place, value, mask=on)
            tl.atomic_xor(cells + 7 * CELLS + place, value, mask=on)

    x = (torch.randn(128, generator=RANDOM) * 100).to(dtype)
    if dtype.is_floating_point:
        x[:4] = torch.tensor([0.0, -0.0, float("inf"), -float("inf")])
    integers = not dtype.is_floating_point
    check(kernel, (2,), x, torch.zeros(8 * 16, dtype=dtype), torch.empty_like(x), 100, N=64, CELLS=16, INTEGERS=integers)


def test_programs_take_turns_after_a_lock() -> None:
    @kp.jit
    def kernel(lock, total, N: tl.constexpr):
        while tl.atomic_cas(lock, 0, 1) == 1:
            pass
        at = total + tl.arange(0, N)
        tl.store(at, tl.load(at) + 1)
        tl.debug_barrier()
        tl.atomic_xchg(lock, 0)

    lock, total = torch.zeros(1, dtype=torch.int32), torch.zeros(32)
    kernel[(500,)](lock, total, 32)
    assert total.tolist() == [500.0] * 32
    assert lock.item() == 0


@pytest.mark.parametrize("padding", ["zero", "nan"])
def test_block_pointers_move_and_mask(padding: str) -> None:
    @kp.jit
    def kernel(x, y, m, n, stride, M: tl.constexpr, N: tl.constexpr, PADDING: tl.constexpr):
        source = tl.make_block_ptr(x, (m, n), (stride, 1), (-2, 0), (M, N), (1, 0))
        target = tl.make_block_ptr(y, (m, n), (n, 1), (0, 0), (M, N), (1, 0))
        for _ in range(0, n, N):
            tile = tl.load(source, boundary_check=(0, 1), padding_option=PADDING)
            tl.store(target, tile, boundary_check=(0, 1))
            source = tl.advance(source, (0, N))
            target = target.advance((0, N))

    x, y = torch.randn(8, 24), torch.full((7, 21), 5.0)
    check(kernel, (1,), x, y, 7, 21, 24, M=8, N=8, PADDING=padding)
    kernel[(1,)](x, y, 7, 21, 24, 8, 8, padding)
    assert torch.equal(y[2:], x[:5, :21])
    assert bool((y[:2].isnan() if padding == "nan" else y[:2] == 0).all())


def test_scaled_products_of_small_floats() -> None:
    from kernelpack.tools.mxfp import MXFP4Tensor, MXScaleTensor

    @kp.jit
    def kernel(a, a_scale, b, b_scale, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
        rows, columns, half, blocks = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K // 2), tl.arange(0, K // 32)
        left = tl.load(a + rows[:, None] * K + tl.arange(0, K)[None, :])
        right = tl.load(b + half[:, None] + columns[None, :] * (K // 2))
        left_scale = tl.load(a_scale + rows[:, None] * (K // 32) + blocks[None, :])
        right_scale = tl.load(b_scale + columns[:, None] * (K // 32) + blocks[None, :])
        product = tl.dot_scaled(left, left_scale, "e5m2", right, right_scale, "e2m1")
        tl.store(out + rows[:, None] * N + columns[None, :], product)

    m, n, k = 16, 16, 64
    a = torch.randn(m, k, generator=RANDOM).to(torch.float8_e5m2)
    b, scales = MXFP4Tensor(size=(n, k)).random(), [MXScaleTensor(size=(rows, k // 32)).random(0.25, 8.0) for rows in (m, n)]
    packed, out = b.to_packed_tensor(1), torch.empty(m, n)
    bits = a.view(torch.uint8)
    check(kernel, (1,), bits, scales[0].data, packed, scales[1].data, out, M=m, N=n, K=k, rtol=1e-5, atol=1e-4)
    kernel[(1,)](a, scales[0].data, packed, scales[1].data, out, m, n, k)
    wide = [scale.to(torch.float32).repeat_interleave(32, 1) for scale in scales]
    torch.testing.assert_close(out, (a.float() * wide[0]) @ (b.to(torch.float32) * wide[1]).T, rtol=1e-5, atol=1e-4)


def test_messages_reach_a_person(capfd: pytest.CaptureFixture[str]) -> None:
    @kp.jit(debug=True)
    def kernel(x, n, N: tl.constexpr):
        tile = tl.load(x + tl.arange(0, N))
        tl.device_print("x: ", tile, n)
        tl.device_assert(tile < 2, "below two")

    kernel[(1,)](torch.tensor([0.0, 1.0]), 7, 2)
    assert capfd.readouterr().out.splitlines() == [
        "pid (0, 0, 0) idx (0) x: (operand 0) 0.000000",
        "pid (0, 0, 0) idx (0) x: (operand 1) 7",
        "pid (0, 0, 0) idx (1) x: (operand 0) 1.000000",
        "pid (0, 0, 0) idx (1) x: (operand 1) 7",
    ]
    with pytest.raises(RunTimeAssertionFailure, match=r"test_tile_ops.py:\d+: assertion failed: below two"):
        kernel[(1,)](torch.tensor([0.0, 2.0]), 7, 2)


@pytest.mark.parametrize("failing", [0, 3, 99])
def test_a_failed_assertion_ends_its_program_and_the_launch_raises(failing: int) -> None:
    @kp.jit(debug=True)
    def kernel(x, out):
        at = tl.program_id(0)
        for _ in range(2):
            assert tl.load(x + at) >= 0, "x has a root"
        tl.store(out + at, tl.sqrt(tl.load(x + at)))

    x, out = torch.full((100,), 4.0), torch.zeros(100)
    x[failing] = -1.0
    for error in (RuntimeError, AssertionError):  # as torch raises for GPUs, and Triton's interpreter
        with pytest.raises(error, match="x has a root"):
            kernel[(100,)](x, out)
    assert out[failing] == 0
    x[failing] = 9.0
    kernel[(100,)](x, out)
    assert out[failing] == 3


def test_the_interpreter_prints_and_asserts_alike(capsys) -> None:
    from kernelpack.ir.interpret import launch

    @kp.jit(debug=True)
    def kernel(x, N: tl.constexpr):
        tile = tl.load(x + tl.arange(0, N))
        tl.device_print("x", tile, hex=True)
        tl.device_assert(tile < 20, "small")

    x = torch.tensor([10, 26], dtype=torch.int32)
    with pytest.raises(RunTimeAssertionFailure, match="small"):
        launch(ttir_of(kernel, [x], {"N": 2}), (1,), [x])
    assert capsys.readouterr().out.splitlines() == [
        "pid (0, 0, 0) idx (0) x 0x0000000a",
        "pid (0, 0, 0) idx (1) x 0x0000001a",
    ]


def test_concatenation_keeps_the_order() -> None:
    @kp.jit
    def kernel(x, out, wide, M: tl.constexpr, N: tl.constexpr):
        at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
        tile = tl.load(x + at)
        rows, columns = tl.arange(0, 2 * M)[:, None], tl.arange(0, 2 * N)[None, :]
        tl.store(out + rows * N + tl.arange(0, N)[None, :], tl.cat(tile, -tile))
        tl.store(wide + tl.arange(0, M)[:, None] * (2 * N) + columns, tl.cat(tile, -tile, dim=1))

    x, out, wide = torch.randn(4, 8), torch.empty(8, 8), torch.empty(4, 16)
    check(kernel, (1,), x, out, wide, M=4, N=8)
    kernel[(1,)](x, out, wide, 4, 8)
    assert torch.equal(out, torch.cat([x, -x]))
    assert torch.equal(wide, torch.cat([x, -x], 1))


def test_bits_of_integers_are_combined() -> None:
    @kp.jit
    def kernel(x, out, N: tl.constexpr):
        tile = tl.load(x + tl.arange(0, N))
        tl.store(out, tl.xor_sum(tile))
        tl.store(out + 1, tl.reduce_or(tile, 0))

    x, out = torch.randint(0, 1 << 20, (64,), dtype=torch.int32, generator=RANDOM), torch.empty(2, dtype=torch.int32)
    kernel[(1,)](x, out, 64)
    assert out.tolist() == [int(np.bitwise_xor.reduce(x.numpy())), int(np.bitwise_or.reduce(x.numpy()))]


@kp.jit
def _columns_in_part(x, out, rows, ROWS: tl.constexpr, COLUMNS: tl.constexpr, KEPT: tl.constexpr):
    row, column = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)[None, :]
    kept = tl.load(x + row * COLUMNS + column, mask=(row < rows) & (column < KEPT), other=0)
    tl.store(out + row * COLUMNS + column, kept + column)


@pytest.mark.parametrize("dtype", [torch.int64, torch.float64, torch.float32])
def test_vectors_that_a_mask_turns_off_in_whole_are_not_read(dtype: torch.dtype) -> None:
    """LLVM splits a masked load that is wider than a register, and forgets the mask of a half that is all off."""
    x = torch.arange(1, 16 * 64 + 1).reshape(16, 64).to(dtype)
    for kept in (8, 28, 60):
        check(_columns_in_part, (1,), x, torch.zeros_like(x), 11, ROWS=16, COLUMNS=64, KEPT=kept)


@kp.jit
def _halves(x, out, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr):
    place = tl.arange(0, A)[:, None, None] * (B * C) + tl.arange(0, B)[None, :, None] * C + tl.arange(0, C)[None, None, :]
    even, odd = tl.split(tl.reshape(tl.load(x + place), (A, B, C // 2, 2)))
    half = tl.arange(0, A)[:, None, None] * (B * C // 2) + tl.arange(0, B)[None, :, None] * (C // 2)
    tl.store(out + half + tl.arange(0, C // 2)[None, None, :], even - odd)


def test_tiles_of_three_axes_are_taken_apart() -> None:
    x = torch.randn(4, 8, 16)
    check(_halves, (1,), x, torch.zeros(4, 8, 8), A=4, B=8, C=16)
