"""Kernels for sm_90a that use what Hopper adds, each in the form that matters to the emulator: roles, rings, bulk copies, products."""

from __future__ import annotations

import torch

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.language import hopper
from kernelpack.options import Options
from tests.backends.cuda.launch import Launch

STAGES = tl.constexpr(2)


@kp.jit
def shift(x, out, rows, columns, down, right, BM: tl.constexpr, BN: tl.constexpr):
    """Copies blocks by TMA from places that lie outside of the tensor in part."""
    source = tl.make_tensor_descriptor(x, [rows, columns], [columns, 1], [BM, BN])
    target = tl.make_tensor_descriptor(out, [rows, columns], [columns, 1], [BM, BN])
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    target.store([row, column], source.load([row - down, column + right]))


@kp.jit
def product(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, TRANSPOSED: tl.constexpr):
    """A matrix product through descriptors, whose loads run ahead in a ring."""
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    a_blocks = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK])
    if TRANSPOSED:
        b_blocks = tl.make_tensor_descriptor(b, [N, K], [K, 1], [BN, BK])
    else:
        b_blocks = tl.make_tensor_descriptor(b, [K, N], [N, 1], [BK, BN])
    c_blocks = tl.make_tensor_descriptor(c, [M, N], [N, 1], [BM, BN])
    acc = tl.zeros([BM, BN], tl.float32)
    for k in range(0, K, BK):
        if TRANSPOSED:
            y = b_blocks.load([column, k]).T
        else:
            y = b_blocks.load([k, column])
        acc = tl.dot(a_blocks.load([row, k]), y, acc)
    c_blocks.store([row, column], acc.to(tl.bfloat16))


