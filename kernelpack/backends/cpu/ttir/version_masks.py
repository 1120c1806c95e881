"""Splits loop bodies (and straight-line kernels) in two: one where every mask that index bounds decide is all true, and the rest.

Full tiles then run without masks, and only tiles at an edge pay for them: a causal loop's blocks below the diagonal become plain. What the
kernel's arguments decide alone (80 columns in a tile of 128) may hold in no program, nor does what few rows are masked with: a third body has
such masks, and no others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from kernelpack.analysis.axis_info import AxisInfoAnalysis
from kernelpack.backends.cpu.facts.affine import Bound, bounds_for_all_true, build_sum
from kernelpack.backends.cpu.facts.axes import Axes
from kernelpack.backends.cpu.facts.features import Level
from kernelpack.backends.cpu.plan.plan_product import has_k_in_lanes
from kernelpack.ir.core import Block, BlockArgument, Builder, Operation, Region, Value, entry_function
from kernelpack.ir.dialect import operand
from kernelpack.ir.types import I1, I64, TensorType, element_of, shape_of
from kernelpack.ir.views import factors

_FEW = 4
"""How many times as large as a product's first operand the second one is at least where masks of the first cost little beside its own."""

_WORTH = 64
"""How many operations are copied for each one that loses a mask: a mask takes a handful of instructions, a copy of so many LLVM's time."""

Conditions = Mapping[Value, Sequence[Bound | Value]]
"""Masks, and under which conditions they are all true."""


def version_masks(module: Operation, level: Level) -> Operation:
    """Rewrites a module in place and returns it."""
    function = entry_function(module)
    packed, few, infos = _packed(function, level), _of_few_rows(function), AxisInfoAnalysis(function)
    loops = [op for op in function.walk() if op.name == "scf.for"]
    for loop in loops:
        if not any(op.name in ("scf.for", "scf.while") for op in loop.walk() if op is not loop):
            _version(loop.body, packed, few, infos)
    if not any(op.name in ("scf.for", "scf.while") for op in function.walk()):
        _version(function.body, packed, few, infos)
    return module


def _packed(function: Operation, level: Level) -> set[Operation]:
    """Returns the loads of what products of few rows pack: a mask costs next to nothing there."""
    axes = Axes()
    sources = [
        operand(op, "a").defining_op for op in function.walk() if op.name == "tt.dot" and has_k_in_lanes(op, axes, level)
    ]
    return {source for source in sources if source is not None and source.name == "tt.load"}


def _of_few_rows(function: Operation) -> set[Operation]:
    """Returns the loads of a product's first operand that are small beside the second. One row alone is always whole."""
    products = [factors(op) for op in function.walk() if op.name == "tt.dot"]
    sources = [a.defining_op for a, b in products if shape_of(a.type)[-2] > 1 and _size(a) * _FEW <= _size(b)]
    return {source for source in sources if source is not None and source.name == "tt.load"}


def _size(tile: Value) -> int:
    return math.prod(shape_of(tile.type))


def _version(block: Block, packed: set[Operation], few: set[Operation], infos: AxisInfoAnalysis) -> None:
    conditions = _decidable(block, packed, infos)
    for bounds in conditions.values():
        for bound in bounds:
            for value in _scalars(bound):
                _lead(value, block)
    size = sum(1 for op in block.operations for _ in op.walk())

    def is_worth(masks: Iterable[Value]) -> bool:
        return size <= _WORTH * len({user for mask in masks for user in _guarded(mask, block)})

    if not conditions or not is_worth(conditions):
        return
    varying = {
        mask: bounds
        for mask, bounds in conditions.items()
        if not any(_is_fixed(bound) for bound in bounds) and not _guards_only(few, mask, block)
    }
    terminator = block.terminator
    builder = Builder(block, _leading(block), terminator.location)
    cases = [conditions, varying] if len(varying) < len(conditions) and is_worth(varying) else [conditions]
    tests = [_conjunction(builder, case) for case in cases]
    tail = block.operations[builder.index or 0 : -1]
    types = [value.type for value in terminator.operands]

    def body(true: Iterable[Value]) -> Region:
        copy = Block()
        mapping: dict[Value, Value] = {}
        inner = Builder(copy)
        for mask in true:
            mapping[mask] = inner.constant(True, mask.type)
        for op in tail:
            if not any(result in mapping for result in op.results):
                copy.append(op.clone(mapping))
        inner.create("scf.yield", [mapping.get(value, value) for value in terminator.operands])
        return Region([copy])

    def choose(build: Builder, number: int) -> Operation:
        then = body(cases[number])
        if number + 1 == len(cases):
            rest = body(())
        else:
            rest = Region([Block()])
            inner = Builder(rest.blocks[0])
            inner.create("scf.yield", choose(inner, number + 1).results)
        return build.create("scf.if", [tests[number]], None, types, [then, rest])

    terminator.set_operands(choose(Builder(block, len(block.operations) - 1, terminator.location), 0).results)
    for op in reversed(tail):
        op.erase()


