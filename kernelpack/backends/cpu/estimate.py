"""Estimates how long one program instance runs, so that the launcher knows when threads pay."""

from __future__ import annotations

import math

from kernelpack.backends.cpu.affine import constant_of
from kernelpack.backends.cpu.levels import Level
from kernelpack.backends.cpu.tile_program import Dot, For, If, Nest, Statement, TileProgram
from kernelpack.ir.core import Operation
from kernelpack.ir.types import shape_of

_VECTOR_NS = 2.0  # one vector of a nest: a load, a dozen operations, a store
_FMA_NS = 0.15  # one vector multiply-add
_UNKNOWN_TRIPS = 4


def program_nanoseconds(program: TileProgram, level: Level) -> int:
    """Returns an estimate in nanoseconds; loops whose bounds are not constants count a few iterations."""
    return max(1, math.ceil(_statements(program.statements, level)))


def _statements(statements: list[Statement], level: Level) -> float:
    return sum((_statement(statement, level) for statement in statements), 0.0)


def _statement(statement: Statement, level: Level) -> float:
    lanes = level.lanes(32)
    match statement:
        case Nest():
            return math.ceil(math.prod(statement.shape) / lanes) * _VECTOR_NS * len(statement.roots)
        case Dot():
            depth = shape_of(statement.op.operands[0].type)[-1]
            return math.prod(statement.out.shape) * depth / lanes * _FMA_NS
        case For():
            return _trips(statement.op) * _statements(statement.body, level)
        case If():
            return max(_statements(statement.then, level), _statements(statement.otherwise, level))
        case _:
            return 0.5


def _trips(loop: Operation) -> int:
    lower, upper, step = (constant_of(operand) for operand in loop.operands[:3])
    if lower is None or upper is None or not step:
        return _UNKNOWN_TRIPS
    return max(0, math.ceil((upper - lower) / step))
