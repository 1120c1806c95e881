"""inline: calls are replaced by the bodies of the functions they call, and functions that nobody calls any more are erased."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kernelpack.analysis.call_graph import CallGraph
from kernelpack.ir.core import Block, Location, Operation, Value
from kernelpack.limits import check_operations


def inline(module: Operation, *, may_stay: Callable[[Operation], bool] = lambda call: True) -> bool:
    """Inlines calls of private functions in place, except of those marked noinline where `may_stay(call)`; returns whether
    there were any.

    Inlined operations remember the call in their location. Raises CompilationError with the call's line for recursion and for
    functions that are not there.
    """

    def goes(call: Operation, callee: Operation) -> bool:
        stays = callee.attributes.get("noinline") and may_stay(call)
        return callee.attributes.get("sym_visibility") != "public" and not stays

    graph = CallGraph(module)
    _check_sizes(graph, goes)
    inlined = {call: callee for call, callee in graph.callees.items() if goes(call, callee)}
    called = {callee for call, callee in graph.callees.items() if call not in inlined}
    stay = [function for function in graph.order if function in called or function.attributes.get("sym_visibility") == "public"]
    for function in stay:
        for call in graph.calls[function]:
            if call in inlined:
                _inline_call(call, inlined)
    for function in graph.order:
        if function not in stay:
            function.drop()
    return bool(inlined)


def _check_sizes(graph: CallGraph, goes: Callable[[Operation, Operation], bool]) -> None:
    """Raises CompilationError where a function would become too long: each that calls another twice may double."""
    sizes: dict[Operation, int] = {}
    for function in graph.order:
        made = {call: sizes[graph.callees[call]] for call in graph.calls[function] if goes(call, graph.callees[call])}
        sizes[function] = sum(1 for _ in function.walk()) + sum(made.values())
        longest = max(made, key=made.__getitem__, default=function)
        check_operations(sizes[function], longest.location.source, "with all that is called, the function around this has")


Inlined = Mapping[Operation, Operation]
"""Calls that are replaced, and the functions whose bodies replace them."""


def _inline_call(call: Operation, inlined: Inlined) -> None:
    """Puts what a call stands for in its place: each function's body is copied once for each call, however deep it is nested."""
    block = call.parent
    assert block is not None
    copy = Block()
    results = _copy_body(call, call.operands, call.location, copy, inlined)
    index = block.index(call)
    for offset, op in enumerate(list(copy.operations)):
        block.insert(index + offset, op)
    call.replace_with(*results)


def _copy_body(call: Operation, arguments: Sequence[Value], site: Location, into: Block, inlined: Inlined) -> list[Value]:
    """Appends the body of the function called to a block, and returns what it gives. `site` is where the call is."""
    body = inlined[call].body
    mapping: dict[Value, Value] = dict(zip(body.arguments, arguments, strict=True))
    *operations, returned = body.operations
    for op in operations:
        _copy(op, mapping, site, into, inlined)
    return [mapping.get(value, value) for value in returned.operands]


def _copy(op: Operation, mapping: dict[Value, Value], site: Location, into: Block, inlined: Inlined) -> None:
    """Appends a copy of an operation to a block, without the calls in it. `mapping` gains its results."""
    location = _called_from(op.location, site)
    if op in inlined:
        given = [mapping.get(value, value) for value in op.operands]
        for result, value in zip(op.results, _copy_body(op, given, location, into, inlined), strict=True):
            if value not in given:
                value.name = value.name or result.name
            mapping[result] = value
        return
    copy = op.clone_alone(mapping)
    copy.location = location
    into.append(copy)
    for region, copied in zip(op.regions, copy.regions, strict=True):
        for block, copied_block in zip(region.blocks, copied.blocks, strict=True):
            for nested in block.operations:
                _copy(nested, mapping, site, copied_block, inlined)


def _called_from(location: Location, call: Location) -> Location:
    """Adds a call at the outer end of a location's call sites."""
    return Location(location.source, call if location.callsite is None else _called_from(location.callsite, call))
