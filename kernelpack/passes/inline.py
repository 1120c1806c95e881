"""inline: calls are replaced by the bodies of the functions they call, and functions that nobody calls any more are erased."""

from __future__ import annotations

from collections.abc import Callable

from kernelpack.analysis.call_graph import CallGraph
from kernelpack.ir.core import Location, Operation, Value, find_function, functions
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
    inlined = False
    for function in graph.order:
        pending = list(graph.calls[function])
        while pending:
            call = pending.pop(0)
            callee = find_function(module, call.attributes["callee"])
            if goes(call, callee):
                pending[:0] = _inline_call(call, callee)
                inlined = True
    called = {op.attributes["callee"] for op in module.walk() if op.name == "tt.call"}
    for function in functions(module):
        if function.attributes.get("sym_visibility") != "public" and function.attributes["sym_name"] not in called:
            function.drop()
    return inlined


def _check_sizes(graph: CallGraph, goes: Callable[[Operation, Operation], bool]) -> None:
    """Raises CompilationError where a function would become too long: each that calls another twice may double."""
    sizes: dict[Operation, int] = {}
    for function in graph.order:
        made = {call: sizes[graph.callees[call]] for call in graph.calls[function] if goes(call, graph.callees[call])}
        sizes[function] = sum(1 for _ in function.walk()) + sum(made.values())
        longest = max(made, key=made.__getitem__, default=function)
        check_operations(sizes[function], longest.location.source, "with all that is called, the function around this has")


def _inline_call(call: Operation, callee: Operation) -> list[Operation]:
    """Puts a function's body in the place of a call, and returns the calls in it."""
    block = call.parent
    assert block is not None
    mapping: dict[Value, Value] = dict(zip(callee.body.arguments, call.operands, strict=True))
    *body, returned = callee.body.operations
    index = block.index(call)
    calls: list[Operation] = []
    for offset, op in enumerate(body):
        copy = op.clone(mapping)
        for inner in copy.walk():
            inner.location = _called_from(inner.location, call.location)
            if inner.name == "tt.call":
                calls.append(inner)
        block.insert(index + offset, copy)
    call.replace_with(*(mapping.get(value, value) for value in returned.operands))
    return calls


def _called_from(location: Location, call: Location) -> Location:
    """Adds a call at the outer end of a location's call sites."""
    return Location(location.source, call if location.callsite is None else _called_from(location.callsite, call))
