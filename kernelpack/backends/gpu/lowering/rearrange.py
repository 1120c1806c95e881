"""Operations that make or rearrange tiles: constants, ranges, broadcasts, reshapes, and conversions within a warp."""

from __future__ import annotations

from collections.abc import Callable

from kernelpack.backends.gpu.lowering.linear_code import apply_linear, i32
from kernelpack.backends.gpu.lowering.state import Lowering, register_type
from kernelpack.ir.core import Operation
from kernelpack.ir.formats import encode, round_to
from kernelpack.ir.types import FloatType, TensorType, element_of, shape_of
from kernelpack.layout.convert import Move, plan_conversion
from kernelpack.layout.encoding import layout_of
from kernelpack.layout.families import HARDWARE
from kernelpack.layout.linear import Basis
from kernelpack.llvm.text import Val, literal


def _constant(state: Lowering, op: Operation) -> None:
    count = layout_of(op.result).in_size("register") if isinstance(op.result.type, TensorType) else 1
    value, element = op.attributes["value"], element_of(op.result.type)
    if isinstance(element, FloatType) and element.width == 8:  # in registers as its bits
        value = int(encode(round_to(value, element), element))
    state[op.result] = [literal(value, register_type(element))] * count


def _make_range(state: Lowering, op: Operation) -> None:
    layout = layout_of(op.result)
    base = state.coordinate(layout, 0)
    first = op.attributes["start"]
    # the registers' bits and the threads' bits are different ones, so adding is the exclusive or
    state[op.result] = [
        state.emit.op("i32", f"add nsw {base}, {place + first}") if place + first else base
        for (place,) in layout.images("register")
    ]


def _splat(state: Lowering, op: Operation) -> None:
    state[op.result] = state[op.operand] * layout_of(op.result).in_size("register")


def _unsplat(state: Lowering, op: Operation) -> None:
    state[op.result] = state[op.operand][:1]


# ---- registers found by the coordinates they hold in the first thread ----


def _transfer(op: Operation) -> Callable[[Basis], tuple[int, Basis]]:
    """Returns the map from a result coordinate to the operand's number and the coordinate there."""
    source, *_ = op.operands
    before, after = shape_of(source.type), shape_of(op.results[0].type)
    match op.name:
        case "tt.expand_dims":
            axis = op.attributes["axis"]
            return lambda at: (0, (*at[:axis], *at[axis + 1 :]))
        case "tt.broadcast":
            return lambda at: (0, tuple(x if size > 1 else 0 for x, size in zip(at, before, strict=True)))
        case "tt.trans":
            order = op.attributes["order"]
            return lambda at: (0, tuple(at[order.index(axis)] for axis in range(len(order))))
        case "tt.reshape":
            return lambda at: (0, _unflatten(_flatten(at, after), before))
        case "tt.join":
            return lambda at: (at[-1], at[:-1])
        case "tt.cat":
            return lambda at: (at[0] // before[0], (at[0] % before[0], *at[1:]))
    raise AssertionError(op.name)


def _flatten(at: Basis, shape: tuple[int, ...]) -> int:
    flat = 0
    for x, size in zip(at, shape, strict=True):
        flat = flat * size + x
    return flat


def _unflatten(flat: int, shape: tuple[int, ...]) -> Basis:
    at: list[int] = []
    for size in reversed(shape):
        at.append(flat % size)
        flat //= size
    return tuple(reversed(at))


def _rearrange(state: Lowering, op: Operation) -> None:
    where = _transfer(op)
    numbers = [{place: index for index, place in enumerate(layout_of(operand).images("register"))} for operand in op.operands]
    registers = [state[operand] for operand in op.operands]
    result = []
    for place in layout_of(op.result).images("register"):
        operand, source = where(place)
        result.append(registers[operand][numbers[operand][source]])
    state[op.result] = result


def _split(state: Lowering, op: Operation) -> None:
    source = op.operand
    numbers = {place: index for index, place in enumerate(layout_of(source).images("register"))}
    for half, result in enumerate(op.results):
        state[result] = [state[source][numbers[(*place, half)]] for place in layout_of(result).images("register")]


# ---- conversions within a warp ----


def _convert_layout(state: Lowering, op: Operation) -> None:
    source = op.operand
    plan = plan_conversion(layout_of(source), layout_of(op.result))
    assert plan.move is not Move.SHARED, "conversions between warps are staged through shared memory before lowering"
    registers = state[source]
    picks = plan.source.images("register")
    if plan.move in (Move.NONE, Move.REGISTERS):
        state[op.result] = [registers[pick[0]] for pick in picks]
        return
    emit = state.emit
    lanes = plan.source.bases("lane")
    base = apply_linear(emit, state.tid, state.bases(plan.source, HARDWARE.index("lane")))
    chosen = [(1 << bit, basis[0]) for bit, basis in enumerate(lanes) if basis[0]]
    result = []
    for register, lane, *_ in picks:
        from_lane = emit.binary("xor", base, i32(lane)) if lane else base
        value = state.shuffle("idx", registers[register], from_lane)
        if chosen:  # which register a lane needs depends on the lane
            ((_, difference),) = {(None, basis) for _, basis in chosen}
            mask = sum(bit for bit, _ in chosen)
            other = state.shuffle("idx", registers[register ^ difference], from_lane)
            value = emit.select(_odd(state, mask), other, value)
        result.append(value)
    state[op.result] = result


def _odd(state: Lowering, mask: int) -> Val:
    """Returns whether an odd number of the bits in `mask` is set in the lane's index."""
    emit = state.emit
    bits = emit.call("i32", "llvm.ctpop.i32", [emit.binary("and", state.tid, i32(mask))])
    return emit.compare("icmp", "ne", emit.binary("and", bits, i32(1)), i32(0))


REARRANGE: dict[str, Callable[[Lowering, Operation], None]] = {
    "arith.constant": _constant,
    "tt.make_range": _make_range,
    "tt.splat": _splat,
    "tt.unsplat": _unsplat,
    "tt.split": _split,
    "ttg.convert_layout": _convert_layout,
    **dict.fromkeys(("tt.expand_dims", "tt.broadcast", "tt.trans", "tt.reshape", "tt.join", "tt.cat"), _rearrange),
}
