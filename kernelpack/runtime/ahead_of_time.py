"""compile(ASTSource(...)): a kernel compiled for a target with stated types and constants, as triton.compile does."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from kernelpack import knobs
from kernelpack.backends.installed import backend_of
from kernelpack.compiler.stages import compile_ttir, microseconds_since, optimise_ttir
from kernelpack.errors import LaunchError
from kernelpack.facts import Fact
from kernelpack.frontend.ast_to_ttir import ast_to_ttir
from kernelpack.kernel.jit import JITFunction, jit_function
from kernelpack.knobs.hooks import CompileTimes
from kernelpack.options import BY_DEFAULT, OPTION_NAMES, Options, options_of
from kernelpack.process_wide import collections_put_off
from kernelpack.runtime.cache import triton_key as triton_key
from kernelpack.runtime.driver import driver
from kernelpack.runtime.kernel_view import KernelView
from kernelpack.target import GPUTarget, Target

Path = tuple[int, ...]


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
        self.attrs = {self._path(place): list(found) for place, found in (attrs or {}).items()}

    def _path(self, place: Any) -> Path:
        if isinstance(place, str):
            return (self.fn.arg_names.index(place),)
        return (place,) if isinstance(place, int) else tuple(place)

    def _name(self, path: Path, separator: str) -> str:
        return separator.join([self.fn.arg_names[path[0]], *map(str, path[1:])])

    def hash(self) -> str:
        """Returns a text that is the same for the same source."""
        return f"{self.fn.cache_key} {sorted(self.signature.items(), key=str)} {sorted(self.constants.items(), key=str)} {self.attrs}"

    def make_ttir(self, options: Options = BY_DEFAULT) -> Any:
        """Returns the optimised ttir module, and the facts that it states."""
        facts = tuple(
            Fact(self._name(path, "_"), name, value) for path, found in sorted(self.attrs.items()) for name, value in found
        )
        signature = {
            name: kind
            for name, kind in self.signature.items()
            if kind != "constexpr" and (self.fn.arg_names.index(name),) not in self.constants
        }
        constexprs = {self._name(path, "."): value for path, value in self.constants.items()}
        module = ast_to_ttir(
            self.fn,
            signature,
            constexprs,
            facts,
            options,
            plain_globals=knobs.compilation.allow_non_constexpr_globals,
        )
        return optimise_ttir(module), facts


@collections_put_off
def compile(
    src: ASTSource, target: GPUTarget | Target | str | None = None, options: Mapping[str, Any] | None = None
) -> KernelView:
    """Returns a kernel compiled for a target: a GPUTarget, `"cuda:sm_90a"`; default: that of the active driver.

    `options` are those of a launch, such as num_warps; names that only other compilers know are refused. What this machine
    runs can be launched. Raises CompilationError, with the user's line, for what cannot be compiled.
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
    unknown = sorted(set(given) - set(OPTION_NAMES))
    if unknown:
        raise LaunchError(f"there is no option {', '.join(unknown)}", cure=f"options are {', '.join(sorted(OPTION_NAMES))}")
    settings = options_of(given)
    times = CompileTimes()
    started = time.perf_counter()
    module, facts = src.make_ttir(settings)
    times.ir_initialization = microseconds_since(started)
    view = KernelView(compile_ttir(module, chosen, settings, facts, times=times), src)
    if knobs.compilation.listener is not None:
        knobs.compilation.listener(src, vars(view.metadata), {}, times, False)
    return view


def make_backend(target: GPUTarget) -> Any:
    """Returns the backend that compiles for a target."""
    return backend_of(target.as_target())
