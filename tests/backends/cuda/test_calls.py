"""Functions marked noinline stay functions on CUDA, compute what they do inline, and pass tiles, pointers and shared memory."""

from __future__ import annotations

import linecache
import re

import pytest
import torch

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.errors import OutOfResources
from kernelpack.ir.core import functions
from kernelpack.options import Options
from tests.backends.cuda.launch import Launch
from tests.backends.cuda.running import emulate, lower


@kp.jit(noinline=True)
def scaled(x, factor):
    return x * factor + 1


@kp.jit(noinline=True)
def statistics(x, n):
    total = tl.sum(x, 0)
    running = tl.cumsum(x, 0)
    return running + total, total * n, running > 3


@kp.jit(noinline=True)
def mixed(x, n):
    running, total, positive = statistics(x, n)
    return tl.where(positive, running, -running) * 2 + total


@kp.jit
def nested_calls(x, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    values = tl.load(x + i, mask=i < n, other=0)
    total = tl.sum(values, 0)
    first = mixed(scaled(values, 2), n)
    second = mixed(scaled(values, 3), total)
    tl.store(out + i, tl.cumsum(first + second, 0), mask=i < n)


def nested(num_warps: int) -> Launch:
    x = torch.randint(-5, 5, (300,), dtype=torch.int32)
    padded = torch.nn.functional.pad(x.long(), (0, 212))

    def expected(values: torch.Tensor, n: int) -> torch.Tensor:
        running = values.cumsum(0)
        both = running + values.sum()
        return torch.where(running > 3, both, -both) * 2 + values.sum() * n

    sums = (expected(padded * 2 + 1, 300) + expected(padded * 3 + 1, int(padded.sum()))).cumsum(0)
    out = torch.zeros(300, dtype=torch.int32)
    arguments = {"x": x, "out": out, "n": 300, "B": 512}
    return Launch(nested_calls, (1,), arguments, {"out": sums[:300].int()}, options=Options(num_warps=num_warps))


@kp.jit(noinline=True)
def add_row(x, out, row, n, factor, B: tl.constexpr):
    i = tl.arange(0, B)
    values = tl.load(x + row * n + i, mask=i < n, other=0.0)
    tl.store(out + row * n + i, values * factor, mask=i < n)


@kp.jit(noinline=True)
def half_precision(tile, flags):
    return tl.where(flags, tile.to(tl.bfloat16), 0.0)


@kp.jit
def rows(x, out, halves, m, n, B: tl.constexpr):
    i = tl.arange(0, B)
    for row in range(m):
        if row % 2 == 0:
            add_row(x, out, row, n, 2.0, B)
        else:
            add_row(x, out, row, n, -1.0, B)
        tile = tl.load(x + row * n + i, mask=i < n, other=0.0)
        tl.store(halves + row * n + i, half_precision(tile, tile > 0), mask=i < n)


def row_launch() -> Launch:
    x = torch.randn(5, 48)
    factors = torch.tensor([2.0, -1.0, 2.0, -1.0, 2.0])
    expected = {"out": x * factors[:, None], "halves": torch.where(x > 0, x.bfloat16(), 0)}
    arguments = {
        "x": x,
        "out": torch.zeros(5, 48),
        "halves": torch.zeros(5, 48, dtype=torch.bfloat16),
        "m": 5,
        "n": 48,
        "B": 64,
    }
    return Launch(rows, (1,), arguments, expected, options=Options(num_warps=2))


@kp.jit(noinline=True)
def product(a, b, total):
    return tl.dot(a, b, total)


@kp.jit
def products(a, b, c, K, M: tl.constexpr, N: tl.constexpr, BK: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BK)
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, K, BK):
        x = tl.load(a + m[:, None] * K + (start + k)[None, :])
        y = tl.load(b + (start + k)[:, None] * N + n[None, :])
        total = product(x, y, total)
    tl.store(c + m[:, None] * N + n[None, :], total)


def product_launch() -> Launch:
    a, b = torch.randn(64, 96).bfloat16(), torch.randn(96, 64).bfloat16()
    arguments = {"a": a, "b": b, "c": torch.zeros(64, 64), "K": 96, "M": 64, "N": 64, "BK": 32}
    return Launch(products, (1,), arguments, {"c": a.float() @ b.float()}, tolerance=2e-6, options=Options(num_warps=4))


LAUNCHES = {"nested-1": lambda: nested(1), "nested-4": lambda: nested(4), "rows": row_launch, "products": product_launch}


@pytest.mark.parametrize("name", LAUNCHES)
def test_called_functions_compute_what_they_say(name: str) -> None:
    torch.manual_seed(0)
    emulate(LAUNCHES[name](), "cuda:sm_80")


@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_90a"])
@pytest.mark.parametrize("name", LAUNCHES)
def test_functions_stay_functions_down_to_ptx(name: str, target: str) -> None:
    launch = LAUNCHES[name]()
    ttgir, llir, _ = lower(launch, target)
    called = [function.attributes["sym_name"] for function in functions(ttgir)[1:]]
    assert called
    ptx = launch.compile(target).stages["ptx"]
    for function in called:
        assert re.search(rf"define internal .*@{function}\(.*noinline convergent", llir)
        assert re.search(rf"\.func .*{function}", ptx)
        assert re.search(rf"call\.uni[^;]*{function}", ptx)


def test_callees_find_their_shared_memory_after_what_their_caller_keeps() -> None:
    ttgir, _, lowered = lower(nested(4), "cuda:sm_80")
    needed = {
        function.attributes["sym_name"].split("__")[0]: function.attributes.get("ttg.shared") for function in functions(ttgir)
    }
    assert needed["scaled"] == 0
    assert needed["statistics"] == needed["mixed"] > 0
    assert lowered.figures["shared"] >= needed["mixed"]


@kp.jit(noinline=True)
def large_product(a, b, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    at = i[:, None] * BLOCK + i[None, :]
    return tl.sum(tl.dot(tl.load(a + at), tl.load(b + at)))


@kp.jit
def calls_large(a, b, c, BLOCK: tl.constexpr):
    tl.store(c, large_product(a, b, BLOCK))


def test_too_much_shared_memory_names_the_line_in_the_called_function() -> None:
    x = torch.zeros(256 * 256, dtype=torch.float16)
    launch = Launch(calls_large, (1,), {"a": x, "b": x, "c": x.float(), "BLOCK": 256}, {}, options=Options(num_warps=8))
    with pytest.raises(OutOfResources) as raised:
        launch.compile("cuda:sm_86")
    location = raised.value.location
    assert location is not None
    assert "tl.dot(tl.load(a + at), tl.load(b + at))" in linecache.getline(__file__, location.line)
    assert "131072 bytes for a tile of 256x256xf16" in str(raised.value)


@kp.jit
def plain_calls(x, out, n, B: tl.constexpr):
    desc = tl.make_tensor_descriptor(x, [n], [1], [B])
    tl.store(out + tl.arange(0, B), scaled(desc.load([0]), 2.0))


def test_kernels_with_descriptors_have_their_functions_inline() -> None:
    arguments = {"x": torch.zeros(256), "out": torch.zeros(256), "n": 256, "B": 256}
    kernel = Launch(plain_calls, (1,), arguments, {}).compile("cuda:sm_90a")
    assert "tt.call" not in kernel.stages["ttir"]
