"""TensorDescriptor: host-made descriptors as arguments of kernels, on the CPU, and what they are compiled for."""

from __future__ import annotations

import pytest
import torch

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.backends.installed import backends
from kernelpack.errors import BlockShapeError, LaunchError
from kernelpack.facts import Fact
from kernelpack.runtime.specialization import specialize
from kernelpack.tools.ragged_tma import atomic_add_ragged, create_ragged_descriptor, load_ragged, store_ragged
from kernelpack.tools.tensor_descriptor import TensorDescriptor


@kp.jit
def add_block(d, o, i, j):
    o.store([i, j], d.load([i, j]) + 1)


@kp.jit
def add_one(d, o, columns):
    for j in range(0, columns, d.block_shape[1]):
        add_block(d, o, tl.program_id(0) * d.block_shape[0], j)


@pytest.mark.parametrize("block", [(16, 8), (4, 32), (64, 64)])
def test_kernels_take_descriptors(block: tuple[int, int]) -> None:
    x, out = torch.randn(37, 24)[:, :21], torch.zeros(37, 24)[:, :21]
    blocks = -(-37 // block[0])
    add_one[(blocks,)](TensorDescriptor.from_tensor(x, block), TensorDescriptor.from_tensor(out, block), 21)
    torch.testing.assert_close(out, x + 1, rtol=0, atol=0)


def test_the_block_may_be_chosen_late() -> None:
    x, out = torch.randn(16, 16), torch.zeros(16, 16)
    source, target = TensorDescriptor.from_tensor(x, [1, 16]), TensorDescriptor.from_tensor(out, [1, 16])
    source.block_shape = target.block_shape = [8, 8]
    add_one[(2,)](source, target, 16)
    torch.testing.assert_close(out, x + 1, rtol=0, atol=0)


def test_what_a_descriptor_is_compiled_for() -> None:
    x = torch.empty(64, 40, dtype=torch.bfloat16)[:, :33]
    descriptor = TensorDescriptor.from_tensor(x, [16, 32], padding="nan")
    special, values = specialize(add_one, {"d": descriptor, "o": 1, "columns": 33}, backends()["cuda"])
    assert special.signature == (("d", "tensordesc<bf16[16, 32], nan>"), ("columns", "i32"))
    assert special.facts == (
        Fact("d_base", "tt.divisibility", 16),
        Fact("d_shape_0", "tt.divisibility", 16),
        Fact("d_stride_0", "tt.divisibility", 8),  # 16 bytes
    )
    assert values == [x, 64, 33, 40, 33]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda x: TensorDescriptor(x, [4, 4], [4], [4, 4]), "1 to 5 axes, with a size, a stride and a block's extent each"),
        (lambda x: TensorDescriptor.from_tensor(x.T, [4, 4]), "last stride of a tensor descriptor is 1, not 18"),
        (lambda x: TensorDescriptor.from_tensor(x, [4, 4]), "multiples of 16 bytes; .* strides are \\[18, 1\\]"),
        (lambda x: TensorDescriptor.from_tensor(x[0, 1:5], [4]), "multiples of 16 bytes"),
        (lambda x: TensorDescriptor.from_tensor(x[0], [4], "one"), "padding is 'one'"),
    ],
)
def test_mistakes(make: object, message: str) -> None:
    with pytest.raises(LaunchError, match=message) as caught:
        make(torch.zeros(8, 18))
    assert isinstance(caught.value, AssertionError)  # which code written for Triton catches


@pytest.mark.parametrize("block", [[4, 3], [0, 4], [4, -8]])
def test_blocks_are_powers_of_two(block: list[int]) -> None:
    with pytest.raises(
        ValueError, match=r"Shape element [01] must be a power of 2: a tensor descriptor has blocks of shape \["
    ) as caught:
        TensorDescriptor.from_tensor(torch.zeros(8, 8), block)
    assert isinstance(caught.value, LaunchError)


@kp.jit
def copy_segment(x, y, x_offset, y_offset, x_rows, y_rows, ADD: tl.constexpr, AXIS: tl.constexpr):
    block = load_ragged(x, x_offset, x_rows, [0, 0], AXIS)
    if ADD:
        atomic_add_ragged(y, y_offset, y_rows, [0, 0], block, AXIS)
    else:
        store_ragged(y, y_offset, y_rows, [0, 0], block, AXIS)


@pytest.mark.parametrize("add", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
def test_segments_of_an_axis(add: bool, axis: int) -> None:
    x, y = torch.randn(64, 64), torch.randn(64, 64)
    expected = y.clone()
    source, target = x.narrow(axis, 42, 17).narrow(1 - axis, 0, 32), expected.narrow(axis, 31, 24).narrow(1 - axis, 0, 32)
    if not add:
        target.zero_()
    target.narrow(axis, 0, 17).add_(source)
    descriptors = [create_ragged_descriptor(tensor, [32, 32], axis) for tensor in (x, y)]
    copy_segment[(1,)](*descriptors, 42, 31, 17, 24, ADD=add, AXIS=axis)
    torch.testing.assert_close(y, expected, rtol=0, atol=0)


def test_blocks_that_are_chosen_late_are_powers_of_two() -> None:
    x = TensorDescriptor.from_tensor(torch.zeros(8, 8), [4, 4])
    x.block_shape = [4, 3]
    with pytest.raises(
        BlockShapeError, match=r"element 1 must be a power of 2: argument d of add_one has blocks of shape \[4, 3\]"
    ):
        add_one[(1,)](x, x, 8)
