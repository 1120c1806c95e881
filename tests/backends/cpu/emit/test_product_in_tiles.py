"""Products in AMX's tiles: right on a stand-in for the instructions, and the same bit for bit on a CPU that has them."""

from __future__ import annotations

import itertools
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.kernel.jit import JITFunction
from tests.backends.cpu.tiles import compiled, has_tiles, launch, on_stand_in, stand_in

KINDS = {"bf16": ("*fp32", torch.float32), "i8": ("*i32", torch.int32)}


def drawn(kind: str, *shape: int) -> torch.Tensor:
    if kind == "bf16":
        return torch.randn(shape).bfloat16()
    return torch.randint(-128, 128, shape, dtype=torch.int8)


def close(got: torch.Tensor, want: torch.Tensor) -> None:
    if want.dtype.is_floating_point:
        assert (got.double() - want).norm() <= 1e-6 * max(1, want.norm().item())
    else:
        assert torch.equal(got, want.to(got.dtype))


def run(
    kernel: JITFunction, tensors: list[Any], got: torch.Tensor, grid: tuple[int, int, int] = (1, 1, 1), **types: Any
) -> int:
    """Runs a kernel on the stand-in, and, where this CPU has tiles, on it, which must come out the same; returns how many products of
    tiles there were."""
    code = compiled(kernel, **types)
    silicon = got.clone()
    launch(on_stand_in(code), *tensors, got, grid=grid)
    if has_tiles():
        launch(code, *tensors, silicon, grid=grid)
        assert torch.equal(silicon, got)
    assert not stand_in().stand_in_is_configured()
    return int(stand_in().stand_in_products())


@kp.jit
def product(a, b, c, o, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, A: tl.constexpr, B: tl.constexpr):
    """A and B: whether rows of a and b are contiguous."""
    m, n, k = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :], tl.arange(0, K)
    x = tl.load(a + (m * K + k[None, :] if A else m + k[None, :] * M))
    y = tl.load(b + (k[:, None] * N + n if B else k[:, None] + n * K))
    tl.store(o + m * N + n, tl.dot(x, y, tl.load(c + m * N + n)))


SHAPES = [
    # M, N, K, and the products of tiles with 32 elements of bfloat16 along k
    (32, 32, 32, 4),
    (64, 128, 64, 64),
    (16, 128, 32, 8),
    (128, 16, 256, 64),
    (1, 16, 32, 1),
    (8, 4, 32, 1),
    (2, 64, 64, 8),
    (64, 8, 32, 4),
]


