"""Gathers within a tile and histograms: threads meet in shared memory, where lanes do not exchange elements."""

from __future__ import annotations

from collections.abc import Callable

from kernelpack.backends.gpu.facts.memory_layouts import memory_bits
from kernelpack.backends.gpu.facts.partners import Partner, partner_of
from kernelpack.backends.gpu.facts.scratch import exchange_layout
from kernelpack.backends.gpu.lowering.global_memory import from_memory
from kernelpack.backends.gpu.lowering.linear_code import I32, i32
from kernelpack.backends.gpu.lowering.shared_memory import buffer_address, only_if, read_tile, write_tile
from kernelpack.backends.gpu.lowering.state import Lowering, memory_type
from kernelpack.ir.core import Operation
from kernelpack.ir.dialect import operand, optional_operand
from kernelpack.ir.types import I1, element_of, shape_of
from kernelpack.layout.encoding import layout_of
from kernelpack.llvm.text import Val, literal


def _gather(state: Lowering, op: Operation) -> None:
    """Writes the source row by row, then each thread reads what its indices name. Indices outside of the tile wrap."""
    emit, axis = state.emit, op.attributes["axis"]
    source, indices = op.operands
    if (partner := partner_of(op)) is not None:
        state[op.result] = _exchanged(state, state[source], partner)
        return
    shape, kind = shape_of(source.type), source.type
    base = buffer_address(state, op)
    write_tile(state, base, exchange_layout(shape), layout_of(source), state[source])
    state.barrier()
    layout = layout_of(op.result)
    firsts = [state.coordinate(layout, dimension) for dimension in range(len(shape))]
    result = []
    for place, index in zip(layout.images("register"), state[indices], strict=True):
        offset = i32(0)
        for dimension, size in enumerate(shape):
            if dimension == axis:
                at = emit.binary("and", _as_word(state, index), i32(size - 1))
            else:
                at = emit.binary("xor", firsts[dimension], i32(place[dimension]))
            offset = emit.binary("add", emit.binary("mul", offset, i32(size)), at)
        bytes_ = memory_bits(kind) // 8
        address = emit.offset(base, emit.binary("mul", offset, i32(bytes_)))
        result.append(from_memory(state, emit.load(memory_type(kind), address, bytes_), element_of(kind) == I1))
    state[op.result] = result


def _exchanged(state: Lowering, registers: list[Val], partner: Partner) -> list[Val]:
    """Returns for each register that of the partner."""
    others = [registers[number ^ partner.register] for number in range(len(registers))]
    return [state.shuffle("bfly", other, i32(partner.lane)) for other in others] if partner.lane else others


def _as_word(state: Lowering, value: Val) -> Val:
    width = int(value.type[1:])
    if width == 32:
        return value
    return state.emit.cast("trunc" if width > 32 else "sext", value, I32)


def _histogram(state: Lowering, op: Operation) -> None:
    """Counts by atomics on one counter for each bin."""
    emit = state.emit
    source, mask = operand(op, "src"), optional_operand(op, "mask")
    (bins,) = shape_of(op.result.type)
    base = buffer_address(state, op)
    threads = state.lanes * state.num_warps
    for first in range(0, bins, threads):
        mine = emit.binary("add", state.tid, i32(first))
        with only_if(state, emit.compare("icmp", "ult", mine, i32(bins)) if first + threads > bins else None):
            emit.store(i32(0), emit.offset(base, emit.binary("mul", mine, i32(4))), 4)
    state.barrier()
    owner = state.owner(layout_of(source))
    for number, value in enumerate(state[source]):
        inside = emit.compare("icmp", "ult", value, literal(bins, value.type)) if bins < 1 << int(value.type[1:]) else None
        counted = state.both(inside, state[mask][number] if mask is not None else None)
        with only_if(state, state.both(owner, counted)):
            at = emit.binary(
                "mul", _as_word(state, emit.cast("zext", value, I32) if value.type in ("i8", "i16") else value), i32(4)
            )
            emit.op(I32, f"atomicrmw add {emit.offset(base, at)}, i32 1{state.scopes['cta']} monotonic")
    state.barrier()
    state[op.result] = read_tile(state, base, exchange_layout((bins,)), layout_of(op.result), op.result.type)


EXCHANGE: dict[str, Callable[[Lowering, Operation], None]] = {"tt.gather": _gather, "tt.histogram": _histogram}
