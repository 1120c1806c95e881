"""The PTX of kernels has the instructions that make them fast, and none that they do without."""

from __future__ import annotations

import functools
import re
from typing import Any

import pytest
import torch

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.language import hopper
from tests.backends.cuda.cases import cases
from tests.backends.cuda.launch import Launch
from tests.backends.cuda.product_cases import Attention, Product
from tests.backends.cuda.running import emulate
from tests.frontend.kernels import vector_add


@functools.cache
def ptx(name: str, target: str = "cuda:sm_80") -> str:
    (case,) = (case for case in cases() if case.name == name)
    return str(case.launch().compile(target).stages["ptx"])


def ptx_of(launch: Launch) -> str:
    return str(launch.compile("cuda:sm_80").stages["ptx"])


def count(pattern: str, text: str) -> int:
    return len(re.findall(pattern, text))


def product(order: str = "rr", **more: Any) -> str:
    """A product of matrices whose rows all start at multiples of 16 elements, in blocks of 64 x 64 x 32."""
    return ptx_of(Product(shape=(96, 64, 80), order=order, **more).launch())


def test_aligned_rows_move_sixteen_bytes_at_a_time() -> None:
    text = product()
    assert count(r"cp\.async\.cg\.shared\.global \[\S+\], \[\S+\], 16", text) == 2 * (64 * 32 + 32 * 64) // 8 // 128
    assert not count(r"ld\.global", text)
    assert count(r"st\.global\.v4\.b32", text) == 64 * 64 // 8 // 128


@pytest.mark.parametrize(
    ("dtype", "width"),
    [(torch.float32, r"v4\.b32"), (torch.bfloat16, r"v2\.b32"), (torch.int8, "b32"), (torch.int64, r"v2\.b64")],
)
def test_vectors_are_as_wide_as_a_thread_s_share(dtype: torch.dtype, width: str) -> None:
    tensors = {name: torch.zeros(512, dtype=dtype) for name in ("x_ptr", "y_ptr", "out_ptr")}
    text = ptx_of(Launch(vector_add, (1,), {**tensors, "n": 512, "BLOCK": 512}, {}))
    accesses = 2 if dtype == torch.int64 else 1
    assert count(rf"ld\.global\.{width}", text) == 2 * accesses
    assert count(rf"st\.global\.{width}", text) == accesses
    assert not count(r"\bbar|shfl|\.shared", text)


def test_unaligned_pointers_are_read_element_by_element() -> None:
    text = ptx("add-unaligned-2")
    assert count(r"ld\.global\.b16", text) == 2 * 512 // 64
    assert not count(r"ld\.global\.(v\d\.)?b32", text)


@pytest.mark.parametrize("order", ["rr", "rc", "cr", "cc"])
def test_tensor_cores_read_fragments_by_ldmatrix(order: str) -> None:
    text = product(order)
    loop = text[: text.rindex("mma.sync")]
    # 4 warps of 32 x 32, k 32: 2 x 4 tiles in two k-steps
    assert count(r"mma\.sync\.aligned\.m16n8k16\.row\.col\.f32\.bf16\.bf16\.f32", text) == 16
    assert count(r"ldmatrix\.sync\.aligned\.m8n8\.x4", text) == 8
    assert count(r"ldmatrix\S*\.trans", text) == {"rr": 4, "rc": 0, "cr": 8, "cc": 4}[order]
    assert not count(r"ld\.shared", loop)


def test_attention_keeps_scores_and_weights_in_registers() -> None:
    launch = Attention(torch.bfloat16, 1, 128, 128, 64, (64, 64)).launch()
    body = ptx_of(launch)
    loop = body[body.index("cp.async.wait_group") :]
    loop = loop[: loop.index("cp.async.wait_group", 1)]
    assert count(r"mma\.sync", loop) == 2 * 8 * 4
    assert count(r"ldmatrix\.\S*x4\.shared", loop) == 16  # the keys: 64 x 64 in tiles of 16 x 16
    assert count(r"ldmatrix\.\S*x4\.trans", loop) == 16
    assert not count(r"[ls][dt]\.shared", loop)
    assert count(r"bar\.sync|barrier", loop) == 1


def test_operands_that_do_not_fit_registers_are_read_again() -> None:
    def reloads(block: tuple[int, int]) -> int:
        launch = Attention(torch.bfloat16, 1, 128, 128, 128, block).launch()
        body = ptx_of(launch)
        before = body[: body.index("mma.sync")]
        return count("ldmatrix", before[before.rindex("cp.async.wait_group") :])

    assert reloads((128, 64)) > reloads((64, 64))


@pytest.mark.parametrize(("num_stages", "groups"), [(1, None), (2, 0), (3, 1), (4, 2)])
def test_stages_are_groups_in_flight(num_stages: int, groups: int | None) -> None:
    text = product(num_stages=num_stages)
    waits = re.findall(r"cp\.async\.wait_group\s+(\d+)", text)
    assert waits == ([] if groups is None else [str(groups), "0"])


