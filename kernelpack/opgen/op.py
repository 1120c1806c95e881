"""@kp.op: makes a host function an op. Called from Python it runs for real, over the JIT; built, it is C++ and a fake kernel."""

from __future__ import annotations

import contextvars
import functools
import inspect
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from kernelpack import language
from kernelpack.backends.installed import backend_for_device
from kernelpack.dtypes import DType, dtype_of
from kernelpack.errors import HostFunctionError, SchemaError, SourceLocation
from kernelpack.kernel.arguments import class_of, entries_of, part_names
from kernelpack.kernel.jit import JITFunction, jit_function
from kernelpack.kernel.source import innermost, source_of
from kernelpack.opgen.host import runtime as host_runtime
from kernelpack.opgen.host.gradients import refusing_gradients
from kernelpack.opgen.host.ir import HostFunction
from kernelpack.opgen.host.translate import translate
from kernelpack.opgen.stated.config import (
    Assumptions,
    ConfigLike,
    Fastest,
    VariantPoint,
    aligned,
    check_configs,
    check_specializations,
    config_for,
)
from kernelpack.opgen.stated.kernels import is_kernel, kernel_parameters
from kernelpack.opgen.stated.schema import Schema, parse_schema
from kernelpack.opgen.stated.space import SameAs, Space, check_space
from kernelpack.runtime.driver import driver
from kernelpack.target import Target

_T = TypeVar("_T")

_DTYPES: contextvars.ContextVar[Mapping[str, Any]] = contextvars.ContextVar("kernelpack_dtypes")
"""The dtypes of the running op's tensor arguments, as its `variants` list them: what config functions may ask for."""

_READ_ONLY: contextvars.ContextVar[Sequence[Any]] = contextvars.ContextVar("kernelpack_read_only", default=())
"""The tensor arguments of the running op that its schema does not mark as written to."""


@dataclass(frozen=True)
class CapturedLaunch:
    """A launch that a host function would have made. `arguments` are those given, by the names of the kernel's parameters, and of axes
    that only choose a config; `line` is that of the launch in the host function's file."""

    kernel: JITFunction
    grid: Any
    arguments: Mapping[str, Any]
    line: int


_CAPTURED: contextvars.ContextVar[list[CapturedLaunch] | None] = contextvars.ContextVar("kernelpack_captured", default=None)
_MADE: contextvars.ContextVar[list[Op] | None] = contextvars.ContextVar("kernelpack_made", default=None)


@contextmanager
def _collected(into: contextvars.ContextVar[list[_T] | None]) -> Iterator[list[_T]]:
    """Context: makes a new list the value of `into`, for others to append to, and returns it."""
    found: list[_T] = []
    before = into.set(found)
    try:
        yield found
    finally:
        into.reset(before)


def capture() -> AbstractContextManager[list[CapturedLaunch]]:
    """Context: ops that Python calls inside launch nothing, but append their launches to the list."""
    return _collected(_CAPTURED)


def ops_made() -> AbstractContextManager[list[Op]]:
    """Context: every op that is made inside is appended to the list, whether or not a name still refers to it."""
    return _collected(_MADE)


