"""Writes operands of matrix products in the order that the product's inner loop reads them."""

from __future__ import annotations

from collections.abc import Iterator

from kernelpack.backends.cpu.emit.elements import register_type
from kernelpack.backends.cpu.emit.evaluate import Evaluator
from kernelpack.backends.cpu.emit.places import Index, Place
from kernelpack.backends.cpu.emit.transpose import transpose
from kernelpack.backends.cpu.facts.affine import Bound
from kernelpack.backends.cpu.plan.buffers import Evaluated, OperandBuffer
from kernelpack.ir.types import Type, is_float
from kernelpack.llvm.text import Val, element_type, literal, vector_type, vector_width


def write_operand(
    ev: Evaluator, into: OperandBuffer, element: Type, lane: int, points: list[Index], vectors: list[Val]
) -> None:
    """Writes the elements of one iteration: `vectors` at `points`, with lanes along axis `lane`."""
    converted = [converted_to(ev, into, vector, element) for vector in vectors]
    if lane == into.inner_axis and (into.k_inner or into.pack == 1):
        for point, vector in zip(points, converted, strict=True):
            _put(ev, into, point, vector)
    elif lane == into.inner_axis:  # neighbours along k come from several vectors
        for point, units in _units(ev, into, points, converted):
            _put(ev, into, point, units)
    else:
        rows, step = converted, 1
        if into.pack > 1 and lane == into.k_axis:
            count = vector_width(rows[0].type) // into.pack
            rows, step = [ev.em.cast("bitcast", row, vector_type("i32", count)) for row in rows], into.pack
        elif into.pack > 1:
            rows = [units for _, units in _units(ev, into, points, rows)]
        first = points[0]
        for row, vector in enumerate(transpose(ev.em, rows)):
            places = list(first)
            places[lane] = first[lane].one(row * step)
            inner = first[into.inner_axis]
            places[into.inner_axis] = Place(inner.base, inner.offset, inner.depth, True)
            _put(ev, into, tuple(places), vector)


def converted_to(ev: Evaluator, into: OperandBuffer | Evaluated, vector: Val, source: Type) -> Val:
    """Returns elements of a tile as a product takes them."""
    if is_float(source):
        return ev.lowering.convert(vector, source, into.element)
    result = ev.em.cast("sext", vector, register_type(into.element, vector_width(vector.type)))
    biased = isinstance(into, OperandBuffer) and into.biased
    return ev.em.binary("xor", result, literal(-128, result.type)) if biased else result


def _units(ev: Evaluator, into: OperandBuffer, points: list[Index], vectors: list[Val]) -> Iterator[tuple[Index, Val]]:
    """Yields the points at which 32-bit units of neighbours along k begin, and the units; the other neighbours are at other points."""
    by_point = dict(zip(points, vectors, strict=True))
    for point in points:
        k = point[into.k_axis]
        if k.offset % into.pack == 0:
            places = [(*point[: into.k_axis], k.plus(number), *point[into.k_axis + 1 :]) for number in range(into.pack)]
            yield point, _interleaved(ev, [by_point[place] for place in places])


def _interleaved(ev: Evaluator, vectors: list[Val]) -> Val:
    """Returns 32-bit units with an element of each vector, the first in the lowest bits."""
    em, width, bits = ev.em, vector_width(vectors[0].type), 32 // len(vectors)
    short, wide = vector_type(f"i{bits}", width), vector_type("i32", width)
    first, *others = (em.cast("zext", em.cast("bitcast", vector, short), wide) for vector in vectors)
    for number, other in enumerate(others, 1):
        first = em.binary("or", first, em.binary("shl", other, literal(bits * number, wide)))
    return first


def _put(ev: Evaluator, into: OperandBuffer, point: Index, vector: Val) -> None:
    address = operand_address(ev, into, point)
    ev.em.store(vector, address, {"i8": 1, "i16": 2}.get(element_type(vector.type), 4))


