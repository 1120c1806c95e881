"""The first stage: from a @jit function and what is known of its arguments to a ttir module."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kernelpack.errors import CompilationError
from kernelpack.facts import Fact
from kernelpack.frontend.control_flow import ControlFlow
from kernelpack.frontend.scope import mangle, parts_of, replace_tensors, tensors_in, with_parts
from kernelpack.frontend.visitor import ENDLESS, Visitor, called_from
from kernelpack.ir.core import Attribute, Block, Builder, Location, Operation, Region, Value, module
from kernelpack.ir.dialect import is_pure
from kernelpack.ir.types import FunctionType
from kernelpack.ir.verify import verify
from kernelpack.kernel.aggregates import plain, user_aggregate
from kernelpack.kernel.arguments import class_of, part_names
from kernelpack.kernel.jit import JITFunction
from kernelpack.kernel.signatures import parse_type
from kernelpack.kernel.source import location_of
from kernelpack.kernel.structured_types import tensor_descriptor_type
from kernelpack.kernel.types import dtype, int32, int64, pointer_type
from kernelpack.kernel.values import aggregate, tensor, tensor_descriptor
from kernelpack.limits import check_copies
from kernelpack.options import BY_DEFAULT, Options
from kernelpack.process_wide import deep_recursion_in


def ast_to_ttir(
    fn: JITFunction,
    signature: Mapping[str, Any],
    constexprs: Mapping[str, object],
    facts: Sequence[Fact] = (),
    options: Options = BY_DEFAULT,
    *,
    any_warps: bool = False,
    plain_globals: bool = False,
) -> Operation:
    """Returns a verified module with one public function, the kernel, and a private one for each function that it calls.

    `signature` gives the types of the run-time arguments (`*fp32`, `i32`, ...), `constexprs` the values of all others; where
    both leave an argument out, its default is a compile-time value. The type of a tuple is a tuple of types, "constexpr" for
    entries that `constexprs` has under a dotted path ("xs.1"), as it has the class of a named tuple or an aggregate under the
    path of that. `facts` become attributes of the arguments. With `any_warps` the module serves options with other numbers of warps
    too, and kernels cannot ask for that. With `plain_globals` they may read globals that are no constants. Raises
    CompilationError with the place in the user's source.
    """
    arguments = _kernel_arguments(fn, signature, constexprs)
    generator = ModuleGenerator(fn.symbol(signature, constexprs), options, any_warps, plain_globals)
    with deep_recursion_in(fn.location):
        kernel = generator.function(fn, arguments, is_kernel=True)
        assert kernel.op is not None
        _attach_facts(fn, kernel.op, facts)
        made = module(generator.finished())
        verify(made)
    return made


def _kernel_arguments(fn: JITFunction, signature: Mapping[str, Any], constexprs: Mapping[str, object]) -> dict[str, Any]:
    """Returns the arguments by name: compile-time values, and tensors that only show the types of run-time values."""
    unknown = sorted({*signature, *(name.partition(".")[0] for name in constexprs)} - set(fn.arg_names))
    if unknown:
        raise CompilationError(
            f"{fn.__name__} has no argument {', '.join(unknown)}",
            location=fn.location,
            cure=f"it has {', '.join(fn.arg_names)}",
        )
    arguments: dict[str, Any] = {}
    for param in fn.params:
        if param.is_constexpr and param.do_not_specialize:
            raise CompilationError(f"{param.name} marked as constexpr and listed in do_not_specialize", location=fn.location)
        if isinstance(signature.get(param.name), tuple):
            arguments[param.name] = _shown_tuple(fn, param.name, signature[param.name], constexprs)
        elif param.name in constexprs:
            arguments[param.name] = plain(constexprs[param.name])
        elif param.name in signature:
            if param.is_constexpr:
                raise CompilationError(
                    f"argument {param.name} of {fn.__name__} is tl.constexpr: it needs a value, not a type",
                    location=fn.location,
                )
            try:
                arguments[param.name] = _shown(parse_type(signature[param.name]))
            except ValueError as problem:
                raise CompilationError(f"argument {param.name} of {fn.__name__}: {problem}", location=fn.location) from None
        elif param.has_default:
            arguments[param.name] = param.default
        else:
            raise CompilationError(
                f"argument {param.name} of {fn.__name__} is missing",
                location=fn.location,
                cure="give its value" if param.is_constexpr else "give its type in the signature, or a value",
            )
    return arguments


def _shown_tuple(fn: JITFunction, path: str, types: tuple[Any, ...], constexprs: Mapping[str, object]) -> Any:
    """Returns a tuple or an aggregate argument whose run-time parts only show types."""
    parts: list[Any] = []
    for number, kind in enumerate(types):
        place = f"{path}.{number}"
        if isinstance(kind, tuple):
            parts.append(_shown_tuple(fn, place, kind, constexprs))
        elif kind == "constexpr":
            parts.append(plain(constexprs[place]))
        else:
            try:
                parts.append(_shown(parse_type(kind)))
            except ValueError as problem:
                raise CompilationError(f"argument {place} of {fn.__name__}: {problem}", location=fn.location) from None
    made: Any = constexprs.get(path)
    if made is None:
        return tuple(parts)
    return made.of_parts(parts) if issubclass(made, user_aggregate) else made(*parts)


def _shown(kind: dtype) -> tensor | aggregate:
    """Returns a value that only shows the type of a run-time argument."""
    if not isinstance(kind, tensor_descriptor_type):
        return tensor(Value(kind.to_ir()), kind)
    base, size, step = (tensor(Value(part.to_ir()), part) for part in (pointer_type(kind.element_ty), int32, int64))
    rank = len(kind.block_type.shape)
    return tensor_descriptor(kind, base, [size] * rank, [step] * (rank - 1))


def _attach_facts(fn: JITFunction, op: Operation, facts: Sequence[Fact]) -> None:
    if not facts:
        return
    names = [argument.name for argument in op.body.arguments]
    facts = [fact for fact in facts if names.count(fact.parameter) < 2]  # of two, a part of a tuple is called as a parameter is
    entries: list[dict[str, Attribute]] = [{} for _ in names]
    for fact in facts:
        if fact.parameter not in names:
            raise CompilationError(
                f"the fact {fact} is about {fact.parameter!r}, which is no run-time argument of {fn.__name__}",
                location=fn.location,
            )
        entries[names.index(fact.parameter)][fact.property] = fact.value
    op.attributes["arg_attrs"] = tuple(entries)


@dataclass
class CompiledFunction:
    """A function of the module: `op` once it is complete, and what it returns, with its own IR values."""

    name: str
    op: Operation | None = None
    value: Any = None

    @property
    def does_nothing(self) -> bool:
        """Whether it has no effect and gives compile-time values only, so that calls leave no trace."""
        if self.op is None or any(True for _ in tensors_in(self.value)):
            return False
        return all(is_pure(op) for op in self.op.body.operations[:-1])


class ModuleGenerator:
    """Compiles functions into one module, each once for every combination of argument types and compile-time values. The kernel
    is called `symbol`."""

    def __init__(self, symbol: str, options: Options, any_warps: bool, plain_globals: bool) -> None:
        self.symbol = symbol
        self.options = options
        self.any_warps = any_warps
        self.plain_globals = plain_globals
        self.functions: list[CompiledFunction] = []
        self.by_key: dict[tuple[Any, ...], CompiledFunction] = {}
        self.nodes = 0
        """How many pieces of Python have been compiled."""
        self.copies = 1
        """How often what is compiled now is copied by the unrolled loops around it."""
        self.promised: dict[Value, dict[str, tuple[int, ...]]] = {}
        """What is promised of arguments of blocks."""

    @contextmanager
    def copied(self, times: int) -> Iterator[None]:
        """Counts what is compiled inside so many times. Raises CompilationError where that is too often."""
        outer, self.copies = self.copies, self.copies * max(times, 1)
        try:
            check_copies(self.copies)
            yield
        finally:
            self.copies = outer

    def finished(self) -> list[Operation]:
        """Returns the functions that the module needs, callers before those they call."""
        return [
            made.op
            for made in self.functions
            if made.op is not None and not (made.does_nothing and made is not self.functions[0])
        ]

    def function(self, fn: JITFunction, arguments: dict[str, Any], *, is_kernel: bool = False) -> CompiledFunction:
        """Compiles a function; tensors in `arguments` show the types of its run-time arguments."""
        made = CompiledFunction(self._name(fn, arguments, is_kernel))
        self.functions.append(made)
        self.by_key[_key(fn, arguments)] = made
        tree = fn.parse()
        block = Block()
        builder = Builder(block, location=Location(location_of(tree, fn.source)))
        scope = {name: _as_parameter(block, name, value) for name, value in arguments.items()}
        visitor = ControlFlow(self, fn, builder, scope)
        visitor.returns_values, visitor.frame = not is_kernel, made
        flow = visitor.visit_body(tree.body, last=True)
        made.value = flow.value
        results = [entry.handle for entry in tensors_in(flow.value)]
        builder.create("tt.return", results)
        kind = FunctionType(tuple(argument.type for argument in block.arguments), tuple(value.type for value in results))
        attributes = {
            "sym_name": made.name,
            "function_type": kind,
            "sym_visibility": "public" if is_kernel else "private",
            "noinline": bool(fn.noinline),
        }
        if fn.noinline == "object":
            attributes["tt.own_object"] = True
        made.op = Operation("tt.func", attributes=attributes, regions=[Region([block])], location=builder.location)
        return made

    def call(self, caller: Visitor, fn: JITFunction, arguments: dict[str, Any]) -> Any:
        """Creates a call, compiling the function if these arguments are new, and returns what it gives."""
        made = self.by_key.get(_key(fn, arguments))
        if made is None:
            with called_from(caller, fn.__name__, fn.module):
                made = self.function(fn, arguments)
        elif made.op is None:
            raise CompilationError(
                f"{fn.__name__} calls itself with the same types and compile-time values, without end", cure=ENDLESS
            )
        if made.does_nothing:
            return made.value
        operands = [entry.handle for entry in tensors_in(tuple(arguments.values()))]
        kinds = [entry.handle.type for entry in tensors_in(made.value)]
        results = iter(caller.builder.create("tt.call", operands, {"callee": made.name}, kinds).results)
        return replace_tensors(made.value, lambda entry: tensor(next(results), entry.type))

    def inline(self, caller: Visitor, fn: JITFunction, arguments: dict[str, Any]) -> Any:
        """Generates the body of a function where the caller is, and returns what it gives."""
        visitor = ControlFlow(self, fn, caller.builder, arguments, caller.builder.location)
        visitor.frame = caller.frame
        with called_from(caller, fn.__name__, fn.module):
            return visitor.visit_body(fn.parse().body, last=True).value

    def _name(self, fn: JITFunction, arguments: dict[str, Any], is_kernel: bool) -> str:
        """Returns a symbol that tells what a function was compiled for; the same in every run."""
        if is_kernel:
            return self.symbol
        name = re.sub(r"\W", "_", f"{fn.__name__}__{'_'.join(mangle(value) for value in arguments.values())}")
        if len(name) > 100:
            name = f"{name[:80]}_{hashlib.sha256(name.encode()).hexdigest()[:12]}"
        taken = {made.name for made in self.functions}
        numbered = (f"{name}_{count}" for count in itertools.count(1))
        return next(free for free in itertools.chain([name], numbered) if free not in taken)


def _as_parameter(block: Block, name: str, value: Any) -> Any:
    """Returns an argument as the function sees it. Parts of tuples and aggregates are parameters of their own: `name_part`."""
    if isinstance(value, aggregate):
        return value.with_parts([_as_parameter(block, f"{name}_{part}", entry) for part, entry in value.parts().items()])
    if isinstance(value, tuple):
        parts = part_names(class_of(value), len(value))
        entries = [_as_parameter(block, f"{name}_{part}", entry) for part, entry in zip(parts, value, strict=True)]
        return with_parts(value, entries)
    return replace_tensors(value, lambda entry: tensor(block.add_argument(entry.handle.type, name), entry.type))


def _key(fn: JITFunction, arguments: dict[str, Any]) -> tuple[Any, ...]:
    return (fn, *(_specialization(value) for value in arguments.values()))


def _specialization(value: Any) -> Any:
    """Returns what a function is compiled for, of one argument: hashable, and different wherever the code could differ."""
    if isinstance(value, tensor):
        return value.type
    if isinstance(value, (tuple, aggregate)):
        kind = value.type if isinstance(value, aggregate) else type(value)
        return (kind, *(_specialization(entry) for entry in parts_of(value)))
    if value is None or isinstance(value, (bool, int, float, str)):
        return (type(value), repr(value))
    return value