class Op:
    """An op: schema, host function and the space of its variants.

    Calling it checks the arguments as the built op does, then runs the host function over the JIT. `out` is the overload
    that writes into given tensors.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        schema: Schema,
        variants: Mapping[str, Iterable[Any]],
        configs: Mapping[str, ConfigLike],
        specialize: Sequence[Assumptions],
        location: SourceLocation,
        tune: Callable[..., Iterable[Sequence[Any]]] | None = None,
    ) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.schema = schema
        self.configs = check_configs(configs, schema.name, location)
        self.specialize = check_specializations(specialize, schema.name, location)
        self.location = location
        self.tune = tune
        self.space: Space = check_space(schema, variants, location)
        if tune is not None and not callable(tune):
            raise HostFunctionError(
                f"tune of {self.name}: expected a function that yields calls, found {tune!r}", location=location
            )
        made = _MADE.get()
        if made is not None:
            made.append(self)

    @property
    def name(self) -> str:
        return self.schema.name

    @functools.cached_property
    def host(self) -> HostFunction:
        """The host function as host IR. Raises HostFunctionError for Python that has no translation."""
        return translate(self.function, self.schema, self.space.constexprs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        values = {name: driver.active.host_value(value) for name, value in self._bind(args, kwargs).items()}
        with host_runtime.running(self.name):
            for argument in self.schema.tensors:
                values[argument.name] = host_runtime.with_signs(argument.name, values[argument.name], self.schema.writes)
            self._check(values)
            return refusing_gradients(self.name, self._run, values, writes=self.schema.writes)

    def _run(self, values: Mapping[str, Any]) -> Any:
        """Runs the host function on arguments that are checked."""
        outer = _DTYPES.set({argument.name: self._listed(argument.name, values) for argument in self.schema.tensors})
        kept = _READ_ONLY.set([values[argument.name] for argument in self.schema.tensors if not argument.mutated])
        try:
            return self._runnable(**values)
        finally:
            _READ_ONLY.reset(kept)
            _DTYPES.reset(outer)

    def out(self, *args: Any, **kwargs: Any) -> None:
        """Runs the op and writes its results into the tensors given by keyword (`out=`)."""
        overload = self.schema.out_variant()
        if overload is None:
            raise TypeError(f"{self.name} has no .out overload: {self.schema}")
        names = [argument.name for argument in overload.arguments[len(self.schema.arguments) :]]
        missing = [name for name in names if name not in kwargs]
        if missing:
            raise TypeError(f"{self.name}.out misses {', '.join(missing)}: {overload}")
        given = [kwargs.pop(name) for name in names]
        results = self(*args, **kwargs)
        for name, target, result in zip(names, given, results if len(names) > 1 else (results,), strict=True):
            with host_runtime.running(self.name):
                host_runtime.with_signs(name, target, True)
                host_runtime.check_output(name, target, result)
            target.copy_(result)

    def _bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the arguments in order of the schema, with its defaults."""
        kinds = inspect.Parameter
        parameters = [
            kinds(
                argument.name,
                kinds.KEYWORD_ONLY if argument.keyword_only else kinds.POSITIONAL_OR_KEYWORD,
                default=argument.default if argument.has_default else kinds.empty,
            )
            for argument in self.schema.arguments
        ]
        try:
            bound = inspect.Signature(parameters).bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self.name}: {error}; the schema is {self.schema}") from None
        bound.apply_defaults()
        return dict(bound.arguments)

    def _check(self, values: Mapping[str, Any]) -> None:
        """The checks that the built op makes before its host function runs."""
        tensors = {argument.name: values[argument.name] for argument in self.schema.tensors}
        host_runtime.check_same_device(**tensors)
        for name, x in tensors.items():
            expected = [_torch_dtype(values, entry) for entry in self.space.dtypes[name]]
            host_runtime.check_dtype(name, x, expected)

    def _listed(self, name: str, values: Mapping[str, Any]) -> Any:
        """Returns what `variants` lists for the dtype that an argument has."""
        dtype = None if values[name] is None else dtype_of(values[name].dtype)
        sources = [name, *(entry.argument for entry in self.space.dtypes[name] if isinstance(entry, SameAs))]
        return next((self.space.listed[source, dtype] for source in sources if (source, dtype) in self.space.listed), None)

    @functools.cached_property
    def _runnable(self) -> Callable[..., Any]:
        """The host function with its kernels bound to the op's configs."""
        return _with_kernels_of(self, self.function, {})

    def __repr__(self) -> str:
        return f"Op({self.schema})"


