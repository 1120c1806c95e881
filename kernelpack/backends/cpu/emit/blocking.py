"""Cuts a nest's domain into iterations: how many lanes a vector has, and how much of each axis an iteration covers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace

from kernelpack.backends.cpu.emit.places import Index, Place
from kernelpack.backends.cpu.emit.regions import runs_on_vectors
from kernelpack.backends.cpu.facts.features import Level
from kernelpack.backends.cpu.facts.observed import Observed
from kernelpack.backends.cpu.plan.buffers import K_STEP, Buffer, OperandBuffer
from kernelpack.backends.cpu.plan.sinks import (
    ALONE,
    Map,
    Materialize,
    Message,
    Reduce,
    Root,
    Scan,
    Store,
    turned_axis,
    values_of,
)
from kernelpack.backends.cpu.plan.stops import Stop, stops_of
from kernelpack.backends.cpu.plan.tile_program import Nest
from kernelpack.ir.core import Operation, Value
from kernelpack.ir.types import I8, bit_width, element_of, is_float

_UNROLL = 4  # vectors an iteration works on: enough independent chains to hide the latency of an fma
_FEW = 12  # so many constants leave registers for that many vectors
_SHARING = 2  # so many vectors share the scalars that an iteration loads: registers hold the sums of 8 rows for each
_LONG = 128  # so many operations keep a CPU busy with one vector; for several of them LLVM takes seconds
STRAIGHT = 8  # a domain of this many vectors needs no loop
_LONG_ROW = 16  # so many vectors take longer than one more, whose elements are those after a row's end


@dataclass(frozen=True)
class Blocking:
    """How a nest walks over `shape`, which leaves out the ends of its domain that nobody observes: an iteration covers `tile` elements
    along each axis, in vectors of `width` lanes along axis `lane`.

    `reduced` is the axis of its reductions or scans; `turned` is the one that runs along the lanes of what it writes, where that is
    not `lane`. `stops` are where it may stop, by axis.
    """

    shape: tuple[int, ...]
    lane: int
    reduced: int | None
    turned: int | None
    width: int
    tile: Mapping[int, int]
    stops: Mapping[int, Stop]

    def points(self, bases: Mapping[int, Place]) -> list[Index]:
        """Returns the places of the iteration that begins at `bases`; the lane axis has one place for all lanes. The last iteration along an
        axis is shorter where the shape is no multiple of its tile, but for squares that turn."""
        ranges = []
        for axis in range(len(self.shape)):
            step = self.width if axis == self.lane else 1
            lanes = axis == self.lane and self.width > 1
            base = bases[axis]
            covered = self.tile[axis]
            if base.base is None and base.end is not None and self.turned is None:
                covered = min(covered, base.end - base.offset)
            ranges.append([replace(base, offset=base.offset + offset, lanes=lanes) for offset in range(0, covered, step)])
        return [tuple(point) for point in itertools.product(*ranges)]


def blocking_of(
    nest: Nest, level: Level, kept: Mapping[Value, Mapping[int, Buffer]], observed: Observed, reloads: bool = False
) -> Blocking:
    """Returns how a nest is cut. Tiles that are `kept` in buffers cost it no constants. `reloads` says that each iteration loads scalars."""
    lane = nest.lane_axis
    reduced = next((root.axis for root in nest.roots if isinstance(root, (Reduce, Scan))), None)
    turned = next((turned_axis(root, lane) for root in nest.roots if turned_axis(root, lane) is not None), None)
    width = _width(nest, level, turned)
    shape = _observed(nest, width if turned is None else 1, observed)
    stops = stops_of(nest, kept) if turned is None and shape == nest.shape else {}
    # what follows as one value is computed apart
    stops = {axis: stop for axis, stop in stops.items() if not stop.evens or shape[axis] >= _LONG_ROW * width}
    tile = _tile(nest, shape, width, reduced, turned, kept, stops, reloads)
    return Blocking(shape, lane, reduced, turned, width, tile, stops)


def _observed(nest: Nest, width: int, observed: Observed) -> tuple[int, ...]:
    """Returns how far a nest has to go along each axis: to what is observed of its roots, in whole vectors."""
    extents = [1] * len(nest.shape)
    for root in nest.roots:
        match root:
            case Materialize(source=None, into=Buffer()):
                seen = observed.extents(root.value)
            case Reduce() | Store():
                seen = observed.domains[root.op]
            case _:
                return nest.shape
        extents = list(map(max, extents, seen))
    extents[nest.lane_axis] = math.ceil(extents[nest.lane_axis] / width) * width
    return tuple(extents)


def _width(nest: Nest, level: Level, turned: int | None) -> int:
    """Returns the number of lanes; a block that is turned has as many rows as lanes."""
    width = min(_most_lanes(nest, level, turned), nest.shape[nest.lane_axis])
    for root in nest.roots:
        if isinstance(root, (Reduce, Scan, Map)) and not runs_on_vectors(root.op.body):
            width = 1
        if isinstance(root, Map) and root.op.attributes["pack"] > 1:
            width = root.op.attributes["pack"]
        if isinstance(root, Message) and root.op.name == "tt.print":
            width = 1
    if turned is not None:
        width = min(width, nest.shape[turned])
        into = _operand(nest)
        if into is not None and into.k_axis == nest.lane_axis:  # they are turned as 32-bit units
            width = min(into.pack * width, nest.shape[nest.lane_axis])
        elif into is not None and into.k_axis == turned:
            width = min(width, nest.shape[turned] // into.pack)
    return width


def _most_lanes(nest: Nest, level: Level, turned: int | None) -> int:
    """Returns how many lanes a nest has at most: elements become 32 bits wide, but for those that go from memory to a product in tiles as
    they are, or of bytes, and no further than a panel."""
    into = _operand(nest)
    if into is None or not (level.tiles or into.element == I8) or into.pack == 1 or turned is not None or len(nest.roots) > 1:
        return level.lanes(32)
    if not all(isinstance(root, Materialize) and _is_loaded(root.value) for root in nest.roots):
        return level.lanes(32)
    lanes = level.lanes(bit_width(into.element))
    return min(lanes, into.panel) if into.panel else lanes


def _is_loaded(value: Value) -> bool:
    op = value.defining_op
    return op is not None and op.name == "tt.load"


def _operand(nest: Nest) -> OperandBuffer | None:
    into = next((root.into for root in nest.roots if isinstance(root, Materialize)), None)
    return into if isinstance(into, OperandBuffer) else None


def _tile(
    nest: Nest,
    shape: tuple[int, ...],
    width: int,
    reduced: int | None,
    turned: int | None,
    kept: Container[Value],
    stops: Mapping[int, Stop],
    reloads: bool,
) -> dict[int, int]:
    """Returns how many elements along each axis one iteration over a shape covers."""
    lane = nest.lane_axis
    tile = dict.fromkeys(range(len(shape)), 1)
    tile[lane] = width
    for root in nest.roots:
        if isinstance(root, Materialize) and isinstance(root.into, OperandBuffer) and root.into.k_axis != lane:
            tile[root.into.k_axis] = max(tile[root.into.k_axis], root.into.pack)
    if turned is not None:
        into = _operand(nest)
        tile[turned] *= width // into.pack if into is not None and into.k_axis == lane else width
        return tile
    if any(isinstance(root, ALONE) for root in nest.roots):
        return tile
    inner = lane if reduced is None else reduced
    step = tile[inner]
    formula = _formula_of(nest.roots, kept)
    if len(formula) > _LONG:
        if reloads and reduced is None:
            tile[lane] = min(shape[lane], _SHARING * width)
        return tile
    unroll = _UNROLL if reduced is not None or _constants_of(formula) <= _FEW else _UNROLL // 2
    if inner in stops:
        unroll = min(unroll, shape[inner] // step // STRAIGHT)
    tile[inner] = min(shape[inner], step * max(1, unroll // (1 if inner == lane else step)))
    for axis in reversed(range(len(shape))):  # small domains become straight-line code
        points = math.prod(tile.values()) // width * (shape[axis] // tile[axis])
        if points <= STRAIGHT and axis not in stops and not any(stop.evens for stop in stops.values()):
            tile[axis] = shape[axis]
    into = _operand(nest)
    if into is not None and into.depth is not None:  # it ends where the product does, after any step
        tile[into.k_axis] = min(tile[into.k_axis], max(width, K_STEP * into.pack))
    return tile


def _formula_of(roots: Iterable[Root], kept: Container[Value]) -> list[Operation]:
    """Returns the operations that make what roots take for each element; tiles that are `kept` in buffers are read."""
    found: dict[Operation, None] = {}
    waiting = [value for root in roots for value in values_of(root)]
    while waiting:
        op = waiting.pop().defining_op
        if op is not None and op not in found:
            found[op] = None
            waiting += [operand for operand in op.operands if operand not in kept]
    return list(found)


def _constants_of(formula: Iterable[Operation]) -> int:
    """Returns how many different floats other than zero a formula takes."""
    constants = (op for op in formula if op.name == "arith.constant" and is_float(element_of(op.results[0].type)))
    return len({op.attributes["value"] for op in constants} - {0.0})
