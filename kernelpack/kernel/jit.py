"""@jit makes a Python function a kernel, or a function that kernels call; @constexpr_function one that compiling calls."""

from __future__ import annotations

import functools
import importlib
import inspect
import re
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, TypeVar, overload

from kernelpack.errors import CompilationError
from kernelpack.kernel.callables import JITCallable
from kernelpack.kernel.source import FunctionSource, last_word
from kernelpack.kernel.values import constexpr, unwrap
from kernelpack.kernel.values import constexpr_function as constexpr_function
from kernelpack.kernel.values import is_constexpr_function as is_constexpr_function

F = TypeVar("F", bound=Callable[..., Any])

NUMBER_TYPES = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64"}
NUMBER_TYPES |= {f"int{width}": f"i{width}" for width in (1, 8, 16, 32, 64)}
NUMBER_TYPES |= {f"uint{width}": f"u{width}" for width in (8, 16, 32, 64)}
NUMBER_TYPES |= {name: name for name in NUMBER_TYPES.values()}
NUMBER_TYPES |= {"half": "fp16", "float": "fp32", "double": "fp64", "int": "i32", "bool": "i1", "uint1": "i1", "u1": "i1"}
"""The number types that annotations name, as signatures name them."""


@dataclass(frozen=True)
class KernelParam:
    """A parameter of a @jit function. `annotation` is its text, "" without one; without a default, `default` is inspect.Parameter.empty."""

    num: int
    name: str
    annotation: str
    is_constexpr: bool
    default: Any
    do_not_specialize: bool
    do_not_specialize_on_alignment: bool

    @property
    def has_default(self) -> bool:
        return self.default is not inspect.Parameter.empty

    @property
    def is_const(self) -> bool:
        """Whether the annotation says that nothing is stored through the pointer."""
        return self.type_name == "const"

    @functools.cached_property
    def type_name(self) -> str:
        """The annotation's last word: `int64` for `tl.int64`."""
        return last_word(self.annotation)

    @functools.cached_property
    def number_type(self) -> str | None:
        """The type in a signature that the annotation asks of a number (`n: tl.int64`), None if it asks for none."""
        return NUMBER_TYPES.get(self.type_name)


class Launchable:
    """What `kernel[grid](*args)` launches: a kernel, or one inside of autotune or heuristics, which call the next one's `run`."""

    __name__: str
    arg_names: list[str]

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        """Compiles where this is the first call of its kind, and launches, unless `warmup`. Returns what was launched."""
        raise NotImplementedError

    def warmup(self, *args: Any, grid: Any = (1,), **kwargs: Any) -> Any:
        """Compiles for a call's arguments without launching. A torch dtype stands for a tensor of it."""
        wrap = importlib.import_module("kernelpack.runtime.stand_ins").MockTensor.wrap_dtype
        return self.run(*map(wrap, args), grid=grid, warmup=True, **{name: wrap(value) for name, value in kwargs.items()})

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        """Returns a launcher: `kernel[grid](*args, **kwargs)`."""
        return functools.partial(self.run, grid=grid)


KNOWN: weakref.WeakValueDictionary[str, JITFunction] = weakref.WeakValueDictionary()
"""The functions of this process by module and name; of those with one name, the last."""


