"""Makes a value available in another layout: computes it again where it costs nothing, converts it elsewhere."""

from __future__ import annotations

from collections.abc import Collection

from kernelpack.ir.core import BlockArgument, Builder, Operation, Value
from kernelpack.ir.dialect import Trait, definition
from kernelpack.ir.types import TensorType
from kernelpack.layout.encoding import layout_of, with_layout
from kernelpack.layout.linear import LinearLayout
from kernelpack.layout.transfer import operand_layout

SOURCES = frozenset({"arith.constant", "tt.splat", "tt.make_range"})
"""Operations that make a tile out of scalars."""
_FOLLOWING = frozenset({"tt.expand_dims", "tt.broadcast", "tt.trans", "tt.reshape"})


def free_values(function: Operation, loaded: Collection[Operation] = ()) -> set[Value]:
    """Returns the tiles that are computed from scalars and indices alone: pointers, masks, constants. With `loaded`, what these loads give
    counts as an index.

    They have no layout of their own; each user gets a copy computed in the layout it needs.
    """
    free: set[Value] = set()
    for op in function.walk():
        if op.name in SOURCES and isinstance(op.result.type, TensorType):
            free.add(op.result)
        elif op.operands and (
            op in loaded or op.name in _FOLLOWING or {Trait.ELEMENTWISE, Trait.PURE} <= definition(op.name).traits
        ):
            tiles = [operand for operand in op.operands if isinstance(operand.type, TensorType)]
            if tiles and all(tile in free for tile in tiles):
                free.update(op.results)
    return free


def operand_requirement(op: Operation, result: LinearLayout) -> LinearLayout | None:
    """Returns the layout that the operands of a load, an elementwise or a rearranging operation need to give `result`."""
    same = op.name == "tt.load" or Trait.ELEMENTWISE in definition(op.name).traits
    return result if same else operand_layout(op, result)


class Materializer:
    """Callable (value, layout) -> the value in that layout. Every (value, layout) is made once, right after the value."""

    def __init__(self, free: set[Value]) -> None:
        self.free = free
        self._made: dict[tuple[Value, LinearLayout], Value] = {}

    def __call__(self, value: Value, layout: LinearLayout) -> Value:
        if layout_of(value) == layout:
            return value
        key = value, layout
        if key not in self._made:
            self._made[key] = self._recompute(value, layout) if value in self.free else self._convert(value, layout)
        return self._made[key]

    def _recompute(self, value: Value, layout: LinearLayout) -> Value:
        op = value.defining_op
        assert op is not None
        operands = list(op.operands)
        if op.name not in SOURCES:
            wanted = operand_requirement(op, layout)
            if wanted is None:
                return self._convert(value, layout)
            operands = [self(operand, wanted) if isinstance(operand.type, TensorType) else operand for operand in operands]
        copy = Operation(op.name, operands, [with_layout(value.type, layout)], op.attributes, (), op.location)
        copy.result.name = value.name
        self.free.add(copy.result)
        return builder_after(value).insert(copy).result

    @staticmethod
    def _convert(value: Value, layout: LinearLayout) -> Value:
        return builder_after(value).value("ttg.convert_layout", [value], None, with_layout(value.type, layout))


def builder_after(value: Value) -> Builder:
    """Returns a builder that inserts right after a value's definition."""
    if isinstance(value, BlockArgument):
        return Builder(value.owner, 0)
    op = value.defining_op
    assert op is not None
    return Builder.after(op)
