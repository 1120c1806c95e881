"""Tensor descriptors on a GPU: blocks of every rank and type at every kind of place, empty and repeated tensors, loops of products."""

from __future__ import annotations

import importlib.util

import pytest
import torch

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.tools.tensor_descriptor import TensorDescriptor

pytestmark = pytest.mark.skipif(importlib.util.find_spec("kernelpack._C") is None, reason="kernelpack._C is not built")


@kp.jit
def move(d, e, out, at, to):
    """Loads the block at `at`, stores it at `to` and in a tensor of its own; places are tuples of offsets along every axis."""
    x = d.load(at)
    e.store(to, x)
    out.store([0] * len(out.block_shape), x)


@kp.jit
def move2(d, e, out, i0, i1, j0, j1):
    move(d, e, out, [i0, i1], [j0, j1])


@kp.jit
def move4(d, e, out, i0, i1, i2, i3, j0, j1, j2, j3):
    move(d, e, out, [i0, i1, i2, i3], [j0, j1, j2, j3])


def block_at(x: torch.Tensor, place: tuple[int, ...], block: tuple[int, ...], filling: float) -> torch.Tensor:
    """Returns a block of a tensor, and `filling` where it lies outside."""
    out = torch.full(block, filling, dtype=x.dtype, device=x.device)
    inside = [(max(0, at), min(size, at + extent)) for at, size, extent in zip(place, x.shape, block, strict=True)]
    if all(low < high for low, high in inside):
        source = tuple(slice(low, high) for low, high in inside)
        target = tuple(slice(low - at, high - at) for (low, high), at in zip(inside, place, strict=True))
        out[target] = x[source]
    return out


