"""Products whose operands' addresses, sizes and strides lie in memory: what their users say of them lets tiles be copied ahead."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.facts import Fact
from kernelpack.options import Options
from kernelpack.runtime.compile import compile_kernel
from kernelpack.runtime.specialization import Specialization
from kernelpack.simt import Emulator
from kernelpack.target import Target

BLOCKS = {"BM": 64, "BN": 64, "BK": 32}


@kp.jit
def by_descriptors(addresses, sizes, strides, count, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Products a b^T of some problems, one after the other, by descriptors that are made where a problem begins."""
    for problem in range(count):
        a, b = tl.load(addresses + 3 * problem), tl.load(addresses + 3 * problem + 1)
        c = tl.load(addresses + 3 * problem + 2)
        m, n = tl.load(sizes + 3 * problem), tl.load(sizes + 3 * problem + 1)
        k = tl.load(sizes + 3 * problem + 2)
        a_row, b_row = tl.load(strides + 3 * problem), tl.load(strides + 3 * problem + 1)
        c_row = tl.load(strides + 3 * problem + 2)
        a_blocks = tl.make_tensor_descriptor(a.to(tl.pointer_type(tl.float16)), [m, k], [a_row, 1], [BM, BK])
        b_blocks = tl.make_tensor_descriptor(b.to(tl.pointer_type(tl.float16)), [n, k], [b_row, 1], [BN, BK])
        c_blocks = tl.make_tensor_descriptor(c.to(tl.pointer_type(tl.float16)), [m, n], [c_row, 1], [BM, BN])
        row = tl.program_id(0) * BM
        for column in range(0, n, BN):
            total = tl.zeros([BM, BN], tl.float32)
            for at in range(0, k, BK):
                total = tl.dot(a_blocks.load([row, at]), b_blocks.load([column, at]).T, total)
            c_blocks.store([row, column], total.to(tl.float16))


