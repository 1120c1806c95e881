"""Layouts for global memory: which one makes accesses wide and coalesced, and what an access costs in a given layout."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kernelpack.analysis.axis_info import AxisInfoAnalysis
from kernelpack.analysis.strides import Strides
from kernelpack.backends.gpu.facts.scratch import ATOMICS
from kernelpack.ir.core import Operation, Value
from kernelpack.ir.dialect import operand, optional_operand, pointee_of
from kernelpack.ir.types import TensorType, Type, bit_width, is_pointer, shape_of
from kernelpack.ir.views import LOOPS
from kernelpack.layout.families import Threads, spread
from kernelpack.layout.linear import LinearLayout

ACCESSES = ("tt.load", "tt.store", *ATOMICS)
VECTOR_BITS = 128
LINE_BYTES = 128
"""What the L1 cache looks up at once."""


def accesses(function: Operation) -> list[Operation]:
    """Returns the loads, stores and atomics of tiles in a function."""
    return [op for op in function.walk() if op.name in ACCESSES and isinstance(operand(op, "ptr").type, TensorType)]


def memory_bits(kind: Type) -> int:
    """Returns the width of a scalar or of a tile's element in memory, where a boolean takes a byte."""
    return max(8, bit_width(kind))


def element_bits(op: Operation) -> int:
    """Returns the width in memory of what an access moves."""
    pointer, *_ = op.operands
    return memory_bits(pointee_of(pointer.type))


@dataclass(frozen=True)
class Wish:
    """The layout that one access would like.

    `order` lists the dimensions from the fastest in memory to the slowest, `vector` is how many neighbours a thread should hold,
    `apart` asks for a layout that other accesses do not share.
    """

    order: tuple[int, ...]
    vector: int
    apart: bool = False


def access_order(op: Operation, facts: AxisInfoAnalysis) -> tuple[int, ...]:
    """Returns the dimensions of what an access moves from the fastest in memory to the slowest."""
    pointer = operand(op, "ptr")
    shape = shape_of(pointer.type)
    widths = [facts.access_width(pointer, axis) for axis in range(len(shape))]
    strides = Strides(facts)

    # the widest dimension is the fastest, then that of neighbours, aligned or not, then that whose places are multiplied by least;
    # among equals the last, as in row-major memory
    def pace(axis: int) -> tuple[int, int, float, int]:
        return widths[axis], facts[pointer].contiguity[axis], -(strides(pointer, axis) or math.inf), axis

    return tuple(sorted(range(len(shape)), key=pace, reverse=True))


def adds_vectors(op: Operation, adds_neighbours: bool) -> bool:
    """Returns whether one atomic may update several neighbours: the hardware adds up to 16 bytes of floats of 16 and 32 bits."""
    return (
        adds_neighbours
        and op.name == "tt.atomic_rmw"
        and op.attributes["atomic_rmw_op"] == "fadd"
        and element_bits(op) in (16, 32)
    )


