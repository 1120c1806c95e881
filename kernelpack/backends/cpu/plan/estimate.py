"""Estimates how long one program runs, so that the launcher knows when threads pay."""

from __future__ import annotations

import math
from collections.abc import Mapping

from kernelpack.backends.cpu.facts.affine import constant_of
from kernelpack.backends.cpu.facts.features import Level
from kernelpack.backends.cpu.plan.costs import cost_of
from kernelpack.backends.cpu.plan.evaluations import Step, evaluations, steps_of
from kernelpack.backends.cpu.plan.sinks import Prefetch, Root
from kernelpack.backends.cpu.plan.tile_program import Dot, For, If, Nest, Statement, TileProgram, While
from kernelpack.ir import views
from kernelpack.ir.core import Value
from kernelpack.ir.dialect import Trait, attribute, definition, operand
from kernelpack.ir.types import is_float, shape_of

_VECTOR_NS = 2.0  # one vector of a nest: a load, a dozen operations, a store
_OPERATIONS = 12
_OPERATION_NS = 0.1  # one more
_COST_NS = 0.2  # an instruction of a function
_BYTE_NS = 0.1  # a byte from DRAM, read by one core
_FMA_NS = 0.15  # one vector multiply-add
_TILE_NS = 0.03  # the same arithmetic in tiles of AMX
_UNKNOWN_TRIPS = 4
_UNKNOWN_ELEMENTS = 1024  # what a loop over blocks of unknown number is taken to walk, if its blocks are small


def program_nanoseconds(program: TileProgram, level: Level) -> int:
    """Returns an estimate in nanoseconds; loops of unknown length count a few iterations, or a thousand elements."""
    lanes = level.lanes(32)
    computing: dict[Statement, float] = {step.statement: _computing(step, program, lanes) for step in steps_of(program)}
    return max(1, math.ceil(_statements(program.statements, level, computing)))


def _computing(step: Step, program: TileProgram, lanes: int) -> float:
    """Returns how long the operations on floats that a step evaluates take, but for the first dozen."""
    functions, operations, most = 0.0, 0, 0
    for value in evaluations(step, program.plain):
        op = value.defining_op
        read = value in program.plain and value not in step.materialized()
        if op is None or op.name == "tt.load" or read or not is_float(value.type):
            continue
        vectors, cost = math.ceil(math.prod(shape_of(value.type)) / lanes), cost_of(op)
        if cost is not None:
            functions += vectors * cost * _COST_NS
        elif Trait.ELEMENTWISE in definition(op.name).traits:
            operations += vectors
            most = max(most, vectors)
    return functions + max(0, operations - _OPERATIONS * most) * _OPERATION_NS


def _statements(statements: list[Statement], level: Level, computing: Mapping[Statement, float]) -> float:
    return sum((_statement(statement, level, computing) for statement in statements), 0.0)


def _statement(statement: Statement, level: Level, computing: Mapping[Statement, float]) -> float:
    lanes = level.lanes(32)
    match statement:
        case Nest():
            return sum((_root(root, math.prod(statement.shape), lanes) for root in statement.roots), computing[statement])
        case Dot():
            depth = shape_of(operand(statement.op, "a").type)[-1]
            multiply = _TILE_NS if statement.in_tiles(level) else _FMA_NS
            return math.prod(statement.out.shape) * depth / lanes * multiply + computing[statement]
        case For():
            return _trips(statement) * _statements(statement.body, level, computing)
        case While():
            return _UNKNOWN_TRIPS * _statements([*statement.before, *statement.body], level, computing)
        case If():
            return max(_statements(statement.then, level, computing), _statements(statement.otherwise, level, computing))
        case _:
            return 0.5


def _root(root: Root, elements: int, lanes: int) -> float:
    stretch = attribute(root.op, "bytes") if isinstance(root, Prefetch) else 0
    if stretch:  # what is passed over once comes from memory
        return elements * int(stretch) * _BYTE_NS
    return math.ceil(elements / lanes) * _VECTOR_NS


def _trips(statement: For) -> int:
    lower, upper, step = views.For.of(statement.op).bounds
    length, by = _length(lower, upper), constant_of(step)
    if length is None or not by:
        return max(_UNKNOWN_TRIPS, _UNKNOWN_ELEMENTS // (_largest_nest(statement.body) or _UNKNOWN_ELEMENTS))
    return max(0, math.ceil(length / by))


def _largest_nest(statements: list[Statement]) -> int:
    """Returns the elements of the largest nest that statements run themselves, outside inner loops; 0 without any."""
    sizes = [0]
    for statement in statements:
        if isinstance(statement, Nest):
            sizes.append(math.prod(statement.shape))
        elif isinstance(statement, If):
            sizes += [_largest_nest(statement.then), _largest_nest(statement.otherwise)]
    return max(sizes)


def _length(lower: Value, upper: Value) -> int | None:
    """Returns how far apart two bounds are, also for `first` and `min(first + constant, n)`, where it is the most."""
    bounds = constant_of(lower), constant_of(upper)
    if bounds[0] is not None and bounds[1] is not None:
        return bounds[1] - bounds[0]
    op = upper.defining_op
    if op is not None and op.name == "arith.minsi":
        return next((length for operand in op.operands if (length := _length(lower, operand)) is not None), None)
    if op is not None and op.name == "arith.addi" and lower in op.operands:
        return next((constant_of(operand) for operand in op.operands if operand is not lower), None)
    return None
