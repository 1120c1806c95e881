"""Lets the products of a loop begin at zero, where a tile would be filled with zeros before the loop only to be read in it."""

from __future__ import annotations

from collections.abc import Iterator

from kernelpack.backends.cpu.facts.features import Level
from kernelpack.backends.cpu.plan.buffers import Buffer
from kernelpack.backends.cpu.plan.sinks import Materialize
from kernelpack.backends.cpu.plan.tile_program import Dot, For, If, Nest, Statement, While, walk
from kernelpack.ir import views
from kernelpack.ir.core import BlockArgument
from kernelpack.ir.dialect import operand
from kernelpack.ir.types import F32, I32


def start_from_zero(statements: list[Statement], level: Level) -> None:
    """Moves nests that fill carried tiles with zeros into their loops, as `fills`, where only products in tiles take them. Without an
    iteration, a loop runs its fills; in the first one, the products' sums are zero."""
    for place, statement in enumerate(statements):
        if isinstance(statement, For):
            for carried, buffer in zip(views.For.of(statement.op).carried, statement.carried, strict=True):
                if buffer is not None and _only_products_take(carried.argument, buffer, statement, level):
                    statement.fills += _taken_fills(statements[:place], buffer)
        if isinstance(statement, (For, If, While)):
            for part in statement.parts():
                start_from_zero(part, level)
    statements[:] = [statement for statement in statements if not isinstance(statement, Nest) or statement.roots]


def _only_products_take(argument: BlockArgument, buffer: Buffer, loop: For, level: Level) -> bool:
    """Whether a carried tile is only what products in tiles add to, where it lies."""
    inside = list(walk(loop.body))
    roots = (root for statement in inside if isinstance(statement, Nest) for root in statement.roots)
    copied = any(isinstance(root, Materialize) and root.source is buffer for root in roots)
    dots = {statement.op: statement for statement in inside if isinstance(statement, Dot) and statement.in_tiles(level)}
    return (
        not copied
        and buffer.element in (F32, I32)
        and all(
            user in dots
            and operand(user, "c") is argument
            and dots[user].out is buffer
            and dots[user].tile_lane_axis == buffer.inner_axis
            for user, _ in argument.uses
        )
    )


def _taken_fills(before: list[Statement], buffer: Buffer) -> Iterator[Nest]:
    """Takes what fills a buffer with zeros out of the nests before a loop, and yields it as nests of its own."""
    for nest in before:
        if isinstance(nest, Nest):
            for root in list(nest.roots):
                if isinstance(root, Materialize) and root.into is buffer and views.is_zero(root.value):
                    nest.roots.remove(root)
                    yield Nest(nest.shape, nest.lane_axis, [root])
