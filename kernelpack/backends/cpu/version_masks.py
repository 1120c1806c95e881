"""Splits loop bodies (and straight-line kernels) in two: one where every mask that index bounds decide is all true, and the rest.

Full tiles then run without masks, and only tiles at an edge pay for them: a causal loop's blocks below the diagonal become plain.
"""

from __future__ import annotations

from kernelpack.backends.cpu.affine import Bound, bounds_for_all_true
from kernelpack.ir.core import Block, Builder, Operation, Region, Value, entry_function
from kernelpack.ir.types import I1, I64, TensorType, element_of


def version_masks(module: Operation) -> Operation:
    """Rewrites a module in place and returns it."""
    function = entry_function(module)
    loops = [op for op in function.walk() if op.name == "scf.for"]
    for loop in loops:
        if not any(op.name in ("scf.for", "scf.while") for op in loop.walk() if op is not loop):
            _version(loop.body)
    if not any(op.name in ("scf.for", "scf.while") for op in function.walk()):
        _version(function.body)
    return module


def _version(block: Block) -> None:
    conditions = _decidable(block)
    if not conditions:
        return
    terminator = block.terminator
    builder = Builder(block, _leading(block), terminator.location)
    condition = _conjunction(builder, [bound for bounds in conditions.values() for bound in bounds])
    tail = block.operations[builder.index or 0 : -1]

    def branch(all_true: bool) -> Region:
        copy = Block()
        mapping: dict[Value, Value] = {}
        inner = Builder(copy)
        for mask in conditions if all_true else ():
            mapping[mask] = inner.constant(True, mask.type)
        for op in tail:
            if not any(result in mapping for result in op.results):
                copy.append(op.clone(mapping))
        inner.create("scf.yield", [mapping.get(value, value) for value in terminator.operands])
        return Region([copy])

    types = [value.type for value in terminator.operands]
    both = Builder(block, len(block.operations) - 1, terminator.location).create(
        "scf.if", [condition], None, types, [branch(True), branch(False)]
    )
    terminator.set_operands(both.results)
    for op in reversed(tail):
        op.erase()


def _decidable(block: Block) -> dict[Value, list[Bound | Value]]:
    """Returns the masks that a block uses, computed in it or before it, with the conditions under which they are all true."""
    found: dict[Value, list[Bound | Value]] = {}
    for op in block.operations:
        candidates = [value for value in op.operands if value.defining_op is not None and value.defining_op.parent is not block]
        candidates += op.results if op.name == "arith.cmpi" else []
        for mask in candidates:
            if isinstance(mask.type, TensorType) and element_of(mask.type) == I1 and mask not in found:
                bounds = bounds_for_all_true(mask)
                if bounds and all(_available(bound, block) for bound in bounds):
                    found[mask] = bounds
    return found


def _leading(block: Block) -> int:
    """Returns how many scalar operations stand at the beginning of a block."""
    return next(index for index, op in enumerate(block.operations) if not _is_scalar(op))


def _is_scalar(op: Operation) -> bool:
    """Whether the operation stays in front of the branches: scalar arithmetic, computed once for both."""
    tensors = any(isinstance(value.type, TensorType) for value in (*op.operands, *op.results))
    return not tensors and (op.name.startswith("arith.") or op.name.startswith("tt.get_"))


def _available(bound: Bound | Value, block: Block) -> bool:
    """Whether the condition's scalars exist in front of the block's first tile operation."""
    values = [bound] if isinstance(bound, Value) else [value for value, _ in bound.terms]
    if isinstance(bound, Value) and bound.type != I1:
        return False
    leading = set(block.operations[: _leading(block)])
    for value in values:
        source = value.defining_op
        inside = source is not None and (source.parent is block or any(a.parent is block for a in source.ancestors()))
        if inside and source not in leading:
            return False
    return True


def _conjunction(builder: Builder, bounds: list[Bound | Value]) -> Value:
    result: Value | None = None
    seen: set[object] = set()
    for bound in bounds:
        if bound in seen:
            continue
        seen.add(bound)
        if isinstance(bound, Value):
            holds: Value = bound
        else:
            total: Value = builder.constant(0, I64)
            for value, factor in bound.terms:
                wide = value if element_of(value.type) == I64 else builder.value("arith.extsi", [value], None, I64)
                scaled = builder.value("arith.muli", [wide, builder.constant(factor, I64)])
                total = builder.value("arith.addi", [total, scaled])
            limit = builder.constant(bound.limit, I64)
            holds = builder.value("arith.cmpi", [total, limit], {"predicate": "sle"})
        result = holds if result is None else builder.value("arith.andi", [result, holds])
    return result if result is not None else builder.constant(True, I1)
