"""Turns square blocks of a tile: vectors along one axis become vectors along another."""

from __future__ import annotations

from kernelpack.backends.cpu.emit.places import Index, Place
from kernelpack.llvm.text import Emitter, Val


def turn(em: Emitter, points: list[Index], vectors: list[Val], lane: int, axis: int) -> tuple[list[Index], list[Val]]:
    """Transposes a square block: rows along `axis` with lanes along `lane` become rows along `lane` with lanes along `axis`."""
    turned = transpose(em, vectors)
    first = points[0]
    places = []
    for row in range(len(vectors)):
        point = list(first)
        point[lane] = first[lane].one(row)
        point[axis] = Place(first[axis].base, first[axis].offset, first[axis].depth, len(vectors) > 1)
        places.append(tuple(point))
    return places, turned


def transpose(em: Emitter, rows: list[Val]) -> list[Val]:
    """Transposes as many vectors as they have lanes, in log2 rounds that swap blocks of 1, 2, 4, ... lanes between rows."""
    count = len(rows)
    distance = 1
    while distance < count:
        swapped = list(rows)
        for row in range(count):
            if row & distance:
                continue
            other = row | distance
            low = [lane if not lane & distance else count + (lane ^ distance) for lane in range(count)]
            high = [lane | distance if not lane & distance else count + lane for lane in range(count)]
            swapped[row] = em.shuffle(rows[row], rows[other], low)
            swapped[other] = em.shuffle(rows[row], rows[other], high)
        rows = swapped
        distance *= 2
    return rows
