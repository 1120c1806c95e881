"""Ops that write to their arguments work in a layer that is compiled, exported and packaged: what they write is there afterwards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.ops.fused_cases import table
from tests.ops.grid import module_of

HEADS, KEY_HEADS, SIZE, WIDTH, FFN = 4, 2, 16, 64, 48
BLOCKS, BLOCK = 6, 8


class Layer(torch.nn.Module):
    """The parts of a decoder's layer around attention and products; the caches are buffers that it writes to."""

    def __init__(self) -> None:
        super().__init__()
        for name, shape in (("norm", (WIDTH,)), ("qkv", (WIDTH, (HEADS + 2 * KEY_HEADS) * SIZE)), ("up", (WIDTH, 2 * FFN))):
            self.register_buffer(name, torch.randn(shape) / 8)
        self.register_buffer("angles", table(100, SIZE))
        self.register_buffer("weight", torch.randn(50, WIDTH))
        for name in ("key_cache", "value_cache"):
            self.register_buffer(name, torch.zeros(BLOCKS, BLOCK, KEY_HEADS, SIZE))

    def forward(self, ids: torch.Tensor, positions: torch.Tensor, slots: torch.Tensor, pairs: torch.Tensor) -> torch.Tensor:
        ops = torch.ops.kernelpack
        residual = ops.embedding(ids, self.weight)
        x = ops.add_rms_norm(residual * 0.5, residual, self.norm, 1e-6)
        query, key, value = (x @ self.qkv).unflatten(-1, (-1, SIZE)).split((HEADS, KEY_HEADS, KEY_HEADS), 1)
        ops.rope_and_cache(query, key, value, self.key_cache, self.value_cache, positions, self.angles, slots, interleaved=True)
        x = ops.add_rms_norm(query.flatten(1), residual, self.norm, 1e-6)
        gated = ops.silu_and_mul(x @ self.up) + ops.gelu_and_mul(x @ self.up, approximate=1)
        ops.copy_blocks(self.key_cache, self.value_cache, pairs)
        return torch.cat((gated, residual), -1)


class Right(Layer):
    """The same with the references."""

    def forward(self, ids: torch.Tensor, positions: torch.Tensor, slots: torch.Tensor, pairs: torch.Tensor) -> torch.Tensor:
        def reference(op: str) -> Callable[..., torch.Tensor]:
            return module_of(op).reference

        residual = reference("embedding")(ids, self.weight)
        x, residual = reference("add_rms_norm")(residual * 0.5, residual, self.norm, 1e-6)
        query, key, value = (x @ self.qkv).unflatten(-1, (-1, SIZE)).split((HEADS, KEY_HEADS, KEY_HEADS), 1)
        query, key, *caches = reference("rope_and_cache")(
            query, key, value, self.key_cache, self.value_cache, positions, self.angles, slots, interleaved=True
        )
        x, residual = reference("add_rms_norm")(query.flatten(1), residual, self.norm, 1e-6)
        gated = reference("silu_and_mul")(x @ self.up) + reference("gelu_and_mul")(x @ self.up, approximate=1)
        self.key_cache, self.value_cache = reference("copy_blocks")(*caches, pairs)
        return torch.cat((gated, residual), -1)


def inputs(count: int) -> tuple[torch.Tensor, ...]:
    ids, positions = torch.randint(0, 50, (count,)), torch.randint(0, 100, (count,))
    return ids, positions, torch.randperm(BLOCK * (BLOCKS - 1))[:count], torch.tensor([[0, BLOCKS - 1]])


@pytest.fixture
def layers() -> tuple[Layer, Right]:
    layer, right = Layer(), Right()
    right.load_state_dict(layer.state_dict())
    return layer, right


def agrees(run: Callable[..., torch.Tensor], layers: tuple[Layer, Right], counts: tuple[int, ...]) -> None:
    layer, right = layers
    for count in counts:
        given = inputs(count)
        torch.testing.assert_close(run(*given), right(*given))
        for name in ("key_cache", "value_cache"):
            torch.testing.assert_close(getattr(layer, name), getattr(right, name))


def test_a_layer_computes_what_torch_does(layers: tuple[Layer, Right]) -> None:
    agrees(layers[0], layers, (1, 5, 17))


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_a_compiled_layer_writes_its_caches(backend: str, layers: tuple[Layer, Right]) -> None:
    """One graph for all numbers of tokens."""
    torch._dynamo.reset()
    with torch._dynamo.config.patch(error_on_recompile=True):
        agrees(torch.compile(layers[0], fullgraph=True, dynamic=True, backend=backend), layers, (5, 17))


def test_an_exported_layer_writes_its_caches(layers: tuple[Layer, Right], tmp_path: Path) -> None:
    count = torch.export.Dim("count", min=1, max=1000)
    shapes = {"ids": {0: count}, "positions": {0: count}, "slots": {0: count}, "pairs": {}}
    program = torch.export.export(layers[0], inputs(6), dynamic_shapes=shapes)
    module = program.module()
    for tokens in (1, 9):
        given = inputs(tokens)
        torch.testing.assert_close(module(*given), layers[1](*given))
        for name in ("key_cache", "value_cache"):
            torch.testing.assert_close(module.get_buffer(name), layers[1].get_buffer(name))


@pytest.mark.slow  # tests/serving/language_model/test_model.py packages layers of the same ops
def test_a_packaged_layer_computes_the_same(layers: tuple[Layer, Right], tmp_path: Path) -> None:
    count = torch.export.Dim("count", min=1, max=1000)
    shapes = {"ids": {0: count}, "positions": {0: count}, "slots": {0: count}, "pairs": {}}
    program = torch.export.export(layers[0], inputs(6), dynamic_shapes=shapes)
    path = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "layer.pt2"))
    run = torch._inductor.aoti_load_package(path)
    for tokens in (1, 9):
        given = inputs(tokens)
        torch.testing.assert_close(run(*given), layers[1](*given))