def _decidable(block: Block, packed: set[Operation], infos: AxisInfoAnalysis) -> dict[Value, list[Bound | Value]]:
    """Returns the masks that a block uses, computed in it or before it, with the conditions under which they are all true.

    What only `packed` loads are masked with is left out.
    """
    found: dict[Value, list[Bound | Value]] = {}
    for op in block.operations:
        candidates = [value for value in op.operands if value.defining_op is not None and value.defining_op.parent is not block]
        candidates += op.results if op.name in ("arith.cmpi", "tt.splat") else []
        for mask in candidates:
            if isinstance(mask.type, TensorType) and element_of(mask.type) == I1 and mask not in found:
                bounds = bounds_for_all_true(mask)
                if (
                    not _guards_only(packed, mask, block)
                    and bounds
                    and all(_available(bound, block, infos) for bound in bounds)
                ):
                    found[mask] = bounds
    return found


def _guarded(mask: Value, block: Block) -> set[Operation]:
    """Returns the operations in a block, other than those that make masks of masks, that use a mask or what is made of it."""
    found: set[Operation] = set()
    pending = [mask]
    while pending:
        for user, _ in pending.pop().uses:
            nested = user.parent is not block
            if nested and not any(ancestor.parent is block for ancestor in user.ancestors()):
                continue
            if nested or user.name == "tt.load" or not user.results or element_of(user.results[0].type) != I1:
                found.add(user)
            else:
                pending += user.results
    return found


def _guards_only(loads: set[Operation], mask: Value, block: Block) -> bool:
    """Whether a mask is used in a block, and for nothing but some loads."""
    guarded = _guarded(mask, block)
    return bool(guarded) and guarded <= loads


def _leading(block: Block) -> int:
    """Returns how many scalar operations stand at the beginning of a block."""
    return next(index for index, op in enumerate(block.operations) if not _is_scalar(op))


def _is_scalar(op: Operation) -> bool:
    """Whether the operation stays in front of the branches: scalar arithmetic, computed once for both."""
    tensors = any(isinstance(value.type, TensorType) for value in (*op.operands, *op.results))
    return not tensors and (op.name.startswith("arith.") or op.name.startswith("tt.get_"))


def _scalars(bound: Bound | Value) -> list[Value]:
    return [bound] if isinstance(bound, Value) else [value for value, _ in bound.terms]


def _available(bound: Bound | Value, block: Block, infos: AxisInfoAnalysis) -> bool:
    """Whether the condition may hold, and its scalars exist in front of the block's first tile operation, or can be computed there."""
    if isinstance(bound, Value) and bound.type != I1:
        return False
    never = isinstance(bound, Bound) and bound.never(infos)
    return not never and all(_can_lead(value, block) for value in _scalars(bound))


def _can_lead(value: Value, block: Block) -> bool:
    """Whether a scalar comes from outside of a block, or from scalars of it that do."""
    source = value.defining_op
    if source is None or not (source.parent is block or any(a.parent is block for a in source.ancestors())):
        return True
    return source.parent is block and _is_scalar(source) and all(_can_lead(operand, block) for operand in source.operands)


def _lead(value: Value, block: Block) -> None:
    """Moves what computes a scalar to those that stand at the beginning of a block."""
    source, leading = value.defining_op, _leading(block)
    if source is None or source.parent is not block or block.index(source) < leading:
        return
    for scalar in source.operands:
        _lead(scalar, block)
    block.insert(_leading(block), source)


def _is_fixed(bound: Bound | Value) -> bool:
    """Whether the kernel's arguments alone decide a condition."""
    scalars = _scalars(bound)
    return bool(scalars) and all(isinstance(value, BlockArgument) and _is_entry(value.owner) for value in scalars)


def _is_entry(block: Block) -> bool:
    return block.parent is not None and block.parent.parent is not None and block.parent.parent.name == "tt.func"


def _conjunction(builder: Builder, conditions: Conditions) -> Value:
    result: Value | None = None
    seen: set[object] = set()
    for bound in (bound for bounds in conditions.values() for bound in bounds):
        if bound in seen:
            continue
        seen.add(bound)
        if isinstance(bound, Value):
            holds: Value = bound
        else:
            total = build_sum(builder, bound.terms)
            limit = builder.constant(bound.limit, I64)
            holds = builder.value("arith.cmpi", [total, limit], {"predicate": "sle"})
        result = holds if result is None else builder.value("arith.andi", [result, holds])
    return result if result is not None else builder.constant(True, I1)