@kp.jit
def batch(a, b, c, columns, count, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Products a b^T of matrices, one after the other, some of which are narrow: the kernel makes tensor maps for each."""
    for problem in range(tl.program_id(0), count, tl.num_programs(0)):
        n = tl.load(columns + problem)
        a_blocks = tl.make_tensor_descriptor(a + problem * M * K, [M, K], [K, 1], [BM, BK])
        b_blocks = tl.make_tensor_descriptor(b + problem * N * K, [n, K], [K, 1], [BN, BK])
        c_blocks = tl.make_tensor_descriptor(c + problem * M * N, [M, n], [N, 1], [BM, BN])
        for column in range(0, n, BN):
            acc = tl.zeros([BM, BN], tl.float32)
            for k in range(0, K, BK):
                acc = tl.dot(a_blocks.load([0, k]), b_blocks.load([column, k]).T, acc)
            c_blocks.store([0, column], acc.to(tl.bfloat16))


@kp.jit
def padded(x, out, rows, count, COLUMNS, BM: tl.constexpr, BN: tl.constexpr):
    """Sums of the blocks of each of some matrices, one of them empty; NaN lies outside."""
    for problem in range(count):
        blocks = tl.make_tensor_descriptor(
            x + problem * COLUMNS, [tl.load(rows + problem), COLUMNS], [COLUMNS, 1], [BM, BN], padding_option="nan"
        )
        total = tl.zeros([BM, BN], tl.float32)
        for column in range(0, COLUMNS, BN):
            total += blocks.load([0, column])
        at = tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :]
        tl.store(out + problem * BM * BN + at, total)


@kp.jit
def attend(q, k, v, out, n, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    """Attention without a scale: two products in a loop whose addresses follow from its counter alone."""
    rows, columns = tl.arange(0, BM), tl.arange(0, D)
    query = tl.load(q + rows[:, None] * D + columns[None, :])
    largest = tl.full([BM], -float("inf"), tl.float32)
    total = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    for first in range(0, n, BN):
        place = (first + tl.arange(0, BN))[:, None] * D + columns[None, :]
        scores = tl.dot(query, tl.load(k + place).T)
        peak = tl.maximum(largest, tl.max(scores, axis=1))
        weights = tl.exp(scores - peak[:, None])
        scale = tl.exp(largest - peak)
        total = total * scale + tl.sum(weights, axis=1)
        acc = tl.dot(weights.to(tl.bfloat16), tl.load(v + place), acc * scale[:, None])
        largest = peak
    tl.store(out + rows[:, None] * D + columns[None, :], acc / total[:, None])


@kp.jit
def advance(stage, phase):
    stage += 1
    if stage == STAGES:
        stage = 0
        phase ^= 1
    return stage, phase


@kp.jit
def produce(copy, blocks, tiles, full, empty, n):
    stage, phase = 0, 1
    for i in range(n):
        hopper.mbarrier_wait(empty[stage], phase)
        hopper.mbarrier_expect(full[stage], tiles.nbytes)
        hopper.async_load(blocks, [0, i * 64], tiles[stage], full[stage])
        stage, phase = advance(stage, phase)


@kp.jit
def produce_by_threads(copy, x, tiles, full, empty, n):
    stage, phase = 0, 1
    rows = tl.arange(0, 64)
    for i in range(n):
        hopper.mbarrier_wait(empty[stage], phase)
        hopper.local_store(tiles[stage], tl.load(x + rows[:, None] * (n * 64) + (i * 64 + rows)[None, :]))
        hopper.fence_async_shared()
        tl.debug_barrier()
        hopper.mbarrier_arrive(full[stage])
        stage, phase = advance(stage, phase)


@kp.jit
def square(copy, out, tiles, full, empty, n):
    stage, phase = 0, 0
    acc = tl.zeros([64, 64], tl.float32)
    for _ in range(n):
        hopper.mbarrier_wait(full[stage], phase)
        acc = hopper.async_dot(tiles[stage], tiles[stage].T, acc)
        acc = hopper.wait_dots(0, acc)
        hopper.mbarrier_arrive(empty[stage])
        stage, phase = advance(stage, phase)
    rows = tl.arange(0, 64)
    tl.store(out + copy * 4096 + rows[:, None] * 64 + rows[None, :], acc)


@kp.jit
def gram(x, out, n, BY_THREADS: tl.constexpr):
    """x x^T by a role that loads and two that multiply the same tiles."""
    full = hopper.mbarrier_alloc(1, stages=STAGES)
    empty = hopper.mbarrier_alloc(2, stages=STAGES)
    tiles = hopper.local_alloc([64, 64], tl.bfloat16, stages=STAGES)
    if BY_THREADS:
        hopper.warp_specialize(
            hopper.role(produce_by_threads, (x, tiles, full, empty, n), num_warps=4, registers=40),
            hopper.role(square, (out, tiles, full, empty, n), num_warps=4, registers=160, copies=2),
        )
    else:
        blocks = tl.make_tensor_descriptor(x, [64, n * 64], [n * 64, 1], [64, 64])
        hopper.warp_specialize(
            hopper.role(produce, (blocks, tiles, full, empty, n), num_warps=1, registers=40),
            hopper.role(square, (out, tiles, full, empty, n), num_warps=4, registers=160, copies=2),
        )


@kp.jit
def add_up(copy, out, tiles, full, empty, n, EACH_WARP: tl.constexpr):
    stage, phase = 0, 0
    acc = tl.zeros([64, 64], tl.float32)
    for _ in range(n):
        hopper.mbarrier_wait(full[stage], phase)
        acc = tl.dot(hopper.local_load(tiles[stage]), hopper.local_load(tiles[stage].T), acc, input_precision="ieee")
        hopper.mbarrier_arrive(empty[stage], each_warp=EACH_WARP)
        stage, phase = advance(stage, phase)
    rows = tl.arange(0, 64)
    tl.store(out + copy * 4096 + rows[:, None] * 64 + rows[None, :], acc)


@kp.jit
def gram_float32(x, out, n, EACH_WARP: tl.constexpr):
    """The same on the ordinary cores, whose warps read the tiles where they lie, and give them back one by one."""
    full, empty = hopper.mbarrier_alloc(1, stages=STAGES), hopper.mbarrier_alloc(8 if EACH_WARP else 2, stages=STAGES)
    tiles = hopper.local_alloc([64, 64], tl.float32, stages=STAGES)
    blocks = tl.make_tensor_descriptor(x, [64, n * 64], [n * 64, 1], [64, 64])
    hopper.warp_specialize(
        hopper.role(produce, (blocks, tiles, full, empty, n), num_warps=1, registers=40),
        hopper.role(add_up, (out, tiles, full, empty, n, EACH_WARP), num_warps=4, registers=160, copies=2),
    )


@kp.jit
def pass_by(copy, out, tiles, full, empty, n, MEET: tl.constexpr):
    stage, phase = 0, 0
    for _ in range(n):
        hopper.mbarrier_wait(full[stage], phase)
        if MEET:
            tl.debug_barrier()
        hopper.mbarrier_arrive(empty[stage])
        stage, phase = advance(stage, phase)
    tl.store(out + tl.arange(0, 128), tl.zeros([128], tl.float32))


@kp.jit
def unread(x, out, n, MEET: tl.constexpr):
    """A role gives back what it waits for, unread: only MEET makes its warps wait for each other."""
    full, empty = hopper.mbarrier_alloc(1, stages=STAGES), hopper.mbarrier_alloc(1, stages=STAGES)
    tiles = hopper.local_alloc([64, 64], tl.bfloat16, stages=STAGES)
    blocks = tl.make_tensor_descriptor(x, [64, n * 64], [n * 64, 1], [64, 64])
    hopper.warp_specialize(
        hopper.role(produce, (blocks, tiles, full, empty, n), num_warps=1, registers=40),
        hopper.role(pass_by, (out, tiles, full, empty, n, MEET), num_warps=4, registers=160),
    )


@kp.jit
def fetch(copy, pages, table, counts, tile, full):
    hopper.mbarrier_expect(full, tile.nbytes)
    for piece in tl.static_range(4):
        page, count = tl.load(table + piece), tl.load(counts + piece)
        hopper.async_load(pages, [page, count, 16 - count, 0], tile, full, row=16 * piece)


@kp.jit
def hand_out(copy, halves, tile, full):
    hopper.mbarrier_wait(full, 0)
    hopper.async_store(halves, [32, 0], tile)
    hopper.async_store(halves, [0, 0], tile, row=32)
    hopper.async_store_wait(0)


@kp.jit
def pages(x, out, table, counts, PAGES: tl.constexpr):
    """Fills a tile with the first rows of pages of 16, whose numbers are in memory, and stores its halves apart."""
    blocks = tl.make_tensor_descriptor(x - 16 * 64, [PAGES, 17, 16, 64], [16 * 64, 64, 64, 1], [1, 1, 16, 64])
    halves = tl.make_tensor_descriptor(out, [64, 64], [64, 1], [32, 64])
    full, tile = hopper.mbarrier_alloc(1), hopper.local_alloc([64, 64], x.dtype.element_ty)
    hopper.warp_specialize(
        hopper.role(fetch, (blocks, table, counts, tile, full), num_warps=1),
        hopper.role(hand_out, (halves, tile, full), num_warps=1),
    )


def shift_launch() -> Launch:
    x = torch.randn(100, 80)
    padded = torch.nn.functional.pad(x, (0, 16, 3, 0))[:100, 16:]
    arguments = {
        "x": x,
        "out": torch.full((100, 80), 7.0),
        "rows": 100,
        "columns": 80,
        "down": 3,
        "right": 16,
        "BM": 32,
        "BN": 32,
    }
    return Launch(shift, (4, 3), arguments, {"out": padded})


def product_launch(transposed: bool) -> Launch:
    m, n, k = 136, 80, 208
    a = torch.randn(m, k).bfloat16()
    b = torch.randn(n, k).bfloat16() if transposed else torch.randn(k, n).bfloat16()
    c = torch.full((m, n), float("nan")).bfloat16()
    expected = a.double() @ (b.double().T if transposed else b.double())
    arguments = {"a": a, "b": b, "c": c, "M": m, "N": n, "K": k, "BM": 128, "BN": 64, "BK": 64, "TRANSPOSED": transposed}
    return Launch(product, (2, 2), arguments, {"c": expected}, 1e-2, Options(num_warps=8, num_stages=3))


def batch_launch() -> Launch:
    m, n, k, columns = 64, 96, 160, torch.tensor([96, 8, 45], dtype=torch.int32)
    a, b = torch.randn(3, m, k).bfloat16(), torch.randn(3, n, k).bfloat16()
    c = torch.full((3, m, n), 7.0).bfloat16()
    expected = torch.where(torch.arange(n) < columns[:, None, None], a.double() @ b.double().mT, 7.0)
    arguments = {"a": a, "b": b, "c": c, "columns": columns, "count": 3, "M": m, "N": n, "K": k, "BM": 64, "BN": 64, "BK": 32}
    return Launch(batch, (2,), arguments, {"c": expected}, 1e-2, Options(num_warps=4, num_stages=3))


def padded_launch() -> Launch:
    x, rows = torch.randn(10, 160), torch.tensor([8, 0, 3], dtype=torch.int32)
    sums = torch.stack([x[start : start + 8].view(8, 5, 32).double().sum(1) for start in range(3)])
    expected = torch.where(torch.arange(8)[:, None] < rows[:, None, None], sums, float("nan"))
    arguments = {"x": x, "out": torch.full((3, 8, 32), 7.0), "rows": rows, "count": 3, "COLUMNS": 160, "BM": 8, "BN": 32}
    return Launch(padded, (1,), arguments, {"out": expected}, 1e-6)


def attend_launch() -> Launch:
    q, k, v = (torch.randn(rows, 64).bfloat16() for rows in (64, 320, 320))
    arguments = {"q": q, "k": k, "v": v, "out": torch.full((64, 64), float("nan")), "n": 320, "BM": 64, "BN": 64, "D": 64}
    expected = (q.double() @ k.double().T).softmax(-1) @ v.double()
    return Launch(attend, (1,), arguments, {"out": expected}, 1e-2, Options(num_warps=4, num_stages=3))


def gram_launch(by_threads: bool) -> Launch:
    n = 5
    x = torch.randn(64, n * 64).bfloat16()
    arguments = {"x": x, "out": torch.full((2, 64, 64), float("nan")), "n": n, "BY_THREADS": by_threads}
    expected = (x.double() @ x.double().T).expand(2, 64, 64)
    return Launch(gram, (1,), arguments, {"out": expected}, 1e-5)


def gram_float32_launch(each_warp: bool) -> Launch:
    n = 5
    x = torch.randn(64, n * 64)
    arguments = {"x": x, "out": torch.full((2, 64, 64), float("nan")), "n": n, "EACH_WARP": each_warp}
    return Launch(gram_float32, (1,), arguments, {"out": (x.double() @ x.double().T).expand(2, 64, 64)}, 1e-6)


def pages_launch() -> Launch:
    x, table, counts = torch.randn(6, 16, 64).bfloat16(), torch.tensor([4, 0, 5, 0]), torch.tensor([16, 3, 1, 16])
    rows = torch.where(torch.arange(16)[:, None] < counts[:, None, None], x[table], 0.0).view(64, 64)
    arguments = {"x": x, "out": torch.full((64, 64), float("nan")).bfloat16(), "table": table.int(), "counts": counts.int()}
    return Launch(pages, (1,), {**arguments, "PAGES": 6}, {"out": rows.roll(32, 0)})


def unread_launch(meet: bool) -> Launch:
    arguments = {"x": torch.randn(64, 320).bfloat16(), "out": torch.full((128,), 7.0), "n": 5, "MEET": meet}
    return Launch(unread, (1,), arguments, {"out": torch.zeros(128)})


LAUNCHES = {
    "shift": shift_launch,
    "product": lambda: product_launch(False),
    "product-transposed": lambda: product_launch(True),
    "batch": batch_launch,
    "padded": padded_launch,
    "attend": attend_launch,
    "gram": lambda: gram_launch(False),
    "gram-by-threads": lambda: gram_launch(True),
    "gram-float32": lambda: gram_float32_launch(True),
    "pages": pages_launch,
}
