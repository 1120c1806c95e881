"""Ops in the blocks that they have at the level with AMX's tiles, which stand-ins for the instructions compute, are as accurate as torch's."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from kernelpack.backends.cpu import backend
from kernelpack.backends.cpu.device.open import open_object
from kernelpack.compiled import CompiledKernel
from kernelpack.runtime import launch_hooks
from kernelpack.runtime.loaded import LoadedKernel
from tests.backends.cpu.tiles import AMX, on_stand_in, stand_in
from tests.ops.grid import Case, cases, check, module_of
from tests.ops.test_int8 import bytes_of


@pytest.fixture(autouse=True)
def _tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python launches kernels for AMX, on the stand-in."""

    def loaded(kernel: CompiledKernel, opened: object, source: Any) -> LoadedKernel:
        code = on_stand_in(kernel)
        return LoadedKernel(code, open_object(code), source)

    monkeypatch.setattr(backend, "native_target", lambda: AMX)
    monkeypatch.setattr(backend, "open_object", lambda kernel: None)
    monkeypatch.setattr(launch_hooks, "LoadedKernel", loaded)


def of(op: str) -> list[Case]:
    return [case for case in cases() if case.op == op and case.dtype == torch.bfloat16 and not case.edge]


@pytest.mark.parametrize("op", ["matmul", "mha"])
def test_errors_are_at_most_twice_those_of_torch(op: str) -> None:
    stand_in().stand_in_products()
    found = [check(case, run=getattr(module_of(op), op)) for case in itertools.islice(of(op), 0, None, 8)]
    assert not list(filter(None, found))
    assert stand_in().stand_in_products() > 1000


def test_products_of_bytes_are_exact() -> None:
    op, reference = module_of("scaled_matmul").scaled_matmul, module_of("scaled_matmul").reference
    stand_in().stand_in_products()
    for m, n, k in ((1, 70, 600), (5, 40, 513), (20, 33, 65), (64, 130, 512), (260, 300, 520)):
        a, weight = bytes_of(m, k), bytes_of(n, k)
        scales = torch.rand(m, 1), torch.rand(1, n)
        got = op(a, weight.t(), *scales)
        torch.testing.assert_close(got, reference(a, weight.t(), *scales), atol=0.0, rtol=2.0**-8)
    assert stand_in().stand_in_products() > 1000
