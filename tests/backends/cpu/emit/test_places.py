"""Places along axes: a loop variable and a constant, for one element or for all lanes."""

from __future__ import annotations

from kernelpack.backends.cpu.emit.places import FIRST, Place, at_lane


def test_a_place_moves_by_constants_and_stays_in_its_loop() -> None:
    place = Place("%i", 4, 2, lanes=True)
    assert place.plus(3) == Place("%i", 7, 2, lanes=True)
    assert place.one() == Place("%i", 4, 2)
    assert place.one(5) == Place("%i", 9, 2)
    assert Place(None, 0, 0, lanes=False) == FIRST


def test_only_the_axis_of_the_lanes_has_a_place_for_each() -> None:
    index = (Place("%i", 1, 1), Place("%j", 8, 2, lanes=True))
    assert at_lane(index, 3) == (Place("%i", 1, 1), Place("%j", 11, 2))
