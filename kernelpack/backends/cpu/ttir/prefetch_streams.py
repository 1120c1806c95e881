"""Prefetches what a loop reads some iterations later, where several loads of an iteration read parts of one stretch of memory.

Each load would ask for lines of its own (emit/streaming.py), in the order in which code happens to load them, and where two read parts of a line
for that line twice. DRAM answers faster in the order of addresses: 8.5 GB/s, where rows of 256 bytes from the last to the first give 5.7 (Zen 3).
Loads that a kernel passes over once (`evict_first`) are looked at. They then are as others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from kernelpack.backends.cpu.facts.affine import Span, build_sum, span_of, strides
from kernelpack.backends.cpu.facts.features import AHEAD
from kernelpack.ir.core import Builder, Operation, Value
from kernelpack.ir.dialect import attribute, operand, optional_operand, pointee_of
from kernelpack.ir.types import I32, TensorType, bit_width, shape_of

_LONGEST = 4096
"""Bytes of a stretch that are asked for at a time. Longer ones are read by loops of their own, which ask as they go."""


@dataclass(frozen=True)
class _Part:
    """What a load reads: `size` bytes an element, from element `low` to before `end`, counted from what its stream begins with."""

    load: Operation
    base: Value
    span: Span
    size: int

    @property
    def low(self) -> int:
        return self.span.low

    @property
    def end(self) -> int:
        return self.span.high + 1

    @property
    def stream(self) -> tuple[object, ...]:
        """What parts of one stream have in common."""
        return self.base, self.size, frozenset(self.span.terms.items())


def prefetch_streams(module: Operation) -> Operation:
    """Rewrites a module in place and returns it."""
    for op in list(module.walk()):
        if op.name == "scf.for":
            streams: dict[object, list[_Part]] = defaultdict(list)
            for part in filter(None, map(_part_of, op.body.operations)):
                streams[part.stream].append(part)
            for parts in streams.values():
                for stretch in _stretches(parts):
                    if len(stretch) > 1 and (stretch[-1].end - stretch[0].low) * stretch[0].size <= _LONGEST:
                        _prefetch(op, stretch, parts)
    return module


def _part_of(load: Operation) -> _Part | None:
    if load.name != "tt.load" or attribute(load, "evict") != "evict_first" or optional_operand(load, "mask") is not None:
        return None
    pointer = operand(load, "ptr")
    if len(shape_of(pointer.type)) != 1 or strides(pointer) != (1,):
        return None
    size, span = -(-bit_width(pointee_of(pointer.type)) // 8), Span()
    while (op := pointer.defining_op) is not None and op.name in ("tt.addptr", "tt.splat"):
        pointer = operand(op, "ptr") if op.name == "tt.addptr" else op.operand
        offset = span_of(operand(op, "offset")) if op.name == "tt.addptr" else Span()
        if offset is None:
            return None
        span = span.plus(offset)
    return None if shape_of(pointer.type) else _Part(load, pointer, span, size)


def _stretches(parts: list[_Part]) -> Iterator[list[_Part]]:
    """Yields parts without a gap between them, in the order of their addresses."""
    found: list[_Part] = []
    end = 0
    for part in sorted(parts, key=lambda part: part.low):
        if found and part.low > end:
            yield found
            found = []
        end = max(end, part.end) if found else part.end
        found.append(part)
    yield found


def _prefetch(loop: Operation, stretch: list[_Part], parts: list[_Part]) -> None:
    """Inserts a prefetch where an iteration ends, after what it needs: it joins the loop over lanes that reads them, and asks as that goes."""
    first = next(part for part in parts if part in stretch)
    low, end = stretch[0].low, max(part.end for part in stretch)
    build = Builder.before(first.load)
    place = build_sum(build, first.span.terms.items(), low + AHEAD // first.size)
    start = build.value("tt.addptr", [first.base, place])
    build = Builder.before(loop.body.operations[-1])
    (lanes,) = shape_of(first.load.result.type)
    step = -(-(end - low) // lanes)
    numbers = TensorType((lanes,), I32)
    range_ = build.value("tt.make_range", [], {"start": 0, "end": lanes}, numbers)
    steps = build.value("arith.muli", [range_, build.constant(step, numbers)])
    starts = build.value("tt.splat", [start], None, TensorType((lanes,), start.type))
    build.create("cpu.prefetch", [build.value("tt.addptr", [starts, steps])], {"bytes": step * first.size})
    for part in stretch:
        del part.load.attributes["evict"]