def _with_kernels_of(op: Op, function: Any, copies: dict[Any, types.FunctionType]) -> types.FunctionType:
    """Returns a copy of a host function in which kernels are bound to the op's configs, also in the functions that it calls, and
    dtypes of the language are those of torch, which its tensors have."""

    def bound(value: Any) -> Any:
        if is_kernel(value):
            return BoundKernel(op, value)
        if inspect.isfunction(value) and not value.__module__.startswith(("kernelpack.", "torch.")):
            return copies.get(value) or _with_kernels_of(op, value, copies)
        return _LanguageOnHost() if value is language else _on_host(value)

    names = dict(function.__globals__)
    cells = tuple(types.CellType() for _ in function.__closure__ or ())
    copy = types.FunctionType(function.__code__, names, function.__name__, function.__defaults__, cells)
    copy.__kwdefaults__ = function.__kwdefaults__
    copies[function] = copy  # before what it calls: that may call it
    names |= {name: bound(names[name]) for name in _names_in(function.__code__) & names.keys()}
    for cell, outer in zip(cells, function.__closure__ or (), strict=True):
        cell.cell_contents = bound(outer.cell_contents)
    return copy


class _LanguageOnHost:
    """What a host function that Python runs sees as kernelpack.language."""

    def __getattr__(self, name: str) -> Any:
        return _on_host(getattr(language, name))


def _on_host(value: Any) -> Any:
    row = dtype_of(value) if isinstance(value, language.dtype) else None
    return value if row is None else _named_in_torch(row)


def _named_in_torch(row: DType) -> Any:
    import torch

    return getattr(torch, row.name)


def _names_in(code: types.CodeType) -> set[str]:
    """Returns the names that a function's code looks up, lambdas in it included."""
    return set(code.co_names).union(*(_names_in(inner) for inner in code.co_consts if isinstance(inner, types.CodeType)))


