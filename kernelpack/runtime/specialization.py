"""What a call of a kernel is compiled for: types of its run-time arguments, values of the others, facts that hold for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from kernelpack.backends.base import Backend
from kernelpack.dtypes import LANGUAGE_NAMES
from kernelpack.errors import ArgumentOverflowError, LaunchError
from kernelpack.facts import DIVISIBLE_BY, EQUAL_TO, ArgumentProperty, Fact
from kernelpack.kernel.aggregates import plain, user_aggregate
from kernelpack.kernel.arguments import class_of, entries_of, number_types, part_names
from kernelpack.kernel.jit import JITFunction, KernelParam
from kernelpack.kernel.signatures import signature_name, ttir_type
from kernelpack.kernel.types import dtype as language_type
from kernelpack.kernel.values import constexpr, unwrap
from kernelpack.tools.tensor_descriptor import ALIGNMENT, TensorDescriptor


@dataclass(frozen=True)
class Specialization:
    """The part of a call that code depends on. Equal specializations share a compilation; hashable.

    The type of a tuple argument is a tuple of types; see ast_to_ttir.
    """

    signature: tuple[tuple[str, Any], ...]
    constexprs: tuple[tuple[str, Any], ...]
    facts: tuple[Fact, ...]


class Constant:
    """A compile-time value, equal to those for which the same is compiled: 1, 1.0 and True are three, 0.0 and -0.0 two, NaN is one."""

    def __init__(self, value: Any) -> None:
        self.value = _frozen(value)
        self._identity = _identity_of(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constant) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)


def _identity_of(value: Any) -> Any:
    """Returns what tells a compile-time value from others, in entries of tuples too."""
    if isinstance(value, tuple):
        return (type(value), *map(_identity_of, value))
    return type(value), repr(value) if isinstance(value, float) else value


Trait = tuple[Any, Any]
"""The part of one argument that code depends on: its type, and what else it is.

    ("*fp32", (("tt.divisibility", 16), ...))                      a tensor or number, the properties that hold
    ("constexpr", Constant)                                        a compile-time value, a number that becomes a constant
    ("tensordesc<...>", (("base", "tt.divisibility", 16), ...))    a tensor descriptor, facts of the parameters that it becomes
    ((types...), (class or None, what else each entry is...))      a tuple or an aggregate