def padded(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Returns a tensor whose rows are multiples of 16 bytes apart, with something after every row."""
    step = 16 // dtype.itemsize
    memory = (torch.randn(*shape[:-1], -(-shape[-1] // step) * step + step, device="cuda") * 50).to(dtype)
    return memory[..., : shape[-1]]


@pytest.mark.parametrize("padding", ["zero", "nan"])
@pytest.mark.parametrize(
    ("shape", "block", "dtype"),
    [
        ((37, 130), (16, 64), torch.bfloat16),
        ((300, 72), (256, 64), torch.float16),
        ((300, 300), (64, 128), torch.float32),
        ((600, 64), (512, 64), torch.bfloat16),
        ((9, 128), (4, 128), torch.bfloat16),
        ((64, 208), (16, 128), torch.int8),
        ((3, 5, 70, 40), (1, 4, 16, 32), torch.float16),
        ((5, 16, 3, 128), (1, 16, 1, 128), torch.bfloat16),
    ],
)
def test_blocks_move(shape: tuple[int, ...], block: tuple[int, ...], dtype: torch.dtype, padding: str) -> None:
    if padding == "nan" and not dtype.is_floating_point:
        return
    kernel = {2: move2, 4: move4}[len(shape)]
    x, e = padded(shape, dtype), padded(shape, dtype)
    out = torch.empty(block, dtype=dtype, device="cuda")
    middle = tuple(size - extent // 2 for size, extent in zip(shape, block, strict=True))
    places = [(0,) * len(shape), middle, tuple(-1 - extent // 4 for extent in block), shape]
    for at in places:
        for to in (places[0], middle, shape):
            memory = e._base
            assert memory is not None
            expected, after = e.clone(), memory[..., shape[-1] :].clone()
            wanted = block_at(x, at, block, float("nan") if padding == "nan" else 0)
            area = tuple(slice(place, min(size, place + extent)) for place, size, extent in zip(to, shape, block, strict=True))
            expected[area] = wanted[tuple(slice(0, max(0, piece.stop - piece.start)) for piece in area)]
            whole = TensorDescriptor.from_tensor(out, block)
            kernel[(1,)](
                TensorDescriptor.from_tensor(x, block, padding), TensorDescriptor.from_tensor(e, block), whole, *at, *to
            )
            for got, right in ((out, wanted), (e, expected), (memory[..., shape[-1] :], after)):
                torch.testing.assert_close(got, right, rtol=0, atol=0, equal_nan=True)


def test_empty_and_repeated_tensors() -> None:
    x, e = torch.randn(64, 128, device="cuda"), torch.zeros(64, 128, device="cuda")
    for shape, strides, padding, wanted in (
        ([0, 128], [128, 1], "zero", torch.zeros(16, 32)),
        ([64, 0], [128, 1], "nan", torch.full((16, 32), float("nan"))),
        ([64, 128], [0, 1], "zero", x[0, :32].expand(16, 32).cpu()),
    ):
        out = torch.full((16, 32), 7.0, device="cuda")
        source = TensorDescriptor(x, shape, strides, [16, 32], padding)
        move2[(1,)](source, TensorDescriptor.from_tensor(e, [16, 32]), TensorDescriptor.from_tensor(out, [16, 32]), 0, 0, 0, 0)
        torch.testing.assert_close(out.cpu(), wanted, rtol=0, atol=0, equal_nan=True)


@kp.jit
def largest_so_far(x, out, offsets, rows, COLUMNS: tl.constexpr, BLOCK: tl.constexpr):
    """Largest numbers of rows so far, block by block, of a tensor of its own for every program, by tensor maps that the program makes
    of offsets in memory."""
    which = tl.program_id(0)
    a = tl.make_tensor_descriptor(x + tl.load(offsets + which), [rows, COLUMNS], [COLUMNS, 1], [BLOCK, COLUMNS])
    b = tl.make_tensor_descriptor(out + tl.load(offsets + which), [rows, COLUMNS], [COLUMNS, 1], [BLOCK, COLUMNS])
    for row in range(0, rows, BLOCK):
        block = a.load([row, 0])
        for start in range(0, row, BLOCK):  # loads that run ahead: for them a kernel makes maps
            block = tl.maximum(block, a.load([start, 0]))
        b.store([row, 0], block)


def test_programs_of_many_launches_have_tensor_maps_of_their_own() -> None:
    """More programs than run at a time, of launches that run at once and wish for the same places."""
    programs, rows, streams = 9000, 32, [torch.cuda.Stream() for _ in range(4)]
    offsets = torch.arange(programs, device="cuda") * rows * 64
    for _ in range(10):
        x = [torch.randn(programs, rows, 64, device="cuda").half() for _ in streams]
        out = [torch.zeros_like(source) for source in x]
        torch.cuda.synchronize()
        for stream, source, target in zip(streams, x, out, strict=True):
            with torch.cuda.stream(stream):
                largest_so_far[(programs,)](source, target, offsets, rows, 64, 8, num_warps=1)
        torch.cuda.synchronize()
        for source, target in zip(x, out, strict=True):
            assert torch.equal(source.view(programs, -1, 8, 64).cummax(1).values.view_as(target), target)


@kp.jit
def product(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, TRANSPOSED: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    a_blocks = tl.make_tensor_descriptor(a, [m, k], [k, 1], [BM, BK])
    if TRANSPOSED:
        b_blocks = tl.make_tensor_descriptor(b, [n, k], [k, 1], [BN, BK])
    else:
        b_blocks = tl.make_tensor_descriptor(b, [k, n], [n, 1], [BK, BN])
    acc = tl.zeros([BM, BN], tl.float32)
    for at in range(0, k, BK):
        if TRANSPOSED:
            acc = tl.dot(a_blocks.load([row, at]), b_blocks.load([column, at]).T, acc)
        else:
            acc = tl.dot(a_blocks.load([row, at]), b_blocks.load([at, column]), acc)
    tl.make_tensor_descriptor(c, [m, n], [n, 1], [BM, BN]).store([row, column], acc.to(tl.bfloat16))


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    ("sizes", "blocks", "warps", "stages"),
    [
        ((1008, 528, 336), (128, 256, 64), 8, 4),
        ((512, 512, 16), (128, 128, 64), 8, 3),  # fewer blocks than buffers
        ((256, 256, 4096), (64, 128, 128), 4, 5),
        ((1000, 520, 328), (128, 128, 64), 4, 3),  # not known to be aligned: pointers
        ((256, 512, 0), (128, 128, 64), 4, 3),
    ],
)
def test_products(sizes: tuple[int, int, int], blocks: tuple[int, int, int], warps: int, stages: int, transposed: bool) -> None:
    m, n, k = sizes
    a = torch.randn(m, k, device="cuda").bfloat16()
    b = torch.randn((n, k) if transposed else (k, n), device="cuda").bfloat16()
    expected = a.float() @ (b.float().T if transposed else b.float())
    first = None
    for _ in range(5):  # what differs between runs is a race
        c = torch.full((m, n), float("nan"), device="cuda", dtype=torch.bfloat16)
        constants = dict(zip(("BM", "BN", "BK"), blocks, strict=True))
        grid = (-(-m // blocks[0]), -(-n // blocks[1]))
        product[grid](a, b, c, m, n, k, **constants, TRANSPOSED=transposed, num_warps=warps, num_stages=stages)
        torch.testing.assert_close(c.float(), expected, rtol=1e-2, atol=1e-2 * max(1, k) ** 0.5)
        assert first is None or torch.equal(first, c)
        first = c
