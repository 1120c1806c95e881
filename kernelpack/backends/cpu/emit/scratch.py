"""The stack memory of a kernel's tiles. Where there are many, tiles that no statement needs at the same time share it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile

from kernelpack.backends.cpu.plan.buffers import Storage
from kernelpack.llvm.text import Emitter, Val

APART = 1 << 20
"""Bytes up to which every tile has memory of its own: LLVM can tell such tiles apart, and a core's second cache holds them."""

Span = tuple[int, int]


class Scratch(dict[int, Val]):
    """The address of each buffer, by its id. Notes which statement asks for it, so that `allocate` knows how long it is needed.

    Emitters call `step` before each statement, and put what repeats into `loop`.
    """

    def __init__(self, em: Emitter, buffers: Sequence[Storage]) -> None:
        self.sizes = {em.fresh("tile"): buffer.bytes for buffer in buffers}
        super().__init__((id(buffer), Val("ptr", name)) for buffer, name in zip(buffers, self.sizes, strict=True))
        self.now = 0
        self.spans: list[Span] = []  # of loops, in steps
        self.around: tuple[int, ...] = ()
        self.uses: dict[str, list[tuple[int, tuple[int, ...]]]] = defaultdict(list)

    def __getitem__(self, buffer: int) -> Val:
        place = super().__getitem__(buffer)
        self.uses[place.name].append((self.now, self.around))
        return place

    def step(self) -> None:
        self.now += 1

    @contextmanager
    def loop(self) -> Iterator[None]:
        outer, number, first = self.around, len(self.spans), self.now
        self.spans.append((first, first))
        self.around = (*outer, number)
        yield
        self.around = outer
        self.spans[number] = (first, self.now)

    def _lifetime(self, name: str) -> Span:
        """Returns the first and last step that need a tile: all of a loop, where the tile is used outside of it too."""
        uses = self.uses[name]
        levels = zip(*(around for _, around in uses), strict=False)
        shared = sum(1 for _ in takewhile(lambda loops: len(set(loops)) == 1, levels))
        spans = [(now, now) if len(around) == shared else self.spans[around[shared]] for now, around in uses]
        return min(first for first, _ in spans), max(last for _, last in spans)

    def allocate(self) -> tuple[list[str], int]:
        """Returns the lines that reserve the memory, and its bytes. To be called when everything is emitted."""
        groups = [[name] for name in self.sizes]
        if sum(self.sizes.values()) > APART:
            groups = self._share()
        lines, total = [], 0
        for names in groups:
            size = max(self.sizes[name] for name in names)
            total += size
            lines.append(f"  {names[0]} = alloca [{size} x i8], align 64")
            lines += [f"  {name} = getelementptr i8, ptr {names[0]}, i64 0" for name in names[1:]]
        return lines, total

    def _share(self) -> list[list[str]]:
        """Groups tiles whose lifetimes do not meet, the largest first."""
        groups: list[list[str]] = []
        lifetimes = {name: self._lifetime(name) for name in self.sizes if name in self.uses}
        for name in sorted(lifetimes, key=lambda name: -self.sizes[name]):
            first, last = lifetimes[name]
            for group in groups:
                if all(last < lifetimes[other][0] or lifetimes[other][1] < first for other in group):
                    group.append(name)
                    break
            else:
                groups.append([name])
        return groups