"""

CONSTEXPR = "constexpr"
"""The type of compile-time values in signatures."""
DESCRIPTOR = "tensordesc"
"""What the types of tensor descriptors begin with."""

_NOT_PLAIN = (tuple, TensorDescriptor, user_aggregate, JITFunction, language_type, constexpr, str)
"""Types of arguments that are neither tensors nor numbers."""


class Specializer:
    """Finds out which calls of one kernel can share compiled code, for one backend.

    As in Triton, an integer has the type of its annotation; without one it is i32 where it fits, else i64. What else code depends
    on are the backend's properties. The property to equal a value makes an integer a compile-time constant, unless its type is
    annotated; the others become facts. `do_not_specialize` excludes a parameter from all of them,
    `do_not_specialize_on_alignment` from divisibility.
    """

    def __init__(self, fn: JITFunction, backend: Backend) -> None:
        self.fn = fn
        self.backend = backend
        self._known = _KnownProperties(fn, backend)

    def traits(self, arguments: Sequence[Any]) -> tuple[tuple[Trait, ...], list[Any]]:
        """Returns what code depends on, hashable and quick to make, and the values of the run-time arguments in order.

        `arguments` has one value for each parameter. Raises LaunchError for a value that is no argument.
        """
        traits: list[Trait] = []
        values: list[Any] = []
        for param, value in zip(self.fn.params, arguments, strict=True):
            if param.is_constexpr or value is None:
                traits.append((CONSTEXPR, Constant(value)))
            else:
                traits.append(self._trait(param, value, values, param.number_type))
        return tuple(traits), values

    def _trait(self, param: KernelParam, value: Any, values: list[Any], annotated: str | None = None) -> Trait:
        """Returns what code depends on of any argument, or entry of one, and appends its run-time values. `annotated` is the type
        that its annotation states."""
        if isinstance(value, TensorDescriptor):
            values += value.parts().values()
            return self._descriptor(param, value)
        entries = entries_of(value)
        if entries is not None:
            of = class_of(value)
            stated = [None] * len(entries) if of is None else number_types(of)
            traits = [self._trait(param, entry, values, kind) for entry, kind in zip(entries, stated, strict=True)]
            return tuple(kind for kind, _ in traits), (of, *(more for _, more in traits))
        if value is None or isinstance(value, _NOT_PLAIN):
            return CONSTEXPR, Constant(value)
        kind = annotated or _type_of(self.fn, param, value)
        if annotated in _RANGES and isinstance(value, int) and value not in _RANGES[annotated]:
            raise ArgumentOverflowError(
                f"argument {param.name} of {self.fn.__name__} is {value}, its annotation says {annotated}",
                location=self.fn.location,
                cure="annotate a wider type, or none",
            )
        constants, properties = self._known[param.num, kind, annotated is not None]
        number = value.data_ptr() if kind[0] == "*" else int(value) if constants or properties else 0
        if any(prop.holds(number) for prop in constants):
            return CONSTEXPR, Constant(number)
        values.append(value)
        return kind, tuple((prop.name, prop.value) for prop in properties if prop.holds(number))

    def _descriptor(self, param: KernelParam, value: TensorDescriptor) -> Trait:
        """Returns what code depends on of a tensor descriptor: its type, and facts of the parameters that it becomes."""
        element = _type_of(self.fn, param, value.base)[1:]
        value.check_block(f"argument {param.name} of {self.fn.__name__}")  # it may have been set since
        more = "" if value.padding == "zero" else f", {value.padding}"
        facts: list[tuple[str, str, int]] = []
        for part, number in value.parts().items():
            is_base = part == "base"
            for prop in self._known[
                param.num, f"*{element}" if is_base else "i64" if part.startswith("stride") else "i32", True
            ].facts:
                if prop.holds(number.data_ptr() if is_base else number):
                    facts.append((part, prop.name, prop.value))
                elif not is_base and prop.test is DIVISIBLE_BY and number * value.base.element_size() % ALIGNMENT == 0:
                    facts.append((part, prop.name, max(1, ALIGNMENT // value.base.element_size())))
        return f"{DESCRIPTOR}<{element}{list(value.block_shape)}{more}>", tuple(facts)


def specialization_of(fn: JITFunction, traits: Sequence[Trait]) -> Specialization:
    """Returns what to compile for a call, given what code depends on of each parameter."""
    signature: list[tuple[str, Any]] = []
    constexprs: list[tuple[str, Any]] = []
    facts: list[Fact] = []

    def note(path: str, name: str, kind: Any, more: Any) -> None:
        """Notes constants and facts of an argument or entry whose IR parameters are called `name`..."""
        if kind == CONSTEXPR:
            constexprs.append((path, more.value))
        elif isinstance(kind, tuple):
            of, *entries = more
            if of is not None:
                constexprs.append((path, of))
            for place, (part, *entry) in enumerate(zip(part_names(of, len(entries)), kind, entries, strict=True)):
                note(f"{path}.{place}", f"{name}_{part}", *entry)
        elif kind.startswith(DESCRIPTOR):
            facts.extend(Fact(f"{name}_{part}", prop, number) for part, prop, number in more)
        else:
            facts.extend(Fact(name, prop, number) for prop, number in more)

    for param, (kind, more) in zip(fn.params, traits, strict=True):
        note(param.name, param.name, kind, more)
        if kind != CONSTEXPR:
            signature.append((param.name, kind))
    return Specialization(tuple(signature), tuple(constexprs), tuple(facts))


class _Known(NamedTuple):
    """The properties that arguments of one parameter and type can have: those that make a constant, and those that are facts."""

    constants: tuple[ArgumentProperty, ...]
    facts: tuple[ArgumentProperty, ...]


class _KnownProperties(dict[tuple[int, str, bool], _Known]):
    """What a backend asks of each parameter, by its number, its type, and whether an annotation states that type; found when it is first
    looked up."""

    def __init__(self, fn: JITFunction, backend: Backend) -> None:
        super().__init__()
        self.fn = fn
        self.properties = backend.properties()

    def __missing__(self, key: tuple[int, str, bool]) -> _Known:
        number, kind, is_typed = key
        param = self.fn.params[number]
        ir_type = ttir_type(kind)
        # how far a pointer reaches is asked by op libraries alone: a kernel that Python launches may leave the view it is given
        known = [prop for prop in self.properties if prop.applies(ir_type) and not prop.test.of_reach]
        if param.do_not_specialize:
            known = []
        elif param.do_not_specialize_on_alignment:
            known = [prop for prop in known if prop.test is not DIVISIBLE_BY]
        constants = tuple(prop for prop in known if prop.test is EQUAL_TO and not is_typed)
        self[key] = _Known(constants, tuple(prop for prop in known if prop.test is not EQUAL_TO))
        return self[key]


def specialize(fn: JITFunction, arguments: Mapping[str, Any], backend: Backend) -> tuple[Specialization, list[Any]]:
    """Returns a call's specialization and the values of its run-time arguments in order; see Specializer."""
    traits, values = Specializer(fn, backend).traits([arguments[param.name] for param in fn.params])
    return specialization_of(fn, traits), values