class BoundKernel:
    """A kernel inside a host function that Python runs: a launch takes what it leaves open from the op's configs."""

    def __init__(self, op: Op, kernel: Any) -> None:
        self.op = op
        self.kernel = kernel
        self.fn = jit_function(kernel)

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        def launch(*args: Any, **kwargs: Any) -> Any:
            captured = _CAPTURED.get()
            if captured is not None:
                names = (parameter.name for parameter in kernel_parameters(self.kernel))
                assert self.fn is not None
                arguments = _flat({**dict(zip(names, args, strict=False)), **kwargs})
                captured.append(CapturedLaunch(self.fn, grid, arguments, sys._getframe(1).f_lineno))
                return None
            if _writes_nothing(_flat({"": args, **kwargs}).values()):
                return None
            bound = self._bound(args, kwargs)
            parameters = {parameter.name for parameter in kernel_parameters(self.kernel)}
            passed = {
                name: value for name, value in kwargs.items() if name in parameters or name not in self.op.space.constexprs
            }
            return self.kernel[grid](*args, **passed, **bound)

        return launch

    def _bound(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the constexprs and options that the launch leaves open."""
        if self.fn is not self.kernel:  # autotuned or with heuristics: it binds them itself
            return {}
        parameters = kernel_parameters(self.kernel)
        given = {**dict(zip((parameter.name for parameter in parameters), args, strict=False)), **kwargs}
        tensors = [value for value in _flat(given).values() if hasattr(value, "device") and hasattr(value, "dtype")]
        if not tensors:
            return {}
        target = device_target(tensors[0].device)
        values = {
            parameter.name: given[parameter.name]
            for parameter in parameters
            if parameter.is_constexpr and parameter.name in given
        }
        values |= {name: value for name, value in kwargs.items() if name in self.op.space.constexprs}
        known = {**_DTYPES.get(), **values}
        config = config_for(self.op.configs, VariantPoint(known, target, self.fn.__name__))
        if isinstance(config, Fastest):
            config = config.configs[0]
        if config is None:
            raise HostFunctionError(
                f"configs of {self.op.name} declines {self.fn.__name__} with {values} for {target}", location=self.op.location
            )
        names = {parameter.name for parameter in parameters if parameter.is_constexpr}
        bound = {name: value for name, value in config.kwargs.items() if name in names and name not in given}
        return bound | {name: value for name, value in config.options().items() if name not in given}


def _flat(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Returns arguments by the names of the kernel's parameters, of tuples those of their parts: `strides_row`."""
    found: dict[str, Any] = {}
    for name, value in arguments.items():
        entries = entries_of(value)
        if entries is None:
            found[name] = value
        else:
            names = part_names(class_of(value), len(entries))
            found |= _flat({f"{name}_{part}": entry for part, entry in zip(names, entries, strict=True)})
    return found


def _writes_nothing(arguments: Iterable[Any]) -> bool:
    """Whether no tensor that a launch may write to has an element: such launches are left out, as in the built op."""
    tensors = (value for value in arguments if hasattr(value, "numel") and not any(value is x for x in _READ_ONLY.get()))
    counts = [tensor.numel() for tensor in tensors]
    return bool(counts) and not any(counts)


def device_target(device: Any) -> Target:
    """Returns the target of a torch device of this machine. Raises HostFunctionError if no backend runs there."""
    emulated: Target | None = driver.active.emulated_target
    if emulated is not None:
        return emulated
    backend = backend_for_device(device.type)
    if backend is None:
        raise HostFunctionError(f"no backend runs on device {device}")
    return backend.native_target()


def _torch_dtype(values: Mapping[str, Any], entry: DType | SameAs | None) -> Any:
    if isinstance(entry, SameAs):
        return values[entry.argument].dtype
    return None if entry is None else _named_in_torch(entry)


def op(
    schema: str,
    *,
    variants: Mapping[str, Iterable[Any]],
    configs: Mapping[str, ConfigLike] | None = None,
    specialize: Sequence[Assumptions] | None = None,
    tune: Callable[..., Iterable[Sequence[Any]]] | None = None,
) -> Callable[[Callable[..., Any]], Op]:
    """Decorator: makes a host function the torch op that a schema describes.

    - `schema`: in torch's notation, `"name(Tensor x, float eps=1e-12) -> Tensor"`, with the function's name and parameters.
    - `variants`: which kernels are built. For a Tensor argument, the dtypes that it may have; for a constexpr parameter of a
      kernel, the values that launches pass. A Tensor argument that is not listed has the dtype of the first one that is. A name
      that is no parameter of the kernel serves to choose among configs alone: values with the same config share a kernel.
    - `configs`: by target, the values of the other constexpr parameters and the compile options. Of the keys (`"cpu"`,
      `"cuda:sm_90a"`, `""`) the longest with which the target's text begins counts. A value is a kp.Config, a kp.fastest(...), or
      a function that returns one of these for a kp.VariantPoint, or None to leave that variant out of the build.
    - `specialize`: each entry adds a variant that assumes more of its arguments (default: one, `kp.aligned()`).
    - `tune`: a function that yields the arguments of calls, for `kernelpack tune` to time. It is given `tensor`:
      `tensor("x", 4, 1024)` makes a tensor of this shape with the dtype that argument x has in the variant that is timed, or None.

    The host function checks arguments, allocates results and launches kernels. It becomes C++ and a fake kernel, so it may contain numbers,
    conditions, shapes, `if`, `for ... in range(...)`, kp's functions and launches; it computes nothing on tensors. docs/host-functions.md lists
    all of it, docs/write-an-op.md explains variants and configs.

    A launch that can write to no element is left out: all that its kernel may write to (what the host function allocates, and
    arguments marked `Tensor(a!)`) is empty. What such a kernel would print or assert does not happen.

    Raises SchemaError and HostFunctionError with the place in the source.
    """
    caller = sys._getframe(1)
    location = SourceLocation(caller.f_code.co_filename, caller.f_lineno)

    def decorate(function: Callable[..., Any]) -> Op:
        parsed = parse_schema(schema, _schema_location(function, location))
        if parsed.name != getattr(function, "__name__", parsed.name):
            raise SchemaError(
                f"the schema names {parsed.name!r}, the host function is called {function.__name__!r}",
                location=location,
                cure="give both the same name",
            )
        return Op(function, parsed, variants, configs or {}, (aligned(),) if specialize is None else specialize, location, tune)

    return decorate


def _schema_location(function: Callable[..., Any], fallback: SourceLocation) -> SourceLocation:
    """Returns where the schema's text starts."""
    try:
        found = source_of(innermost(function))
    except Exception:
        return fallback
    for decorator in found.tree.decorator_list:
        arguments = getattr(decorator, "args", [])
        if arguments and decorator.lineno == fallback.line:
            return SourceLocation(found.file, arguments[0].lineno, arguments[0].col_offset + 1)
    return fallback
