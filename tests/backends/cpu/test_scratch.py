"""Tiles share a CPU kernel's stack where there are many: none is overwritten while something still needs it."""

from __future__ import annotations

import re

import pytest
import torch

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.backends.cpu.emit import scratch, tiles_to_llir
from kernelpack.backends.installed import backends
from kernelpack.compiled import CompiledKernel
from kernelpack.errors import OutOfResources
from kernelpack.options import Options
from kernelpack.runtime.compile import compile_kernel
from kernelpack.runtime.specialization import specialize
from kernelpack.target import Target
from tests.backends.cpu.kernels import loaded_object
from tests.frontend.compiling import run

ROWS, COLUMNS = 32, 128


@kp.jit
def add_neighbours(x, AXIS: tl.constexpr):
    return tl.cumsum(x, AXIS) - x * 0.5


@kp.jit
def chain(x, out, STEPS: tl.constexpr):
    """Each step makes tiles that only the next one needs."""
    place = tl.arange(0, 32)[:, None] * 128 + tl.arange(0, 128)
    tile = tl.load(x + place)
    for step in tl.static_range(STEPS):
        tile = add_neighbours(tile, step % 2) * 0.05
    tl.store(out + place, tile)


@kp.jit
def braid(x, out, n, STEPS: tl.constexpr):
    """Tiles that live through loops and branches beside tiles that do not."""
    place = tl.arange(0, 32)[:, None] * 128 + tl.arange(0, 128)
    tile = tl.load(x + place)
    kept = tl.cumsum(tile, 1)
    early = add_neighbours(tile, 0) * 0.05
    total = tl.zeros([32, 128], tl.float32)
    for i in range(n):
        inner = tl.cumsum(early * 0.1, 0)
        for _ in range(2):
            total = tl.cumsum(total * 0.01, 1) + tl.cumsum(inner, 1)
        if i % 2 == 0:
            total += tl.cumsum(kept, 0) * 0.001
        else:
            total -= inner
        total = tl.cumsum(total * 0.01, 0)
    late = add_neighbours(early, 1)
    while n > 0:
        late = tl.cumsum(late * 0.01, 0) + tl.cumsum(total * 0.01, 1)
        n -= 1
    tl.store(out + place, late + tl.cumsum(early, 1) + kept * 0.001)


def compiled(kernel: kp.JITFunction, **arguments: object) -> tuple[CompiledKernel, list[object]]:
    special, values = specialize(kernel, arguments, backends()["cpu"])
    return compile_kernel(kernel, special, Target.parse("cpu:native"), Options()), values


def stack_of(kernel: CompiledKernel) -> int:
    return sum(int(size) for size in re.findall(r"%tile\d+ = alloca \[(\d+) x i8\]", kernel.stages["llir"]))


@pytest.mark.parametrize(("kernel", "arguments"), [(chain, {"STEPS": 12}), (braid, {"n": 3, "STEPS": 1})])
def test_tiles_share_memory_and_keep_their_values(
    kernel: kp.JITFunction, arguments: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.randn(ROWS, COLUMNS)
    expected, out = torch.zeros_like(x), torch.zeros_like(x)
    run(kernel, 1, x=x, out=expected, **arguments)
    apart, _ = compiled(kernel, x=x, out=out, **arguments)
    monkeypatch.setattr(scratch, "APART", 0)
    shared, values = compiled(kernel, x=x, out=out, **arguments)
    assert stack_of(shared) == shared.metadata["scratch"] < apart.metadata["scratch"] == stack_of(apart)
    loaded_object(shared).launch((1, 1, 1), values)
    torch.testing.assert_close(out, expected)


def test_a_chain_of_any_length_needs_the_memory_of_its_longest_link(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "APART", 0)
    x = torch.randn(ROWS, COLUMNS)
    sizes = {steps: stack_of(compiled(chain, x=x, out=x, STEPS=steps)[0]) for steps in (4, 16)}
    assert sizes[4] == sizes[16] <= 3 * x.nbytes


def test_what_is_needed_at_once_must_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "APART", 0)
    monkeypatch.setattr(tiles_to_llir, "SCRATCH_LIMIT", 1 << 14)
    x = torch.randn(ROWS, COLUMNS)
    with pytest.raises(OutOfResources, match=r"tiles of chain need .* KB of stack, 16 KB are available"):
        compiled(chain, x=x, out=x, STEPS=4)
