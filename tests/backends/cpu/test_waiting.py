"""Programs that wait for what other programs write: they end on a CPU, in whatever order programs start."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.backends.cpu.facts.waiting import waits_for_programs
from kernelpack.errors import KernelpackError
from tests.backends.cpu.agreement import ttir_of

PROGRAMS = 40


@kp.jit
def chain(flags, out, LOOK: tl.constexpr):
    """Each program waits for the next one, and adds to what that wrote: the last one must run first."""
    pid = tl.program_id(0)
    if pid + 1 < tl.num_programs(0):
        flag = flags + pid + 1
        if LOOK == "cas":
            while tl.atomic_cas(flag, 1, 1) != 1:
                pass
        elif LOOK == "add":
            while tl.atomic_add(flag, 0) != 1:
                pass
        elif LOOK == "volatile":
            while tl.load(flag, volatile=True) != 1:
                pass
        else:
            while tl.load(flag, cache_modifier=".cv") != 1:
                pass
        tl.store(out + pid, tl.load(out + pid + 1) + pid)
    else:
        tl.store(out + pid, pid)
    tl.atomic_xchg(flags + pid, 1)


@kp.jit
def barrier(arrived, out):
    """All programs meet: the loop's condition was read in its body."""
    tl.atomic_add(arrived, 1)
    here = tl.load(arrived, volatile=True)
    while here < tl.num_programs(0):
        here = tl.load(arrived, volatile=True)
    tl.store(out + tl.program_id(0), here)


@kp.jit
def locked(lock, total):
    """Each program takes a lock: the one that holds it ends without the others."""
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(total, tl.load(total) + 1)
    tl.atomic_xchg(lock, 0)


@kp.jit
def taken_in_turns(counter, out, n):
    """Programs take work until there is none: nobody waits."""
    at = tl.atomic_add(counter, 1)
    while at < n:
        tl.store(out + at, at)
        at = tl.atomic_add(counter, 1)


def ints(count: int) -> torch.Tensor:
    return torch.zeros(count, dtype=torch.int32)


def ends(launch: Callable[[], object]) -> None:
    """Fails where a launch does not end."""
    thread = threading.Thread(target=launch, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive(), "the programs wait for ever"


@pytest.mark.parametrize("look", ["cas", "add", "volatile", "cv"])
def test_programs_wait_for_later_ones(look: str) -> None:
    flags, out = ints(PROGRAMS), ints(PROGRAMS)
    ends(lambda: chain[(PROGRAMS,)](flags, out, LOOK=look))
    assert out.tolist() == [sum(range(pid, PROGRAMS)) for pid in range(PROGRAMS)]


def test_all_programs_meet() -> None:
    arrived, out = ints(1), ints(PROGRAMS)
    ends(lambda: barrier[(PROGRAMS,)](arrived, out))
    assert out.tolist() == [PROGRAMS] * PROGRAMS


def test_more_programs_than_can_wait_are_refused() -> None:
    with pytest.raises(KernelpackError, match=r"wait for each other, so all of them must run at once; the grid has 5000"):
        barrier[(50, 100)](ints(1), ints(1))


def test_locks_and_work_that_is_taken_in_turns_need_no_thread_for_each_program() -> None:
    assert waits_for_programs(ttir_of(barrier, (ints(1), ints(1)), {}))
    assert not waits_for_programs(ttir_of(locked, (ints(1), ints(1)), {}))
    assert not waits_for_programs(ttir_of(taken_in_turns, (ints(1), ints(1), 3), {}))
    lock, total = ints(1), ints(1)
    ends(lambda: locked[(10_000,)](lock, total))
    assert total.item() == 10_000