@kp.jit
def by_pointers(addresses, sizes, strides, count, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """The same by tiles of pointers, of which the loop says that they are aligned; K in whole blocks."""
    for problem in range(count):
        a = tl.load(addresses + 3 * problem).to(tl.pointer_type(tl.float16))
        b = tl.load(addresses + 3 * problem + 1).to(tl.pointer_type(tl.float16))
        c = tl.load(addresses + 3 * problem + 2).to(tl.pointer_type(tl.float16))
        m, n = tl.load(sizes + 3 * problem), tl.load(sizes + 3 * problem + 1)
        k = tl.load(sizes + 3 * problem + 2)
        a_row, b_row = tl.load(strides + 3 * problem), tl.load(strides + 3 * problem + 1)
        c_row = tl.load(strides + 3 * problem + 2)
        rows = tl.program_id(0) * BM + tl.arange(0, BM)
        depth = tl.arange(0, BK)
        for column in range(0, n, BN):
            columns = column + tl.arange(0, BN)
            a_tile = a + (rows % m)[:, None] * a_row + depth[None, :]
            b_tile = b + depth[:, None] + (columns % n)[None, :] * b_row
            total = tl.zeros([BM, BN], tl.float32)
            for _ in range(0, k, BK):
                tl.multiple_of(a_tile, [16, 16])
                tl.multiple_of(b_tile, [16, 16])
                total = tl.dot(tl.load(a_tile), tl.load(b_tile), total)
                a_tile += BK
                b_tile += BK
            inside = (rows < m)[:, None] & (columns < n)[None, :]
            tl.store(c + rows[:, None] * c_row + columns[None, :], total.to(tl.float16), mask=inside)


def compiled(kernel: Any, target: str, blocks: dict[str, int] = BLOCKS) -> Any:
    signature = (("addresses", "*i64"), ("sizes", "*i32"), ("strides", "*i32"), ("count", "i32"))
    facts = tuple(Fact(name, "tt.divisibility", 16) for name in ("addresses", "sizes", "strides"))
    special = Specialization(signature, tuple(blocks.items()), facts)
    return compile_kernel(kernel, special, Target.parse(target), Options(num_stages=3))


@pytest.mark.parametrize(
    ("kernel", "target"), [(by_descriptors, "cuda:sm_80"), (by_pointers, "cuda:sm_80"), (by_pointers, "cuda:sm_90a")]
)
def test_tiles_are_copied_ahead_sixteen_bytes_at_once(kernel: Any, target: str) -> None:
    ptx = compiled(kernel, target).stages["ptx"]
    assert "cp.async.cg.shared.global" in ptx
    assert "cp.async.ca.shared.global" not in ptx, "copies of 4 or 8 bytes"


def test_what_copies_leave_out_is_counted_once_for_all_rows() -> None:
    ptx = compiled(by_descriptors, "cuda:sm_80").stages["ptx"]
    copies, elements = ptx.count("cp.async.cg.shared.global"), len(re.findall(r"selp\.\w+ .*, 2, 0,", ptx))
    assert (copies, elements) == (3 * 4, 3 * 8)  # two iterations ahead of the loop and one in it, of two pieces of each operand


def test_the_kernel_makes_tensor_maps_of_what_it_finds_in_memory() -> None:
    kernel = compiled(by_descriptors, "cuda:sm_90a")
    ptx = kernel.stages["ptx"]
    assert kernel.descriptors == ()
    assert ptx.count("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned") == 3
    assert ptx.count("fence.proxy.tensormap::generic.acquire.gpu") == 3
    assert "cp.async.bulk.tensor.2d.shared::cluster.global" in ptx
    assert "cp.async.c" not in ptx
    assert "cp.async.bulk.tensor.2d.global.shared::cta" in ptx, "where rows end at multiples of 16 bytes"
    assert "st.global.b16" in ptx, "where they do not"


def test_programs_that_run_at_a_time_have_places_for_their_maps() -> None:
    """One block of 128 KB fits on one of up to 144 multiprocessors: 256 places, a power of two."""
    kernel = compiled(by_descriptors, "cuda:sm_90a", {"BM": 128, "BN": 128, "BK": 64})
    assert kernel.metadata["shared"] >> 10 == 128
    assert f"tensor_maps[{256 * 3 * 128}]" in kernel.stages["ptx"]
    assert f"tensor_maps_taken[{256 * 4}]" in kernel.stages["ptx"]


@pytest.mark.parametrize("columns", [16, 32])
def test_few_columns_do_not_serialise_products(columns: int) -> None:
    """What loops sum in few registers ptxas moved to where no iteration's sums are, while products were in flight."""
    kernel = compiled(by_descriptors, "cuda:sm_90a", {**BLOCKS, "BN": columns})
    assert "waits_at_once" not in kernel.metadata


@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_90a"])
@pytest.mark.parametrize(
    ("kernel", "sizes"),
    [
        (by_descriptors, [(64, 32, 69), (50, 45, 96), (3, 7, 13), (70, 33, 1)]),
        (by_pointers, [(64, 32, 96), (50, 45, 32)]),
    ],
)
def test_products_are_those_of_torch(kernel: Any, sizes: list[tuple[int, int, int]], target: str) -> None:
    """Columns after the last one hold NaN: they are inside of the rows' strides, and must not be read as numbers."""
    torch.manual_seed(0)

    def rows(count: int, width: int, begin: float) -> torch.Tensor:
        wide = torch.full((count, -(-width // 8) * 8 + 8), float("nan"), dtype=torch.float16)
        wide[:, :width] = torch.randn(count, width) if begin == 0 else begin
        return wide

    problems = [(rows(m, k, 0), rows(n, k, 0), rows(m, n, 7)) for m, n, k in sizes]
    addresses = torch.tensor([[x.data_ptr() for x in problem] for problem in problems])
    strides = torch.tensor([[x.stride(0) for x in problem] for problem in problems], dtype=torch.int32)
    with Emulator(target, reachable=[x for problem in problems for x in problem]):
        kernel[(2,)](addresses, torch.tensor(sizes, dtype=torch.int32), strides, len(sizes), **BLOCKS)
    for (a, b, c), (m, n, k) in zip(problems, sizes, strict=True):
        wanted = a[:, :k].float() @ b[:, :k].float().T
        torch.testing.assert_close(c[:m, :n].float(), wanted, rtol=2e-2, atol=2e-2)
        assert c[:, n:].isnan().all(), "nothing is written after the last column"
