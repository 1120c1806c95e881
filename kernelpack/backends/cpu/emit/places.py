"""Where tiles are evaluated, and what that gives: places along axes; values that are uniform, affine, or one a lane."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kernelpack.llvm.text import Val


@dataclass(frozen=True)
class Place:
    """A position along one axis: a loop variable (or nothing) plus a constant. `lanes`: it stands for that and its successors.

    `end`: it, and those of all lanes, are known to come before this position.
    """

    base: str | None = None
    offset: int = 0
    depth: int = 0
    lanes: bool = False
    end: int | None = None

    def plus(self, offset: int) -> Place:
        return replace(self, offset=self.offset + offset)

    def one(self, lane: int = 0) -> Place:
        """Returns the position of a single lane."""
        return replace(self, offset=self.offset + lane, lanes=False)

    def ends_by(self, position: int, width: int) -> bool:
        """Whether it, and those of all `width` lanes, come before a position."""
        if self.base is None:
            return self.offset + (width if self.lanes else 1) <= position
        return self.end is not None and self.end <= position


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
