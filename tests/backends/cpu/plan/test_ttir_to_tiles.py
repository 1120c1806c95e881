"""Planning in rounds: each begins with what the ones before it taught, until one teaches nothing."""

from __future__ import annotations

import pytest

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.backends.cpu.plan import ttir_to_tiles as planning
from kernelpack.backends.cpu.plan.feedback import Lesson
from kernelpack.backends.cpu.plan.tile_program import naming
from kernelpack.backends.cpu.plan.ttir_to_tiles import rounds, ttir_to_tiles
from kernelpack.ir.core import entry_function
from tests.backends.cpu.plan.plans import V3, text_of, ttir


@kp.jit
def smoothed(x, out, n, S: tl.constexpr):
    i = tl.arange(0, S)
    a = tl.load(x + i)
    b = tl.load(x + S + i)
    for _ in range(n):
        a = tl.flip(a) + b
    tl.store(out + i, a)


def test_each_round_learns_something_new_and_the_last_one_nothing() -> None:
    module = ttir(smoothed, S=32, n="i32")
    name = naming(entry_function(module))
    learned = [(made.learned, made.known.text(name).splitlines()) for made in rounds(module, V3)]
    assert learned == [
        (["keep_crossing"], ["keep %b, lanes 0"]),
        (["protect_carried"], ["keep %b, lanes 0", "write %a_2 when its block ends"]),
        (
            ["protect_carried"],
            ["keep %b, lanes 0", "write %a_2 when its block ends", "copy %a_1 when its iteration begins"],
        ),
        ([], ["keep %b, lanes 0", "write %a_2 when its block ends", "copy %a_1 when its iteration begins"]),
    ]


def test_the_program_is_that_of_the_last_round() -> None:
    module = ttir(smoothed, S=32, n="i32")
    *_, last = rounds(module, V3)
    assert text_of(ttir_to_tiles(module, V3)) == text_of(last.program)


def test_the_kernel_is_left_as_it_is() -> None:
    module = ttir(smoothed, S=32, n="i32")
    before = str(module)
    ttir_to_tiles(module, V3)
    assert str(module) == before


def test_planning_that_always_learns_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ttir(smoothed, S=32, n="i32")
    endless = ((Lesson("endless", lambda review: True),),)
    assert sum(1 for _ in rounds(module, V3, endless)) == 200
    monkeypatch.setattr(planning, "rounds", lambda module, level: rounds(module, level, endless))
    with pytest.raises(AssertionError, match="does not settle"):
        ttir_to_tiles(module, V3)
