"""Launches from Python run on the emulator: inside of `with Emulator(...)`, or everywhere by KERNELPACK_EMULATE."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.errors import EmulationError, LaunchError
from kernelpack.language.extra import libdevice
from kernelpack.runtime.driver import driver
from kernelpack.simt import Emulator

N = 200


@kp.jit
def doubled(x, y, n, BLOCK: tl.constexpr, MASKED: tl.constexpr = True):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at, mask=at < n) * 2
    if MASKED:
        tl.store(y + at, values, mask=at < n)
    else:
        tl.store(y + at, values)  # too far


@kp.jit
def added(x, total, BLOCK: tl.constexpr, ATOMIC: tl.constexpr):
    part = tl.sum(tl.load(x + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)), 0)
    if ATOMIC:
        tl.atomic_add(total, part)
    else:
        tl.store(total, tl.load(total) + part)  # another program does so too


@kp.jit
def bounded(x, BLOCK: tl.constexpr):
    tl.device_assert(tl.load(x + tl.arange(0, BLOCK)) < 100, "too large")


@kp.jit
def one_at_most(a, b):
    tl.device_assert(a + b <= 1, "more than one")
    return a + b


@kp.jit
def counted(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.associative_scan(tl.load(x + at), 0, one_at_most))


@kp.jit
def wait_for_its_turn(tickets):
    while tl.atomic_add(tickets, 0) < 2:  # the last program would have to come first
        pass
    tl.atomic_add(tickets, 1)


@kp.jit
def followed(table, out, BLOCK: tl.constexpr):
    x = tl.load(table).to(tl.pointer_type(tl.float32))
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at))


@kp.autotune(configs=[kp.Config({"MASKED": True}), kp.Config({"MASKED": False})], key=[])
@kp.jit
def tuned(x, y, n, BLOCK: tl.constexpr, MASKED: tl.constexpr):
    at = tl.arange(0, BLOCK)
    if MASKED:
        tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)
    else:
        tl.store(y + at, 1.0)


@kp.jit
def scaled(x, y, n, bias, BLOCK: tl.constexpr, FACTOR: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * FACTOR + bias, mask=at < n)


@kp.op(
    "where_it_ran(Tensor x) -> Tensor",
    variants={"x": [tl.float32]},
    configs={"cuda": kp.Config({"BLOCK": 64, "FACTOR": 2}), "cpu": kp.Config({"BLOCK": 32, "FACTOR": 3})},
)
def where_it_ran(x: torch.Tensor) -> torch.Tensor:
    y = kp.empty_like(x)
    bias = 10.0 if x.is_cuda else 20.0
    scaled[lambda meta: (kp.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel(), bias)
    return y


def _launch(**more: Any) -> torch.Tensor:
    x, y = torch.arange(N, dtype=torch.float32), torch.zeros(N)
    doubled[lambda meta: (kp.cdiv(N, meta["BLOCK"]),)](x, y, N, BLOCK=128, **more)
    assert torch.equal(y, 2 * x)
    return y


@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_90a"])
def test_a_launch_runs_as_on_a_gpu(target: str) -> None:
    with Emulator(target) as emulator:
        assert driver.active is emulator
        assert driver.active.get_current_target().backend == "cuda"
        _launch(num_warps=2)
    assert driver.active is not emulator
    _launch(num_warps=2)


def test_a_launch_gives_the_kernel_as_it_is_for_the_gpu() -> None:
    x, y = torch.arange(N, dtype=torch.float32), torch.zeros(N)
    with Emulator("cuda:sm_90a"):
        launched = doubled[(1,)](x, y, N, BLOCK=256, num_warps=2)
        assert ".target sm_90a" in launched.asm["ptx"]
        assert (launched.metadata.num_warps, launched.name) == (2, "doubled")
        assert launched.n_regs > 0
        y.zero_()
        compiled = doubled.warmup(x, y, N, BLOCK=256, grid=(1,))
        assert not y.any()
        compiled[(1, 1, 1)](x, y, N, 256, True)
    assert torch.equal(y, 2 * x)


def test_a_finding_shows_the_line_and_says_what_to_do() -> None:
    with Emulator("cuda:sm_90a"), pytest.raises(EmulationError) as found:
        _launch(MASKED=False)
    text = str(found.value)
    for words in (
        "out of bounds: 4 bytes at byte 800 of y, which has 800",
        "tl.store(y + at, values)  # too far",
        "mask the access",
    ):
        assert words in text
    _launch()  # on the CPU again


def test_programs_that_write_one_element_race_unless_they_do_so_by_an_atomic() -> None:
    x, total = torch.ones(256), torch.zeros(1)
    with Emulator("cuda:sm_90a"):
        added[(4,)](x, total, BLOCK=64, ATOMIC=True)
        assert total.item() == 256
        with pytest.raises(
            EmulationError, match=r"writes byte 0 of total, which block \(0, 0, 0\) wrote; blocks run in any order"
        ):
            added[(4,)](x, total, BLOCK=64, ATOMIC=False)


def test_a_wait_for_what_no_program_does_is_reported() -> None:
    with Emulator("cuda:sm_80"):
        wait_for_its_turn[(3,)](torch.full((1,), 2, dtype=torch.int32), num_warps=1)
        with pytest.raises(EmulationError, match=r"the same .* of tickets.*run one after the other") as found:
            wait_for_its_turn[(3,)](torch.zeros(1, dtype=torch.int32), num_warps=1)
    assert found.value.kind == "endless"


def test_assertions_of_a_kernel_are_checked() -> None:
    with Emulator("cuda:sm_90a"):
        bounded[(1,)](torch.full((32,), 7.0), BLOCK=32, debug=True)
        with pytest.raises(EmulationError, match=r"assertion: .*too large"):
            bounded[(1,)](torch.full((32,), 200.0), BLOCK=32, debug=True)


@pytest.mark.parametrize("place", [0, 31, 32, 127])
def test_assertions_of_a_scan_are_about_what_it_combines(place: int) -> None:
    x, out = torch.zeros(128, dtype=torch.int32), torch.zeros(128, dtype=torch.int32)
    x[place] = 1
    with Emulator("cuda:sm_90a"):
        counted[(1,)](x, out, BLOCK=128, debug=True)
        assert torch.equal(out, x.cumsum(0).int())
        x[127 if place < 127 else 0] = 1
        with pytest.raises(EmulationError, match="more than one"):
            counted[(1,)](x, out, BLOCK=128, debug=True)


def test_tensors_found_in_memory_are_named() -> None:
    x, out = torch.randn(64), torch.zeros(64)
    table = torch.tensor([x.data_ptr()])
    with Emulator("cuda:sm_90a", reachable=[x]):
        followed[(1,)](table, out, BLOCK=64)
        assert torch.equal(out, x)
    with (
        Emulator("cuda:sm_90a"),
        pytest.raises(EmulationError, match=r"at address 0x[0-9a-f]+, where no tensor of the launch lies"),
    ):
        followed[(1,)](table, out, BLOCK=64)


@kp.jit
def parted(q, k, stride, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK) * stride
    tl.store(q + at, 1)
    tl.store(k + at, tl.load(q + at) + 1)


def test_arguments_share_the_memory_that_their_tensors_share() -> None:
    pairs = torch.zeros(32, 2, dtype=torch.int32)
    x = torch.zeros(32, dtype=torch.int32)
    with Emulator("cuda:sm_80"):
        parted[(1,)](pairs[:, 0], pairs[:, 1], 2, BLOCK=32)
        parted[(1,)](x, x, 1, BLOCK=32)
    assert pairs.tolist() == [[1, 2]] * 32
    assert x.tolist() == [2] * 32


def test_what_lies_around_a_view_is_reachable_where_the_emulator_is_told() -> None:
    x = torch.zeros(64, dtype=torch.int32)
    with Emulator("cuda:sm_80"), pytest.raises(EmulationError, match=r"byte 64 of q and k, which has 64"):
        parted[(1,)](x[:16], x[:16], 1, BLOCK=32)
    with Emulator("cuda:sm_80", reachable=[x]):
        parted[(1,)](x[:16], x[:16], 1, BLOCK=32)
    assert x.tolist() == [2] * 32 + [0] * 32


@kp.jit
def fast(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(x + at)
    waves = libdevice.fast_sinf(value) + libdevice.fast_cosf(value) + libdevice.fast_tanf(value) + libdevice.fast_tanhf(value)
    logs = libdevice.fast_logf(value) + libdevice.fast_log2f(value) + libdevice.fast_log10f(value)
    tl.store(out + at, libdevice.fast_dividef(waves + logs, libdevice.fast_expf(value) + libdevice.fast_powf(value, value)))


def test_the_fast_functions_of_libdevice_are_emulated() -> None:
    x, out = torch.rand(32) + 0.1, torch.zeros(32)
    with Emulator("cuda:sm_80"):
        fast[(1,)](x, out, BLOCK=32)
    torch.testing.assert_close(
        out, (x.sin() + x.cos() + x.tan() + x.tanh() + x.log() + x.log2() + x.log10()) / (x.exp() + x**x)
    )


class Doubled(torch.autograd.Function):
    """Saves a view that it made, as kernels' wrappers do."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        rows = x.view(-1)
        out = torch.empty_like(rows)
        doubled[(1,)](rows, out, 64, BLOCK=64)
        ctx.save_for_backward(rows)
        return out.view(x.shape)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        (rows,) = ctx.saved_tensors
        return 2 * grad * torch.ones_like(rows).view(grad.shape)


