"""Emits accesses to memory that a kernel says it passes over once: reads are asked for ahead, results are written around the caches."""

from __future__ import annotations

import math

from kernelpack.backends.cpu.emit.places import Index
from kernelpack.ir.types import Type, shape_of
from kernelpack.llvm.text import Emitter, Val, literal, vector_width

_AHEAD = 2048
"""How many bytes ahead of a stream its memory is asked for: the latency of a few cache lines from DRAM (measured: 1 to 4 KB alike)."""

_LINE = 64
_FENCE = "declare void @llvm.x86.sse.sfence()"

NONTEMPORAL = "!2 = !{i32 1}"
"""The metadata of stores that bypass caches; modules hold it under this number."""


def is_stream(kind: Type, index: Index, size: int) -> bool:
    """Whether what a tile of elements of `size` bytes reads goes on in memory where an iteration ends: it has one row, or long ones. Short
    rows above each other are followed by what another program reads."""
    extents = shape_of(kind)
    row = math.prod(extent for extent, place in zip(extents, index, strict=True) if place.lanes)
    return row == math.prod(extents) or row * size >= 2 * _AHEAD


def ask_ahead(em: Emitter, base: Val, offset: int) -> None:
    """Prefetches what a stream reads soon. `offset` is where `base` is in its loop's iteration, in bytes: lines are asked for once."""
    if offset % _LINE == 0:
        ask_for(em, em.offset(base, _AHEAD))


def ask_for(em: Emitter, address: Val) -> None:
    """Prefetches the cache line at an address, which need not exist."""
    how = [Val("i32", "0"), Val("i32", "3"), Val("i32", "1")]  # to read, into all caches, data
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
