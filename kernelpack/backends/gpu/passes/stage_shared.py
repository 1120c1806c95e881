"""Makes the use of shared memory explicit: conversions between warps and operands of ordinary dots become buffers."""

from __future__ import annotations

from kernelpack.backends.gpu.facts.memory_layouts import memory_bits
from kernelpack.backends.gpu.facts.products import is_product
from kernelpack.backends.gpu.facts.shared_accesses import can_wait
from kernelpack.backends.gpu.machine import Machine
from kernelpack.ir.core import Builder, Operation, Value
from kernelpack.ir.dialect import operand
from kernelpack.ir.types import MemDescType, TensorType
from kernelpack.ir.views import factors
from kernelpack.layout.convert import Move, best_shared, plan_conversion
from kernelpack.layout.encoding import SharedEncoding, layout_of
from kernelpack.layout.families import swizzled
from kernelpack.layout.linear import LinearLayout


def stage_shared(function: Operation, machine: Machine) -> None:
    """Rewrites a ttgir function in place: afterwards conversions stay within warps."""
    for op in list(function.walk()):
        if op.name == "ttg.convert_layout":
            _stage_conversion(op)
        elif op.name == "tt.dot" and not machine.multiplies(op):
            _stage_dot(op)


def _stage_conversion(op: Operation) -> None:
    before, after = layout_of(op.operand), layout_of(op.result)
    if plan_conversion(before, after).move is not Move.SHARED:
        return
    kind = op.result.type
    assert isinstance(kind, TensorType)
    first = _first_reader(op)
    source = op.operand.defining_op
    build = Builder.before(op)
    if first is not None and source is not None and source.name == "tt.load":
        build = Builder.after(_last_load(op, first))
    memory = best_shared((before,), (after,), memory_bits(kind))
    buffer = _written(op, memory) or allocate(build, op.operand, memory)
    if first is not None and (is_product(first) or first.name == "tt.reduce" or kind.rank == 1):
        # which reads several tiles: all are written by then, and waited for once; a product need not wait for a vector that scales its sums
        build = Builder.before(first)
    op.replace_with(build.value("ttg.local_load", [buffer], None, kind))


def _written(conversion: Operation, memory: LinearLayout) -> Value | None:
    """Returns the buffer that another conversion of the same tile has filled by then, if it would be the same."""
    for user in conversion.operand.users():
        if user.name == "ttg.local_alloc" and user.parent is conversion.parent and user.order < conversion.order:
            kind = user.result.type
            if isinstance(kind, MemDescType) and not kind.mutable and layout_of(user.result) == memory:
                return user.result
    return None


def _first_reader(op: Operation) -> Operation | None:
    """Returns the operation that first reads a conversion's result; None where a branch or loop does."""
    assert op.parent is not None
    readers = {user.within(op.parent): user for user in op.result.users()}
    first = min(readers, key=lambda reader: reader.order, default=None)
    return first if first is not None and first is readers[first] else None


def _last_load(op: Operation, end: Operation) -> Operation:
    """Returns the last load of a block from `op` to `end`, or `op`: to write a tile to shared memory is to wait for it, and for all
    threads. What is loaded before that is on its way at the same time."""
    assert op.parent is not None
    operations = op.parent.operations
    between = operations[operations.index(op) : operations.index(end)]
    return next((other for other in reversed(between) if other.name == "tt.load"), op)


def allocate(build: Builder, value: Value, memory: LinearLayout) -> Value:
    """Writes a tile to a new buffer in shared memory and returns the buffer."""
    kind = value.type
    assert isinstance(kind, TensorType)
    return build.value("ttg.local_alloc", [value], None, MemDescType(kind.shape, kind.element, SharedEncoding(memory)))


def _stage_dot(op: Operation) -> None:
    """Puts the operands of a dot on the ordinary cores into shared memory, where every thread reads rows of A, columns of B.

    Those that an author's kernel loads from buffers of its own are read there.
    """
    build = Builder.before(op)
    buffers = [_authors_buffer(value, op) for value in factors(op)]
    straight = None not in buffers
    for index, value in enumerate(factors(op)):
        if buffers[index] is not None:
            continue
        kind = value.type
        assert isinstance(kind, TensorType)
        order = tuple(reversed(range(kind.rank)))
        source = value.defining_op
        if source is not None and source.name == "tt.trans":  # keep the order of the tile that was loaded
            axes = source.attributes["order"]
            order = tuple(axes.index(axis) for axis in reversed(range(kind.rank)))
        buffers[index] = allocate(build, value, _rows(kind, order))
    op.replace_with(build.value("ttg.fma_dot", [*filter(None, buffers), operand(op, "c")], {"straight": straight}))


def _authors_buffer(value: Value, dot: Operation) -> Value | None:
    """Returns the buffer of an operand that a kernel loads from shared memory, if nothing may change it before the dot."""
    load = value.defining_op
    if load is None or load.name != "ttg.local_load" or not can_wait(load, dot):
        return None
    buffer = operand(load, "src")
    return buffer if isinstance(buffer.type, MemDescType) and buffer.type.mutable else None


def _rows(kind: TensorType, order: tuple[int, ...]) -> LinearLayout:
    """Returns the buffer of an operand: 16-byte chunks spread over the banks by their row. Neighbouring lanes read every fourth row."""
    bits = memory_bits(kind)
    vec = min(128 // bits, kind.shape[order[0]])
    row_bytes = kind.shape[order[0]] * bits // 8
    phases = max(1, min(8, kind.shape[order[0]] // vec))
    return swizzled(kind.shape, order, vec, max(4, 128 // row_bytes), phases)
