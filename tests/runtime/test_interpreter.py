"""Launches from Python run on the interpreter: inside of `with Interpreter()`, by knobs.runtime.interpret, or by TRITON_INTERPRET."""

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
from kernelpack import knobs
from kernelpack.backends.cpu.device.driver import CPUDriver
from kernelpack.errors import LaunchError
from kernelpack.knobs.hooks import WATCHERS
from kernelpack.runtime.driver import driver
from kernelpack.runtime.interpreter import Interpreter, _Hosted


@kp.jit
def scale(x, out, factor, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * factor)  # the store is not masked


def launch(n: int, **options: Any) -> torch.Tensor:
    x, out = torch.arange(n, dtype=torch.float32), torch.zeros(n)
    scale[(kp.cdiv(n, 16),)](x, out, 2.5, n, BLOCK=16, **options)
    return out


def test_launches_are_interpreted_inside_of_with() -> None:
    with Interpreter() as interpreter:
        assert driver.active is interpreter
        assert driver.active.get_current_target().backend == "cpu"
        assert launch(48, num_warps=8).tolist() == [2.5 * number for number in range(48)]
        with pytest.raises(LaunchError, match=r"program \(2, 0, 0\): .*out") as problem:
            launch(40)
        assert problem.value.location is not None
        assert problem.value.location.line == scale.fn.__code__.co_firstlineno + 3
    assert isinstance(driver.active, CPUDriver)
    assert WATCHERS == []


def test_a_knob_says_so_while_a_program_runs() -> None:
    tuned = kp.autotune([kp.Config({"BLOCK": 16}), kp.Config({"BLOCK": 64})], ["n"])(scale)
    with knobs.runtime.scope():
        knobs.runtime.interpret = True
        assert isinstance(driver.active, Interpreter)
        launch(48)
        x, out = torch.ones(64), torch.zeros(64)
        tuned[(1,)](x, out, 3.0, 64)  # tries each config once
        assert out[:16].tolist() == [3.0] * 16
        with pytest.raises(LaunchError, match="out, which has 160 bytes"):
            launch(40)
    assert WATCHERS == []
    assert not isinstance(driver.active, Interpreter)


def test_the_variable_says_so_for_a_whole_program(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(Path(__file__).read_text())
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "Interpreter 117.5\n"


def test_tensors_of_other_devices_come_and_go_with_what_they_share() -> None:
    class Elsewhere(torch.Tensor):
        device = torch.device("meta")

    memory = torch.arange(8.0)
    first, second = (view.as_subclass(Elsewhere) for view in (memory[:6], memory[2:].view(2, 3)[:, 1]))
    hosted = _Hosted()
    a, b, number = hosted.value(first), hosted.value(second), hosted.value(7)
    assert (a.tolist(), b.tolist(), number) == ([0, 1, 2, 3, 4, 5], [3, 6], 7)
    a[3] = 30
    assert b.tolist() == [30, 6]
    assert memory[3] == 3
    hosted.copy_back()
    assert memory.tolist() == [0, 1, 2, 30, 4, 5, 6, 7]


if __name__ == "__main__":
    print(type(driver.active).__name__, launch(48)[47].item())