class JITFunction(JITCallable, Launchable):
    """A function in the kernel language.

    `kernel[grid](*args)` launches it; other @jit functions call it. Its source is read when it is first compiled.
    """

    def __init__(
        self,
        fn: Any,
        *,
        noinline: bool | str = False,
        do_not_specialize: Iterable[str | int] = (),
        do_not_specialize_on_alignment: Iterable[str | int] = (),
        debug: bool = False,
        version: Any = None,
        repr: Callable[[Any], str] | None = None,
        launch_metadata: Callable[[Any, Any, dict[str, Any]], dict[str, Any]] | None = None,
    ) -> None:
        super().__init__(fn)
        KNOWN[f"{self.fn.__module__}:{self.fn.__qualname__}"] = self
        if noinline not in (False, True, "object"):
            raise ValueError(f'{self.__name__}: noinline={noinline!r} is not False, True or "object"')
        self.noinline = noinline
        self.debug = bool(debug)
        self.version = version
        self.repr = repr or (lambda specialization: self.__name__)
        self.launch_metadata = launch_metadata
        self.pre_run_hooks: list[Callable[..., Any]] = []
        self.do_not_specialize = list(do_not_specialize)
        self.do_not_specialize_on_alignment = list(do_not_specialize_on_alignment)
        self.arg_names = list(self.signature.parameters)
        excluded = [self._names(names) for names in (self.do_not_specialize, self.do_not_specialize_on_alignment)]
        self.params = [
            _param(number, parameter, parameter.name in excluded[0], parameter.name in excluded[1])
            for number, parameter in enumerate(self.signature.parameters.values())
        ]

    def _names(self, names: Iterable[str | int]) -> set[str]:
        """Returns names of parameters, given names or positions. Warns of names that no parameter has: kernels in use contain some."""
        found = {self.arg_names[name] if isinstance(name, int) and name < len(self.arg_names) else name for name in names}
        unknown = sorted(str(name) for name in found if name not in self.arg_names)
        if unknown:
            warnings.warn(
                f"{self.location}: {self.fn.__name__} has no parameter {', '.join(unknown)} (named in do_not_specialize)",
                stacklevel=4,
            )
        return {str(name) for name in found}

    def is_gluon(self) -> bool:
        """Whether the function is in Gluon, the language below Triton's: there are none."""
        return False

    @property
    def rewriter(self) -> FunctionSource:
        """The source as it is compiled: its `def_file_lineno` is the line of `def` in the file."""
        return self.source

    def rewrite(self) -> JITFunction:
        """Reads the source, and returns what is launched: nothing is rewritten."""
        self.parse()
        return self

    @property
    def constexprs(self) -> list[int]:
        """The positions of the parameters that are annotated tl.constexpr."""
        return [param.num for param in self.params if param.is_constexpr]

    @property
    def device_caches(self) -> Any:
        """What was compiled so far, by device: tuples of the kernels by key, the keys by call, the target, its backend, and a function that
        binds a call's arguments. All devices share the kernels."""
        return self._launcher.device_caches

    cache = device_caches

    def preload(self, specialization_data: str) -> Any:
        """Compiles what another process compiled, as knobs.runtime.jit_cache_hook was told in its `specialization_data`; returns the
        kernel. Raises RuntimeError for data of another kernel or target."""
        return self._launcher.preload(specialization_data)

    def _do_compile(
        self,
        key: str,
        signature: Mapping[str, Any],
        device: int,
        constexprs: Mapping[Any, Any],
        options: Any,
        attrs: Mapping[Any, Any],
        warmup: bool,
    ) -> Any:
        """Compiles what ASTSource(self, signature, constexprs, attrs) says, with options of a target, and keeps the kernel under a key of
        `device_caches`. Returns the kernel; None where knobs.runtime.jit_cache_hook says that it need not be compiled. Every
        compilation of a launch or warmup goes through here."""
        return self._launcher.compile(key, signature, device, constexprs, options, attrs, warmup)

    def _pack_args(
        self, backend: Any, kwargs: Mapping[str, Any], bound_args: Mapping[str, Any], specialization: Any, options: Any
    ) -> tuple[Any, dict[str, Any], dict[Any, Any], dict[Any, Any]]:
        """Returns the options, signature, constexprs and attrs for `_do_compile`, given a backend, a call's keyword arguments, and what the
        function that binds calls returned for it."""
        packed: tuple[Any, dict[str, Any], dict[Any, Any], dict[Any, Any]] = self._launcher.pack(
            specialization, options, backend
        )
        return packed

    def add_pre_run_hook(self, hook: Callable[..., Any]) -> None:
        """Lets `hook(*args, **kwargs)` be called with the arguments of every launch, before it."""
        self.pre_run_hooks.append(hook)

    def symbol(self, signature: Mapping[str, Any], constants: Mapping[str, Any]) -> str:
        """Returns the name that the kernel gets when it is compiled for types and constants by parameter: what the author's `repr`
        makes of them, or the function's own."""
        types = {param.name: signature.get(param.name, "constexpr") for param in self.params}
        return re.sub(r"\W", "_", self.repr(SimpleNamespace(signature=types, constants=dict(constants))))

    @functools.cached_property
    def _launcher(self) -> Any:
        launcher = importlib.import_module("kernelpack.runtime.launcher")  # late: compiling offline launches nothing
        return launcher.Launcher(self)

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        if self.pre_run_hooks:
            return functools.partial(self.run, grid=grid)
        launch: Callable[..., Any] = self._launcher.bind(grid)
        return launch

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        for hook in self.pre_run_hooks:
            hook(*args, **kwargs)
        if warmup:
            return self._launcher.launch(grid, args, kwargs, warmup)
        return self._launcher.bind(grid)(*args, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise CompilationError(
            f"{self.__name__} is a kernel function: Python cannot call it",
            cure=f"launch it with a grid, {self.__name__}[(blocks,)](...), or call it inside another @jit function",
        )


def jit_function(value: Any) -> JITFunction | None:
    """Returns the @jit function inside of wrappers such as autotune and heuristics, or None."""
    seen = 0
    while value is not None and not isinstance(value, (JITFunction, type)) and seen < 8:
        value = getattr(value, "fn", None)
        seen += 1
    return value if isinstance(value, JITFunction) else None


def _param(number: int, parameter: inspect.Parameter, unspecialized: bool, unaligned: bool) -> KernelParam:
    annotation = "" if parameter.annotation is inspect.Parameter.empty else parameter.annotation
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    is_constexpr = annotation is constexpr or last_word(text) == "constexpr"
    return KernelParam(number, parameter.name, text, is_constexpr, unwrap(parameter.default), unspecialized, unaligned)


@overload
def jit(fn: Callable[..., Any]) -> JITFunction: ...


@overload
def jit(
    *,
    noinline: bool | str | None = None,
    do_not_specialize: Iterable[str | int] | None = None,
    do_not_specialize_on_alignment: Iterable[str | int] | None = None,
    debug: bool | None = None,
    version: Any = None,
    repr: Callable[[Any], str] | None = None,
    launch_metadata: Callable[[Any, Any, dict[str, Any]], dict[str, Any]] | None = None,
) -> Callable[[Callable[..., Any]], JITFunction]: ...


def jit(
    fn: Callable[..., Any] | None = None,
    *,
    noinline: bool | str | None = None,
    do_not_specialize: Iterable[str | int] | None = None,
    do_not_specialize_on_alignment: Iterable[str | int] | None = None,
    debug: bool | None = None,
    version: Any = None,
    repr: Callable[[Any], str] | None = None,
    launch_metadata: Callable[[Any, Any, dict[str, Any]], dict[str, Any]] | None = None,
) -> JITFunction | Callable[[Callable[..., Any]], JITFunction]:
    """Decorator: makes a Python function a kernel, or a function for kernels to call.

    Parameters annotated `tl.constexpr` are known at compile time. `noinline` keeps a called function a function;
    as "object" it is also compiled to an object of its own, which kernels on CUDA that call it alike share.
    `do_not_specialize` names parameters of which compiled code assumes nothing.
    """

    def decorate(function: Callable[..., Any]) -> JITFunction:
        return JITFunction(
            function,
            noinline=noinline or False,
            do_not_specialize=do_not_specialize or (),
            do_not_specialize_on_alignment=do_not_specialize_on_alignment or (),
            debug=bool(debug),
            version=version,
            repr=repr,
            launch_metadata=launch_metadata,
        )

    return decorate if fn is None else decorate(fn)
