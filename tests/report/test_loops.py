"""The timeline of a loop: its steps in order, how far copies run ahead, and where products are waited for."""

from __future__ import annotations

import itertools

from kernelpack.report.loops import Loop, Step, copies_ahead
from kernelpack.report.stages import Staged
from tests.report.conftest import FILE, line_of


def loop_of(staged: Staged) -> Loop:
    (loop,) = staged.loops
    return loop


def step(loop: Loop, kind: str) -> Step:
    return next(one for one in loop.steps if one.kind == kind)


def test_copies_reach_the_wait_of_the_iteration_that_reads_them(staged: dict[str, Staged]) -> None:
    loop = loop_of(staged["cuda:sm_90a"])
    schedule = next(stage for stage in staged["cuda:sm_90a"].stages if stage.name == "schedule")
    (ahead,) = copies_ahead("\n".join(schedule.text.lines)).values()
    assert ahead >= 1
    copies = [one for one in loop.steps if one.kind == "copy"]
    assert len(copies) == 2
    waits = [number for number, one in enumerate(loop.steps) if one.kind == "wait"]
    assert {(one.later, one.until) for one in copies} == {(ahead, waits[0])}


def test_a_product_ends_where_it_is_waited_for(staged: dict[str, Staged]) -> None:
    loop = loop_of(staged["cuda:sm_90a"])
    product = step(loop, "product")
    assert loop.steps[product.until].name == "ttng.warp_group_dot_wait"
    assert product.later == 1  # the wait of its own iteration lets one product go on


def test_steps_know_their_lines(staged: dict[str, Staged]) -> None:
    for target in ("cuda:sm_90a", "cpu:x86-64-v3"):
        loop = loop_of(staged[target])
        assert loop.chain[0] == (FILE, line_of("for start in"))
        assert step(loop, "product").chain[0] == (FILE, line_of("total = tl.dot"))
        assert loop.role == ""


def test_neighbours_that_compute_are_one_step(staged: dict[str, Staged]) -> None:
    for one in staged.values():
        kinds = [step.kind for step in loop_of(one).steps]
        assert all(a != "compute" or b != "compute" for a, b in itertools.pairwise(kinds))


def test_the_text_of_a_schedule_says_how_far_copies_run_ahead() -> None:
    text = (
        "a warp of its own copies into 2 rings of 4 slots; TMA, full and empty mbarriers\n"
        "loop at 40:5: copies 2 iterations ahead into rings of 3 slots; cp.async groups\n  copy 42:13: 128x64xbf16\n"
        "loop at 60:5: copies 1 iteration ahead into rings of 2 slots; cp.async groups\n"
        "loop at 80:5: copies 1 iteration ahead into rings of 2 slots; cp.async groups\n"
        "loop at 80:5: copies 2 iterations ahead into rings of 3 slots; cp.async groups\n"
        "loop at 90:5: products run on\n"
    )
    assert copies_ahead(text) == {"40:5": 2, "60:5": 1}
