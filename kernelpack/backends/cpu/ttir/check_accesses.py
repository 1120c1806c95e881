"""Holds every load, store and atomic to the storage of its tensor: `kernelpack build --checked`, KERNELPACK_CHECKED=1.

The kernel gets two more parameters for each pointer through which it reaches memory: where the storage of the tensor begins and ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from kernelpack.analysis.address_sources import AddressSources
from kernelpack.analysis.axis_rules import pointee_bytes
from kernelpack.compiled import BOUNDS, Parameter
from kernelpack.context import Context
from kernelpack.ir.core import BlockArgument, Builder, Operation, Value, entry_function
from kernelpack.ir.dialect import operand, optional_operand
from kernelpack.ir.types import I64, FunctionType, with_element

_ACCESSES = {"tt.load": "load", "tt.store": "store", "tt.atomic_rmw": "atomic", "tt.atomic_cas": "atomic"}


@dataclass(frozen=True)
class _Storage:
    """Where the storage of a parameter's tensor begins and ends, as the kernel is told."""

    parameter: BlockArgument
    begin: Value
    end: Value


def check_accesses(module: Operation, context: Context) -> Operation:
    """Rewrites a module in place and returns it. Addresses that come from memory or from integers belong to no tensor: such accesses
    are counted in the figure `unchecked`."""
    function = entry_function(module)
    sources = AddressSources(module)
    accesses = {op: _parameters(op, function, sources) for op in module.walk() if op.name in _ACCESSES}
    storages = {
        parameter: _Storage(parameter, *(function.body.add_argument(I64, f"{parameter.name}.{bound}") for bound in BOUNDS))
        for parameter in sorted({one for found in accesses.values() for one in found}, key=lambda one: one.index)
    }
    added = function.body.arguments[len(function.body.arguments) - 2 * len(storages) :]
    function.attributes["function_type"] = FunctionType(tuple(argument.type for argument in function.body.arguments), ())
    known = function.attributes.get("arg_attrs")
    if known is not None:
        function.attributes["arg_attrs"] = (*known, *({} for _ in added))
    context.added += [Parameter(argument.name, str(argument.type)) for argument in added]
    context.figures["unchecked"] = sum(not found for found in accesses.values())
    head = Builder(function.body, 0, function.location)
    starts: dict[tuple[BlockArgument, int], Value] = {}
    for op, found in accesses.items():
        width = pointee_bytes(operand(op, "ptr").type)
        for parameter in found:
            if (parameter, width) not in starts:
                starts[parameter, width] = _starts(head, storages[parameter], width)
        if found:
            _check(op, [(storages[parameter], starts[parameter, width]) for parameter in found])
    return module


def _parameters(op: Operation, function: Operation, sources: AddressSources) -> list[BlockArgument]:
    """Returns the kernel's parameters that an access's addresses are computed from; none where they may come from elsewhere, too."""
    roots = sources.roots_of(operand(op, "ptr"))
    found = [root for root in roots if isinstance(root, BlockArgument) and root.owner is function.body]
    return sorted(found, key=lambda one: one.index) if len(found) == len(roots) else []


def _starts(builder: Builder, storage: _Storage, width: int) -> Value:
    """Returns at how many places of a storage `width` bytes may begin."""
    room = builder.value("arith.subi", [storage.end, storage.begin])
    places = builder.value("arith.subi", [room, builder.constant(width - 1, I64)])
    return builder.value("arith.maxsi", [places, builder.constant(0, I64)])


def _check(op: Operation, storages: Sequence[tuple[_Storage, Value]]) -> None:
    """Checks an access before it is made: whether it begins in one of several storages, at one of so many places."""
    pointer, mask = operand(op, "ptr"), None if op.name == "tt.atomic_cas" else optional_operand(op, "mask")
    builder, kind = Builder.before(op), with_element(pointer.type, I64)

    def all_over(value: Value) -> Value:
        return value if kind == I64 else builder.value("tt.splat", [value], None, kind)

    address = builder.value("tt.ptr_to_int", [pointer], None, kind)
    conditions = []
    for storage, starts in storages:
        offset = builder.value("arith.subi", [address, all_over(storage.begin)])
        conditions.append(builder.value("arith.cmpi", [offset, all_over(starts)], {"predicate": "ult"}))
    if mask is not None:
        conditions.append(builder.value("arith.xori", [mask, builder.constant(True, mask.type)]))
    inside = reduce(lambda one, other: builder.value("arith.ori", [one, other]), conditions)
    parameters = [storage.parameter for storage, _ in storages]
    message = f"{_ACCESSES[op.name]} through {' or '.join(parameter.name for parameter in parameters)}"
    numbers = tuple(parameter.index for parameter in parameters)
    builder.create("cpu.check_access", [inside, address], {"message": message, "parameters": numbers})
