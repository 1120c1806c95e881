"""repack on a GPU: the bits of the reference, at load time and in captured graphs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ops.repack import Format
from tests.ops.quantized_blocks import differences, failures, given

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")


def on_gpu(*arguments: Any) -> tuple[torch.Tensor, ...]:
    """Runs the op there; returns its results here."""
    placed = (x.cuda() if isinstance(x, torch.Tensor) else x for x in arguments)
    return tuple(x.cpu() for x in torch.ops.kernelpack.repack(*placed))


def test_bits_are_those_of_the_reference() -> None:
    number, problems = failures(on_gpu)
    assert number > 200
    assert problems == []


@pytest.mark.parametrize("format", Format)
def test_bytes_beyond_2_to_the_31(format: Format) -> None:
    """The last columns of a weight of more than 2^31 elements, and of more than 2^31 bytes where a byte holds one."""
    columns, inner = 2**17, 16384 + 256
    arguments = [x.cuda() if isinstance(x, torch.Tensor) else x for x in given(format, 128, inner)]
    weight, number, scales, zeros = arguments
    along = 1 if Format.AWQ <= format <= Format.GPTQ_V2 else 0
    times = columns // 128
    repeats = [times if axis == along else 1 for axis in range(2)]
    wide = [
        weight.repeat(repeats), number, None if scales is None else scales.repeat((1,) * (scales.dim() - 1) + (times,)),
        None if zeros is None else zeros.repeat(1, times),
    ]  # fmt: skip
    codes, factors, mins = torch.ops.kernelpack.repack(*wide)
    last = tuple(x[-2:].cpu() for x in (codes, factors, mins))
    assert not differences(last, tuple(x.cpu() if isinstance(x, torch.Tensor) else x for x in arguments))


def test_captured_graphs_repack_what_is_there_then() -> None:
    weight, number, *_ = given(Format.Q4_K, 64, 512)
    static = weight.cuda()
    torch.ops.kernelpack.repack(static, number)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = torch.ops.kernelpack.repack(static, number)
    other = given(Format.Q4_K, 64, 512)
    static.copy_(other[0])
    graph.replay()
    assert not differences(tuple(x.cpu() for x in results), other)
