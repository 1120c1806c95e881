"""mha's result lies in memory as its query does, as that of torch's attention does on GPUs: merging heads again copies nothing."""

from __future__ import annotations

from itertools import permutations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.ops.grid import module_of

B, H, M, D = 2, 3, 5, 16


def in_order(order: tuple[int, ...], padding: int = 0) -> torch.Tensor:
    """A [B, H, M, D] whose dimensions lie in memory in `order`, outermost first, rows `padding` elements apart."""
    shape = (B, H, M, D)
    made = torch.randn(*(shape[axis] for axis in order), D + padding)[..., :D]
    return made.permute(*(order.index(axis) for axis in range(3)), 3)


QUERIES = {
    **{f"{order}": (in_order(order), order) for order in permutations(range(3))},
    **{f"{order} padded": (in_order(order, padding=8), order) for order in permutations(range(3))},
    "of one tensor with keys and values": (torch.randn(B, M, 3, H, D)[:, :, 0].transpose(1, 2), (0, 2, 1)),
    "without batch": (torch.randn(M, H, D).transpose(0, 1), (1, 0)),
    "one query": (torch.randn(B, 1, H, D).transpose(1, 2), (0, 2, 1)),
    "one head": (torch.randn(B, M, 1, D).transpose(1, 2), (0, 1, 2)),
    "no queries": (torch.randn(B, 0, H, D).transpose(1, 2), (0, 2, 1)),
    "one batch for all": (torch.randn(1, M, H, D).transpose(1, 2).expand(B, H, M, D), (0, 2, 1)),
    "one query for all": (torch.randn(B, H, 1, D).expand(B, H, M, D), (0, 1, 2)),
    "one head for all": (torch.randn(M, B, 1, D).permute(1, 2, 0, 3).expand(B, H, M, D), (1, 2, 0)),
    "one row for all": (torch.randn(D).expand(B, H, M, D), (0, 1, 2)),
    "head size 1, apart": (torch.randn(B, H, M, 40)[..., ::40], (0, 1, 2)),
}
"""Queries, and the order of the result's dimensions but the last, outermost first."""


@pytest.mark.parametrize("value_size", [D, 24])
@pytest.mark.parametrize("name", QUERIES)
def test_the_result_lies_as_the_query(name: str, value_size: int) -> None:
    """The built op, the development run and the fake agree, and compute the same."""
    query, order = QUERIES[name]
    op = torch.ops.kernelpack.mha
    args = query, torch.randn(*query.shape[:-2], 7, query.shape[-1]), torch.randn(*query.shape[:-2], 7, value_size)
    got, developed = op(*args), module_of("mha").mha(*args)
    torch.testing.assert_close(got, torch.nn.functional.scaled_dot_product_attention(*args))
    torch.testing.assert_close(developed, got)
    with FakeTensorMode() as mode:
        fake = op(*(mode.from_tensor(x) for x in args))
    assert got.stride() == developed.stride() == fake.stride()
    assert got.permute(*order, query.dim() - 1).is_contiguous()


def test_merging_heads_copies_nothing() -> None:
    x = torch.randn(B, M, H * D)
    merged = torch.ops.kernelpack.mha(*(x.view(B, M, H, D).transpose(1, 2),) * 3).transpose(1, 2)
    assert merged.is_contiguous()
    assert merged.reshape(B, M, H * D).data_ptr() == merged.data_ptr()


def test_out_must_lie_so_too() -> None:
    query = in_order((0, 2, 1))
    expected = torch.ops.kernelpack.mha(query, query, query)
    out = torch.empty_like(query)
    torch.ops.kernelpack.mha.out(query, query, query, out=out)
    assert torch.equal(out, expected)
    with pytest.raises(RuntimeError, match=r"out has strides .*, the result has \(240, 16, 48, 1\)"):
        torch.ops.kernelpack.mha.out(query, query, query, out=torch.empty(B, H, M, D))


class Attention(torch.nn.Module):
    """Heads out of one projection, attention, heads merged."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length = x.size(0), x.size(1)
        query, key, value = x.view(batch, length, 3, H, D).transpose(1, 3).unbind(2)
        attended = torch.ops.kernelpack.mha(query, key, value, is_causal=True)
        return attended.transpose(1, 2).reshape(batch, length, H * D)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_models_know_the_layout_of_every_size(backend: str) -> None:
    """One graph, which holds no copy of the result; Inductor's code asserts the strides that the fake gave."""
    torch._dynamo.reset()
    model = Attention()
    with torch._dynamo.config.patch(error_on_recompile=True):
        compiled = torch.compile(model, fullgraph=True, dynamic=True, backend=backend)
        for batch, length in ((2, 24), (3, 65)):
            x = torch.randn(batch, length, 3 * H * D)
            torch.testing.assert_close(compiled(x), model(x))


def test_exports_with_dynamic_sizes_keep_the_layout() -> None:
    shapes = {"x": {0: torch.export.Dim("batch", min=1, max=64), 1: torch.export.Dim("length", min=1, max=4096)}}
    program = torch.export.export(Attention(), (torch.randn(2, 24, 3 * H * D),), dynamic_shapes=shapes)
    assert "clone" not in program.graph_module.code
    for batch, length in ((1, 1), (2, 24), (3, 65)):
        x = torch.randn(batch, length, 3 * H * D)
        torch.testing.assert_close(program.module()(x), Attention()(x))
