"""Machine operations, each in a launch: the emulator computes what PTX says, and every row of its table is held to a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from kernelpack.simt import machine
from kernelpack.simt.translate import translate
from tests.backends.cuda.running import emulate
from tests.gpu.emulated import compiled, names
from tests.simt.hopper_kernels import LAUNCHES
from tests.simt.instruction_launches import ADA, INSTRUCTIONS

WITNESSES = (
    *INSTRUCTIONS,
    *ADA,
    *LAUNCHES,
    "persistent-softmax",
    "attention-float16-1x128x200x64-128x32-full-8-3",
    "elementwise-f64",
    "elementwise-f8E4M3FN",
)
"""Launches that use every row: some of those that tests/gpu/test_emulator.py compares."""


@pytest.mark.parametrize(
    ("name", "target"), [*((name, "cuda:sm_90a") for name in INSTRUCTIONS), *((name, "cuda:sm_89") for name in ADA)]
)
def test_the_emulator_computes_what_ptx_says(name: str, target: str) -> None:
    torch.manual_seed(1)
    emulate((INSTRUCTIONS | ADA)[name](), target)


def test_every_row_is_held_to_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(WITNESSES) <= set(names())
    unused: set[str] = set()

    def noticed(pattern: str, plan: Callable[..., Any]) -> Callable[..., Any]:
        def noticing(*given: Any) -> Any:
            unused.discard(pattern)
            return plan(*given)

        return noticing

    for table in ("INTRINSICS", "ASSEMBLY"):
        rows = getattr(machine, table)
        unused |= {pattern for pattern, _ in rows}
        monkeypatch.setattr(machine, table, [(pattern, noticed(pattern, plan)) for pattern, plan in rows])
    for name in WITNESSES:
        translate(str(compiled(name).stages["llir"]))
    assert not unused
