"""Where tiles are evaluated, and what that gives: places along axes; values that are uniform, affine, or one a lane."""

from __future__ import annotations

from dataclasses import dataclass

from kernelpack.llvm.text import Val


@dataclass(frozen=True)
class Place:
    """A position along one axis: a loop variable (or nothing) plus a constant. `lanes`: it stands for that and its successors."""

    base: str | None = None
    offset: int = 0
    depth: int = 0
    lanes: bool = False

    def plus(self, offset: int) -> Place:
        return Place(self.base, self.offset + offset, self.depth, self.lanes)

    def one(self, lane: int = 0) -> Place:
        """Returns the position of a single lane."""
        return Place(self.base, self.offset + lane, self.depth, False)


Index = tuple[Place, ...]
FIRST = Place()


def at_lane(index: Index, lane: int) -> Index:
    """Returns the index of a single lane."""
    return tuple(place.one(lane) if place.lanes else place for place in index)


@dataclass(frozen=True)
class Uniform:
    """The same for all lanes."""

    val: Val
    depth: int


@dataclass(frozen=True)
class Affine:
    """`base` in the first lane, then `step` more from lane to lane; pointers step in bytes."""

    base: Val
    step: int | Val
    depth: int


@dataclass(frozen=True)
class Vector:
    """One value a lane."""

    val: Val
    depth: int


Lanes = Uniform | Affine | Vector