@pytest.mark.parametrize(("rows", "columns", "depth", "tiles"), SHAPES)
@pytest.mark.parametrize("kind", KINDS)
def test_operands_of_every_layout_are_multiplied(kind: str, rows: int, columns: int, depth: int, tiles: int) -> None:
    pointer, result = KINDS[kind]
    for along, beside in itertools.product((True, False), repeat=2):
        a, b, c = drawn(kind, rows, depth), drawn(kind, depth, columns), drawn(kind, rows, columns).to(result)
        wide = torch.float64 if kind == "bf16" else torch.int64
        tensors = [a if along else a.T.contiguous(), b if beside else b.T.contiguous(), c]
        got = torch.full_like(c, 77)
        sizes = {"M": rows, "N": columns, "K": depth, "A": along, "B": beside}
        counted = run(product, tensors, got, a=f"*{kind}", b=f"*{kind}", c=pointer, o=pointer, **sizes)
        close(got, a.to(wide) @ b.to(wide) + c)
        units = depth if kind == "bf16" else depth // 4
        few = rows < 16 and rows * 8 <= units and (along or rows == 1) and not beside  # those have k in the lanes
        assert few or counted == (tiles if kind == "bf16" else -(-depth // 64) * tiles // (depth // 32))


def test_bfloat16_down_to_16_along_k() -> None:
    a, b, c = drawn("bf16", 32, 16), drawn("bf16", 16, 32), drawn("bf16", 32, 32).float()
    got = torch.zeros(32, 32)
    run(product, [a, b, c], got, a="*bf16", b="*bf16", M=32, N=32, K=16, A=True, B=True)
    close(got, a.double() @ b.double() + c)


@kp.jit
def unpacked(a, words, o, M: tl.constexpr, N: tl.constexpr):
    """Byte j of word w is multiplied with 4 w + j."""
    m, n, w, j = tl.arange(0, M)[:, None], tl.arange(0, N), tl.arange(0, 16), tl.arange(0, 4)
    word = tl.load(words + w[:, None] * N + n[None, :])
    codes = (word[:, None, :] << (24 - 8 * j)[None, :, None]) >> 24
    b = tl.reshape(codes.to(a.dtype.element_ty), [64, N])
    tl.store(o + m * N + n[None, :], tl.dot(tl.load(a + m * 64 + tl.arange(0, 64)[None, :]), b))


@pytest.mark.parametrize("columns", [16, 32, 128])
@pytest.mark.parametrize("kind", KINDS)
def test_operands_are_unpacked_where_they_are_multiplied(kind: str, columns: int) -> None:
    pointer, result = KINDS[kind]
    wide = torch.float64 if kind == "bf16" else torch.int64
    a, b = drawn(kind, 32, 64), drawn("i8", 16, columns, 4)
    got = torch.full((32, columns), 77, dtype=result)
    assert run(unpacked, [a, b.view(torch.int32)], got, a=f"*{kind}", words="*i32", o=pointer, M=32, N=columns) > 0
    close(got, a.to(wide) @ b.transpose(1, 2).reshape(64, columns).to(wide))


@kp.jit
def matmul(a, b, o, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    n = tl.program_id(1) * BN + tl.arange(0, BN)[None, :]
    acc = tl.zeros([BM, BN], o.dtype.element_ty)
    for first in range(0, K, BK):
        k = first + tl.arange(0, BK)
        x = tl.load(a + m * K + k[None, :], mask=(m < M) & (k[None, :] < K), other=0)
        y = tl.load(b + k[:, None] * N + n, mask=(k[:, None] < K) & (n < N), other=0)
        acc = tl.dot(x, y, acc, out_dtype=o.dtype.element_ty)
    tl.store(o + m * N + n, acc, mask=(m < M) & (n < N))


@pytest.mark.parametrize("kind", KINDS)
def test_tiles_of_few_rows_are_turned_back(kind: str) -> None:
    """Both operands lie along k: a is turned instead of b, and the tiles of the result are too."""
    pointer, result = KINDS[kind]
    wide = torch.float64 if kind == "bf16" else torch.int64
    for rows, columns in ((16, 32), (32, 64), (64, 128), (16, 256)):
        a, b, c = drawn(kind, rows, 64), drawn(kind, columns, 64), drawn(kind, rows, columns).to(result)
        got = torch.full_like(c, 77)
        sizes = {"M": rows, "N": columns, "K": 64, "A": True, "B": False}
        run(product, [a, b, c], got, a=f"*{kind}", b=f"*{kind}", c=pointer, o=pointer, **sizes)
        close(got, a.to(wide) @ b.to(wide).T + c)


@pytest.mark.parametrize(("block", "depth"), [(64, 0), (64, 64), (64, 130), (1024, 1), (1024, 257), (1024, 1500)])
@pytest.mark.parametrize("kind", KINDS)
def test_sums_along_a_loop_and_ends_of_tensors(kind: str, block: int, depth: int) -> None:
    pointer, result = KINDS[kind]
    a, b = drawn(kind, 70, depth), drawn(kind, depth, 100)
    got = torch.full((70, 100), 77, dtype=result)
    sizes = {"M": "i32", "N": "i32", "K": "i32", "BM": 32, "BN": 64, "BK": block}
    code = compiled(matmul, a=f"*{kind}", b=f"*{kind}", o=pointer, **sizes)
    arguments = [a, b, got, 70, 100, depth]
    launch(on_stand_in(code), *arguments, grid=(3, 2, 1))
    close(got, a.double() @ b.double())
    if has_tiles():
        silicon = torch.full_like(got, 77)
        launch(code, a, b, silicon, 70, 100, depth, grid=(3, 2, 1))
        assert torch.equal(silicon, got)


@kp.jit
def attended(q, k, v, o, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr):
    """Rows are reduced, so that they lie in the lanes; two products whose tiles have different shapes."""
    m, n, d = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :], tl.arange(0, D)
    scores = tl.dot(tl.load(q + m * D + d[None, :]), tl.load(k + n * D + d[:, None]))
    weights = scores / tl.sum(tl.abs(scores), 1)[:, None]
    values = tl.load(v + tl.arange(0, N)[:, None] * D + d[None, :])
    tl.store(o + m * D + d[None, :], tl.dot(weights.to(tl.bfloat16), values))


@pytest.mark.parametrize(("rows", "keys", "width"), [(64, 64, 32), (16, 128, 64), (32, 16, 16)])
def test_rows_in_the_lanes_and_products_of_different_tiles(rows: int, keys: int, width: int) -> None:
    q, k, v = (drawn("bf16", extent, width) for extent in (rows, keys, keys))
    got = torch.zeros(rows, width)
    assert run(attended, [q, k, v], got, q="*bf16", k="*bf16", v="*bf16", M=rows, N=keys, D=width)
    scores = q.double() @ k.double().T
    want = scores / scores.abs().sum(1, keepdim=True) @ v.double()
    assert (got - want).norm() <= 5e-3 * want.norm()


@kp.jit
def attend(q, k, v, o, L, scale, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr):
    """Attention with sums that are scaled between products: what is added is computed."""
    d, m = tl.arange(0, D), tl.program_id(0) * M + tl.arange(0, M)
    x = tl.load(q + m[:, None] * D + d[None, :])
    best, total = tl.full([M], float("-inf"), tl.float32), tl.zeros([M], tl.float32)
    acc = tl.zeros([M, D], tl.float32)
    for first in range(0, L, N):
        n = first + tl.arange(0, N)
        s = tl.dot(x, tl.load(k + n[None, :] * D + d[:, None])) * scale
        high = tl.maximum(best, tl.max(s, 1))
        p, alpha = tl.exp2(s - high[:, None]), tl.exp2(best - high)
        total = total * alpha + tl.sum(p, 1)
        acc = tl.dot(p.to(tl.bfloat16), tl.load(v + n[:, None] * D + d[None, :]), acc * alpha[:, None])
        best = high
    tl.store(o + m[:, None] * D + d[None, :], acc / total[:, None])


def test_attention() -> None:
    q, k, v = (drawn("bf16", extent, 64) for extent in (64, 256, 256))
    got = torch.zeros(64, 64)
    code = compiled(attend, q="*bf16", k="*bf16", v="*bf16", L="i32", scale="fp32", M=32, N=64, D=64)
    stand_in().stand_in_products()  # counts from here on
    launch(on_stand_in(code), q, k, v, got, 256, 0.125 * 1.4426950408889634, grid=(2, 1, 1))
    want = torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double())
    assert (got - want).norm() <= 5e-3 * want.norm()
    assert stand_in().stand_in_products() == 2 * 4 * (2 * 4 * 2 + 2 * 4 * 2)
    if has_tiles():
        silicon = torch.zeros(64, 64)
        launch(code, q, k, v, silicon, 256, 0.125 * 1.4426950408889634, grid=(2, 1, 1))
        assert torch.equal(silicon, got)


@kp.jit
def batches(a, b, o, B: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    i, m, n, k = tl.arange(0, B)[:, None, None], tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x = tl.load(a + (i * M + m[None, :, None]) * K + k[None, None, :])
    y = tl.load(b + (i * K + k[None, :, None]) * N + n[None, None, :])
    tl.store(o + (i * M + m[None, :, None]) * N + n[None, None, :], tl.dot(x, y))


def test_a_batch_of_products() -> None:
    a, b = drawn("bf16", 4, 32, 64), drawn("bf16", 4, 64, 16)
    got = torch.zeros(4, 32, 16)
    assert run(batches, [a, b], got, a="*bf16", b="*bf16", B=4, M=32, N=16, K=64) == 4 * 2 * 2
    close(got, a.double() @ b.double())


@pytest.mark.skipif(not has_tiles(), reason="no AMX")
def test_threads_and_forked_processes_have_tiles() -> None:
    code = compiled(summed, a="*bf16", b="*bf16", times="i32")
    a, b = drawn("bf16", 16, 32), drawn("bf16", 32, 16)
    want = 100 * (a.float() @ b.float())

    def right() -> bool:
        got = torch.zeros(16, 16)
        launch(code, a, b, got, 100)
        return bool((got - want).norm() < 1e-3 * got.norm())

    assert right()
    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(lambda _: right(), range(64)))
    child = os.fork()
    if child == 0:
        os._exit(0 if right() else 1)
    assert os.waitpid(child, 0)[1] == 0


@kp.jit(debug=True)
def checked(a, o, limit):
    m, n = tl.arange(0, 32)[:, None], tl.arange(0, 32)[None, :]
    x = tl.load(a + m * 32 + n)
    z = tl.dot(x, x)
    tl.device_assert(tl.max(tl.max(z, 1), 0) < limit, "too much")
    tl.store(o + m * 32 + n, z)


def test_tiles_are_released_where_an_assertion_ends_the_kernel() -> None:
    code = on_stand_in(compiled(checked, a="*bf16", limit="fp32"))
    a, got = torch.ones(32, 32).bfloat16(), torch.zeros(32, 32)
    with pytest.raises(AssertionError, match="too much"):
        launch(code, a, got, 1.0)
    assert not stand_in().stand_in_is_configured()
    launch(code, a, got, 100.0)
    assert torch.equal(got, torch.full((32, 32), 32.0))


TINY, LEAST = 2.0**-130, 2.0**-126


@pytest.mark.parametrize(
    ("a", "b", "c", "want"),
    [
        pytest.param([TINY], [2.0**20], 0.0, 0.0, id="a subnormal operand is zero"),
        pytest.param([LEAST], [0.5], 0.0, 0.0, id="a subnormal product is zero"),
        pytest.param([0.0], [0.0], TINY, 0.0, id="a subnormal number added is zero"),
        pytest.param([1.0], [1.0], 2.0**24, 2.0**24, id="ties go to even, down"),
        pytest.param([3.0], [1.0], 2.0**24, 2.0**24 + 4, id="ties go to even, up"),
        pytest.param([2.0**24, 1.0, 0.0, 1.0], [1.0] * 4, 0.0, 2.0**24 + 2, id="odd ones are summed apart"),
        pytest.param([2.0**24, 0.0, 1.0, 0.0, 1.0, 0.0], [1.0] * 6, 0.0, 2.0**24, id="even ones one after the other"),
        pytest.param([1.0, 1.0], [1.0, 1.0], 2.0**24, 2.0**24 + 2, id="what is added comes last"),
        pytest.param([2.0**127, -(2.0**127)], [2.0, 2.0], 0.0, float("nan"), id="infinities of two signs"),
        pytest.param([2.0**127, 2.0**127], [2.0, 0.0], 0.0, float("inf"), id="overflow"),
    ],
)
def test_the_stand_in_rounds_as_the_manual_says(a: list[float], b: list[float], c: float, want: float) -> None:
    x, y, z = torch.zeros(16, 32).bfloat16(), torch.zeros(32, 16).bfloat16(), torch.full((16, 16), c)
    x[:, : len(a)] = torch.tensor(a)
    y[: len(b), :] = torch.tensor(b)[:, None]
    code, got = compiled(summed, a="*bf16", b="*bf16", times="i32"), z.clone()
    launch(on_stand_in(code), x, y, got, 1)
    assert torch.equal(got.isnan(), torch.full((16, 16), want != want)), got
    assert want != want or torch.equal(got, torch.full((16, 16), want)), got
    if has_tiles():
        launch(code, x, y, z, 1)
        assert torch.equal(z.view(torch.int32), got.view(torch.int32))


@kp.jit
def summed(a, b, o, times):
    """c lies in the buffer that the sum goes to, and so in tiles."""
    m, n, k = tl.arange(0, 16)[:, None], tl.arange(0, 16)[None, :], tl.arange(0, 32)
    acc = tl.load(o + m * 16 + n)
    for _ in range(times):
        acc = tl.dot(tl.load(a + m * 32 + k[None, :]), tl.load(b + k[:, None] * 16 + n), acc)
    tl.store(o + m * 16 + n, acc)
