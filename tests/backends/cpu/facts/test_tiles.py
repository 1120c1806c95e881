"""Which products fit AMX's tiles, how they are cut, and which level kernels are compiled for."""

from __future__ import annotations

import pytest

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.backends.cpu.facts.features import level_of
from kernelpack.backends.cpu.facts.tiles import TileGrid, fits_tiles, level_of_kernel
from kernelpack.kernel.jit import JITFunction
from kernelpack.target import Target
from tests.backends.cpu.plan.plans import ttir
from tests.backends.cpu.plan.test_plan_product import product

AMX, BF16, V4 = (Target.parse(f"cpu:x86-64-v4{features}") for features in ("+amx", "+avx512bf16", ""))
SIZES = {"M": 16, "N": 16, "K": 32, "A": True, "B": True}


@pytest.mark.parametrize(
    ("extents", "grid"),
    [
        ((128, 128, 64), (16, 16, 16, 2, 2)),
        ((16, 128, 64), (16, 16, 16, 1, 4)),
        ((128, 16, 64), (16, 16, 16, 4, 1)),
        ((16, 32, 64), (16, 16, 16, 1, 2)),
        ((32, 16, 8), (16, 16, 8, 2, 1)),
        ((1, 64, 16), (1, 16, 16, 1, 4)),
        ((4, 2, 4), (4, 2, 4, 1, 1)),
    ],
)
def test_four_tiles_hold_results_where_there_are_so_many(
    extents: tuple[int, int, int], grid: tuple[int, int, int, int, int]
) -> None:
    assert TileGrid.of(*extents) == TileGrid(*grid)


@kp.jit
def rounded(a, b, c):
    n = tl.arange(0, 16)
    tl.store(c + n, tl.load(a + n).to(tl.bfloat16))


def fits(kernel: JITFunction, **types: str | int | bool) -> bool:
    return any(fits_tiles(op) for op in ttir(kernel, **types).walk())


@pytest.mark.parametrize(("kind", "fit"), [("bf16", True), ("i8", True), ("fp16", False), ("fp32", False)])
def test_tiles_hold_bfloat16_and_bytes(kind: str, fit: bool) -> None:
    result = "*i32" if kind == "i8" else "*fp32"
    assert fits(product, a=f"*{kind}", b=f"*{kind}", c=result, **SIZES) == fit
    assert not fits(rounded)


def test_kernels_without_products_in_tiles_are_those_of_other_levels() -> None:
    def level(kernel: JITFunction, **types: str | int | bool) -> object:
        return level_of_kernel(AMX, ttir(kernel, **types))

    assert level(product, a="*bf16", b="*bf16", **SIZES) == level(product, a="*i8", b="*i8", c="*i32", **SIZES) == level_of(AMX)
    assert level(rounded) == level_of(BF16)
    assert level(product, **SIZES) == level_of(V4)


def test_kernels_with_products_of_bytes_are_for_vnni() -> None:
    level = level_of_kernel(BF16, ttir(product, a="*i8", b="*i8", c="*i32", **SIZES))
    assert level == level_of(Target.parse("cpu:x86-64-v4+avx512vnni"))
