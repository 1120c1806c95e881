"""Calls: of builtins, of @jit functions, and of the few Python functions that have a meaning inside kernels."""

from __future__ import annotations

import ast
import functools
import inspect
import math
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from kernelpack.errors import CompilationError
from kernelpack.frontend.expressions import Expressions, is_constructor
from kernelpack.frontend.local_functions import LocalFunction, generate
from kernelpack.frontend.scope import describe_type, tensors_in
from kernelpack.frontend.visitor import as_value, bind, failing
from kernelpack.kernel import tuples
from kernelpack.kernel.aggregates import user_aggregate
from kernelpack.kernel.builtin import METHODS, BoundMethod, builtin_signature
from kernelpack.kernel.jit import JITFunction, is_constexpr_function
from kernelpack.kernel.types import dtype
from kernelpack.kernel.values import constexpr, tensor
from kernelpack.language import core, debugging
from kernelpack.language import math as tl_math
from kernelpack.semantics import operators

if TYPE_CHECKING:
    from kernelpack.frontend.control_flow import ControlFlow

# Python's functions whose run-time form is a builtin
_RUN_TIME: dict[Any, Callable[..., Any]] = {abs: tl_math.abs, min: core.minimum, max: core.maximum}
# Python's functions that look at values without computing with them
_INSPECTORS = (isinstance, hasattr, len, list, type, tuple)
# what a loop runs over; Python's range has the first three parameters of tl.range, without their names
_RANGES: dict[Any, inspect.Signature] = {function: inspect.signature(function) for function in (core.range, core.static_range)}
_RANGES[range] = inspect.Signature(
    [parameter.replace(kind=parameter.POSITIONAL_ONLY) for parameter in list(_RANGES[core.range].parameters.values())[:3]]
)
_CASTS = {float: "x.to(tl.float32)", int: "x.to(tl.int32)", bool: "x != 0"}


