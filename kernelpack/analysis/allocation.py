"""Places buffers in shared memory: buffers that are never needed at the same time may share their bytes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from kernelpack.analysis.alias import buffer_aliases
from kernelpack.ir.core import Operation

ALIGNMENT = 128
"""One row of the banks: what is free of conflicts at offset 0 is so at every multiple."""
ROLE = "ttg.role"
"""Operations in different ones of these run at the same time."""


@dataclass(frozen=True)
class Buffer:
    """Shared memory that an operation needs: `size` bytes from operation number `start` to number `end`, both included."""

    op: Operation
    size: int
    start: int
    end: int

    @functools.cached_property
    def role(self) -> Operation | None:
        return next((outer for outer in self.op.ancestors() if outer.name == ROLE), None)

    def overlaps(self, other: Buffer) -> bool:
        """Whether both are needed at the same time."""
        if self.role is not other.role and self.role is not None and other.role is not None:
            return True
        return self.start <= other.end and other.start <= self.end


@dataclass(frozen=True)
class Allocation:
    """Where each buffer lies, and how many bytes all of them need together."""

    offsets: dict[Operation, int]
    buffers: tuple[Buffer, ...]
    size: int

    def interval(self, op: Operation) -> tuple[int, int]:
        """Returns the bytes [start, end) of an operation's buffer."""
        size = next(buffer.size for buffer in self.buffers if buffer.op is op)
        return self.offsets[op], self.offsets[op] + size


def live_buffers(function: Operation, bytes_of: Callable[[Operation], int]) -> list[Buffer]:
    """Returns the buffers of a function with their lifetimes; `bytes_of` says how much an operation needs (0 for most).

    A buffer lives from its allocation to the last use of any value that may refer to it. A use inside a loop that the
    allocation is outside of keeps it alive for the whole loop: the next iteration may use it again.
    """
    numbers: dict[Operation, int] = {}
    ends: dict[Operation, int] = {}

    def number(op: Operation) -> None:
        numbers[op] = len(numbers)
        for region in op.regions:
            for block in region.blocks:
                for inner in block.operations:
                    number(inner)
        ends[op] = len(numbers) - 1

    number(function)
    last = {op: numbers[op] for op in numbers if bytes_of(op)}
    for value, sources in buffer_aliases(function).items():
        for user in value.users():
            for source in sources:
                outer = [op for op in user.ancestors() if op not in set(source.ancestors())]
                last[source] = max(last[source], ends[outer[-1]] if outer else numbers[user])
    return [Buffer(op, bytes_of(op), numbers[op], end) for op, end in last.items()]


def allocate(
    function: Operation, bytes_of: Callable[[Operation], int], alignment_of: Callable[[Operation], int] = lambda op: 1
) -> Allocation:
    """Places the buffers of a function: the largest first, each at the lowest offset that is free during its life.

    Offsets are multiples of `ALIGNMENT`, and of what `alignment_of` asks for.
    """
    buffers = live_buffers(function, bytes_of)
    placed: list[tuple[int, Buffer]] = []
    for buffer in sorted(buffers, key=lambda buffer: (-buffer.size, buffer.start)):
        offset, alignment = 0, max(ALIGNMENT, alignment_of(buffer.op))
        for start, other in sorted(placed, key=lambda entry: entry[0]):
            if buffer.overlaps(other) and start < offset + buffer.size:
                offset = max(offset, -(-(start + other.size) // alignment) * alignment)
        placed.append((offset, buffer))
    offsets = {buffer.op: offset for offset, buffer in placed}
    size = max((offset + buffer.size for offset, buffer in placed), default=0)
    return Allocation(offsets, tuple(buffers), size)
