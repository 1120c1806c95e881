"""Emits accesses to memory that a kernel says it passes over once: reads are asked for ahead, results are written around the caches."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from kernelpack.backends.cpu.emit.elements import element_bytes
from kernelpack.backends.cpu.emit.places import Affine, Index
from kernelpack.backends.cpu.facts.features import AHEAD
from kernelpack.backends.cpu.facts.moving import moves_along
from kernelpack.ir.core import Operation, Value
from kernelpack.ir.dialect import attribute, operand, pointee_of
from kernelpack.ir.types import Type, element_of, shape_of
from kernelpack.llvm.text import Emitter, Val, literal, vector_width

if TYPE_CHECKING:
    from kernelpack.backends.cpu.emit.evaluate import Evaluator

_LINE = 64
_FENCE = "declare void @llvm.x86.sse.sfence()"

NONTEMPORAL = "!2 = !{i32 1}"
"""The metadata of stores that bypass caches; modules hold it under this number."""


def is_stream(kind: Type, index: Index, size: int) -> bool:
    """Whether what a tile of elements of `size` bytes reads goes on in memory where an iteration ends: it has one row, or long ones. Short
    rows above each other are followed by what another program reads."""
    extents = shape_of(kind)
    row = math.prod(extent for extent, place in zip(extents, index, strict=True) if place.lanes)
    return row == math.prod(extents) or row * size >= 2 * AHEAD


def ask_ahead(em: Emitter, base: Val, offset: int) -> None:
    """Prefetches what a stream reads soon. `offset` is where `base` is in its loop's iteration, in bytes: lines are asked for once."""
    if offset % _LINE == 0:
        ask_for(em, em.offset(base, AHEAD))


def ask_for_next(ev: Evaluator, load: Operation, index: Index) -> None:
    """Prefetches what a load reads at an index of the next tile, where its loop goes from rows to those that follow them."""
    extents = shape_of(load.result.type)
    rows = next((axis for axis in reversed(range(len(index))) if not index[axis].lanes and extents[axis] > 1), None)
    pointer = operand(load, "ptr")
    if rows is None or not moves_along(load, rows) or not _is_computed(ev, pointer):
        return
    later = list(index)
    later[rows] = replace(index[rows].plus(extents[rows]), end=None)
    next_row = ev.evaluate(pointer, tuple(later))
    if isinstance(next_row, Affine):
        ask_for(ev.em, next_row.base, first=False)


def ask_for_rows(ev: Evaluator, op: Operation, index: Index) -> None:
    """Prefetches what pointers of lanes point to, where that lies together: each line once, in the order of addresses."""
    pointer = operand(op, "ptr")
    size, lanes = attribute(op, "bytes") or element_bytes(element_of(pointee_of(pointer.type))), ev.evaluate(pointer, index)
    start = size * sum(place.offset for place in index if place.lanes)
    if isinstance(lanes, Affine) and lanes.step == size:
        with ev.em.into(ev.frames[-1]):
            for offset in range(-start % _LINE, ev.width * size, _LINE):
                ask_for(ev.em, ev.em.offset(lanes.base, offset) if offset else lanes.base, first=False)


def _is_computed(ev: Evaluator, value: Value) -> bool:
    """Whether a tile is nowhere read from a buffer, so that it has elements after its end."""
    waiting, seen = [value], set[Value]()
    while waiting:
        one = waiting.pop()
        if one in seen or not shape_of(one.type):
            continue
        if one.defining_op is None or ev.filled(one):
            return False
        seen.add(one)
        waiting += one.defining_op.operands
    return True


def ask_for(em: Emitter, address: Val, *, first: bool = True) -> None:
    """Prefetches the cache line at an address, which need not exist: into all caches, or all but the first, which waits for fewer lines at a
    time."""
    how = [Val("i32", "0"), Val("i32", "3" if first else "2"), Val("i32", "1")]  # to read, how near, data
    em.call("void", "llvm.prefetch.p0", [address, *how])


def store_past_caches(em: Emitter, value: Val, base: Val, size: int) -> None:
    """Stores a vector of elements of `size` bytes, past the caches where the CPU can, which needs an aligned address."""
    if "avx512" not in em.features:
        em.store(value, base, size)
        return
    em.declarations.add(_FENCE)
    whole = vector_width(value.type) * size
    low = em.binary("and", em.cast("ptrtoint", base, "i64"), literal(whole - 1, "i64"))
    past, through, after = em.new_label("past"), em.new_label("through"), em.new_label("after")
    em.branch(em.compare("icmp", "eq", low, literal(0, "i64")), past, through)
    em.label(past)
    em.line(f"store {value}, {base}, align {whole}, !nontemporal !2")
    em.jump(after)
    em.label(through)
    em.store(value, base, size)
    em.jump(after)
    em.label(after)


def finish_streams(em: Emitter) -> None:
    """Makes what was stored past the caches visible to other threads before the kernel returns; they do not wait for each other."""
    if _FENCE in em.declarations:
        em.call("void", "llvm.x86.sse.sfence", [])
