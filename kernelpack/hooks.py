"""What host code may hang into launches and searches, and switch: kernelpack.knobs.runtime, .autotuning, .compilation, ..."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

WATCHERS: list[Any] = []
"""Who wants to see every launch; while it is not empty, launches go through Python."""


class HookChain(Generic[F]):
    """Functions that are called one after the other, those of `reversed` chains in the opposite order."""

    def __init__(self, *, reversed: bool = False, sees_launches: bool = False) -> None:
        self.calls: list[F] = []
        self.reversed = reversed
        self._watchers: list[Any] = WATCHERS if sees_launches else []

    def add(self, function: F) -> None:
        """Adds a function, once."""
        if function not in self.calls:
            self.calls.append(function)
            self._watchers.append(function)

    def remove(self, function: F) -> None:
        """Removes a function, if it is there."""
        if function in self.calls:
            self.calls.remove(function)
            self._watchers.remove(function)

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        for function in self.calls[::-1] if self.reversed else tuple(self.calls):
            function(*args, **kwargs)

    def __bool__(self) -> bool:
        return bool(self.calls)

    def __iter__(self) -> Iterator[F]:
        return iter(tuple(self.calls))


class _Switches:
    """Attributes that exist from the start: setting another one is a mistake."""

    def __setattr__(self, name: str, value: Any) -> None:
        if "_complete" in self.__dict__ and name not in self.__dict__:
            raise AttributeError(
                f"{type(self).__name__} has no {name!r}; it has {', '.join(n for n in vars(self) if n[0] != '_')}"
            )
        chain = self.__dict__.get(name)
        if isinstance(chain, HookChain) and not isinstance(value, HookChain):  # `hook = function`, `hook = None`
            for function in chain:
                chain.remove(function)
            if value is not None:
                chain.add(value)
            return
        object.__setattr__(self, name, value)

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """What is set inside a `with` ends with it."""
        before = {name: tuple(value) if isinstance(value, HookChain) else value for name, value in vars(self).items()}
        try:
            yield
        finally:
            for name, value in before.items():
                chain = self.__dict__[name]
                if isinstance(chain, HookChain):
                    setattr(self, name, None)
                    for function in value:
                        chain.add(function)
                else:
                    setattr(self, name, value)


class RuntimeKnobs(_Switches):
    """Hooks of launches. `launch_enter_hook` and `launch_exit_hook` get the launch's metadata, `metadata.get()`;
    `jit_cache_hook` is called before a kernel is compiled, and skips the launch if it returns true; `jit_post_compile_hook`
    afterwards. `debug` compiles run-time assertions. While `interpret` is true, launches run on the interpreter of ttir."""

    def __init__(self) -> None:
        self.launch_enter_hook: Any = HookChain(sees_launches=True)
        self.launch_exit_hook: Any = HookChain(reversed=True, sees_launches=True)
        self.kernel_load_start_hook: Any = HookChain()
        self.kernel_load_end_hook: Any = HookChain(reversed=True)
        self.jit_cache_hook: Callable[..., Any] | None = None
        self.jit_post_compile_hook: Callable[..., Any] | None = None
        self.debug = False
        self.interpret = False
        self._complete = True

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "interpret":
            WATCHERS[:] = [watcher for watcher in WATCHERS if watcher is not self] + [self] * bool(value)


class AutotuningKnobs(_Switches):
    """`print` tells what a search found; `listener(fn, key, best_config, configs_timings, duration, cache_hit)` gets it; `cache`
    is what `cache_results` of autotune is where it is not said."""

    def __init__(self) -> None:
        self.print = False
        self.cache = False
        self.listener: Callable[..., Any] | None = None
        self._complete = True


@dataclass
class CompileTimes:
    """What making a kernel took, in microseconds: up to its IR, or until it was read from the cache; each stage by name; keeping it."""

    ir_initialization: int = 0
    lowering_stages: list[tuple[str, int]] = field(default_factory=list)
    store_results: int = 0

    @property
    def total_lowering(self) -> int:
        return sum(took for _, took in self.lowering_stages)

    @property
    def total(self) -> int:
        return self.ir_initialization + self.total_lowering + self.store_results


class CompilationKnobs(_Switches):
    """`always_compile` takes nothing from the cache; `allow_non_constexpr_globals` lets kernels read plain globals, whose
    changes they do not see; `disable_line_info` compiles without places in the source; `listener(src, metadata, metadata_group, times,
    cache_hit)` is told of each kernel that was compiled or read from the cache, with its ASTSource, files and CompileTimes."""

    def __init__(self) -> None:
        self.listener: Callable[..., Any] | None = None
        self.always_compile = False
        self.allow_non_constexpr_globals = False
        self.disable_line_info = False
        self._complete = True


class LanguageKnobs(_Switches):
    """Defaults of kernels: `default_fp_fusion` is that of the option enable_fp_fusion, `fp32_default` ("ieee", "tf32", ...) that of
    the input_precision of products."""

    def __init__(self) -> None:
        self.default_fp_fusion = True
        self.fp32_default: str | None = None
        self._complete = True


class CacheKnobs:
    """`dir` is the folder where compiled kernels are kept: the variable KERNELPACK_CACHE_DIR, which setting it sets."""

    def __init__(self, variable: str, default: str) -> None:
        self._variable = variable
        self._default = default

    @property
    def dir(self) -> str:
        return os.path.expanduser(os.environ.get(self._variable) or self._default)

    @dir.setter
    def dir(self, folder: str) -> None:
        os.environ[self._variable] = str(folder)


class LazyDict:
    """A dict with entries that are computed when it is first read by `get()`: what hooks are told of a launch."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data
        self.extras: list[tuple[Callable[..., dict[str, Any]], tuple[Any, ...]]] = []

    def add(self, function: Callable[..., dict[str, Any]], args: tuple[Any, ...]) -> None:
        self.extras.append((function, args))

    def get(self) -> dict[str, Any]:
        for function, args in self.extras:
            self.data |= function(*args)
        self.extras.clear()
        return self.data
