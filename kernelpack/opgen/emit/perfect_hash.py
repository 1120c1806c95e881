"""A perfect hash of integers: the build finds one so that generated code looks a value up in one step (csrc/kernels/table.h)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

_WORD = (1 << 64) - 1
_FIRST_MULTIPLIER = 0x9E3779B97F4A7C15
"""2**64 over the golden ratio: it spreads neighbours and powers of two alike (Knuth, The Art of Computer Programming, 6.4)."""
_TRIES = 16
"""Multipliers to try before the table is made twice as large."""


@dataclass(frozen=True)
class PerfectHash:
    """`slots[(h >> 32 ^ displacements[h >> 52]) mod its size]` is the place of a value, where h = (value ^ value >> 32) * multiplier
    mod 2**64. Slots that no value has hold 0. Both sizes are powers of two."""

    multiplier: int
    displacements: tuple[int, ...]
    slots: tuple[int, ...]

    def place(self, value: int) -> int:
        """Returns what the C++ looks up: a place, whose value must still be compared."""
        hashed = _hash(value, self.multiplier)
        displacement = self.displacements[hashed >> 52 & len(self.displacements) - 1]
        return self.slots[(hashed >> 32 ^ displacement) & len(self.slots) - 1]


def _hash(value: int, multiplier: int) -> int:
    word = value & _WORD
    return (word ^ word >> 32) * multiplier & _WORD


def perfect_hash(values: Sequence[int]) -> PerfectHash:
    """Returns a hash that gives each of up to 4096 different values its position. It is the same for the same values."""
    size = 1 << (len(values) - 1).bit_length()
    for attempt in itertools.count():
        multiplier = _FIRST_MULTIPLIER * (2 * attempt + 1) & _WORD
        found = _displace(values, multiplier, size << attempt // _TRIES)
        if found is not None:
            return PerfectHash(multiplier, *found)
    raise AssertionError


def _displace(values: Sequence[int], multiplier: int, size: int) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Hash and displace: the fullest buckets choose first among the slots that are free."""
    buckets: dict[int, list[tuple[int, int]]] = {}
    for place, value in enumerate(values):
        hashed = _hash(value, multiplier)
        buckets.setdefault(hashed >> 52 & size - 1, []).append((hashed >> 32 & size - 1, place))
    displacements, slots = [0] * size, [0] * size
    free = set(range(size))
    for bucket, entries in sorted(buckets.items(), key=lambda item: -len(item[1])):
        for displacement in range(size):
            taken = {at ^ displacement for at, _ in entries}
            if len(taken) == len(entries) and taken <= free:
                break
        else:
            return None
        free -= taken
        displacements[bucket] = displacement
        for at, place in entries:
            slots[at ^ displacement] = place
    return tuple(displacements), tuple(slots)