def test_rows_within_a_warp_reduce_without_barriers() -> None:
    launch = next(case for case in cases() if case.name == "normalise-bfloat16-16-1").launch()
    text = ptx_of(launch)
    assert count("shfl.sync.bfly", text) == 2 * 16 * 5
    assert not count(r"\bbar\b|barrier|\.shared", text)


def test_rows_over_warps_exchange_once_a_reduction() -> None:
    text = ptx("softmax-float32-1000-4")
    assert count("shfl.sync.bfly", text) == 2 * 5  # what the warps found is added within each thread
    assert count(r"bar(rier)?\.\S*sync", text) == 3  # maximum: write | read | sum: write | read


def test_copies_are_written_once() -> None:
    text = ptx("normalise-float32-1-4")
    assert not count(r"\b(atom|red)\.", text)
    scalar = ptx("tickets")
    # one thread takes the ticket, and stores it
    assert count(r"setp\.\w+\.\w+\s+%p\d+, %r\d+, 0;", scalar) >= 1


def test_kernels_state_their_threads() -> None:
    assert ".reqntid 64" in ptx("add-unaligned-2").replace(", 1, 1", "")


def test_half_precision_products_use_the_tensor_cores_of_their_type() -> None:
    for name, shape in (
        ("matmul-float16-float32-100x72x80-64x64x32-rr-ieee-4-2", "m16n8k16.row.col.f32.f16.f16.f32"),
        ("matmul-float32-float32-64x64x64-32x32x32-rr-tf32-4-2", "m16n8k8.row.col.f32.tf32.tf32.f32"),
        ("matmul-int8-int32-100x72x80-32x32x64-rr-ieee-4-2", "m16n8k32.row.col.satfinite.s32.s8.s8.s32"),
    ):
        assert shape in ptx(name)
    exact = ptx("matmul-float32-float32-64x64x64-32x32x32-rr-ieee-4-2")
    assert "mma" not in exact
    assert "fma.rn.f32" in exact


def test_every_accumulator_shape_is_compiled_for_hopper_too() -> None:
    launch = Product(num_stages=3, num_warps=8).launch()
    assert launch.compile("cuda:sm_90a").metadata["spills"] == 0


@kp.jit
def rows_and_their_sums(x, out, sums, rows, COLUMNS: tl.constexpr):
    column = tl.arange(0, COLUMNS)
    total = tl.zeros([COLUMNS], tl.float32)
    for row in range(rows):
        value = tl.load(x + row * COLUMNS + column).to(tl.float32)
        tl.store(out + row * COLUMNS + column, value * tl.sum(value, axis=0))
        total += value
    tl.store(sums + column, total)


@functools.cache
def rows_and_sums() -> str:
    x = torch.zeros(4, 1024, dtype=torch.bfloat16)
    arguments = {"x": x, "out": x.clone(), "sums": torch.zeros(1024), "rows": 4, "COLUMNS": 1024}
    return ptx_of(Launch(rows_and_their_sums, (1,), arguments, {}))


def test_a_loop_s_vectors_are_as_wide_as_its_elements_allow() -> None:
    """The wider elements that are stored after it do not count."""
    assert count(r"ld\.global\.v4\.b32", rows_and_sums()) == 1024 // 8 // 128


def test_a_warp_s_share_of_a_sum_is_stored_without_a_branch() -> None:
    """Products and sums on both sides of a branch would not be fused."""
    assert count(r"@%p\d+ st\.shared\.b32", rows_and_sums()) == 1
    assert count(r"\bbra\b", rows_and_sums()) == 2  # into the loop, and round it


@kp.jit
def doubled_rows(x, out, columns, ROW: tl.constexpr):
    """Doubles each row, having asked for the next one."""
    offsets = tl.arange(0, ROW)
    row = x + tl.program_id(0) * columns
    hopper.prefetch(row + tl.minimum(columns + tl.arange(0, ROW // 32) * 32, 2 * columns - 1))
    tl.store(
        out + tl.program_id(0) * columns + offsets, 2 * tl.load(row + offsets, mask=offsets < columns), mask=offsets < columns
    )


def test_lines_are_asked_for_once_and_nobody_waits_for_them() -> None:
    x = torch.randn(3, 300)
    launch = Launch(doubled_rows, (2,), {"x": x, "out": torch.zeros(2, 300), "columns": 300, "ROW": 4096}, {"out": 2 * x[:2]})
    text = str(launch.compile("cuda:sm_90a").stages["ptx"])
    assert count(r"prefetch\.global\.L2 \[", text) == 4096 // 32 // 128
    emulate(launch, "cuda:sm_90a")
