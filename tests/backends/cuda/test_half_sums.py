"""Products with out_dtype=tl.float16 are summed in float16 by the tensor cores, and no other product is."""

from __future__ import annotations

import pytest
import torch

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.options import Options
from tests.backends.cuda.launch import Launch, fresh
from tests.backends.cuda.product_cases import Product
from tests.backends.cuda.running import emulate


@kp.jit
def add_products(a, b, c, out, SIZE: tl.constexpr, K: tl.constexpr, OUT: tl.constexpr, IN_STEPS: tl.constexpr):
    i, k = tl.arange(0, SIZE), tl.arange(0, 16)
    total = tl.load(c + i[:, None] * SIZE + i[None, :]).to(OUT)
    if IN_STEPS:
        for step in range(0, K, 16):
            left = tl.load(a + i[:, None] * K + step + k[None, :])
            right = tl.load(b + (step + k)[:, None] * SIZE + i[None, :])
            total += tl.dot(left, right).to(OUT)
    else:
        all = tl.arange(0, K)
        left = tl.load(a + i[:, None] * K + all[None, :])
        total = tl.dot(left, tl.load(b + all[:, None] * SIZE + i[None, :]), total, out_dtype=OUT)
    tl.store(out + i[:, None] * SIZE + i[None, :], total)


def launch(size: int, kind: tl.dtype, in_steps: bool = False) -> Launch:
    """2048 + 1 + 1, each 1 the sum of an instruction's 16 products: float16 has no 2049."""
    depth = 32
    arguments = {
        "a": torch.full((size, depth), 0.25, dtype=torch.float16),
        "b": torch.full((depth, size), 0.25, dtype=torch.float16),
        "c": torch.full((size, size), 2048.0),
        "out": fresh(size, size),
        "SIZE": size, "K": depth, "OUT": kind, "IN_STEPS": in_steps,
    }  # fmt: skip
    wanted = torch.full((size, size), 2048.0 if kind == tl.float16 else 2050.0)
    return Launch(add_products, (1,), arguments, {"out": wanted}, options=Options(num_warps=4))


@pytest.mark.parametrize(("target", "size"), [("cuda:sm_80", 16), ("cuda:sm_80", 64), ("cuda:sm_90a", 16), ("cuda:sm_90a", 64)])
@pytest.mark.parametrize("kind", [tl.float16, tl.float32])
def test_sums_have_the_precision_that_was_asked_for(target: str, size: int, kind: tl.dtype) -> None:
    emulate(launch(size, kind), target)


@pytest.mark.parametrize(
    ("dtype", "instruction"),
    [
        (torch.float16, "wgmma.mma_async.sync.aligned.m64n64k16.f16.f16.f16"),
        (torch.float8_e5m2, "wgmma.mma_async.sync.aligned.m64n64k32.f16.e5m2.e5m2"),
    ],
)
def test_instructions_of_warpgroups(dtype: torch.dtype, instruction: str) -> None:
    half = Product(torch.float16, block=(64, 64, 64), order="rc", acc=torch.float16).launch()
    arguments = {name: value.to(dtype) if name in "ab" else value for name, value in half.arguments.items()}
    ptx = str(Launch(half.fn, half.grid, arguments, {}, options=half.options).compile("cuda:sm_90a").stages["ptx"])
    assert instruction in ptx
    assert ".f32.f16" not in ptx


def test_a_fragment_is_half_as_many_registers() -> None:
    assert "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16" in str(
        launch(16, tl.float16).compile("cuda:sm_80").stages["ptx"]
    )


@kp.jit
def multiply_twice(a, b, out, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)[:, None] * SIZE + tl.arange(0, SIZE)[None, :]
    y = tl.load(b + at)
    tl.store(out + at, tl.dot(tl.dot(tl.load(a + at), y, out_dtype=tl.float16), y, out_dtype=tl.float16))


def test_sums_are_rows_of_the_next_product_as_they_are() -> None:
    a, b = (torch.randint(-1, 2, (64, 64)).to(torch.float16) for _ in range(2))
    arguments = {"a": a, "b": b, "out": fresh(64, 64, dtype=torch.float16), "SIZE": 64}
    twice = Launch(multiply_twice, (1,), arguments, {"out": a.double() @ b.double() @ b.double()})
    assert "{%r" in str(twice.compile("cuda:sm_90a").stages["ptx"]).split("wgmma.mma_async")[-1].split("}, ")[1]
    emulate(twice, "cuda:sm_90a")


def test_sums_of_single_instructions_may_be_rounded() -> None:
    # ptxas reads them before the wait that stands after the product, where it waits too (message C7517): nothing is lost
    assert launch(64, tl.float16, in_steps=True).compile("cuda:sm_90a").image
    emulate(launch(64, tl.float16, in_steps=True), "cuda:sm_90a")
