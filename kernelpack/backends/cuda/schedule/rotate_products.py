"""Computes one product of a loop under the arithmetic that another one's result needs: the loop's two products move apart.

    for i:                        s = dot q, k[0]; p, acc = f(s, acc)
        s = dot q, k[i]           for i from 1:
        p, acc = f(s, acc)            s = dot q, k[i]              both in flight, until
        acc = dot p, v[i], acc        o = dot p, v[i-1], acc
                                      p = f(s)                     s is done; then until
                                      acc = f(o)                   o is done
                                  acc = dot p, v[last], acc

Attention is such a loop: f is the softmax and the scaling of what was summed before. Only loops that load their blocks through
descriptors are turned: their copies cost the threads nothing, while those of pointers would hold up what should overlap. Of one
warpgroup they are not: several blocks on a multiprocessor overlap better, and turned there is room for fewer (docs/h100-tuning.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernelpack.analysis.loops import needed_by
from kernelpack.backends.cuda.machine.dialect import PRODUCT
from kernelpack.backends.cuda.machine.warpgroup import WARPS
from kernelpack.backends.cuda.schedule.loop_schedule import Products
from kernelpack.backends.cuda.schedule.overlap_products import awaited_products, products_of
from kernelpack.backends.cuda.schedule.products_in_flight import where_it_iterates
from kernelpack.backends.gpu.facts.products import loads_for_dots
from kernelpack.backends.gpu.facts.roles import role_of
from kernelpack.ir.core import Block, BlockArgument, Builder, Operation, Region, Value
from kernelpack.ir.dialect import Effect, effects_of, operand
from kernelpack.ir.dialects.descriptors import LOAD
from kernelpack.ir.types import TensorType
from kernelpack.layout.encoding import layout_of


def rotate_products(function: Operation) -> dict[Operation, Products]:
    """Rewrites a ttgir function in place, before anything is decided of its loops. Returns the new loops, and what their products do: both
    run on, and the second one belongs to the iteration before."""
    rotated = {}
    for loop in list(function.walk()):
        if loop.name == "scf.for" and role_of(loop) is None:
            pair = _find_pair(loop)
            if pair is not None:
                made = _Rotation(loop, pair).run()
                first, second = products_of(made)
                rotated[made] = awaited_products(made, [first, second], late=[second])
    return rotated


@dataclass(frozen=True)
class _Pair:
    """A product and one that is computed from it in the same iteration, which the loop sums up as carried value `place`.

    `late` are the operations that load the second one's tile, `arguments` the values of the iteration that they depend on.
    """

    first: Operation
    second: Operation
    place: int
    late: list[Operation]
    arguments: list[BlockArgument]


def _find_pair(loop: Operation) -> _Pair | None:
    """Returns the two products of a loop that can move apart; None where there are none."""
    body = loop.body
    products = [op for op in body.operations if op.name == PRODUCT]
    effects = {effect for op in body.operations if op.name != PRODUCT for effect in effects_of(op)}
    if (
        len(products) != 2
        or layout_of(products[0].result).in_size("warp") <= WARPS
        or {Effect.WRITE_GLOBAL, Effect.SYNCHRONISE, Effect.OTHER} & effects
        or loads_for_dots(loop)
    ):
        return None
    first, second = products
    uses = [(user.name, index) for user, index in second.result.uses]
    if len(uses) != 1 or uses[0][0] != "scf.yield" or not isinstance(operand(second, "a").type, TensorType):
        return None
    place = uses[0][1]
    total = body.arguments[place + 1]
    rows = needed_by(body, [operand(second, "a")])
    if first not in rows or any(total in op.operands for op in rows):
        return None
    # the sum so far reaches nothing but the sum that follows
    inside = needed_by(body, [operand(second, "c")]) | {second}
    reached: list[Value] = [total]
    for value in reached:
        for user in value.users():
            if user not in inside:
                return None
            reached += [result for result in user.results if user is not second and result not in reached]
    tile = needed_by(body, [operand(second, "b")])
    if first in tile or not all(_loads(body, operand(product, "b")) for product in products):
        return None
    late = [op for op in body.operations if op in tile]
    used = [operand for op in late for operand in op.operands]
    return _Pair(first, second, place, late, [argument for argument in body.arguments if argument in used])


def _loads(body: Block, tile: Value) -> bool:
    """Whether a tile is a block of a descriptor's that the iteration loads."""
    return any(op.name == LOAD for op in needed_by(body, [tile]))


