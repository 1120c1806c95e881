"""cse: of pure operations that compute the same, only the first that dominates the others stays."""

from __future__ import annotations

import struct
from collections.abc import Hashable

from kernelpack.ir.core import Attribute, Block, Operation, Value
from kernelpack.ir.dialect import Trait, definition, facts, is_pure

Known = dict[Hashable, Operation]
"""Operations by what they compute."""


def cse(module: Operation) -> None:
    """Merges equal computations in place."""
    for region in module.regions:
        for block in region.blocks:
            _merge(block, {})


def _merge(block: Block, known: Known) -> None:
    """Merges in a block, which adds to `known`; inner blocks see what is known where they stand."""
    for op in list(block.operations):
        for region in op.regions:
            for nested in region.blocks:
                _merge(nested, {} if Trait.ISOLATED in definition(op.name).traits else known.copy())
        if not op.results:
            continue
        first = known.setdefault(_key(op, {}), op)
        if op.regions and first is not op:  # alike from outside: what is inside decides
            known.setdefault(_inner_key(first), first)
            first = known.setdefault(_inner_key(op), op)
        if first is not op and is_pure(op) and _takes_facts(first, op):
            op.replace_with(*first.results)


def _takes_facts(first: Operation, op: Operation) -> bool:
    """Whether `first` can stand for `op` without losing what is promised of its results.

    In the same block both run or none does: a promise about one is a promise about the other, and `first` takes it over.
    """
    if first.parent is op.parent:
        for name, fact in facts(op).items():
            first.attributes.setdefault(name, fact)
    return facts(op).items() <= facts(first).items()


def _key(op: Operation, numbers: dict[Value, int]) -> Hashable:
    """Returns what an operation computes, its regions aside: equal keys mean equal results. `numbers` names values inside of regions."""
    operands: list[Hashable] = [numbers.get(value, value) for value in op.operands]
    if Trait.COMMUTATIVE in definition(op.name).traits:
        first, second, *more = operands
        operands = [*sorted((first, second), key=_order), *more]
    attributes = tuple((name, _attribute_key(op.attributes[name])) for name in sorted(op.attributes) if "." not in name)
    sizes = tuple((len(block.arguments), len(block.operations)) for region in op.regions for block in region.blocks)
    return op.name, tuple(operands), tuple(result.type for result in op.results), attributes, sizes


def _inner_key(op: Operation) -> Hashable:
    """Returns what an operation computes, with all that is nested in it."""
    numbers: dict[Value, int] = {}
    keys: list[Hashable] = []
    for inner in op.walk():
        keys.append(_key(inner, numbers))
        arguments = [argument for region in inner.regions for block in region.blocks for argument in block.arguments]
        keys.append(tuple(argument.type for argument in arguments))
        for value in (*arguments, *inner.results):
            numbers[value] = len(numbers)
    return tuple(keys)


def _order(operand: Hashable) -> int:
    """Any order will do, as long as it is the same for both operands of one run."""
    return operand if isinstance(operand, int) else id(operand)


def _attribute_key(value: Attribute) -> Hashable:
    """Tells apart what Python calls equal: True and 1, 0.0 and -0.0; and finds a NaN equal to itself."""
    if isinstance(value, float):
        return "float", struct.pack("<d", value)
    if isinstance(value, tuple):
        return tuple(map(_attribute_key, value))
    if isinstance(value, dict):
        return tuple((key, _attribute_key(value[key])) for key in sorted(value))
    return type(value), value
