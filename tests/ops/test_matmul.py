"""matmul chooses kernels by the shapes of a call; what is the same product comes out the same."""

from __future__ import annotations

import pytest
import torch


@pytest.mark.parametrize("batch", [(), (3,)], ids=["one product", "a batch"])
def test_one_column_is_summed_as_one_row_is(batch: tuple[int, ...]) -> None:
    """To the bit: not in one chain, whose error grows with the depth. All rows share the column's bias."""
    a, column, bias = torch.randn(*batch, 70, 1000), torch.randn(*batch, 1000, 1), torch.randn(1)
    op = torch.ops.kernelpack.matmul
    got = op(a, column, bias, activation=1)
    assert torch.equal(got, op(column.mT, a.mT, bias.repeat(70), activation=1).mT)
    torch.testing.assert_close(got.double(), torch.relu(a.double() @ column.double() + bias), rtol=1e-5, atol=1e-4)
