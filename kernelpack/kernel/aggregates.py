"""@aggregate: classes whose instances are values of kernels, made of tensors, constexprs, tuples and other aggregates."""

from __future__ import annotations

import builtins
import functools
import inspect
import typing
from collections.abc import Sequence
from typing import Any, ClassVar

from kernelpack.kernel.types import dtype
from kernelpack.kernel.values import aggregate as value_of_parts
from kernelpack.kernel.values import constexpr, same_tuple, tensor, unwrap


class aggregate_type(dtype):
    """The type of an aggregate's instances: its class. Parts have types of their own."""

    def __new__(cls, of: type) -> aggregate_type:
        self = object.__new__(cls)
        self.of = of
        self.name = of.__name__
        self.primitive_bitwidth = 0
        return self

    of: type

    def __reduce__(self) -> builtins.tuple[object, ...]:
        return aggregate_type, (self.of,)

    def mangle(self) -> str:
        return f"A{self.name}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, aggregate_type) and self.of is other.of

    def __hash__(self) -> int:
        return hash(self.of)

    def __repr__(self) -> str:
        return self.name


class user_aggregate(value_of_parts):
    """The base of the classes that @aggregate makes. Instances do not change: aggregate_replace gives a changed copy."""

    fields: ClassVar[dict[str, Any]] = {}
    """The annotation of every field, inherited ones first."""
    defaults: ClassVar[dict[str, Any]] = {}
    type: dtype

    def parts(self) -> dict[str, Any]:
        return {name: plain(getattr(self, name)) for name in self.fields}

    def with_parts(self, parts: Sequence[Any]) -> user_aggregate:
        return builtins.type(self).of_parts(parts)

    @classmethod
    def of_parts(cls, parts: Sequence[Any]) -> user_aggregate:
        """Returns an instance with these fields, past `__init__`."""
        made = object.__new__(cls)
        for (name, annotation), part in zip(cls.fields.items(), parts, strict=True):
            object.__setattr__(made, name, _as_field(name, annotation, part))
        return made

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self.fields:
            raise AttributeError(f"{builtins.type(self).__name__} has no field {name!r}")
        if "_building" not in self.__dict__:
            raise AttributeError(f"cannot assign to field {name!r} on immutable aggregate {builtins.type(self).__name__}")
        object.__setattr__(self, name, _as_field(name, self.fields[name], value))

    def __repr__(self) -> str:
        return f"{builtins.type(self).__name__}({', '.join(f'{name}={part!r}' for name, part in self.parts().items())})"


def aggregate(cls: type) -> type:
    """Decorator: makes a class a type of kernel values.

    Its annotations are the fields: tl.tensor, tl.constexpr, tl.tuple, other aggregates. Without an `__init__` of its own it takes
    the fields in order; values given to fields in the class are defaults. Methods may be @jit functions, @constexpr_functions,
    or plain functions, which run while a kernel is compiled. Raises TypeError for a base that is no aggregate.
    """
    if any(base is not object and not issubclass(base, user_aggregate) for base in cls.__bases__):
        raise TypeError("Aggregates can only inherit from other aggregates")
    own = typing.get_type_hints(cls, localns={cls.__name__: cls}) if "__annotations__" in vars(cls) else {}
    namespace = {name: value for name, value in vars(cls).items() if name not in ("__dict__", "__weakref__")}
    init = namespace.get("__init__")
    if init is not None and not inspect.isfunction(init):
        raise ValueError(f"{cls.__name__}.__init__ cannot be a @jit function: it runs while a kernel is compiled")
    inherited = [base for base in cls.__bases__ if issubclass(base, user_aggregate)]
    fields: dict[str, Any] = {}
    defaults: dict[str, Any] = {}
    for base in inherited:
        fields |= base.fields
        defaults |= base.defaults
    for name in vars(cls).get("__annotations__", {}):
        fields[name] = own[name]
        if name in namespace:
            defaults[name] = namespace.pop(name)
    namespace |= {"fields": fields, "defaults": defaults, "__init__": _building(cls.__name__, fields, init or _fill(defaults))}
    bases = builtins.tuple(inherited) or (user_aggregate,)
    made = typing.cast("type[user_aggregate]", type(cls.__name__, bases, namespace))
    made.type = aggregate_type(made)
    return made