class Calls(Expressions):
    """Visits calls."""

    def visit_Call(self, node: ast.Call) -> Any:
        function = self.visit(node.func)
        if function is core.static_assert:
            return self.static_assert(node)
        if function is getattr:
            return self.attribute_by_name(node)
        if any(keyword.arg is None for keyword in node.keywords):
            raise CompilationError("** is not part of the kernel language", cure="name the arguments one by one")
        args = list(self.elements(node.args))
        kwargs = {str(keyword.arg): self.visit(keyword.value) for keyword in node.keywords}
        if isinstance(function, BoundMethod):
            args.insert(0, function.self)
            function = function.function
        if node is self.unused_call:
            self.check_used(node, function)
        return self.call(node, function, args, kwargs)

    def check_used(self, node: ast.Call, function: Any) -> None:
        """Refuses a call that throws away what @must_use_result says to use."""
        reason = getattr(function, "must_use_result", False)
        if reason:
            more = f" {reason}" if isinstance(reason, str) else ""
            raise CompilationError(f"The result of {ast.unparse(node.func)} is not being used.{more}")

    def call(self, node: ast.expr, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Returns what a call gives. Raises CompilationError for what kernels cannot call."""
        if isinstance(function, JITFunction):
            return self.module.call(self, function, bind(function.signature, function.__name__, args, kwargs))
        if isinstance(function, LocalFunction):
            return generate(cast("ControlFlow", self), function, bind(function.signature, function.__name__, args, kwargs))
        signature = builtin_signature(function)
        if signature is not None:
            bind(signature, function.__name__, args, kwargs)
            return function(*args, **kwargs, _generator=self)
        if function is constexpr:
            return self.constexpr_of(node, args, kwargs)
        if function is print:
            return debugging.device_print(*args, **kwargs, _generator=self)
        if function in _RANGES:
            bind(_RANGES[function], function.__name__, args, kwargs)
            return (core.range if function is range else function)(*args, **kwargs)
        if function is core.condition:
            return core.condition(*args, **kwargs)
        if function in (min, max):
            return self.extremum(node, function, args, kwargs)
        if function is abs and isinstance(args[0] if args else None, tensor):
            return tl_math.abs(*args, **kwargs, _generator=self)
        if function in _INSPECTORS:
            return self.query(node, function, args)
        if function is tuples.tuple:
            return self.query(node, tuple, args)
        if function in _CASTS and any(isinstance(value, tensor) for value in args):
            raise CompilationError(f"{function.__name__}() does not take run-time values", cure=f"use {_CASTS[function]}")
        if _runs_at_compile_time(function):
            return self.fold(node, function, *args, **kwargs)
        if is_constructor(function) or (args and isinstance(args[0], user_aggregate) and inspect.isfunction(function)):
            return self.construct(node, function, args, kwargs)
        called = node.func if isinstance(node, ast.Call) else node
        if inspect.isfunction(function) and isinstance(called, ast.Attribute) and is_constructor(self.visit(called.value)):
            return self.construct(node, function, args, kwargs)  # a static method of an aggregate
        if inspect.isfunction(function):
            return self.call_python(node, function, args, kwargs)
        raise CompilationError(f"`{ast.unparse(called)}` is {describe_type(function)}, which cannot be called")

    def constexpr_of(self, node: ast.expr, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Returns the value of `tl.constexpr(value)`. Kernels in use write it of run-time values, too: these are warned of."""
        if next(tensors_in(tuple(args)), None) is None:
            return self.fold(node, lambda value: value, *args, **kwargs)
        warnings.warn(
            f"{self.location(node).source}: `{ast.unparse(node)}` is {describe_type(args[0])}, which only running tells",
            stacklevel=2,
        )
        return args[0]

    def construct(self, node: ast.expr, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Makes a named tuple or an aggregate, or calls a plain method of one, as Python does."""
        parameters = inspect.signature(function).parameters
        more = {"_semantic": self} if "_semantic" in parameters else {}
        with failing(node):
            return as_value(function(*args, **kwargs, **more))

    def call_python(self, node: ast.expr, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Returns what a plain function of a module gives while compiling. Run-time values it can only hand on."""
        cure = f"decorate {function.__name__} with @kernelpack.jit if it computes with run-time values"
        with failing(node, " is called while compiling and fails", cure):
            return as_value(function(*args, **kwargs))

    def extremum(self, node: ast.expr, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """min() and max(): Python's for compile-time values, elementwise minimum and maximum for run-time values."""
        if not any(isinstance(value, tensor) for value in args):
            if any(
                isinstance(value, float) and (value != value or (value == 0 and math.copysign(1, value) < 0)) for value in args
            ):
                raise CompilationError(
                    f"{function.__name__}() of NaN or -0.0 depends on the order of its arguments",
                    cure=f"use tl.{_RUN_TIME[function].__name__}",
                )
            return self.fold(node, function, *args, **kwargs)
        if len(args) < 2 or kwargs:
            raise CompilationError(
                f"{function.__name__}() takes two or more values", cure=f"to reduce a tile use tl.{function.__name__}"
            )
        return functools.reduce(lambda x, y: _RUN_TIME[function](x, y, _generator=self), args)

    def query(self, node: ast.expr, function: Any, args: Sequence[Any]) -> Any:
        if function is len and isinstance(args[0] if args else None, tensor):
            if not args[0].shape:
                raise CompilationError("len() of a scalar")
            return args[0].shape[0]
        if function is isinstance and len(args) == 2:
            kinds = args[1] if isinstance(args[1], tuple) else (args[1],)
            if constexpr in kinds and not any(True for _ in tensors_in(args[0])):
                return True  # what is a constexpr elsewhere is its value here
        try:
            if function is hasattr:
                return self.has_attribute(*args)
            return as_value(function(*args))
        except TypeError as problem:
            raise CompilationError(f"`{ast.unparse(node)}`: {problem}") from None

    def has_attribute(self, value: Any, name: str) -> bool:
        if isinstance(value, tensor):
            return name in METHODS or hasattr(value, name)
        if isinstance(value, user_aggregate):
            return name in value.fields or hasattr(type(value), name)
        return hasattr(value, name)

    def attribute_by_name(self, node: ast.Call) -> Any:
        """getattr(x, name) is x.name for a name known at compile time; a third argument is for where there is none."""
        name = self.visit(node.args[1]) if len(node.args) in (2, 3) and not node.keywords else None
        if not isinstance(name, str):
            raise CompilationError("getattr() takes a value and a compile-time name", cure="write the attribute: x.name")
        if len(node.args) == 3 and not self.has_attribute(self.visit(node.args[0]), name):
            return self.visit(node.args[2])
        return self.visit(ast.copy_location(ast.Attribute(node.args[0], name, ast.Load()), node))

    def static_assert(self, node: ast.Call) -> None:
        """The message is evaluated only where the assertion fails."""
        texts = {"cond": None, "msg": None} | {str(keyword.arg): keyword.value for keyword in node.keywords}
        texts |= dict(zip(("cond", "msg"), node.args, strict=False))
        if texts["cond"] is None or len(texts) != 2 or len(node.args) + len(node.keywords) > 2:
            raise CompilationError("tl.static_assert takes a condition and a message")
        self.check(texts["cond"], texts["msg"])

    def check(self, condition: ast.expr, message: ast.expr | None, *, may_be_run_time: bool = False) -> None:
        value = self.visit(condition)
        if may_be_run_time and isinstance(value, tensor):
            text = "" if message is None else self.visit(message)
            debugging.device_assert(value, text or ast.unparse(condition), _generator=self)
            return
        failed = not isinstance(value, tensor) and not value
        text = self.visit(message) if failed and message is not None else ""
        if failed and not text:
            text = ast.unparse(condition)
        core.static_assert(value, text, _generator=self)

    def inline(self, function: Any, args: Sequence[Any]) -> Any:
        """Generates the body of a @jit function at this place and returns what it returns."""
        if isinstance(function, LocalFunction):
            return generate(cast("ControlFlow", self), function, bind(function.signature, function.__name__, args, {}))
        if not isinstance(function, JITFunction):
            raise CompilationError(
                f"a @jit function is needed, got {describe_type(function)}", cure="decorate it with @kernelpack.jit"
            )
        return self.module.inline(self, function, bind(function.signature, function.__name__, args, {}))


def _runs_at_compile_time(function: Any) -> bool:
    """Whether a Python callable may be called on compile-time values: it is pure, and so are its arguments."""
    owner = getattr(function, "__self__", None)
    return (
        is_constexpr_function(function)
        or function in (abs, bool, float, int, str)
        or (isinstance(function, type) and issubclass(function, dtype))
        or (owner is not None and (isinstance(owner, (dtype, str, tuple)) or operators.is_number(owner)))
        or getattr(function, "__module__", None) == math.__name__
    )
