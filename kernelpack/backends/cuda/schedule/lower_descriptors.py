"""Turns loads and stores of blocks into TMA copies through a buffer, each waited for where it stands.

    %x = tt.descriptor_load %d[%i, %j]   =>   ttng.barrier_expect %barrier, bytes
                                              ttng.async_tma_copy_global_to_local %d[%i, %j] %buffer, %barrier, %true
                                              ttng.wait_barrier %barrier, 0
                                              %x = ttg.local_load %buffer

    tt.descriptor_store %d[%i, %j], %x   =>   ttg.local_store %x, %buffer
                                              ttng.async_tma_copy_local_to_global %d[%i, %j] %buffer
                                              ttng.async_tma_store_wait {pendings = 0}

A store in a loop, by a tensor map that the kernel makes, has memory of its own if there is room: it is waited for where that, or the
map, is written again, and where the kernel ends. All loads of a kernel use one barrier, which each of them begins anew; it lives as long
as the kernel. Products of warpgroups read the buffer itself. place_shared lets threads wait for each other where one begins, fills or writes what others use.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from kernelpack.backends.cuda.machine.block_copies import (
    barriers,
    block_accessed,
    block_bytes,
    buffer_type,
    is_copy_to,
    read_buffer,
)
from kernelpack.backends.cuda.schedule.budget import Budget
from kernelpack.backends.gpu.facts.roles import role_of
from kernelpack.errors import UnsupportedError
from kernelpack.ir.core import Builder, Operation, Value
from kernelpack.ir.dialect import operand, operands_called
from kernelpack.ir.dialects.descriptors import ACCESSES, STORE
from kernelpack.ir.types import I1, I32, MemDescType, TensorType, shape_of
from kernelpack.ir.views import LOOPS
from kernelpack.layout.encoding import LinearEncoding, layout_of
from kernelpack.layout.transfer import reshape

STORE_WAIT = "ttng.async_tma_store_wait"


def lower_descriptors(function: Operation, others: Collection[Operation] = (), shared_bytes: int = 0) -> None:
    """Rewrites a ttgir function in place, but for `others`. A block has `shared_bytes`."""
    barrier: Value | None = None
    late: list[Operation] = []
    for op in [op for op in function.walk() if op.name in ACCESSES and op not in others]:
        if role_of(op) is not None:
            raise UnsupportedError(
                f"{op.name.removeprefix('tt.descriptor_')} of a tensor descriptor inside of a role waits for all warps of it",
                location=op.location.source,
                cure="copy with hopper.async_load and hopper.async_store, and say who waits",
            )
        if op.name == STORE:
            if operand(op, "desc").defining_op is not None and any(outer.name in LOOPS for outer in op.ancestors()):
                late.append(op)
            else:
                _store(op)
            continue
        if barrier is None:
            start = Builder(function.body, 0, function.location)
            barrier = barriers(start, 1)
            start.create("ttng.init_barrier", [barrier], {"count": 1})
            Builder.before(function.body.terminator).create("ttng.inval_barrier", [barrier])
        _load(op, barrier)
    _store_late(function, late, shared_bytes)


def _load(op: Operation, barrier: Value) -> None:
    build = Builder.before(op)
    block = block_accessed(op)
    buffer = build.value("ttg.local_alloc", (), None, buffer_type(block))
    build.create("ttng.inval_barrier", [barrier])
    build.create("ttng.init_barrier", [barrier], {"count": 1})
    build.create("ttng.fence_mbarrier_init")
    build.create("ttng.barrier_expect", [barrier], {"size": block_bytes(block)})
    coords = operands_called(op, "indices")
    copy = [operand(op, "desc"), *coords, barrier, buffer, build.constant(True, I1)]
    build.create("ttng.async_tma_copy_global_to_local", copy)
    build.create("ttng.wait_barrier", [barrier, build.constant(0, I32)])
    for user in op.result.users():
        if is_copy_to(user, buffer):
            user.replace_with(buffer)
    if op.result.uses:
        op.result.replace_all_uses_with(read_buffer(build, op.result.type, buffer))
    op.erase()


def _store(op: Operation) -> None:
    build = Builder.before(op)
    buffer = build.value("ttg.local_alloc", (), None, buffer_type(block_accessed(op)))
    _start_store(build, op, buffer)
    build.create(STORE_WAIT, (), {"pendings": 0})
    op.erase()


def _start_store(build: Builder, op: Operation, buffer: Value) -> None:
    kind, value = buffer.type, operand(op, "src")
    assert isinstance(kind, MemDescType)
    if kind.shape != shape_of(value.type):
        tile = TensorType(kind.shape, kind.element, LinearEncoding(reshape(layout_of(value), kind.shape)))
        value = build.value("tt.reshape", [value], None, tile)
    build.create("ttg.local_store", [value, buffer])
    build.create("ttng.async_tma_copy_local_to_global", [operand(op, "desc"), *operands_called(op, "indices"), buffer])


def _store_late(function: Operation, stores: Sequence[Operation], shared_bytes: int) -> None:
    """Lowers stores that the code after them need not wait for, as far as there is memory for them beside all other buffers."""
    waits = [operand(op, "desc").defining_op for op in stores]
    apart = Budget(function, shared_bytes).stores_apart(stores)
    for op in stores:
        if op not in apart:
            _store(op)
            continue
        kind = buffer_type(block_accessed(op))
        buffer = Builder(function.body, 0, function.location).value("ttg.local_alloc", (), None, kind)
        build = Builder.before(op)
        build.create(STORE_WAIT, (), {"pendings": 0})
        _start_store(build, op, buffer)
        op.erase()
    for next_use in [make for make in waits if make is not None] + [function.body.terminator] * bool(stores):
        Builder.before(next_use).create(STORE_WAIT, (), {"pendings": 0})
