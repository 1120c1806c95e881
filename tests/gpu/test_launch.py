"""Launches from Python on a GPU: streams, graphs, threads, attributes of launches, what is refused."""

from __future__ import annotations

import importlib.util
import threading

import pytest
import torch

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.errors import LaunchError

pytestmark = pytest.mark.skipif(importlib.util.find_spec("kernelpack._C") is None, reason="kernelpack._C is not built")


@kp.jit
def add(x, out, n, value, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    tl.store(out + offsets, tl.load(x + offsets, mask=inside) + value, mask=inside)


@kp.jit
def sum_of_all(x, sums, done, out, BLOCK: tl.constexpr):
    """Every program waits for all others before it adds up what they wrote: they have to run at once."""
    program, programs = tl.program_id(0), tl.num_programs(0)
    tl.store(sums + program, tl.sum(tl.load(x + program * BLOCK + tl.arange(0, BLOCK)), axis=0))
    tl.atomic_add(done, 1)
    while tl.atomic_add(done, 0) < programs:
        pass
    total = 0.0
    for i in range(programs):
        total += tl.load(sums + i, volatile=True)
    tl.store(out + program, total)


def test_launches_follow_the_current_stream() -> None:
    x = torch.zeros(1 << 20, device="cuda")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(50):
            add[(1024,)](x, x, x.numel(), 1.0, BLOCK=1024)
        result = x.clone()
    stream.synchronize()
    assert (result == 50).all()


def test_a_graph_replays_what_was_loaded_before() -> None:
    x, out = torch.randn(256, device="cuda"), torch.zeros(256, device="cuda")
    add[(2,)](x, out, 256, 1.0, BLOCK=128)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(3):
            add[(2,)](x, out, 256, 2.0, BLOCK=128)
    out.zero_()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(out, x + 2)


def test_loading_in_a_capture_is_refused_and_the_next_call_works() -> None:
    x, out = torch.randn(256, device="cuda"), torch.zeros(256, device="cuda")
    add.warmup(x, out, 256, 1.0, BLOCK=64, grid=(4,))  # compiled, but no launch has loaded it
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(LaunchError, match="nothing can be loaded while a graph is captured"), torch.cuda.graph(graph):
        add[(4,)](x, out, 256, 1.0, BLOCK=64)
    add[(4,)](x, out, 256, 1.0, BLOCK=64)
    assert torch.equal(out, x + 1)


def test_threads_launch_without_a_context_of_their_own() -> None:
    results: list[bool] = []

    def work(number: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            x = torch.full((1000,), float(number), device="cuda")
            out = torch.empty_like(x)
            for _ in range(50):
                add[(8,)](x, out, 1000, 1.0, BLOCK=128)
            results.append(bool((out == number + 1).all()))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 8


def test_cooperative_programs_wait_for_each_other() -> None:
    programs = 64
    x = torch.randn(programs * 128, device="cuda")
    sums, out = torch.zeros(programs, device="cuda"), torch.zeros(programs, device="cuda")
    done = torch.zeros(1, dtype=torch.int32, device="cuda")
    sum_of_all[(programs,)](x, sums, done, out, BLOCK=128, launch_cooperative_grid=True)
    torch.testing.assert_close(out, x.sum().expand(programs), rtol=1e-4, atol=1e-3)
    with pytest.raises(LaunchError, match="all programs of a cooperative launch run at once"):
        add[(1 << 20,)](x, x, x.numel(), 1.0, BLOCK=128, launch_cooperative_grid=True)


def test_a_tensor_in_other_memory_is_refused() -> None:
    x, here = torch.zeros(128, device="cuda"), torch.zeros(128)
    with pytest.raises(LaunchError, match="out is on cpu, the kernel runs on cuda"):
        add[(1,)](x, here, 128, 1.0, BLOCK=128)
    pinned = torch.zeros(128, pin_memory=True)  # which a GPU reads
    add[(1,)](x, pinned, 128, 1.0, BLOCK=128)
    torch.cuda.synchronize()
    assert (pinned == 1).all()
