"""matmul chooses kernels by the shapes of a call; what is the same product comes out the same."""

from __future__ import annotations

import pytest
import torch

from ops.matmul import matmul as matmul_in_development


@pytest.mark.parametrize("batch", [(), (3,)], ids=["one product", "a batch"])
def test_one_column_is_summed_as_one_row_is(batch: tuple[int, ...]) -> None:
    """To the bit: not in one chain, whose error grows with the depth. All rows share the column's bias."""
    a, column, bias = torch.randn(*batch, 70, 1000), torch.randn(*batch, 1000, 1), torch.randn(1)
    op = torch.ops.kernelpack.matmul
    got = op(a, column, bias, activation=1)
    assert torch.equal(got, op(column.mT, a.mT, bias.repeat(70), activation=1).mT)
    torch.testing.assert_close(got.double(), torch.relu(a.double() @ column.double() + bias), rtol=1e-5, atol=1e-4)


# shapes of a and b whose dimensions before the last two are equal, or broadcast
BATCHES = [
    ((2, 3, 5, 7), (2, 3, 7, 4)),
    ((2, 3, 4, 5, 7), (2, 3, 4, 7, 6)),
    ((1, 3, 5, 7), (3, 7, 4)),
    ((5, 7), (2, 3, 7, 4)),
    ((2, 1, 5, 7), (7, 4)),
    ((3, 5, 7), (1, 7, 4)),
    ((1, 5, 7), (3, 7, 4)),
    ((1, 1, 5, 7), (2, 3, 7, 4)),
    ((2, 3, 5, 7), (2, 1, 7, 4)),
    ((2, 3, 5, 7), (1, 1, 7, 4)),
    ((4, 2, 3, 5, 7), (4, 1, 1, 7, 6)),
    ((2, 3, 1, 7), (2, 1, 7, 4)),
    ((2, 3, 5, 7), (2, 3, 7, 1)),
    ((2, 3, 1, 7), (2, 3, 7, 4)),
    ((2, 0, 5, 7), (2, 1, 7, 4)),
    ((2, 0, 5, 7), (2, 0, 7, 4)),
    ((2, 3, 5, 0), (2, 3, 0, 4)),
    ((2, 3, 130, 65), (2, 3, 65, 33)),
    ((2, 1, 5, 7), (2, 6, 7, 4)),
    ((2, 6, 5, 7), (1, 6, 7, 4)),
    ((2, 6, 5, 7), (6, 7, 4)),
    ((6, 5, 7), (2, 6, 7, 4)),
    ((2, 1, 5, 7), (1, 6, 7, 4)),
    ((2, 1, 1, 7), (1, 6, 7, 4)),
    ((2, 1, 5, 7), (1, 6, 7, 1)),
    ((0, 6, 5, 7), (1, 6, 7, 4)),
]


@pytest.mark.parametrize(("a", "b"), BATCHES, ids=str)
@pytest.mark.parametrize("transposed", [False, True], ids=["b", "weight"])
def test_dimensions_before_the_last_two_are_those_of_torch_matmul(
    a: tuple[int, ...], b: tuple[int, ...], transposed: bool
) -> None:
    x, y, bias = torch.randn(a), torch.randn(*b[:-2], b[-1], b[-2]).mT if transposed else torch.randn(b), torch.randn(b[-1])
    expected = (torch.matmul(x.double(), y.double()) + bias).float()
    for matmul in (torch.ops.kernelpack.matmul, matmul_in_development):
        got = matmul(x, y, bias)
        assert got.shape == expected.shape
        assert got.is_contiguous()
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-4)
    out = torch.empty_like(expected)
    torch.ops.kernelpack.matmul.out(x, y, bias, out=out)
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-4)


def test_heads_that_are_views_of_one_projection_are_multiplied_as_they_lie() -> None:
    whole = torch.randn(2, 5, 3 * 8)
    heads = whole.view(2, 5, 3, 8).transpose(1, 2)  # [2, 3, 5, 8]: batches and heads do not merge
    for one in (heads, heads[:1], heads[:, :, :1]):
        torch.testing.assert_close(torch.ops.kernelpack.matmul(heads, one.mT), heads @ one.mT)


def test_matmul_of_four_dimensions_compiles_and_exports() -> None:
    class Product(torch.nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return torch.ops.kernelpack.matmul(a, b)

    a, b = torch.randn(2, 3, 5, 7), torch.randn(2, 3, 7, 4)
    compiled = torch.compile(Product(), fullgraph=True, dynamic=True)
    torch.testing.assert_close(compiled(a, b), a @ b)
    batch = torch.export.Dim("batch")
    exported = torch.export.export(Product(), (a, b), dynamic_shapes=({0: batch}, {0: batch})).module()
    more = torch.randn(6, 3, 5, 7), torch.randn(6, 3, 7, 4)
    torch.testing.assert_close(exported(*more), more[0] @ more[1])


def test_one_row_of_many_products_is_not_one_long_sum() -> None:
    """Each eight products are summed apart. One after the other, 4,096 positive ones lose 2e-6 to 3e-6 of their sum."""
    for seed in range(4):
        torch.manual_seed(seed)
        a, b = torch.rand(1, 4096), torch.rand(4096, 64)
        exact = a.double() @ b.double()
        assert float(((torch.ops.kernelpack.matmul(a, b) - exact) / exact).abs().max()) < 1.2e-6
