"""Computes one product of a loop under the arithmetic that another one's result needs: the loop's two products move apart.

    for i:                        s = dot q, k[0]; p, acc = f(s, acc)
        s = dot q, k[i]           for i from 1:
        p, acc = f(s, acc)            s = dot q, k[i]              both in flight, until
        acc = dot p, v[i], acc        o = dot p, v[i-1], acc
                                      p = f(s)                     s is done; then until
                                      acc = f(o)                   o is done
                                  acc = dot p, v[last], acc

Attention is such a loop: f is the softmax and the scaling of what was summed before. Tiles of the second product are read an
iteration later than they are loaded, so pipeline_loops gives such loops one buffer more (`find_pair` tells it which).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kernelpack.ir.core import Block, BlockArgument, Builder, Operation, Region, Value
from kernelpack.ir.dialect import is_pure
from kernelpack.ir.types import I1, MemDescType, TensorType

PRODUCT = "ttng.warp_group_dot"


@dataclass(frozen=True)
class Pair:
    """A product and one that is computed from it in the same iteration and that the loop sums up as carried value `place`."""

    first: Operation
    second: Operation
    place: int


def find_pair(loop: Operation) -> Pair | None:
    """Returns the two products of a loop that can move apart; None where there are none."""
    body = loop.body
    products = [op for op in body.operations if op.name == PRODUCT]
    if len(products) != 2:
        return None
    first, second = products
    uses = [(user.name, index) for user, index in second.result.uses]
    if len(uses) != 1 or uses[0][0] != "scf.yield" or not isinstance(second.operands[0].type, TensorType):
        return None
    place = uses[0][1]
    total = body.arguments[place + 1]
    needed = _needed_by(body, second.operands[:1])
    if first not in needed or any(total in op.operands for op in needed):
        return None
    # the sum so far reaches nothing but the sum that follows
    inside = _needed_by(body, second.operands[2:]) | {second}
    reached: list[Value] = [total]
    for value in reached:
        for user in value.users():
            if user not in inside:
                return None
            reached += [result for result in user.results if user is not second and result not in reached]
    return Pair(first, second, place)


def _needed_by(body: Block, values: Iterable[Value]) -> set[Operation]:
    """Returns the operations of a block that values are computed from in the same iteration."""
    needed: set[Operation] = set()
    pending = list(values)
    while pending:
        op = pending.pop().defining_op
        while op is not None and op.parent is not body and op.parent_op is not None:
            op = op.parent_op
        if op is not None and op.parent is body and op not in needed:
            needed.add(op)
            pending += [operand for inner in op.walk() for operand in inner.operands] if op.regions else op.operands
    return needed


def overlap_products(function: Operation) -> None:
    """Rewrites a ttgir function in place, after loads were pipelined."""
    for loop in list(function.walk()):
        if loop.name == "scf.for":
            pair = find_pair(loop)
            late = _late_slice(loop, pair) if pair is not None else None
            if pair is not None and late is not None and _has_room(loop, pair):
                _Overlap(loop, pair, late).run()


@dataclass(frozen=True)
class _Late:
    """What the second product's tile is found by: operations, and the values of the iteration that they depend on."""

    operations: list[Operation]
    arguments: list[BlockArgument]


def _late_slice(loop: Operation, pair: Pair) -> _Late | None:
    """Returns how to find the second product's tile an iteration later; None where it is not in a buffer that lasts."""
    body = loop.body
    needed = _needed_by(body, pair.second.operands[1:2])
    operations = [op for op in body.operations if op in needed]
    if not all(is_pure(op) for op in operations):
        return None
    used = [operand for op in operations for operand in op.operands]
    return _Late(operations, [argument for argument in body.arguments if argument in used])


def _has_room(loop: Operation, pair: Pair) -> bool:
    """Whether the buffer of the second product's tile is written again only two iterations later."""
    waits = [op for op in loop.body.operations if op.name == "ttg.async_wait"]
    value = pair.second.operands[1]
    op = value.defining_op
    while op is not None and op.name == "ttg.memdesc_trans":
        op = op.operands[0].defining_op
    if len(waits) != 1 or op is None or op.name != "ttg.memdesc_index":
        return False
    ring = op.operands[0].type
    assert isinstance(ring, MemDescType)
    ahead = waits[0].attributes["num"] + 1
    return bool(ring.shape[0] >= ahead + 2)


