"""Runs the regions of reductions, scans and maps: on whole vectors where all of their operations are elementwise, else lane by lane."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernelpack.backends.cpu.emit.elements import constant
from kernelpack.backends.cpu.emit.elementwise import Lowering, is_elementwise
from kernelpack.backends.cpu.plan.tile_program import For, If, Scalar, Statement, While
from kernelpack.ir.core import Block, Value
from kernelpack.ir.dialect import Trait, definition
from kernelpack.llvm.text import Val, vector_type, vector_width


def runs_on_vectors(block: Block) -> bool:
    """Whether a region's operations can all be done for several elements at once."""
    return all(is_elementwise(op.name) or op.name == "arith.constant" for op in block.operations[:-1])


def scalar_statements(block: Block) -> list[Statement]:
    """Returns a block in which there are no tiles as statements, without its terminator."""
    made: list[Statement] = []
    for op in block.operations:
        if Trait.TERMINATOR in definition(op.name).traits:
            continue
        nothing: list[None] = [None] * len(op.results)
        branches = [scalar_statements(region.block) if region.blocks else [] for region in op.regions]
        match op.name:
            case "scf.if":
                made.append(If(op, list(nothing), *branches))
            case "scf.for":
                made.append(For(op, list(nothing), branches[0]))
            case "scf.while":
                made.append(While(op, [None] * len(op.operands), list(nothing), *branches))
            case _:
                made.append(Scalar(op))
    return made


class Regions:
    """Emits regions. `run` emits statements at the emitter's place; `scalars` is what scalar values are by now."""

    def __init__(self, lowering: Lowering, scalars: dict[Value, Val], run: Callable[[list[Statement]], None]) -> None:
        self.lowering = lowering
        self.em = lowering.em
        self.scalars = scalars
        self.run = run

    def apply(self, block: Block, arguments: Sequence[Val]) -> list[Val]:
        """Returns what a region gives for arguments of one width."""
        width = vector_width(arguments[0].type)
        if runs_on_vectors(block):
            return self._on_vectors(block, arguments, width)
        statements = scalar_statements(block)
        if width == 1:
            return self._on_elements(block, statements, arguments)
        lanes = [
            self._on_elements(block, statements, [self.em.extract(value, lane) for value in arguments]) for lane in range(width)
        ]
        return [self._gather(parts) for parts in zip(*lanes, strict=True)]

    def _on_vectors(self, block: Block, arguments: Sequence[Val], width: int) -> list[Val]:
        values: dict[Value, Val] = dict(zip(block.arguments, arguments, strict=True))
        for op in block.operations[:-1]:
            if op.name == "arith.constant":
                values[op.result] = constant(op.attributes["value"], op.result.type, width)
            else:
                operands = [values[o] if o in values else self.em.splat(self.scalars[o], width) for o in op.operands]
                values[op.result] = self.lowering.lower(op, operands)
        return [
            values[value] if value in values else self.em.splat(self.scalars[value], width)
            for value in block.terminator.operands
        ]

    def _on_elements(self, block: Block, statements: list[Statement], arguments: Sequence[Val]) -> list[Val]:
        self.scalars.update(zip(block.arguments, arguments, strict=True))
        self.run(statements)
        return [self.scalars[value] for value in block.terminator.operands]

    def _gather(self, parts: Sequence[Val]) -> Val:
        vector = Val(vector_type(parts[0].type, len(parts)), "poison")
        for lane, part in enumerate(parts):
            vector = self.em.op(vector.type, f"insertelement {vector}, {part}, i64 {lane}")
        return vector