def _frozen(value: Any) -> Any:
    """Returns a compile-time value as kernels have it: hashable, without constexprs, lists as tuples."""
    value = unwrap(value)
    if isinstance(value, list):
        value = tuple(value)
    return tuple(map(_frozen, value)) if type(value) is tuple else plain(value)


_TENSOR_TYPES: dict[Any, str] = {}
"""The type text of a pointer to a tensor's elements, by torch dtype."""


_RANGES = {f"i{bits}": range(-(1 << bits - 1), 1 << bits - 1) for bits in (8, 16, 32, 64)}
_RANGES |= {f"u{bits}": range(-(1 << bits - 1), 1 << bits) for bits in (8, 16, 32, 64)}
"""The integers that annotated parameters take; unsigned ones also those of the signed type, by their bits, as C does."""


def _type_of(fn: JITFunction, param: KernelParam, value: Any) -> str:
    if isinstance(value, bool):
        return "i1"
    if isinstance(value, int):
        if -(2**31) <= value < 2**31:
            return "i32"
        if -(2**63) <= value < 2**63:
            return "i64"
        if 0 <= value < 2**64:
            return "u64"
        raise ArgumentOverflowError(
            f"argument {param.name} of {fn.__name__} is {value}, which no integer type holds", location=fn.location
        )
    if isinstance(value, float):
        return "fp32"
    dtype = getattr(value, "dtype", None)
    if dtype is not None and hasattr(value, "data_ptr"):
        if dtype not in _TENSOR_TYPES:
            if isinstance(dtype, language_type):  # of kernelpack.reinterpret
                return f"*{signature_name(dtype)}"
            name = str(dtype).removeprefix("torch.")
            if name not in LANGUAGE_NAMES:
                raise LaunchError(
                    f"argument {param.name} of {fn.__name__} has dtype {name}, which kernels do not take",
                    location=fn.location,
                    cure=f"use one of {', '.join(LANGUAGE_NAMES)}",
                )
            _TENSOR_TYPES[dtype] = f"*{LANGUAGE_NAMES[name]}"
        return f"*k{_TENSOR_TYPES[dtype][1:]}" if param.type_name == "const" else _TENSOR_TYPES[dtype]
    of = type(value)
    raise LaunchError(
        f"argument {param.name} of {fn.__name__} is a {'' if of.__module__ == 'builtins' else f'{of.__module__}.'}{of.__name__}",
        location=fn.location,
        cure="pass a tensor, a number, None, a tuple of these, or annotate the parameter tl.constexpr",
    )
