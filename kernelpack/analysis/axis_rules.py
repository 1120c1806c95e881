"""What each operation makes of what is known about the integers and pointers of a tile: contiguous, divisible, constant."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from kernelpack.ir.core import Operation
from kernelpack.ir.dialect import operand
from kernelpack.ir.types import PointerType, Type, bit_width, element_of, is_int, shape_of

LARGEST = 1 << 30
"""The divisibility of 0, which every power of two divides."""


@dataclass(frozen=True)
class AxisInfo:
    """Facts about a value, a number for every dimension (one for scalars). All are powers of two.

    contiguity    aligned groups of so many elements along the dimension hold consecutive integers (for pointers: elements)
    divisibility  what divides the first element of every such group (for pointers: in bytes)
    constancy     aligned groups of so many elements along the dimension are equal
    constant      the value of every element, where that is known
    nonnegative   whether no element is below zero
    """

    contiguity: tuple[int, ...]
    divisibility: tuple[int, ...]
    constancy: tuple[int, ...]
    constant: int | None = None
    nonnegative: bool = False

    def join(self, other: AxisInfo) -> AxisInfo:
        """Returns what holds of a value that is one or the other."""
        contiguity = _gcd(self.contiguity, other.contiguity)
        return AxisInfo(
            contiguity,
            tuple(math.gcd(self.divisibility_at(d, c), other.divisibility_at(d, c)) for d, c in enumerate(contiguity)),
            _gcd(self.constancy, other.constancy),
            self.constant if self.constant == other.constant else None,
            self.nonnegative and other.nonnegative,
        )

    def divisibility_at(self, axis: int, step: int, scale: int = 1) -> int:
        """Returns what divides the elements whose index along `axis` is a multiple of `step`; `scale` is the bytes of a pointee."""
        divisor = self.divisibility[axis]
        return math.gcd(divisor, step * scale) if self.contiguity[axis] > step else divisor

    def every(self, scale: int = 1) -> int:
        """Returns what divides every element."""
        return max(self.divisibility_at(axis, 1, scale) for axis in range(len(self.contiguity)))


def _gcd(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...]:
    return tuple(map(math.gcd, a, b))


def power_of_two_factor(value: int) -> int:
    """Returns the largest power of two that divides `value`."""
    return min(value & -value, LARGEST) if value else LARGEST


def _rank(kind: Type) -> int:
    return max(1, len(shape_of(kind)))


def _shape(kind: Type) -> tuple[int, ...]:
    return shape_of(kind) or (1,)


def uniform(kind: Type, divisor: int, constant: int | None = None, nonnegative: bool = False) -> AxisInfo:
    """The facts of a value that is the same everywhere."""
    rank = _rank(kind)
    return AxisInfo((1,) * rank, (divisor,) * rank, _shape(kind), constant, nonnegative)


def unknown(kind: Type) -> AxisInfo:
    """The facts of a value of which nothing is known."""
    rank = _rank(kind)
    return AxisInfo((1,) * rank, (1,) * rank, (1,) * rank)


def elementwise_constancy(infos: Sequence[AxisInfo]) -> tuple[int, ...]:
    """Returns how many equal elements an elementwise result has along each dimension: where all operands have."""
    constancy = infos[0].constancy
    for info in infos[1:]:
        constancy = _gcd(constancy, info.constancy)
    return constancy


Rule = Callable[[Operation, Sequence[AxisInfo]], AxisInfo]


def _add(op: Operation, infos: Sequence[AxisInfo]) -> AxisInfo:
    a, b = infos
    scale_a = scale_b = 1
    if op.name == "tt.addptr":
        scale_a = scale_b = pointee_bytes(op.result.type)
    factor = scale_b  # an offset counts elements, a pointer's divisibility bytes
    subtract = op.name == "arith.subi"
    contiguity = tuple(
        max(math.gcd(ca, kb), 1 if subtract else math.gcd(ka, cb))
        for ca, ka, cb, kb in zip(a.contiguity, a.constancy, b.contiguity, b.constancy, strict=True)
    )
    divisibility = tuple(
        math.gcd(a.divisibility_at(d, c, scale_a), b.divisibility_at(d, c) * factor) for d, c in enumerate(contiguity)
    )
    constant = None
    if a.constant is not None and b.constant is not None and op.name != "tt.addptr":
        constant = a.constant - b.constant if subtract else a.constant + b.constant
    return AxisInfo(
        contiguity,
        divisibility,
        elementwise_constancy(infos),
        constant,
        constant >= 0 if constant is not None else not subtract and a.nonnegative and b.nonnegative,
    )


def _multiply(op: Operation, infos: Sequence[AxisInfo]) -> AxisInfo:
    a, b = infos
    if op.name == "arith.shli":
        if b.constant is None or not 0 <= b.constant < 30:
            return replace(unknown(op.result.type), constancy=elementwise_constancy(infos))
        b = uniform(op.result.type, 1 << b.constant, 1 << b.constant, True)
    for one, other in ((a, b), (b, a)):
        if one.constant == 1:
            return other
    rank = len(a.contiguity)
    constant = a.constant * b.constant if a.constant is not None and b.constant is not None else None
    divisor = min(a.every() * b.every(), LARGEST)
    return AxisInfo(
        (1,) * rank,
        (divisor,) * rank if constant is None else (power_of_two_factor(constant),) * rank,
        elementwise_constancy((a, b)),
        constant,
        constant >= 0 if constant is not None else a.nonnegative and b.nonnegative,
    )


def _divide(op: Operation, infos: Sequence[AxisInfo]) -> AxisInfo:
    a, b = infos
    rank = len(a.contiguity)
    divisor = b.constant
    if op.name.startswith("arith.shr"):
        divisor = 1 << b.constant if b.constant is not None and 0 <= b.constant < 30 else None
    if divisor == 1:
        return a
    constancy = list(elementwise_constancy(infos))
    every = 1
    if divisor is not None and divisor > 0:
        factors = (power_of_two_factor(divisor),) * rank
        if factors[0] == divisor:
            every = max(1, a.every() // divisor)  # exact where there is anything to know, whatever the sign
    elif divisor is None and op.name.startswith("arith.div"):
        factors = _gcd(b.divisibility, b.constancy)
    else:
        factors = (1,) * rank
    # signed division truncates towards zero, so a group around zero would not be constant; shifts floor
    if a.nonnegative or op.name != "arith.divsi":
        groups = map(math.gcd, a.contiguity, a.divisibility, factors)
        constancy = [max(pair) for pair in zip(constancy, groups, strict=True)]
    return AxisInfo((1,) * rank, (every,) * rank, tuple(constancy), None, a.nonnegative and b.nonnegative)


def _remainder(op: Operation, infos: Sequence[AxisInfo]) -> AxisInfo:
    a, b = infos
    rank = len(a.contiguity)
    contiguity, divisibility = [1] * rank, [1] * rank
    for axis in range(rank):
        # x % n keeps groups that n's alignment does not split. A group below zero could wrap inside, to offsets before a tensor:
        # as in Triton, remainders are taken to be of indices, whose sign is often beyond what can be told
        aligned = math.gcd(a.divisibility[axis], b.divisibility[axis])
        contiguity[axis] = math.gcd(a.contiguity[axis], aligned, b.constancy[axis])
        divisibility[axis] = math.gcd(a.divisibility_at(axis, contiguity[axis]), b.divisibility[axis])
    return AxisInfo(tuple(contiguity), tuple(divisibility), elementwise_constancy(infos), None, a.nonnegative)


def _compare(op: Operation, infos: Sequence[AxisInfo]) -> AxisInfo:
    a, b = infos
    constancy = list(elementwise_constancy(infos))
    predicate = op.attributes["predicate"][-2:]
    for left, right, splitting in ((a, b, ("lt", "ge")), (b, a, ("gt", "le"))):
        if predicate not in splitting:
            continue
        # i < n changes its value only at n: not inside a group of i whose alignment n shares
        for axis, group in enumerate(left.contiguity):
            aligned = math.gcd(left.divisibility[axis], right.divisibility[axis])
            constancy[axis] = max(constancy[axis], math.gcd(group, aligned, right.constancy[axis]))
    return replace(unknown(op.result.type), constancy=tuple(constancy))


def _select(op: Operation, infos: Sequence[AxisInfo]) -> AxisInfo:
    condition, a, b = infos
    joined = a.join(b)
    if not shape_of(operand(op, "condition").type):
        return joined
    contiguity = _gcd(joined.contiguity, condition.constancy)
    divisibility = tuple(joined.divisibility_at(d, c) for d, c in enumerate(contiguity))
    return replace(
        joined,
        contiguity=contiguity,
        divisibility=divisibility,
        constancy=_gcd(joined.constancy, condition.constancy),
    )


def _bitwise(op: Operation, infos: Sequence[AxisInfo]) -> AxisInfo:
    a, b = infos
    divisor = max(a.every(), b.every()) if op.name == "arith.andi" else math.gcd(a.every(), b.every())
    rank = len(a.contiguity)
    nonnegative = a.nonnegative or b.nonnegative if op.name == "arith.andi" else a.nonnegative and b.nonnegative
    return AxisInfo((1,) * rank, (divisor,) * rank, elementwise_constancy(infos), None, nonnegative)


def _extremum(op: Operation, infos: Sequence[AxisInfo]) -> AxisInfo:
    a, b = infos
    rank = len(a.contiguity)
    nonnegative = a.nonnegative and b.nonnegative
    if op.name == "arith.maxsi":
        nonnegative = a.nonnegative or b.nonnegative
    divisor = math.gcd(a.every(), b.every())
    return AxisInfo((1,) * rank, (divisor,) * rank, elementwise_constancy(infos), None, nonnegative)


def _range(op: Operation, infos: Sequence[AxisInfo]) -> AxisInfo:
    start, end = op.attributes["start"], op.attributes["end"]
    return AxisInfo((end - start,), (power_of_two_factor(start),), (1,), None, start >= 0)


def _constant(op: Operation, infos: Sequence[AxisInfo]) -> AxisInfo:
    if not is_int(op.result.type):
        return uniform(op.result.type, 1)
    value = int(op.attributes["value"])
    return uniform(op.result.type, power_of_two_factor(value), value, value >= 0)


def _splat(op: Operation, infos: Sequence[AxisInfo]) -> AxisInfo:
    return uniform(op.result.type, infos[0].divisibility[0], infos[0].constant, infos[0].nonnegative)


def _expand_dims(op: Operation, infos: Sequence[AxisInfo]) -> AxisInfo:
    info, axis = infos[0], op.attributes["axis"]
    every = info.every(pointee_bytes(op.result.type))

    def insert(entries: tuple[int, ...], new: int) -> tuple[int, ...]:
        return (*entries[:axis], new, *entries[axis:])

    return replace(
        info,
        contiguity=insert(info.contiguity, 1),
        divisibility=insert(info.divisibility, every),
        constancy=insert(info.constancy, 1),
    )


def _broadcast(op: Operation, infos: Sequence[AxisInfo]) -> AxisInfo:
    before, after = shape_of(op.operand.type), shape_of(op.result.type)
    constancy = tuple(b if a == 1 else k for a, b, k in zip(before, after, infos[0].constancy, strict=True))
    return replace(infos[0], constancy=constancy)


def _trans(op: Operation, infos: Sequence[AxisInfo]) -> AxisInfo:
    order, info = op.attributes["order"], infos[0]

    def permute(entries: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(entries[axis] for axis in order)

    return replace(
        info,
        contiguity=permute(info.contiguity),
        divisibility=permute(info.divisibility),
        constancy=permute(info.constancy),
    )


def _reshape(op: Operation, infos: Sequence[AxisInfo]) -> AxisInfo:
    rank = _rank(op.result.type)
    every = infos[0].every(pointee_bytes(op.result.type))
    return AxisInfo((1,) * rank, (every,) * rank, (1,) * rank, infos[0].constant, infos[0].nonnegative)


def _same(op: Operation, infos: Sequence[AxisInfo]) -> AxisInfo:
    return infos[0]


def _address(op: Operation, infos: Sequence[AxisInfo]) -> AxisInfo:
    """A pointer as an integer or the other way round: both count bytes, but contiguous ones are apart by a byte or an element."""
    divisor = infos[0].every(pointee_bytes(op.operand.type))
    rank = _rank(op.result.type)
    return AxisInfo((1,) * rank, (divisor,) * rank, infos[0].constancy)


def _truncate(op: Operation, infos: Sequence[AxisInfo]) -> AxisInfo:
    """Cutting high bits may wrap inside a group that is not aligned to its own size, and loses the sign."""
    contiguity = _gcd(infos[0].contiguity, infos[0].divisibility)
    divisibility = tuple(infos[0].divisibility_at(d, c) for d, c in enumerate(contiguity))
    return replace(infos[0], contiguity=contiguity, divisibility=divisibility, constant=None, nonnegative=False)


def _program_id(op: Operation, infos: Sequence[AxisInfo]) -> AxisInfo:
    return uniform(op.result.type, 1, None, True)


RULES: dict[str, Rule] = {
    "arith.constant": _constant,
    "arith.addi": _add,
    "arith.subi": _add,
    "tt.addptr": _add,
    "arith.muli": _multiply,
    "arith.shli": _multiply,
    **dict.fromkeys(("arith.divsi", "arith.divui", "arith.shrsi", "arith.shrui"), _divide),
    **dict.fromkeys(("arith.remsi", "arith.remui"), _remainder),
    **dict.fromkeys(("arith.andi", "arith.ori", "arith.xori"), _bitwise),
    **dict.fromkeys(("arith.maxsi", "arith.minsi"), _extremum),
    "arith.cmpi": _compare,
    "arith.select": _select,
    "arith.extsi": _same,
    "arith.extui": _same,
    "arith.trunci": _truncate,
    "tt.int_to_ptr": _address,
    "tt.ptr_to_int": _address,
    "tt.make_range": _range,
    "tt.splat": _splat,
    "tt.expand_dims": _expand_dims,
    "tt.broadcast": _broadcast,
    "tt.trans": _trans,
    "tt.reshape": _reshape,
    "tt.get_program_id": _program_id,
    "tt.get_num_programs": _program_id,
    "ttg.convert_layout": _same,
}


def pointee_bytes(kind: Type) -> int:
    """Returns the bytes of what a pointer points to; 1 for integers."""
    element = element_of(kind)
    if not isinstance(element, PointerType):
        return 1
    return max(1, bit_width(element.pointee) // 8)
