"""Makes tensor descriptors parameters: the launcher encodes them as tensor maps, where they depend on the arguments alone.

tt.func @k(%a: !tt.ptr<f16>, %m: i32, ...)                  tt.func @k(%a: ..., %m: i32, ..., %a_map: !tt.tensordesc<...>)
  %0 = tt.make_tensor_descriptor %a, [%m, ...], ...    =>     ... %a_map ...
"""

from __future__ import annotations

from kernelpack.analysis.axis_info import AxisInfoAnalysis
from kernelpack.backends.cuda.machine.tensor_map import TensorMap, kernel_makes, tensor_map_of, why_not_copied
from kernelpack.errors import CompilationError
from kernelpack.ir.core import Operation, Value
from kernelpack.ir.dialects.tt import argument_facts
from kernelpack.ir.types import FunctionType, Type


def hoist_descriptors(function: Operation) -> tuple[TensorMap, ...]:
    """Rewrites a kernel in place; returns the tensor map of each new parameter, which follow the others.

    Equal descriptors share one. Those that the kernel makes stay. Raises CompilationError for a descriptor that is no tensor map.
    """
    known = argument_facts(function)
    makes = [op for op in function.walk() if op.name == "tt.make_tensor_descriptor"]
    if not makes:
        return ()
    facts = AxisInfoAnalysis(function)
    arguments: dict[tuple[TensorMap, Type], Value] = {}
    taken = {argument.name for argument in function.body.arguments}
    for make in makes:
        if kernel_makes(make, facts):
            continue
        found = tensor_map_of(make, facts)
        if isinstance(found, str):
            raise CompilationError(
                f"this tensor descriptor cannot be handed to TMA: {found}",
                location=make.location.source,
                cure="make it of the kernel's arguments, and pass strides that are multiples of 16 elements; "
                "or load and store with tl.load and tl.store",
            )
        for access in make.result.users():
            reason = why_not_copied(access, make, facts)
            if reason is not None:
                raise CompilationError(
                    f"this copy cannot be handed to TMA: {reason}",
                    location=access.location.source,
                    cure="promise it with tl.multiple_of, or pass sizes that are multiples of 16; "
                    "or load and store with tl.load and tl.store",
                )
        key = found, make.result.type
        if key not in arguments:
            name = _free_name(f"{found.tensor}_map", taken)
            arguments[key] = function.body.add_argument(make.result.type, name)
        make.replace_with(arguments[key])
    kinds = tuple(argument.type for argument in function.body.arguments)
    function.attributes["function_type"] = FunctionType(kinds, ())
    if any(known):
        function.attributes["arg_attrs"] = (*known, *({} for _ in arguments))
    return tuple(tensor_map for tensor_map, _ in arguments)


def _free_name(wish: str, taken: set[str]) -> str:
    name, number = wish, 0
    while name in taken:
        number += 1
        name = f"{wish}{number}"
    taken.add(name)
    return name
