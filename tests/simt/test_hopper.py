"""What Hopper adds, on kernels in the language: roles, rings of barriers, bulk copies, asynchronous products. Every wait, arrival,
fence and barrier that is removed is reported."""

from __future__ import annotations

import functools

import pytest
import torch

from kernelpack.errors import EmulationError
from kernelpack.simt import Program
from kernelpack.simt.compile import compile_program
from kernelpack.target import Target
from tests.backends.cuda.launch import Launch
from tests.backends.cuda.running import run_every_schedule, shows
from tests.simt.hopper_kernels import LAUNCHES, gram_float32_launch, unread_launch

NEEDLESS = {
    ("shift", "barrier"): 2,  # nothing was in that memory before; threads write where they themselves have read
    (
        "product",
        "barrier",
    ): 2,  # before barriers are invalidated, right after that of the loop; and after, where nothing uses them
    ("product-transposed", "barrier"): 2,
    ("batch", "barrier"): 3,  # likewise; and one warpgroup exchanges a narrow result where it has itself read
    ("padded", "barrier"): 2,  # likewise
    ("attend", "fence"): 2,  # of a tile that is read in registers only; after the loop
    ("attend", "wait"): 1,  # that for the later product comes first
    ("gram-by-threads", "fence"): 1,  # of mbarriers that no copy arrives at
}
"""How many removals of a kind nothing shows, and why."""


@functools.cache
def _made(name: str) -> tuple[Launch, Program]:
    torch.manual_seed(1)
    launch = LAUNCHES[name]()
    special, _ = launch.specialize()
    return launch, compile_program(launch.fn, special, Target.parse("cuda:sm_90a"), launch.options)


@pytest.mark.parametrize("name", LAUNCHES)
def test_kernels_compute_what_torch_does(name: str) -> None:
    launch, program = _made(name)
    _, values = launch.specialize()
    run_every_schedule(program, launch.grid, values)
    launch.check(launch.arguments)


@pytest.mark.parametrize("name", LAUNCHES)
def test_planted_faults_are_reported(name: str) -> None:
    launch, program = _made(name)
    _, values = launch.specialize()
    kinds = [fault.kind for fault in program.removable]
    assert "barrier" in kinds
    assert "wait" in kinds
    unseen = [fault for fault in program.removable if not shows(program, launch, values, fault)]
    for kind in set(kinds):
        here = [program.describe(fault.sites[0]) for fault in unseen if fault.kind == kind]
        assert len(here) <= NEEDLESS.get((name, kind), 0), "\n".join(here)


@pytest.mark.parametrize("meet", [True, False])
def test_a_warp_that_may_miss_a_phase_is_reported(meet: bool) -> None:
    """Parities tell a phase from the next one only: who gives a buffer back for a role must know that all its warps have waited."""
    launch = unread_launch(meet)
    special, values = launch.specialize()
    program = compile_program(launch.fn, special, Target.parse("cuda:sm_90a"), launch.options)
    if meet:
        run_every_schedule(program, launch.grid, values)
        return
    with pytest.raises(EmulationError, match=r"may complete its next phase before warp \d has seen the last") as found:
        program.run(launch.grid, values)
    assert found.value.kind == "lapped"


def test_one_arrival_for_all_warps_that_read_a_tile_is_reported() -> None:
    """Without each_warp, a role's first thread arrives while other warps may still read."""
    launch = gram_float32_launch(False)
    special, values = launch.specialize()
    program = compile_program(launch.fn, special, Target.parse("cuda:sm_90a"), launch.options)
    with pytest.raises(EmulationError) as found:
        run_every_schedule(program, launch.grid, values)
    assert found.value.kind in ("race", "lapped")
