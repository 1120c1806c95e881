"""Gives every buffer its place in shared memory and inserts the barriers that sharing needs: the last passes over ttgir."""

from __future__ import annotations

import math

from kernelpack.analysis.alias import Aliases, buffer_aliases
from kernelpack.analysis.allocation import Allocation, Buffer, allocate
from kernelpack.analysis.membar import Accesses, Interval
from kernelpack.analysis.membar import insert_barriers as insert
from kernelpack.backends.cuda.dialect import OFFSET, STRIDE
from kernelpack.backends.cuda.memory_layouts import memory_bits
from kernelpack.backends.cuda.roles import copies_of
from kernelpack.backends.cuda.scratch import scratch_bytes
from kernelpack.errors import OutOfResources
from kernelpack.ir.core import Operation
from kernelpack.ir.dialect import Effect, attribute, definition
from kernelpack.ir.types import MemDescType
from kernelpack.layout.encoding import SharedEncoding


def bytes_of(op: Operation) -> int:
    """Returns the bytes of shared memory that belong to an operation: its buffer, or its scratch space."""
    if op.name == "ttg.local_alloc":
        kind = op.result.type
        assert isinstance(kind, MemDescType)
        return math.prod(kind.shape) * memory_bits(kind) // 8
    return scratch_bytes(op)


def alignment_of(op: Operation) -> int:
    """Returns what an operation's offset in shared memory must be a multiple of."""
    encoding = op.result.type.encoding if op.name == "ttg.local_alloc" and isinstance(op.result.type, MemDescType) else None
    return encoding.alignment if isinstance(encoding, SharedEncoding) else 1


def place_shared(function: Operation, limit: int) -> int:
    """Writes `allocation.offset` to every operation that uses shared memory, inserts barriers, and returns the bytes needed.

    Raises OutOfResources where that is more than `limit`.
    """
    allocation = allocate(function, lambda op: bytes_of(op) * copies_of(op), alignment_of)
    if allocation.size > limit:
        raise _too_much(allocation, limit)
    for op, offset in allocation.offsets.items():
        op.attributes[OFFSET] = offset
        if copies_of(op) > 1:
            op.attributes[STRIDE] = bytes_of(op)
    _insert_barriers(function, allocation)
    return allocation.size


def _too_much(allocation: Allocation, limit: int) -> OutOfResources:
    def describe(buffer: Buffer) -> str:
        source = buffer.op.location.source
        what = buffer.op.result.type if buffer.op.name == "ttg.local_alloc" else buffer.op.name
        text = str(what).split(", #")[0].replace("!ttg.memdesc<", "a tile of ").replace("tensor<", "a tile of ")
        return f"{buffer.size} bytes for {text}" + (f" at {source}" if source is not None else "")

    largest = sorted(allocation.buffers, key=lambda buffer: -buffer.size)[:3]
    return OutOfResources(
        f"the kernel needs {allocation.size} bytes of shared memory, the target has {limit}; the largest users are "
        + "; ".join(map(describe, largest)),
        location=largest[0].op.location.source,
        cure="make the blocks smaller, or lower num_stages (each stage keeps a copy of every tile that is loaded ahead)",
    )


def _insert_barriers(function: Operation, allocation: Allocation) -> None:
    aliases = buffer_aliases(function)

    def touched_by(name: str) -> tuple[Interval, ...]:
        found = {interval for op in function.walk() if op.name == name for interval in _of(op, allocation, aliases)}
        return tuple(sorted(found))

    copied, multiplied = touched_by("ttg.async_copy_global_to_local"), touched_by("ttng.warp_group_dot")
    stored = touched_by("ttng.async_tma_copy_local_to_global")

    def accesses_of(op: Operation) -> Accesses:
        if op.name == "gpu.barrier":
            return Accesses(is_barrier=True)
        if op.name == "ttg.async_wait":
            return Accesses(arrivals=copied)
        if op.name == "ttng.warp_group_dot_wait":  # products read their tiles until here
            return Accesses(reads=multiplied)
        if op.name == "ttng.async_tma_store_wait":  # likewise, for the thread that copies
            return Accesses(reads=stored)
        if op.name == "ttg.async_copy_global_to_local" and attribute(op, "free"):
            return Accesses()
        if op.name in ("ttg.async_copy_global_to_local", "ttng.async_tma_copy_global_to_local"):
            return Accesses(async_writes=_of(op, allocation, aliases))
        if op.name == "ttg.local_alloc":
            return Accesses(writes=(allocation.interval(op),)) if op.operands else Accesses()
        if op in allocation.offsets:  # scratch: written, then read behind a barrier
            scratch = (allocation.interval(op),)
            return Accesses(writes=scratch, then_reads=scratch)
        effects = definition(op.name).effects
        intervals = _of(op, allocation, aliases)
        return Accesses(
            reads=intervals if Effect.READ_SHARED in effects else (),
            writes=intervals if Effect.WRITE_SHARED in effects else (),
        )

    insert(function, accesses_of, "gpu.barrier")


def _of(op: Operation, allocation: Allocation, aliases: Aliases) -> tuple[Interval, ...]:
    """Returns the bytes that the buffers among an operation's operands lie in."""
    sources = {source for operand in op.operands for source in aliases.get(operand, frozenset())}
    return tuple(sorted(allocation.interval(source) for source in sources))
