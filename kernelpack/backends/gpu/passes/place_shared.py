"""Gives every buffer its place in shared memory and inserts the barriers that sharing needs: the last passes over ttgir.

Functions come before their callers: a call needs the bytes that the called function uses, and passes down where they begin.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kernelpack.analysis.allocation import Allocation, allocate
from kernelpack.analysis.call_graph import CallGraph
from kernelpack.analysis.membar import Accesses, insert_barriers
from kernelpack.backends.gpu.dialect import OFFSET, SHARED, STRIDE
from kernelpack.backends.gpu.facts.roles import copies_of
from kernelpack.backends.gpu.facts.scratch import alignment_of, bytes_of
from kernelpack.backends.gpu.facts.shared_accesses import SharedAccesses
from kernelpack.backends.gpu.machine import Machine, SharedUses
from kernelpack.context import Context
from kernelpack.errors import OutOfResources, SourceLocation
from kernelpack.ir.core import Operation, entry_function
from kernelpack.ir.locations import user_location


def finish_module(module: Operation, machine: Machine, context: Context, num_warps: int, num_stages: int = 1) -> None:
    """Places buffers and barriers, and writes down what the launcher and the next stages must know. `num_warps` is what the kernel is
    launched with."""
    shared = place_shared(module, machine, num_stages)
    module.attributes.update(
        {
            "ttg.num-warps": num_warps,
            "ttg.threads-per-warp": machine.lanes,
            "ttg.shared": shared,
            "ttg.target": str(context.target),
        }
    )
    context.figures.update(shared=shared, num_warps=num_warps, threads=num_warps * machine.lanes, num_ctas=1)


@dataclass(frozen=True)
class Placed:
    """A function whose shared memory has been placed: where its buffers lie from its own beginning, and what it does to them."""

    allocation: Allocation
    alignment: int
    accesses: Accesses


def place_shared(module: Operation, machine: Machine, num_stages: int = 1) -> int:
    """Writes `allocation.offset` to every operation that uses shared memory, `ttg.shared` to called functions, inserts barriers,
    and returns the bytes that the kernel needs.

    Raises OutOfResources where that is more than a block of the machine may use; it names the biggest users, and what to lower.
    """
    graph = CallGraph(module)
    placed: dict[Operation, Placed] = {}
    for function in graph.order:
        called = {call: placed[graph.callees[call]] for call in graph.calls[function]}
        placed[function] = _place(function, called, machine.shared_uses)
        if function.attributes.get("sym_visibility") != "public":
            function.attributes[SHARED] = placed[function].allocation.size
    kernel = entry_function(module)
    size = placed[kernel].allocation.size
    if size > machine.shared_bytes:
        raise _too_much(size, machine.shared_bytes, list(_users(kernel, graph, placed)), num_stages)
    return size


def _place(function: Operation, calls: Mapping[Operation, Placed], uses: SharedUses) -> Placed:
    def total(op: Operation) -> int:
        return calls[op].allocation.size if op in calls else bytes_of(op, uses) * copies_of(op)

    def alignment(op: Operation) -> int:
        return calls[op].alignment if op in calls else alignment_of(op, uses)

    allocation = allocate(function, total, alignment)
    for op, offset in allocation.offsets.items():
        op.attributes[OFFSET] = offset
        if copies_of(op) > 1:
            op.attributes[STRIDE] = bytes_of(op, uses)

    def called(call: Operation) -> Accesses:
        return calls[call].accesses.moved(allocation.offsets.get(call, 0))

    accesses_of = SharedAccesses(function, allocation, called, uses)
    accesses = insert_barriers(function, accesses_of, "gpu.barrier", accesses_of.needs_barrier)
    return Placed(allocation, max(map(alignment, allocation.offsets), default=1), accesses)


@dataclass(frozen=True)
class _User:
    """Bytes of shared memory: how many, for what, and at which line."""

    size: int
    text: str
    location: SourceLocation | None
    is_ring: bool

    def __str__(self) -> str:
        return f"{self.size} bytes for {self.text}" + (f" at {self.location}" if self.location is not None else "")


def _users(function: Operation, graph: CallGraph, placed: Mapping[Operation, Placed]) -> Iterator[_User]:
    """Yields who uses shared memory, in the functions that are called too."""
    for buffer in placed[function].allocation.buffers:
        op = buffer.op
        if op.name == "tt.call":
            yield from _users(graph.callees[op], graph, placed)
            continue
        is_buffer = op.name == "ttg.local_alloc"
        what = op.result.type if is_buffer else op.name.split(".")[-1]
        text = str(what).split(", #")[0].replace("!ttg.memdesc<", "a tile of ")
        if not is_buffer:
            text = f"what warps exchange in {text}"
        yield _User(
            buffer.size,
            text,
            user_location(op.location).source,
            is_buffer and any(user.name == "ttg.memdesc_index" for user in op.result.users()),
        )


def _too_much(size: int, limit: int, users: list[_User], num_stages: int) -> OutOfResources:
    largest = sorted(users, key=lambda user: -user.size)[:3]
    cure = "make the blocks smaller"
    if num_stages > 1 and any(user.is_ring for user in users):
        cure += f", or lower num_stages (now {num_stages}): each stage keeps a copy of every tile that is loaded ahead"
    return OutOfResources(
        f"the kernel needs {size} bytes of shared memory, the target has {limit}; the largest users are "
        + "; ".join(map(str, largest)),
        location=largest[0].location,
        cure=cure,
    )
