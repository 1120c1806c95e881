"""KERNELPACK_CHECKED=1: kernels that Python launches on CPUs end before the first access outside of the storage of its tensor."""

from __future__ import annotations

import re

import pytest
import torch

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.errors import MemoryAccessError


@pytest.fixture(autouse=True)
def checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELPACK_CHECKED", "1")


@kp.jit
def scale(x, weight, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    loaded = tl.load(x + at, mask=at < n) * tl.load(weight + at, mask=at < n)
    tl.store(out + at, loaded, mask=at < n)


def run_scale(x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor) -> None:
    scale[(kp.cdiv(x.numel(), 64),)](x, weight, out, x.numel(), BLOCK=64)


@pytest.mark.parametrize("threads", [1, 2])
def test_the_first_access_outside_ends_the_launch_and_says_what_it_is(threads: int) -> None:
    x, out, before = torch.randn(100_000), torch.zeros(100_000), torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with pytest.raises(MemoryAccessError) as raised:
            run_scale(x, torch.randn(5), out)
    finally:
        torch.set_num_threads(before)
    found = re.fullmatch(
        r"test_checked.py:\d+: load through weight: element (\d+) of weight is outside of its storage, which holds elements 0 to 4 "
        r"\(shape \[5\], strides \[1\]\)\n  to fix: check the argument before the launch, or mask the access",
        str(raised.value),
    )
    assert found is not None, raised.value
    element = int(found[1])
    assert element == 5 or element % 64 == 0  # the first of its tile; of several threads, one tells
    assert not out.any(), "the tile that would have been stored is not"


def test_what_is_inside_gives_the_same_result() -> None:
    x, weight, out = torch.randn(777), torch.randn(777), torch.empty(777)
    run_scale(x, weight, out)
    assert torch.equal(out, x * weight)


def test_a_view_may_reach_as_far_as_its_storage() -> None:
    storage = torch.randn(200)
    out = torch.empty(100)
    run_scale(torch.ones(100), storage[50:60], out)
    assert torch.equal(out, storage[50:150])
    with pytest.raises(MemoryAccessError, match=r"element 64 of weight .* holds elements -136 to 63 \(shape \[10\]"):
        run_scale(torch.ones(100), storage[136:146], out)


@kp.jit
def backwards(x, out):
    tl.store(out, tl.load(x - 1))


def test_accesses_before_the_storage_are_outside() -> None:
    pair, out = torch.tensor([3.0, 4.0]), torch.empty(1)
    backwards[(1,)](pair[1:], out)
    assert out.item() == 3
    with pytest.raises(MemoryAccessError, match=r"load through x: element -1 of x is outside .* elements 0 to 1"):
        backwards[(1,)](pair, out)


@kp.jit
def half_inside(x, out):
    tl.store(out, tl.load(x.to(tl.pointer_type(tl.int32))))


def test_an_access_that_ends_outside_is_outside() -> None:
    with pytest.raises(MemoryAccessError, match=r"element 0 of x is outside .* holds elements 0 to 2 \(shape \[3\]"):
        half_inside[(1,)](torch.zeros(3, dtype=torch.int8), torch.empty(1, dtype=torch.int32))
    half_inside[(1,)](torch.zeros(4, dtype=torch.int8), torch.empty(1, dtype=torch.int32))


@kp.jit
def stores(out, N: tl.constexpr):
    tl.store(out + tl.arange(0, N), tl.arange(0, N))


@kp.jit
def adds(out, N: tl.constexpr):
    tl.atomic_add(out + tl.arange(0, N), 1)


@kp.jit
def swaps(out, N: tl.constexpr):
    tl.atomic_cas(out + N - 1, 0, 1)


@pytest.mark.parametrize(("kernel", "verb"), [(stores, "store"), (adds, "atomic"), (swaps, "atomic")])
def test_stores_and_atomics_are_held_too(kernel, verb: str) -> None:
    out = torch.zeros(15, dtype=torch.int32)
    with pytest.raises(MemoryAccessError, match=rf"{verb} through out: element 15 of out"):
        kernel[(1,)](out, 16)
    assert not out.any()
    kernel[(1,)](torch.zeros(16, dtype=torch.int32), 16)


@kp.jit
def sums(x, out, rows, N: tl.constexpr):
    total = tl.zeros((N,), tl.float32)
    pointers = x + tl.arange(0, N)
    for _ in range(rows):
        total += tl.load(pointers)
        pointers += N
    tl.store(out + tl.arange(0, N), total)


def test_addresses_that_a_loop_carries_are_held() -> None:
    x, out = torch.randn(7, 32), torch.empty(32)
    sums[(1,)](x, out, 7, 32)
    torch.testing.assert_close(out, x.sum(0))
    with pytest.raises(MemoryAccessError, match=r"element 224 of x .* \(shape \[7, 32\], strides \[32, 1\]\)"):
        sums[(1,)](x, out, 8, 32)


@kp.jit
def product(a, b, out, K, N: tl.constexpr):
    rows, total = tl.arange(0, N), tl.zeros((N, N), tl.float32)
    for k in range(0, K, N):
        left = tl.load(a + rows[:, None] * K + k + rows[None, :])
        right = tl.load(b + (k + rows)[:, None] * N + rows[None, :])
        total += tl.dot(left, right)
    tl.store(out + rows[:, None] * N + rows[None, :], total)


def test_the_operands_of_products_are_held() -> None:
    a, b, out = torch.randn(16, 64), torch.randn(64, 16), torch.empty(16, 16)
    product[(1,)](a, b, out, 64, 16)
    torch.testing.assert_close(out, a @ b, rtol=1e-2, atol=1e-2)
    with pytest.raises(MemoryAccessError, match=r"load through b: element 768 of b"):
        product[(1,)](a, b[:48].clone(), out, 64, 16)


@kp.jit
def chooses(x, y, out, which):
    source = x if which == 0 else y
    tl.store(out, tl.load(source + 3))


def test_an_address_may_be_in_either_of_two_tensors() -> None:
    long, short, out = torch.arange(4.0), torch.arange(2.0), torch.empty(1)
    chooses[(1,)](long, short, out, 2 - 2)
    assert out.item() == 3
    with pytest.raises(MemoryAccessError, match=r"load through (x or )?y: element "):
        chooses[(1,)](long, short, out, 7)


@kp.jit
def by_descriptor(x, out, rows, N: tl.constexpr):
    desc = tl.make_tensor_descriptor(x, [rows, N], [N, 1], [4, N])
    tl.store(out + tl.arange(0, N), tl.sum(desc.load([4, 0]), axis=0))


def test_a_descriptor_that_claims_too_many_rows_is_caught() -> None:
    x, out = torch.ones(6, 16), torch.empty(16)
    by_descriptor[(1,)](x, out, 6, 16)
    assert torch.equal(out, torch.full((16,), 2.0))
    with pytest.raises(MemoryAccessError, match=r"load through x: element 96 of x"):
        by_descriptor[(1,)](x, out, 8, 16)


@kp.jit
def through_memory(table, out):
    tl.store(out, tl.load(tl.load(table).to(tl.pointer_type(tl.float32))))


def test_an_address_from_memory_belongs_to_no_tensor() -> None:
    x, out = torch.tensor([5.0]), torch.empty(1)
    launched = through_memory[(1,)](torch.tensor([x.data_ptr()]), out)
    assert out.item() == 5
    assert launched.kernel.metadata["unchecked"] == 1


def test_the_switch_is_part_of_what_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    x, out = torch.randn(64), torch.empty(64)
    launched = scale[(1,)](x, x, out, 64, BLOCK=64)
    assert launched.kernel.options.checked
    assert [parameter.name for parameter in launched.kernel.parameters[-2:]] == ["out.begin", "out.end"]
    assert not scale[(1,)](x, x, out, 64, BLOCK=64, checked=False).kernel.options.checked
