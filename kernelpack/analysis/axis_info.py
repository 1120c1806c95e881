"""AxisInfo: what is known about the integers and pointers of a tile: contiguous, divisible, constant. Widens memory accesses."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import replace

from kernelpack.analysis.axis_rules import (
    RULES,
    AxisInfo,
    elementwise_constancy,
    pointee_bytes,
    power_of_two_factor,
    uniform,
    unknown,
)
from kernelpack.analysis.call_graph import CallGraph, enclosing_function
from kernelpack.ir.core import Attribute, Block, Operation, Value, find_function
from kernelpack.ir.dialect import Trait, definition
from kernelpack.ir.dialects.tt import argument_facts
from kernelpack.ir.types import is_int, is_pointer, shape_of
from kernelpack.ir.views import For, If

_PROMISES = {"tt.contiguity": "contiguity", "tt.divisibility": "divisibility", "tt.constancy": "constancy"}


def _argument_infos(function: Operation) -> list[AxisInfo]:
    """Returns the facts of a function's arguments: those of a kernel are stated, those of other functions hold at all calls."""
    arguments = function.body.arguments
    module = function.parent_op
    if module is not None and function.attributes.get("sym_visibility") != "public":
        callers: dict[Operation, AxisInfoAnalysis] = {}
        sites = CallGraph(module).sites(function)
        for site in sites:
            caller = enclosing_function(site)
            if caller not in callers:
                callers[caller] = AxisInfoAnalysis(caller)
        if sites:
            passed = [[callers[enclosing_function(site)][operand] for operand in site.operands] for site in sites]
            return [functools.reduce(AxisInfo.join, infos) for infos in zip(*passed, strict=True)]
    return [
        unknown(argument.type)
        if shape_of(argument.type)
        else uniform(argument.type, power_of_two_factor(facts.get("tt.divisibility", 1)))
        for argument, facts in zip(arguments, argument_facts(function), strict=True)
    ]


class AxisInfoAnalysis:
    """The facts of every integer, boolean and pointer of a function. Facts of loop-carried values hold in every iteration; those
    of a called function's arguments hold at every call, those of a call's results whatever its arguments are."""

    def __init__(self, function: Operation, arguments: Sequence[AxisInfo] | None = None) -> None:
        """`arguments` are the facts of the function's arguments; without them, its attributes and the calls of it say them."""
        self._infos: dict[Value, AxisInfo] = {}
        self._module = function.parent_op
        given = _argument_infos(function) if arguments is None else arguments
        self._infos.update(zip(function.body.arguments, given, strict=True))
        self._block(function.body)

    def __getitem__(self, value: Value) -> AxisInfo:
        return self._infos.get(value) or unknown(value.type)

    def access_width(self, pointer: Value, axis: int, mask: Value | None = None) -> int:
        """Returns how many neighbours along `axis` one access through a tile of pointers may cover: contiguous, aligned
        and under one mask value. A power of two, not limited to what hardware can do."""
        info = self[pointer]
        size = pointee_bytes(pointer.type)
        width = math.gcd(info.contiguity[axis], max(1, info.divisibility[axis] // size))
        return width if mask is None else math.gcd(width, self[mask].constancy[axis])

    def _block(self, block: Block) -> None:
        for op in block.operations:
            self._operation(op)

    def _operation(self, op: Operation) -> None:
        if op.name == "scf.for":
            self._for(op)
        elif op.name == "scf.while":
            self._while(op)
        elif op.name == "scf.if":
            self._if(op)
        elif op.name == "tt.call" and self._module is not None:
            self._call(op, find_function(self._module, op.attributes["callee"]))
        else:
            for region in op.regions:
                self._block(region.block)
            for result in op.results:
                if is_int(result.type) or is_pointer(result.type):
                    self._infos[result] = self._promised(op, self._result(op))

    def _result(self, op: Operation) -> AxisInfo:
        rule = RULES.get(op.name)
        infos = [self[operand] for operand in op.operands]
        if rule is not None:
            return rule(op, infos)
        kind = op.result.type if len(op.results) == 1 else op.results[0].type
        if infos and Trait.ELEMENTWISE in definition(op.name).traits and Trait.PURE in definition(op.name).traits:
            return replace(unknown(kind), constancy=elementwise_constancy(infos))
        return unknown(kind)

    @staticmethod
    def _promised(op: Operation, info: AxisInfo) -> AxisInfo:
        """Adds what the user promised by tl.multiple_of, tl.max_contiguous, tl.max_constancy."""
        promised = {}
        for attribute, field in _PROMISES.items():
            entries: Attribute = op.attributes.get(attribute)
            if entries is not None:
                known: tuple[int, ...] = getattr(info, field)
                entries = entries if isinstance(entries, tuple) else (entries,) * len(known)
                promised[field] = tuple(max(have, power_of_two_factor(new)) for have, new in zip(known, entries, strict=True))
        return AxisInfo(**{**vars(info), **promised})

    def _call(self, op: Operation, callee: Operation) -> None:
        alone = AxisInfoAnalysis(callee, [unknown(argument.type) for argument in callee.body.arguments])
        for result, value in zip(op.results, callee.body.terminator.operands, strict=True):
            self._infos[result] = alone[value]

    def _for(self, op: Operation) -> None:
        loop = For.of(op)
        lower, upper, step = (self[bound] for bound in loop.bounds)
        induction, *carried = op.body.arguments
        divisor = math.gcd(lower.divisibility[0], step.divisibility[0])
        constant = lower.constant if lower.constant is not None and lower.constant == upper.constant else None
        self._infos[induction] = uniform(induction.type, divisor, constant, lower.nonnegative and step.nonnegative)
        self._iterate(carried, loop.initial, op.body)
        for result, argument in zip(op.results, carried, strict=True):
            self._infos[result] = self[argument]

    def _iterate(self, carried: Sequence[Value], initial: Sequence[Value], body: Block) -> None:
        """Finds facts that hold at the start and that the body preserves."""
        for argument, value in zip(carried, initial, strict=True):
            self._infos[argument] = self[value]
        while True:
            self._block(body)
            joined = [
                self[argument].join(self[value]) for argument, value in zip(carried, body.terminator.operands, strict=True)
            ]
            if joined == [self[argument] for argument in carried]:
                return
            self._infos.update(zip(carried, joined, strict=True))

    def _while(self, op: Operation) -> None:
        before, after = (region.block for region in op.regions)
        for value in (*before.arguments, *after.arguments, *op.results):
            self._infos[value] = unknown(value.type)
        self._block(before)
        self._block(after)

    def _if(self, op: Operation) -> None:
        choice = If.of(op)
        for branch in choice.branches:
            self._block(branch)
        for result, slot in zip(op.results, choice.chosen, strict=True):
            yes, no = (self[value] for value in slot.source_values())
            self._infos[result] = yes.join(no)