def operand_address(ev: Evaluator, into: OperandBuffer, point: Index) -> Val:
    """Returns the address of the unit that holds an element."""
    em = ev.em
    base = ev.storage[id(into.whole or into)]
    plane = literal(0, "i64")
    for place, extent in zip(point[:-2], into.shape[:-2], strict=True):
        plane = _add(ev, _times(ev, plane, extent), ev.position(place.one()))
    k, other = point[into.k_axis], point[into.other_axis]
    offset = _times(ev, plane, into.plane_units * into.unit_bytes)
    if into.k_inner:
        size = into.unit_bytes // into.pack
        offset = _add(ev, offset, _times(ev, ev.position(other.one()), into.row_units * into.unit_bytes))
        offset = _add(ev, offset, _times(ev, ev.position(k.one()), size))
    else:
        unit = _shifted(ev, ev.position(k.one()), into.pack)
        offset = _add(ev, offset, _times(ev, unit, into.row_units * into.unit_bytes))
        column = ev.position(other.one())
        if into.panel and into.panel < into.shape[into.other_axis]:
            panel = _shifted(ev, column, into.panel)
            within = _masked(ev, column, into.panel)
            offset = _add(ev, offset, _times(ev, panel, into.panel_units * into.unit_bytes))
            column = within
        offset = _add(ev, offset, _times(ev, column, into.unit_bytes))
    return em.offset(base, int(offset.name) if not offset.name.startswith("%") else offset)


def _times(ev: Evaluator, value: Val, factor: int) -> Val:
    if not value.name.startswith("%"):
        return literal(int(value.name) * factor, "i64")
    return value if factor == 1 else ev.em.op("i64", f"mul nsw {value}, {factor}")


def _add(ev: Evaluator, a: Val, b: Val) -> Val:
    constants = [not value.name.startswith("%") for value in (a, b)]
    if all(constants):
        return literal(int(a.name) + int(b.name), "i64")
    if a.name == "0":
        return b
    return a if b.name == "0" else ev.em.op("i64", f"add nsw {a}, {b.name}")


def _shifted(ev: Evaluator, value: Val, divisor: int) -> Val:
    """Returns value / divisor for a power of two and a value that is not negative."""
    if divisor == 1:
        return value
    if not value.name.startswith("%"):
        return literal(int(value.name) // divisor, "i64")
    return ev.em.op("i64", f"lshr {value}, {divisor.bit_length() - 1}")


def _masked(ev: Evaluator, value: Val, modulus: int) -> Val:
    if not value.name.startswith("%"):
        return literal(int(value.name) % modulus, "i64")
    return ev.em.op("i64", f"and {value}, {modulus - 1}")


def end_along_k(ev: Evaluator, operand: OperandBuffer | Evaluated, step: int) -> Val | None:
    """Returns how many units along k there are before those that are zero in both operands of a product: at least one, and a multiple of
    `step`. None where none are known to be."""
    if operand.depth is None:
        return None
    steps = steps_until(ev, operand.depth, operand.pack * step, operand.k_units // step)
    return ev.em.binary("mul", steps, literal(step, "i64")) if step > 1 else steps


def steps_until(ev: Evaluator, bound: Bound, step: int, most: int, *, whole: bool = False) -> Val:
    """Returns how many steps of so many places begin before the first place for which a bound does not hold, between 1 and `most`; or how
    many `whole` ones end there, which may be none."""
    em = ev.em
    end: Val = literal(bound.limit + (1 if whole else step), "i64")
    for value, factor in bound.terms:
        scalar = ev.scalars[value]
        wide = scalar if scalar.type == "i64" else em.cast("sext", scalar, "i64")
        end = em.binary("sub", end, em.binary("mul", wide, literal(factor, "i64")))
    steps = em.binary("sdiv", end, literal(step, "i64")) if step > 1 else end
    for name, limit in (("smax", 0 if whole else 1), ("smin", most)):
        steps = em.call("i64", f"llvm.{name}.i64", [steps, literal(limit, "i64")])
    return steps