class _Rotation:
    """Replaces one loop by: the first iteration up to its second product, a loop, the last iteration's second product."""

    def __init__(self, loop: Operation, pair: _Pair) -> None:
        self.loop = loop
        self.pair = pair
        self.body = loop.body
        yielded = [value for place, value in enumerate(self.body.terminator.operands) if place != pair.place]
        needed = needed_by(self.body, [*yielded, operand(pair.second, "a"), operand(pair.second, "c")])
        self.early = [op for op in self.body.operations if op in needed]

    def run(self) -> Operation:
        """Returns the new loop."""
        loop = self.loop
        inside = Builder(where_it_iterates(loop), location=loop.location)
        made, results = self._rotated(inside)
        inside.create("scf.yield", results)
        loop.drop()
        return made

    def _rotated(self, build: Builder) -> tuple[Operation, list[Value]]:
        """Builds the three parts and returns the new loop, and the results of the old one."""
        lower, upper, step, *initial = self.loop.operands
        mapping: dict[Value, Value] = dict(zip(self.body.arguments, [lower, *initial], strict=True))
        start = build.value("arith.addi", [lower, step])
        for op in self.early:
            build.insert(op.clone(mapping))
        carried = self._carried(mapping)
        block = self._block(carried)
        types = [value.type for value in carried]
        loop = build.create("scf.for", [start, upper, step, *carried], self.loop.attributes, types, [Region([block])])
        values, (rows, total), late = self._split(loop.results)
        tile = self._tile(build, dict(zip(self.pair.arguments, late, strict=True)))
        values[self.pair.place] = self._second(build, rows, tile, total)
        return loop, values

    def _carried(self, mapping: dict[Value, Value]) -> list[Value]:
        """Returns what an iteration hands on: the values that the loop carries but the sum, then rows and sum for the second
        product, then what its tile is loaded by."""
        yielded = [mapping.get(value, value) for value in self.body.terminator.operands]
        del yielded[self.pair.place]
        rows, _, total = self.pair.second.operands
        late = [mapping[argument] for argument in self.pair.arguments]
        return [*yielded, mapping.get(rows, rows), mapping.get(total, total), *late]

    def _split(self, values: Sequence[Value]) -> tuple[list[Value], list[Value], list[Value]]:
        """Takes apart what `_carried` put together. The sum's place in the first list holds the sum so far."""
        count = len(self.body.arguments) - 2
        loop, pair, late = list(values[:count]), list(values[count : count + 2]), list(values[count + 2 :])
        loop.insert(self.pair.place, pair[1])
        return loop, pair, late

    def _tile(self, build: Builder, mapping: dict[Value, Value]) -> Value:
        for op in self.pair.late:
            build.insert(op.clone(mapping))
        tile = operand(self.pair.second, "b")
        return mapping.get(tile, tile)

    def _second(self, build: Builder, rows: Value, tile: Value, total: Value) -> Value:
        product = build.create(PRODUCT, [rows, tile, total], self.pair.second.attributes)
        product.location = self.pair.second.location
        return product.result

    def _block(self, carried: Sequence[Value]) -> Block:
        arguments, pair = self.body.arguments, self.pair
        block = Block([arguments[0].type, *(value.type for value in carried)])
        block.arguments[0].name = arguments[0].name
        build = Builder(block, location=self.loop.location)
        values, (rows, total), late = self._split(block.arguments[1:])
        mapping: dict[Value, Value] = dict(zip(arguments, [block.arguments[0], *values], strict=True))
        # both products
        needed = needed_by(self.body, pair.first.operands) | {pair.first}
        for op in self.early:
            if op in needed:
                build.insert(op.clone(mapping))
        tile = self._tile(build, dict(zip(pair.arguments, late, strict=True)))
        mapping[arguments[pair.place + 1]] = self._second(build, rows, tile, total)
        # then the rest
        for op in self.early:
            if op not in needed:
                build.insert(op.clone(mapping))
        build.create("scf.yield", self._carried(mapping))
        return block
