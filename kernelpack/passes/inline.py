"""inline: calls are replaced by the bodies of the functions they call, and functions that nobody calls any more are erased."""

from __future__ import annotations

from kernelpack.errors import CompilationError
from kernelpack.ir.core import Location, Operation, Value, find_function, functions


def inline(module: Operation, *, noinline_too: bool = False) -> None:
    """Inlines every call of a private function in place, except, unless `noinline_too`, of those marked noinline.

    Inlined operations remember the call in their location. Raises CompilationError with the call's line for recursion.
    """
    finished: set[Operation] = set()
    for function in functions(module):
        _inline_into(function, module, finished, (), noinline_too)
    called = {op.attributes["callee"] for op in module.walk() if op.name == "tt.call"}
    for function in functions(module):
        if function.attributes.get("sym_visibility") != "public" and function.attributes["sym_name"] not in called:
            function.drop()


def _inline_into(
    function: Operation, module: Operation, finished: set[Operation], callers: tuple[str, ...], noinline_too: bool
) -> None:
    """Inlines the calls in a function after those in its callees; `callers` is the chain of calls that led here."""
    if function in finished:
        return
    name: str = function.attributes["sym_name"]
    for op in list(function.walk()):
        if op.name != "tt.call":
            continue
        callee = find_function(module, op.attributes["callee"])
        chain = (*callers, name)
        if callee.attributes["sym_name"] in chain:
            raise CompilationError(
                f"{' calls '.join((*chain, callee.attributes['sym_name']))}: functions of kernels cannot be recursive",
                location=op.location.source,
                cure="write a loop",
            )
        _inline_into(callee, module, finished, chain, noinline_too)
        stays = callee.attributes.get("noinline") and not noinline_too
        if callee.attributes.get("sym_visibility") != "public" and not stays:
            _inline_call(op, callee)
    finished.add(function)


def _inline_call(call: Operation, callee: Operation) -> None:
    block = call.parent
    assert block is not None
    mapping: dict[Value, Value] = dict(zip(callee.body.arguments, call.operands, strict=True))
    *body, returned = callee.body.operations
    index = block.operations.index(call)
    for offset, op in enumerate(body):
        copy = op.clone(mapping)
        for inner in copy.walk():
            inner.location = _called_from(inner.location, call.location)
        block.insert(index + offset, copy)
    call.replace_with(*(mapping.get(value, value) for value in returned.operands))


def _called_from(location: Location, call: Location) -> Location:
    """Adds a call at the outer end of a location's call sites."""
    return Location(location.source, call if location.callsite is None else _called_from(location.callsite, call))