def test_what_a_second_run_of_a_launch_puts_back_is_no_change_to_autograd() -> None:
    x = torch.randn(8, 8, requires_grad=True)
    with Emulator("cuda:sm_80"):
        Doubled.apply(x).sum().backward()
    assert torch.equal(x.grad, torch.full((8, 8), 2.0))


def test_reinterpreted_tensors_are_emulated() -> None:
    x, y = torch.full((64,), 200, dtype=torch.uint8), torch.zeros(64, dtype=torch.int32)
    with Emulator("cuda:sm_80"):
        doubled[(1,)](kp.reinterpret(x, tl.int8), y, 64, BLOCK=64)
    assert y.tolist() == [-112] * 64  # -56 * 2


def test_each_config_of_a_search_is_checked() -> None:
    """What is wrong with one of them is no reason to take another."""
    with Emulator("cuda:sm_80"), pytest.raises(EmulationError, match="out of bounds"):
        tuned[(1,)](torch.ones(N), torch.empty(N), N, BLOCK=256)


def test_ops_take_the_configs_and_branches_of_gpus() -> None:
    x = torch.randn(N)
    with Emulator("cuda:sm_90a"):
        assert torch.allclose(where_it_ran(x), 2 * x + 10)
    assert torch.allclose(where_it_ran(x), 3 * x + 20)


def test_tensors_of_other_devices_are_refused() -> None:
    with Emulator("cuda:sm_90a"), pytest.raises(LaunchError, match="on tensors of the CPU, x is on meta"):
        doubled[(1,)](torch.empty(N, device="meta"), torch.empty(N), N, BLOCK=128)


def test_a_variable_emulates_a_whole_process() -> None:
    root = Path(__file__).parents[2]
    environment = {**os.environ, "KERNELPACK_EMULATE": "cuda:sm_80", "PYTHONPATH": str(root)}
    program = "from tests.simt import test_emulator as t; t._launch(); t._launch(MASKED=False)"
    ended = subprocess.run([sys.executable, "-c", program], env=environment, cwd=root, capture_output=True, text=True)
    assert "EmulationError: tests/simt/test_emulator.py" in ended.stderr, ended.stderr
