"""The space of an op's variants: the dtypes of its tensor arguments, and the values of its kernels' constexprs."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernelpack.dtypes import DType, dtype_of
from kernelpack.errors import HostFunctionError, SourceLocation
from kernelpack.opgen.stated.schema import Argument, Schema


@dataclass(frozen=True)
class SameAs:
    """An entry of `variants`: the dtype that another tensor argument has in the same call."""

    argument: str


def same_as(argument: str) -> SameAs:
    """An entry of `variants`: the dtype that another argument has in the same call, `"mask": [None, tl.int1, kp.same_as("query")]`."""
    return SameAs(argument)


@dataclass(frozen=True)
class Optional:
    """What `variants` says of an optional tensor argument that is no axis: its dtype where it is there."""

    dtype: Any


def optional(dtype: Any) -> Optional:
    """What `variants` lists for a tensor argument that may be None without a variant of its own: `"temperature": kp.optional(tl.float32)`.

    The host function then passes another tensor of the dtype in its place, and a number that says so. Launches, and the constexprs that
    they pass, must not depend on whether it is there.
    """
    return Optional(dtype)


@dataclass(frozen=True)
class Combination:
    """A choice of dtypes. `places` has the number of the chosen entry of each dtype axis, `dtypes` what each tensor argument then has,
    `listed` what the author wrote for it."""

    places: tuple[int, ...]
    dtypes: Mapping[str, DType | None]
    listed: Mapping[str, Any]


@dataclass(frozen=True)
class Space:
    """The checked `variants` of an op: entries for every tensor argument, and values for constexpr axes, by the name under which
    launches pass them (a parameter of the kernel, or a name that serves config functions alone)."""

    dtypes: Mapping[str, tuple[DType | SameAs | None, ...]]
    constexprs: Mapping[str, tuple[int | bool, ...]]
    listed: Mapping[tuple[str, Any], Any]
    """What the author wrote for an axis value, for config functions."""
    without_axis: frozenset[str] = frozenset()
    """Tensor arguments that kp.optional lists: None or one dtype, which share their kernels."""

    def has_axis(self, name: str) -> bool:
        """Whether a tensor argument is a dtype axis of the dispatch tables."""
        return len(self.dtypes[name]) > 1 and name not in self.without_axis

    def combinations(self) -> Iterator[Combination]:
        """Returns every choice of entries of the dtype axes, the last axis fastest."""
        names = [name for name in self.dtypes if self.has_axis(name)]
        for places in itertools.product(*(range(len(self.dtypes[name])) for name in names)):
            chosen = dict(zip(names, places, strict=True))
            only = {name: -1 if name in self.without_axis else 0 for name in self.dtypes}  # of what is optional: the dtype
            entries = {name: entries[chosen.get(name, only[name])] for name, entries in self.dtypes.items()}
            yield self._resolve(places, entries)

    def _resolve(self, places: tuple[int, ...], entries: Mapping[str, DType | SameAs | None]) -> Combination:
        dtypes: dict[str, DType | None] = {}
        listed: dict[str, Any] = {}
        for name, entry in entries.items():
            source = name
            hops = 0
            while isinstance(entry, SameAs):
                source = entry.argument
                entry = entries[source]
                hops += 1
                if hops > len(entries):
                    raise HostFunctionError(f"variants: the dtype of {name!r} is that of {source!r}, and so on in a circle")
            dtypes[name] = entry
            listed[name] = self.listed.get((source, entry))
        return Combination(places, dtypes, listed)


def check_space(schema: Schema, variants: Mapping[str, Iterable[Any]], location: SourceLocation) -> Space:
    """Returns the space of `variants`. A tensor without an axis has the dtype of the first tensor with one."""
    axes = _Axes(schema, location)
    if not isinstance(variants, Mapping):
        raise axes.fail(f"expected dtypes and values by name, found {variants!r}", 'write variants={"x": [tl.float32, ...]}')
    for name, given in variants.items():
        if isinstance(given, Optional):
            axes.add_optional(name, given.dtype)
            continue
        axes.add(name, list(given) if isinstance(given, (list, tuple, range)) else [given])
    return Space(axes.of_every_tensor(), axes.constexprs, axes.listed, frozenset(axes.without_axis))


class _Axes:
    """The axes that an op's `variants` list, as they are read."""

    def __init__(self, schema: Schema, location: SourceLocation) -> None:
        self.schema = schema
        self.location = location
        self.tensors = {argument.name: argument for argument in schema.tensors}
        self.dtypes: dict[str, tuple[DType | SameAs | None, ...]] = {}
        self.constexprs: dict[str, tuple[int | bool, ...]] = {}
        self.listed: dict[tuple[str, Any], Any] = {}
        self.without_axis: set[str] = set()

    def fail(self, message: str, cure: str | None = None) -> HostFunctionError:
        return HostFunctionError(f"variants of {self.schema.name}: {message}", location=self.location, cure=cure)

    def add(self, name: str, values: Sequence[Any]) -> None:
        if not values:
            raise self.fail(f"{name!r} lists nothing")
        if name in self.tensors:
            self.add_dtypes(self.tensors[name], values)
        else:
            self.add_constexprs(name, values)

    def add_optional(self, name: str, dtype: Any) -> None:
        if name not in self.tensors:
            raise self.fail(
                f"{name!r} is kp.optional, but the schema has no Tensor argument of that name",
                f"its Tensor arguments are {', '.join(self.tensors)}",
            )
        self.add_dtypes(self.tensors[name], [None, dtype])
        self.without_axis.add(name)

    def add_dtypes(self, argument: Argument, values: Sequence[Any]) -> None:
        found: list[DType | SameAs | None] = []
        for value in values:
            entry = self.dtype_entry(argument, value)
            if entry in found:
                raise self.fail(f"{argument.name!r} lists {value} twice")
            found.append(entry)
            self.listed[argument.name, entry] = value
        self.dtypes[argument.name] = tuple(found)

    def dtype_entry(self, argument: Argument, value: Any) -> DType | SameAs | None:
        if value is None:
            if not argument.type.optional:
                raise self.fail(f"{argument.name!r} lists None but is not optional", f"declare it Tensor? {argument.name}")
            return None
        if isinstance(value, SameAs):
            if value.argument not in self.tensors or value.argument == argument.name:
                raise self.fail(f"{argument.name!r} has the dtype of {value.argument!r}, which is no other tensor argument")
            if self.tensors[value.argument].type.optional:
                raise self.fail(f"{argument.name!r} has the dtype of {value.argument!r}, which may be None")
            return value
        dtype = dtype_of(value)
        if dtype is None:
            raise self.fail(
                f"{argument.name!r} lists {value!r}, which is no dtype that kernels read", "write for example tl.float16"
            )
        return dtype

    def add_constexprs(self, name: str, values: Sequence[Any]) -> None:
        if any(argument.name == name for argument in self.schema.arguments):
            raise self.fail(
                f"{name!r} is a {self.schema.argument(name).type} argument of the op",
                "axes are tensor arguments (dtypes) and constexpr parameters of kernels (values)",
            )
        if any(dtype_of(value) is not None for value in values):
            raise self.fail(
                f"{name!r} lists dtypes, but the schema has no Tensor argument of that name",
                f"its Tensor arguments are {', '.join(self.tensors)}",
            )
        if not all(isinstance(value, int) for value in values):
            raise self.fail(f"{name!r} lists {values}: a constexpr axis holds ints or bools", "use an enum.IntEnum for names")
        if len(set(values)) != len(values):
            raise self.fail(f"{name!r} lists a value twice")
        self.constexprs[name] = tuple(value if isinstance(value, bool) else int(value) for value in values)
        self.listed |= {(name, value): value for value in values}

    def of_every_tensor(self) -> dict[str, tuple[DType | SameAs | None, ...]]:
        """Returns the dtypes of all tensor arguments, in the schema's order."""
        tensors = self.schema.tensors
        anchors = [
            argument for argument in tensors if any(isinstance(entry, DType) for entry in self.dtypes.get(argument.name, ()))
        ]
        if not anchors:
            raise self.fail("no tensor argument has dtypes", f'write variants={{"{tensors[0].name}": [tl.float32, ...]}}')
        anchor = SameAs(next((argument for argument in anchors if not argument.type.optional), anchors[0]).name)
        return {
            argument.name: self.dtypes.get(argument.name, (None, anchor) if argument.type.optional else (anchor,))
            for argument in tensors
        }
