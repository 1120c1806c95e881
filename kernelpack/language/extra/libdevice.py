"""tl.extra.libdevice: elementwise functions, by the names they have in NVIDIA's libdevice. CPUs have nearly all of them too.

Arguments are broadcast, and promoted together where there is no variant for their types.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from kernelpack.errors import CompilationError
from kernelpack.ir.libdevice import BOOLEAN, FUNCTIONS, Variant
from kernelpack.kernel.builtin import Generator, builtin
from kernelpack.kernel.signatures import parse_type
from kernelpack.kernel.types import block_type, int1
from kernelpack.kernel.values import tensor
from kernelpack.semantics import operators

__all__ = list(FUNCTIONS)


def _function(name: str, variants: list[Variant]) -> Callable[..., tensor]:
    count = len(variants[0].arguments)

    def function(*args: Any, _generator: Generator) -> tensor:
        b = _generator.builder
        values = [operators.to_tensor(b, value) for value in args]
        variant = _variant(variants, values)
        if variant is None and count > 1:
            for other in range(1, count):
                values[0], _ = operators.operands(b, f"libdevice.{name}", values[0], values[other])
            values = [operators.cast(b, value, values[0].dtype) for value in values]
            variant = _variant(variants, values)
        if variant is None:
            kinds = " or ".join(f"({', '.join(entry.arguments)})" for entry in variants)
            raise CompilationError(
                f"libdevice.{name} takes {kinds}, not ({', '.join(str(value.dtype) for value in values)})",
                cure="cast the arguments with .to()",
            )
        values = list(operators.broadcast(b, *values))
        element = parse_type(variant.result)
        kind = block_type(element, values[0].shape) if values[0].shape else element
        attributes = {"libname": "libdevice", "symbol": variant.symbol}
        made = tensor(b.value("tt.extern_elementwise", [v.handle for v in values], attributes, kind.to_ir()), kind)
        return operators.cast(b, made, int1) if name in BOOLEAN else made

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(f"arg{number}", kind) for number in range(count)]
    made: Any = function
    made.__signature__ = inspect.Signature([*parameters, inspect.Parameter("_generator", inspect.Parameter.KEYWORD_ONLY)])
    made.__name__ = made.__qualname__ = name
    made.__doc__ = f"libdevice's {name}, for {', '.join(' '.join(entry.arguments) for entry in variants)}."
    return builtin(made)


def _variant(variants: list[Variant], values: list[tensor]) -> Variant | None:
    given = [value.dtype for value in values]
    return next((entry for entry in variants if [parse_type(kind) for kind in entry.arguments] == given), None)


globals().update({name: _function(name, variants) for name, variants in FUNCTIONS.items()})
