"""Every machine answers what the passes that GPUs share ask; an operation that says nothing of shared memory does nothing to it."""

from __future__ import annotations

import inspect

import pytest

from kernelpack.backends.amd.machine import ARCHITECTURES as AMD
from kernelpack.backends.cuda.machine.features import ARCHITECTURES as NVIDIA
from kernelpack.backends.cuda.machine.gpu import NvidiaGPU
from kernelpack.backends.gpu.machine import Machine, SharedUse
from kernelpack.ir.dialect import definition

MACHINES: dict[str, Machine] = {**{name: NvidiaGPU(features) for name, features in NVIDIA.items()}, **AMD}


@pytest.mark.parametrize("machine", MACHINES.values(), ids=list(MACHINES))
def test_figures_are_those_of_a_gpu(machine: Machine) -> None:
    assert machine.lanes in (32, 64)
    assert machine.shared_bytes >= 64 * 1024
    assert 128 <= machine.tile_registers < 256
    for name, use in machine.shared_uses.items():
        assert definition(name).name == name
        assert use.alignment & use.alignment - 1 == 0
        assert use.scratch % use.alignment == 0


@pytest.mark.parametrize("machine", MACHINES.values(), ids=list(MACHINES))
def test_questions_are_asked_by_the_protocol_s_names(machine: Machine) -> None:
    for name, asked in inspect.getmembers(Machine, inspect.isfunction):
        if not name.startswith("_"):
            assert [*inspect.signature(getattr(type(machine), name)).parameters] == [*inspect.signature(asked).parameters]


def test_a_use_that_says_nothing_is_none() -> None:
    use = SharedUse()
    assert (use.reads, use.writes, use.late_writes, use.finishes, use.meets, use.order) == ((), (), (), "", False, "")
    assert (use.scratch, use.alignment) == (0, 1)