def _wish(op: Operation, facts: AxisInfoAnalysis, threads: Threads, adds_neighbours: bool) -> Wish:
    pointer = operand(op, "ptr")
    shape = shape_of(pointer.type)
    order = access_order(op, facts)
    width = facts.access_width(pointer, order[0])
    if op.name in ATOMICS and not adds_vectors(op, adds_neighbours):
        return Wish(order, 1, width > 1)
    share = max(1, math.prod(shape) // threads.count)
    vector = min(width, VECTOR_BITS // element_bits(op), share)
    return Wish(order, vector, op.name in ATOMICS and width > 1)


def choose_memory_layouts(
    function: Operation, facts: AxisInfoAnalysis, threads: Threads, adds_neighbours: bool
) -> dict[Operation, LinearLayout]:
    """Returns a coalesced layout for every access of a tile.

    Accesses of one shape and order share a layout, so that what is loaded can be combined and stored without conversions: the
    widest vector that any of them can use and that fits 16 bytes of the widest element. Those in the innermost loops decide.
    Atomics of neighbours have one of their own: each request that the L2 cache gets costs more than a conversion does.
    """
    groups: dict[tuple[tuple[int, ...], tuple[int, ...], bool], list[tuple[Operation, int, int]]] = {}
    for op in function.walk():
        if op.name in ACCESSES and isinstance(operand(op, "ptr").type, TensorType):
            wish, kind = _wish(op, facts, threads, adds_neighbours), pointee_of(operand(op, "ptr").type)
        elif op.name == "tt.descriptor_load":  # comes through shared memory, row by row
            kind = op.result.type
            shape = shape_of(kind)
            share = max(1, math.prod(shape) // threads.count)
            wish = Wish(tuple(reversed(range(len(shape)))), min(shape[-1], VECTOR_BITS // memory_bits(kind), share))
        else:
            continue
        groups.setdefault((shape_of(kind), wish.order, wish.apart), []).append((op, wish.vector, memory_bits(kind)))
    reduced = _reduced_axes(function)
    chosen: dict[Operation, LinearLayout] = {}
    for (shape, order, _), members in groups.items():
        depth = max(_loops_around(op) for op, *_ in members)
        often = [member for member in members if _loops_around(member[0]) == depth]
        limit = VECTOR_BITS // max(bits for *_, bits in often)
        vector = min(limit, max(vector for _, vector, _ in often))
        layout = spread(shape, vector, order, threads, reduced.get(shape, frozenset()))
        chosen.update((op, layout) for op, *_ in members)
    return chosen


def _loops_around(op: Operation) -> int:
    return sum(parent.name in LOOPS for parent in op.ancestors())


def _reduced_axes(function: Operation) -> dict[tuple[int, ...], frozenset[int]]:
    """Returns which axes reductions and scans run along, by shape."""
    found: dict[tuple[int, ...], frozenset[int]] = {}
    for op in function.walk():
        if op.name in ("tt.reduce", "tt.scan"):
            source, *_ = op.operands
            shape = shape_of(source.type)
            found[shape] = found.get(shape, frozenset()) | {op.attributes["axis"]}
    return found


def default_layout(shape: tuple[int, ...], threads: Threads) -> LinearLayout:
    """Returns the layout of a tile that nothing else decides."""
    return spread(shape, 1, tuple(reversed(range(len(shape)))), threads)


def boundary_layout(shape: tuple[int, ...], signature: Sequence[Type], threads: Threads) -> LinearLayout:
    """Returns the layout in which tiles of a shape pass between functions: rows in vectors, as most of memory is accessed.

    `signature` are the types of all arguments and results: the widest of that shape decides.
    """
    tiles = [kind for kind in signature if shape_of(kind) == shape]
    bits = max(memory_bits(pointee_of(kind) if is_pointer(kind) else kind) for kind in tiles)
    share = max(1, math.prod(shape) // threads.count)
    return spread(shape, min(share, shape[-1], VECTOR_BITS // bits), tuple(reversed(range(len(shape)))), threads)


@dataclass(frozen=True)
class Vector:
    """How a thread's elements group into accesses: the register bits of one access, lowest first."""

    bits: tuple[int, ...]

    @property
    def width(self) -> int:
        return 1 << len(self.bits)


def vectorise(layout: LinearLayout, pointer: Value, mask: Value | None, bits: int, facts: AxisInfoAnalysis) -> Vector:
    """Returns the widest access that a layout allows through a tile of pointers to elements of `bits` bits."""
    best: tuple[int, ...] = ()
    registers = layout.bases("register")
    for axis in range(len(layout.shape)):
        limit = min(facts.access_width(pointer, axis, mask), VECTOR_BITS // bits)
        found: list[int] = []
        while 1 << len(found) < limit:
            wanted = tuple(1 << len(found) if other == axis else 0 for other in range(len(layout.shape)))
            if wanted not in registers:
                break
            found.append(registers.index(wanted))
        if len(found) > len(best):
            best = tuple(found)
    return Vector(best)


def global_cost(layout: LinearLayout, op: Operation, facts: AxisInfoAnalysis) -> int:
    """Returns about how many cache lines the warps look up for one access of a tile in a layout, copies included for loads.

    Only the fastest dimension is taken to be contiguous in memory; steps along any other are taken to leave the line.
    """
    pointer, bits = operand(op, "ptr"), element_bits(op)
    mask = optional_operand(op, "mask")
    vector = vectorise(layout, pointer, mask, bits, facts)
    shape = shape_of(pointer.type)
    widths = [facts.access_width(pointer, axis) for axis in range(len(shape))]
    fastest = max(range(len(shape)), key=lambda axis: (widths[axis], axis))
    places = [basis for basis in layout.bases("lane") if any(basis)]
    within = sum(1 for basis in places if 0 < basis[fastest] * bits // 8 < LINE_BYTES)
    lines = 1 << len(places) - within
    instructions = layout.in_size("register") // vector.width
    warps = layout.in_size("warp")
    if op.name != "tt.load":
        warps >>= bin(layout.free_bits("warp")).count("1")
    return instructions * lines * warps
