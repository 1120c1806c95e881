"""compile(ASTSource(...)): a kernel compiled for a target with stated types and constants, as triton.compile does."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from kernelpack import knobs
from kernelpack.compiler.stages import compile_ttir, microseconds_since
from kernelpack.compiler.target_backend import stages_hook, target_of
from kernelpack.errors import LaunchError
from kernelpack.facts import Fact
from kernelpack.kernel.jit import JITFunction, jit_function
from kernelpack.knobs.hooks import CompileTimes
from kernelpack.options import BY_DEFAULT, OPTION_NAMES, Options, options_of
from kernelpack.process_wide import collections_put_off
from kernelpack.runtime.driver import driver
from kernelpack.runtime.kernel_view import KernelView
from kernelpack.runtime.keys import text_of
from kernelpack.runtime.specialization import CONSTEXPR, Specialization, specialized_ttir
from kernelpack.target import GPUTarget, Target

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

    def make_ttir(self, options: Options = BY_DEFAULT) -> Any:
        """Returns the optimised ttir module, and the facts that it states."""
        special = self.specialization
        return specialized_ttir(self.fn, special, options), special.facts


def _path_of(fn: JITFunction, name: str, separator: str) -> Path:
    """Returns the place that a dotted name of a constant (`pair.1`), or the name of a run-time parameter (`pair_1`), stands for."""
    owners = [argument for argument in fn.arg_names if name == argument or name.startswith(argument + separator)]
    argument = max(owners, key=len)
    rest = name[len(argument) :].split(separator)[1:]
    return fn.arg_names.index(argument), *(int(part) if part.isdecimal() else part for part in rest)


@collections_put_off
def compile(
    src: ASTSource, target: GPUTarget | Target | str | None = None, options: Mapping[str, Any] | None = None
) -> KernelView:
    """Returns a kernel compiled for a target: a GPUTarget, `"cuda:sm_90a"`; default: that of the active driver.

    `options` are those of a launch, such as num_warps, and `arch`, which takes the target's place; names that only other compilers know
    are refused. What this machine runs can be launched. Raises CompilationError, with the user's line, for what cannot be compiled.
    """
    if not isinstance(src, ASTSource):
        raise LaunchError(
            f"compile takes an ASTSource, got {src!r}", cure="ASTSource(kernel, signature, constexprs): IR is not read back"
        )
    wanted = driver.active.get_current_target() if target is None else target
    if isinstance(wanted, GPUTarget):
        wanted = wanted.as_target()
    chosen = Target.parse(wanted) if isinstance(wanted, str) else wanted
    given = dict(options or {})
    arch = given.pop("arch", None)
    if arch is not None:
        chosen = target_of(chosen.backend, arch)
    unknown = sorted(set(given) - set(OPTION_NAMES))
    if unknown:
        raise LaunchError(f"there is no option {', '.join(unknown)}", cure=f"options are {', '.join(sorted(OPTION_NAMES))}")
    settings = options_of(given)
    times = CompileTimes()
    started = time.perf_counter()
    module, facts = src.make_ttir(settings)
    times.ir_initialization = microseconds_since(started)
    view = KernelView(compile_ttir(module, chosen, settings, facts, times=times, inspect=stages_hook()), src)
    if knobs.compilation.listener is not None:
        knobs.compilation.listener(src, vars(view.metadata), {}, times, False)
    return view
