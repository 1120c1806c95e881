"""Several GPUs in one process: ops and launches run where their tensors are, and leave the current device alone."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.errors import LaunchError

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("kernelpack._C") is None, reason="kernelpack._C is not built"),
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="torch sees no two GPUs"),
]
NUMBERS = (0, 1)


@kp.jit
def add(x, out, n, value, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    tl.store(out + offsets, tl.load(x + offsets, mask=inside) + value, mask=inside)


def added(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    add[lambda meta: (kp.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel(), 1.0, BLOCK=256)
    return out


@dataclass(frozen=True)
class Call:
    """A call on a device, its input that may change, and what torch says; `bound`: how far results may be off."""

    name: str
    device: torch.device
    x: torch.Tensor
    ours: Callable[[torch.Tensor], torch.Tensor]
    theirs: Callable[[torch.Tensor], torch.Tensor]
    bound: float

    def check(self, result: torch.Tensor) -> None:
        assert result.device == self.device, f"{self.name} on {self.device}"
        error = (result.float() - self.theirs(self.x.float())).abs().max().item()
        assert error <= self.bound, f"{self.name} on {self.device}: {error}"


def calls_on(device: torch.device) -> list[Call]:
    """Returns calls of an op of one kernel, of one whose launch encodes tensor maps, of one with roles, and of a JIT kernel."""
    random = torch.Generator(device).manual_seed(device.index)  # the devices' values differ

    def normal(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        return torch.randn(*shape, device=device, dtype=dtype, generator=random)

    ops, torch_mha = torch.ops.kernelpack, torch.nn.functional.scaled_dot_product_attention
    b = normal(512, 128)
    return [
        Call("gelu", device, normal(64, 1000, dtype=torch.float32), ops.gelu, torch.nn.functional.gelu, 1e-5),
        Call("matmul", device, normal(256, 512), lambda x: ops.matmul(x, b), lambda x: x @ b.float(), 0.5),
        Call("mha", device, normal(2, 4, 256, 64), lambda x: ops.mha(x, x, x), lambda x: torch_mha(x, x, x), 0.05),
        Call("kernel", device, normal(10_000, dtype=torch.float32), added, lambda x: x + 1, 0),
    ]


@pytest.fixture
def calls() -> list[Call]:
    """Calls on two devices in turns."""
    torch.backends.cuda.matmul.allow_tf32 = False
    pairs = zip(*(calls_on(torch.device("cuda", number)) for number in NUMBERS), strict=True)
    return [call for pair in pairs for call in pair]


@pytest.mark.parametrize("current", NUMBERS)
def test_calls_run_where_their_tensors_are_and_leave_the_current_device(current: int, calls: list[Call]) -> None:
    with torch.cuda.device(current):
        for call in calls * 3:
            result = call.ours(call.x)
            assert torch.cuda.current_device() == current, call.name
            call.check(result)


def test_calls_follow_the_current_stream_of_their_device(calls: list[Call]) -> None:
    for call in calls:
        expected, late = call.ours(call.x), torch.zeros_like(call.x)
        torch.cuda.synchronize(call.device)
        with torch.cuda.stream(torch.cuda.Stream(call.device)):
            torch.cuda._sleep(20_000_000)
            late.copy_(call.x)
            with torch.cuda.device(1 - call.device.index):
                result = call.ours(late)  # reads zeros on any other stream
            same = torch.equal(result, expected)
        assert same, f"{call.name} on {call.device}"


def test_threads_call_on_both_devices_in_turns(calls: list[Call]) -> None:
    failures: list[str] = []
    begin = threading.Barrier(8)

    def work(number: int) -> None:
        current = number % 2
        torch.cuda.set_device(current)
        streams = [torch.cuda.Stream(device) for device in NUMBERS]
        begin.wait()
        for turn in range(40):
            call = calls[(turn + number) % len(calls)]
            with torch.cuda.stream(streams[call.device.index]), torch.cuda.device(current):
                result = call.ours(call.x)
                try:
                    call.check(result)
                    assert torch.cuda.current_device() == current, f"{call.name} on {call.device}: the current device changed"
                except AssertionError as error:
                    failures.append(str(error))

    torch.cuda.synchronize(0)
    torch.cuda.synchronize(1)
    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, "\n".join(failures)


def test_each_device_captures_and_replays_its_graph(calls: list[Call]) -> None:
    graphs = []
    for number in NUMBERS:
        own = [call for call in calls if call.device.index == number]
        with torch.cuda.device(number):
            for call in own:
                call.ours(call.x)  # loads the kernels
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=torch.cuda.Stream(number)):  # torch's default is one of the first device's
                results = [call.ours(call.x) for call in own]
        graphs.append((graph, own, results))
    for _ in range(3):
        for _, own, _ in graphs:
            for call in own:
                call.x.mul_(0.5)
        for graph, own, _ in graphs:
            with torch.cuda.device(own[0].device):
                graph.replay()
        for _, own, results in graphs:
            for call, result in zip(own, results, strict=True):
                call.check(result)


def test_tensors_of_two_devices_are_refused_by_name() -> None:
    x, y = (torch.zeros(128, 128, device=f"cuda:{number}", dtype=torch.bfloat16) for number in NUMBERS)
    with pytest.raises(RuntimeError, match="b is on cuda:1, a is on cuda:0"):
        torch.ops.kernelpack.matmul(x, y)
    with pytest.raises(LaunchError, match="out is on cuda:1, x is on cuda:0"):
        add[(1,)](x, y, 128, 1.0, BLOCK=128)
