"""Ops in the blocks that they have at the level with AMX's tiles, which stand-ins for the instructions compute, are as accurate as torch's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

from kernelpack.backends.cpu import backend
from kernelpack.backends.cpu.device.open import open_object
from kernelpack.compiled import CompiledKernel
from kernelpack.runtime import launch_hooks
from kernelpack.runtime.loaded import LoadedKernel
from tests.backends.cpu.tiles import AMX, on_stand_in, stand_in
from tests.ops.grid import cases, check, module_of
from tests.ops.test_int8 import bytes_of


def run(op: str) -> None:
    """Checks an op, which Python launches for AMX: on the stand-in. For a process that has launched nothing yet."""

    def loaded(kernel: CompiledKernel, opened: object, source: Any) -> LoadedKernel:
        code = on_stand_in(kernel)
        return LoadedKernel(code, open_object(code), source)

    with (
        mock.patch.object(backend, "native_target", return_value=AMX),
        mock.patch.object(backend, "open_object", return_value=None),
        mock.patch.object(launch_hooks, "LoadedKernel", loaded),
    ):
        if op == "scaled_matmul":
            _check_bytes()
        else:
            own = [case for case in cases() if (case.op, case.dtype, case.edge) == (op, torch.bfloat16, False)]
            wrong = [check(case, run=getattr(module_of(op), op)) for case in own[::4]]
            assert not list(filter(None, wrong)), wrong
    products = stand_in().stand_in_products()
    assert products > 1000, products


def _check_bytes() -> None:
    op, reference = module_of("scaled_matmul").scaled_matmul, module_of("scaled_matmul").reference
    for m, n, k in ((1, 70, 600), (5, 40, 513), (20, 33, 65), (64, 130, 512), (260, 300, 520)):
        a, weight = bytes_of(m, k), bytes_of(n, k)
        scales = torch.rand(m, 1), torch.rand(1, n)
        got = op(a, weight.t(), *scales)
        torch.testing.assert_close(got, reference(a, weight.t(), *scales), atol=0.0, rtol=2.0**-8)


@pytest.mark.parametrize("op", ["matmul", "mha", "scaled_matmul"])
def test_errors_are_at_most_twice_those_of_torch(op: str) -> None:
    """Sums of bytes are exact."""
    program = f"from tests.ops.test_amx import run; run({op!r})"
    done = subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
