"""Square blocks of vectors are turned by log2 rounds of shuffles, and their places with them."""

from __future__ import annotations

import pytest

from kernelpack.backends.cpu.emit.places import Place
from kernelpack.backends.cpu.emit.transpose import transpose, turn
from kernelpack.llvm.text import Emitter, Val
from tests.backends.cpu.emit.shuffles import run


@pytest.mark.parametrize(("count", "rounds"), [(1, 0), (2, 1), (4, 2), (8, 3), (16, 4)])
def test_rows_become_columns(count: int, rounds: int) -> None:
    em = Emitter()
    rows = [Val(f"<{count} x float>", f"%r{row}") for row in range(count)]
    turned = transpose(em, rows)
    known = run(em.lines, {row.name: [(number, lane) for lane in range(count)] for number, row in enumerate(rows)})
    assert [known[value.name] for value in turned] == [[(row, lane) for row in range(count)] for lane in range(count)]
    assert len(em.lines) == count * rounds


def test_places_turn_with_their_vectors() -> None:
    """Four rows along axis 0, lanes along axis 1, of a block that begins at (i + 8, j + 4)."""
    points = [(Place("%i", 8 + row, 1), Place("%j", 4, 2, lanes=True)) for row in range(4)]
    places, vectors = turn(Emitter(), points, [Val("<4 x float>", f"%r{row}") for row in range(4)], lane=1, axis=0)
    assert places == [(Place("%i", 8, 1, lanes=True), Place("%j", 4 + row, 2)) for row in range(4)]
    assert len(vectors) == 4


def test_a_block_of_one_has_no_lanes() -> None:
    places, vectors = turn(Emitter(), [(Place("%i"), Place("%j"))], [Val("float", "%r")], lane=1, axis=0)
    assert places == [(Place("%i"), Place("%j"))]
    assert vectors == [Val("float", "%r")]
