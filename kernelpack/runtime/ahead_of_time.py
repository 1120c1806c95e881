"""ASTSource: a kernel with the types of its arguments and the values of its constants, as triton.compile takes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kernelpack.errors import LaunchError
from kernelpack.facts import Fact
from kernelpack.kernel.jit import JITFunction, jit_function
from kernelpack.lazy import LazyModule
from kernelpack.options import BY_DEFAULT, Options
from kernelpack.runtime.keys import text_of
from kernelpack.runtime.specialization import CONSTEXPR, Specialization
from kernelpack.target import GPUTarget

if TYPE_CHECKING:
    from kernelpack.runtime import front_end
    from kernelpack.tools import ir_view
else:
    front_end, ir_view = LazyModule("kernelpack.runtime.front_end"), LazyModule("kernelpack.tools.ir_view")

Path = tuple[Any, ...]
"""A place in a kernel's arguments: (2,) the third argument, (2, 1) the second entry of it, (2, "base") a part of a descriptor."""


class ASTSource:
    """What compile() compiles: a kernel, the type of each run-time argument, the values of the others.

    `signature` maps names to types: `"*fp32"`, `"i32"`, `"constexpr"`, tuples of those for tuples. `constexprs` maps names, or
    positions (`(2,)`, and `(2, 1)` for entry 1 of argument 2), to values. `attrs` maps positions to facts such as
    `[["tt.divisibility", 16]]`. Raises LaunchError for names that the kernel does not have.
    """

    def __init__(
        self,
        fn: Any,
        signature: Mapping[str, Any],
        constexprs: Mapping[Any, Any] | None = None,
        attrs: Mapping[Any, Sequence[Sequence[Any]]] | None = None,
    ) -> None:
        function = jit_function(fn)
        if function is None:
            raise LaunchError(f"{fn!r} is no @jit function", cure="decorate it with @kernelpack.jit")
        self.fn: JITFunction = function
        self.name = function.__name__
        unknown = [name for name in signature if name not in function.arg_names]
        if unknown:
            raise LaunchError(
                f"{self.name} has no argument {', '.join(unknown)}", cure=f"it has {', '.join(function.arg_names)}"
            )
        self.signature = dict(signature)
        self.constants = {self._path(place): value for place, value in (constexprs or {}).items()}
        self.constexprs = self.constants
        self.attrs = {self._path(place): [list(fact) for fact in found] for place, found in (attrs or {}).items()}

    @staticmethod
    def of(fn: JITFunction, special: Specialization) -> ASTSource:
        """Returns the source of what a call is compiled for."""
        types = dict(special.signature)
        signature = {name: types.get(name, CONSTEXPR) for name in fn.arg_names}
        constexprs = {_path_of(fn, name, "."): value for name, value in special.constexprs}
        attrs: dict[Path, list[list[Any]]] = {}
        for fact in special.facts:
            attrs.setdefault(_path_of(fn, fact.parameter, "_"), []).append([fact.property, fact.value])
        return ASTSource(fn, signature, constexprs, attrs)

    @property
    def specialization(self) -> Specialization:
        """What of it code depends on."""
        signature = tuple(
            (name, kind)
            for name, kind in self.signature.items()
            if isinstance(kind, tuple) or (kind != CONSTEXPR and (self.fn.arg_names.index(name),) not in self.constants)
        )
        constexprs = tuple((self._name(path, "."), value) for path, value in self.constants.items())
        facts = tuple(Fact(self._name(path, "_"), name, value) for path, found in self.attrs.items() for name, value in found)
        return Specialization(signature, constexprs, facts)

    def _path(self, place: Any) -> Path:
        if isinstance(place, str):
            return (self.fn.arg_names.index(place),)
        return (place,) if isinstance(place, int) else tuple(place)

    def _name(self, path: Path, separator: str) -> str:
        return separator.join([self.fn.arg_names[path[0]], *map(str, path[1:])])

    def hash(self) -> str:
        """Returns a text that is the same for the same source, and for no other. Raises TypeError where a constant has no such text."""
        special = self.specialization
        parts = [
            self.fn.cache_key,
            self.fn.symbol(dict(special.signature), dict(special.constexprs)),
            repr(sorted(special.signature)),
            " ".join(f"{name}={text_of(value)}" for name, value in sorted(special.constexprs, key=lambda entry: entry[0])),
            repr(sorted(special.facts)),
        ]
        return "-".join(parts)

    def make_ir(
        self, target: GPUTarget, options: Options, codegen_fns: object = None, module_map: object = None, context: object = None
    ) -> ir_view.module:
        """Returns the ttir module as it leaves the front end, as host code walks it; calls of other functions are still calls."""
        special = self.specialization
        return ir_view.module(front_end.ttir_of(self.fn, special, options))

    def make_ttir(self, options: Options = BY_DEFAULT) -> Any:
        """Returns the optimised ttir module, and the facts that it states."""
        special = self.specialization
        return front_end.specialized_ttir(self.fn, special, options), special.facts


def _path_of(fn: JITFunction, name: str, separator: str) -> Path:
    """Returns the place that a dotted name of a constant (`pair.1`), or the name of a run-time parameter (`pair_1`), stands for."""
    owners = [argument for argument in fn.arg_names if name == argument or name.startswith(argument + separator)]
    argument = max(owners, key=len)
    rest = name[len(argument) :].split(separator)[1:]
    return fn.arg_names.index(argument), *(int(part) if part.isdecimal() else part for part in rest)