def aggregate_replace(value: Any, **changes: Any) -> Any:
    """Returns a copy of an aggregate with some fields changed. Raises TypeError for anything else, and for unknown fields."""
    if not isinstance(value, user_aggregate):
        raise TypeError(f"aggregate_replace expects an aggregate instance, got {type(value).__name__}")
    unknown = next((name for name in changes if name not in value.fields), None)
    if unknown is not None:
        raise TypeError(f"{type(value).__name__} has no field {unknown!r}")
    return value.with_parts([changes.get(name, getattr(value, name)) for name in value.fields])


def must_use_result(function: Any, message: bool | str = True) -> Any:
    """Decorator: kernels may not throw away what a function returns. With a text, `@must_use_result("why")`, errors end in it."""
    if isinstance(function, str):
        return functools.partial(must_use_result, message=function)
    function.must_use_result = message
    return function


def plain(value: Any) -> Any:
    """Returns a value without constexprs, those inside tuples included."""
    value = unwrap(value)
    if not isinstance(value, builtins.tuple):
        return value
    entries = [plain(entry) for entry in value]
    return same_tuple(value, entries)


def _fill(defaults: dict[str, Any]) -> Any:
    """Returns the `__init__` of a class without one."""

    def __init__(self: user_aggregate, *args: Any, **kwargs: Any) -> None:
        names = list(self.fields)
        if len(args) > len(names):
            raise TypeError(f"{type(self).__name__} has {len(names)} fields, got {len(args)} values")
        given = dict(zip(names, args, strict=False))
        for name, value in kwargs.items():
            if name in given or name not in self.fields:
                raise TypeError(
                    f"{type(self).__name__} " + ("got two values for" if name in given else "has no") + f" field {name!r}"
                )
            given[name] = value
        for name, value in {**defaults, **given}.items():
            setattr(self, name, value)

    return __init__


def _building(name: str, fields: dict[str, Any], init: Any) -> Any:
    """Returns an `__init__` that lets `init` set the fields, and checks that it set all."""

    @functools.wraps(init)
    def __init__(self: user_aggregate, *args: Any, **kwargs: Any) -> None:
        outermost = "_building" not in self.__dict__
        object.__setattr__(self, "_building", True)
        init(self, *args, **kwargs)
        if outermost:
            object.__delattr__(self, "_building")
            missing = [field for field in self.fields if field not in self.__dict__]
            if missing:
                raise TypeError(f"{name}: no value for {', '.join(missing)}")

    return __init__


def _as_field(name: str, annotation: Any, value: Any) -> Any:
    """Returns a value as a field holds it. Raises TypeError where it does not fit the annotation."""
    if annotation is constexpr:
        if isinstance(value, tensor):
            raise TypeError(f"field {name!r} is constexpr, got a run-time value of type {value.type}")
        return value if isinstance(value, constexpr) else constexpr(value)
    if annotation is tensor:
        if not isinstance(value, tensor) and not hasattr(value, "data_ptr"):
            raise TypeError(f"field {name!r} is a tensor, got {value!r}")
        return value
    if isinstance(unwrap(value), builtins.tuple):
        return _wrapped(unwrap(value))
    if inspect.isclass(annotation) and not isinstance(unwrap(value), annotation) and not isinstance(value, annotation):
        raise TypeError(f"field {name!r} is {annotation.__name__}, got {value!r}")
    return value


def _wrapped(value: Any) -> Any:
    """Returns a tuple whose compile-time entries are constexprs."""
    entries = [
        _wrapped(entry)
        if isinstance(entry, builtins.tuple)
        else entry
        if isinstance(entry, (constexpr, tensor, value_of_parts)) or hasattr(entry, "data_ptr")
        else constexpr(entry)
        for entry in value
    ]
    return same_tuple(value, entries)