class _Overlap:
    """Replaces one loop by: the first iteration up to its second product, a loop, the last iteration's second product."""

    def __init__(self, loop: Operation, pair: Pair, late: _Late) -> None:
        self.loop = loop
        self.pair = pair
        self.late = late
        self.body = loop.body
        self.early = [op for op in self.body.operations[:-1] if op is not pair.second]

    def run(self) -> None:
        loop = self.loop
        build = Builder.before(loop)
        lower, upper = loop.operands[:2]
        any_iteration = build.value("arith.cmpi", [lower, upper], {"predicate": "slt"}, I1)
        then, otherwise = Block(), Block()
        types = [result.type for result in loop.results]
        whole = build.create("scf.if", [any_iteration], {}, types, [Region([then]), Region([otherwise])])
        Builder(otherwise, location=loop.location).create("scf.yield", loop.operands[3:])
        inside = Builder(then, location=loop.location)
        inside.create("scf.yield", self._rotated(inside))
        for old, new in zip(loop.results, whole.results, strict=True):
            new.name = old.name
            old.replace_all_uses_with(new)
        loop.drop()

    def _rotated(self, build: Builder) -> list[Value]:
        """Builds the three parts and returns the results of the loop."""
        lower, upper, step, *initial = self.loop.operands
        arguments = self.body.arguments
        mapping: dict[Value, Value] = dict(zip(arguments, [lower, *initial], strict=True))
        for op in self.early:
            build.insert(op.clone(mapping))
        carried = self._carried(mapping)
        start = build.value("arith.addi", [lower, step])
        block = self._block(carried)
        loop = build.create(
            "scf.for",
            [start, upper, step, *carried],
            self.loop.attributes,
            [value.type for value in carried],
            [Region([block])],
        )
        results = list(loop.results)
        values, (rows, total), late = self._split(results)
        last: dict[Value, Value] = dict(zip(self.late.arguments, late, strict=True))
        tile = self._tile(build, last)
        product = build.value(PRODUCT, [rows, tile, total], self.pair.second.attributes)
        values[self.pair.place] = product
        return values

    def _carried(self, mapping: dict[Value, Value]) -> list[Value]:
        """Returns what an iteration hands on: the values that the loop carries but the sum, then rows and sum for the second
        product, then what its tile is found by."""
        yielded = [mapping.get(value, value) for value in self.body.terminator.operands]
        del yielded[self.pair.place]
        rows, _, total = self.pair.second.operands
        late = [mapping[argument] for argument in self.late.arguments]
        return [*yielded, mapping.get(rows, rows), mapping.get(total, total), *late]

    def _split(self, values: Sequence[Value]) -> tuple[list[Value], list[Value], list[Value]]:
        """Takes apart what `_carried` put together. The sum's place in the first list holds the sum so far."""
        count = len(self.body.arguments) - 2
        loop, pair, late = list(values[:count]), list(values[count : count + 2]), list(values[count + 2 :])
        loop.insert(self.pair.place, pair[1])
        return loop, pair, late

    def _tile(self, build: Builder, mapping: dict[Value, Value]) -> Value:
        for op in self.late.operations:
            build.insert(op.clone(mapping))
        tile = self.pair.second.operands[1]
        return mapping.get(tile, tile)

    def _block(self, carried: Sequence[Value]) -> Block:
        arguments = self.body.arguments
        block = Block([arguments[0].type, *(value.type for value in carried)])
        block.arguments[0].name = arguments[0].name
        build = Builder(block, location=self.loop.location)
        values, (rows, total), late = self._split(block.arguments[1:])
        mapping: dict[Value, Value] = dict(zip(arguments, [block.arguments[0], *values], strict=True))
        # what makes loaded tiles readable, then both products
        wait = max(index for index, op in enumerate(self.early) if op.name in ("ttg.async_wait", "gpu.barrier"))
        needed = _needed_by(self.body, self.pair.first.operands) | {self.pair.first}
        before = [op for index, op in enumerate(self.early) if index <= wait or op in needed]
        for op in before:
            build.insert(op.clone(mapping))
        scores = mapping[self.pair.first.result].defining_op
        assert scores is not None
        scores.attributes["isAsync"] = True
        tile = self._tile(build, dict(zip(self.late.arguments, late, strict=True)))
        attributes = {**self.pair.second.attributes, "isAsync": True}
        product = build.value(PRODUCT, [rows, tile, total], attributes)
        # then the rest, each result awaited where it is first read
        awaited: dict[Value, tuple[Value, int]] = {
            self.pair.first.result: (scores.result, 1),
            arguments[self.pair.place + 1]: (product, 0),
        }
        for op in self.early:
            if op in before:
                continue
            for operand in [operand for inner in op.walk() for operand in inner.operands]:
                if operand in awaited:
                    value, pendings = awaited.pop(operand)
                    waited = build.create("ttng.warp_group_dot_wait", [value], {"pendings": pendings})
                    mapping[operand] = waited.result
            build.insert(op.clone(mapping))
        for operand, (value, pendings) in awaited.items():
            mapping[operand] = build.create("ttng.warp_group_dot_wait", [value], {"pendings": pendings}).result
        build.create("scf.yield", self._carried(mapping))
        return block
