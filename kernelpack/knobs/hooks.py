"""Hooks and switches of launches, searches and compilations: kernelpack.knobs.runtime, .autotuning, .compilation, .language."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from kernelpack.knobs.environment import base_knobs, env_bool, env_opt_str

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


class _Hook:
    """An attribute that is a chain of functions: a function set to it replaces them, None drops them."""

    def __init__(self, *, reversed: bool = False, sees_launches: bool = False) -> None:
        self.kind = {"reversed": reversed, "sees_launches": sees_launches}

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, group: Any, owner: type | None = None) -> Any:
        return self if group is None else vars(group).setdefault(self.name, HookChain(**self.kind))

    def __set__(self, group: Any, value: Any) -> None:
        chain = self.__get__(group)
        functions = tuple(value) if isinstance(value, (HookChain, tuple)) else () if value is None else (value,)
        for function in chain:
            chain.remove(function)
        for function in functions:
            chain.add(function)


class RuntimeKnobs(base_knobs):
    """Hooks of launches. `launch_enter_hook` and `launch_exit_hook` get the launch's metadata, `metadata.get()`;
    `jit_cache_hook` is called before a kernel is compiled, and skips the launch if it returns true; `jit_post_compile_hook`
    afterwards. `add_stages_inspection_hook(backend, stages, options, language, capability)` may replace the stages that a kernel is compiled
    by; called without arguments it returns a key and a hash of what it does. Around loading a kernel, and when it is unloaded, the others are
    called with (module, function, name, stages, hash). `override_arch` is
    the `arch` of GPU launches that state none. `debug` compiles run-time assertions. While `interpret` is true, launches run on the interpreter of ttir."""

    launch_enter_hook = _Hook(sees_launches=True)
    launch_exit_hook = _Hook(reversed=True, sees_launches=True)
    kernel_load_start_hook = _Hook()
    kernel_load_end_hook = _Hook(reversed=True)
    kernel_unload_hook = _Hook()
    jit_cache_hook: Callable[..., Any] | None = None
    jit_post_compile_hook: Callable[..., Any] | None = None
    add_stages_inspection_hook: Callable[..., Any] | None = None
    override_arch = env_opt_str("TRITON_OVERRIDE_ARCH", meaning="what GPU launches without `arch` are compiled for, e.g. sm80")
    debug = env_bool("TRITON_DEBUG", meaning="1: kernels check their run-time assertions")
    interpret = env_bool(
        "TRITON_INTERPRET",
        meaning="1: kernels that Python launches run on the interpreter, one program after the other; an access outside their tensors is "
        "an error",
    )

    def _state(self) -> dict[str, Any]:
        return {name: tuple(value) if isinstance(value, HookChain) else value for name, value in vars(self).items()}

    def _restore(self, state: dict[str, Any]) -> None:
        chains = {name: value for name, value in vars(self).items() if isinstance(value, HookChain)}
        super()._restore({**{name: value for name, value in state.items() if not isinstance(value, tuple)}, **chains})
        for name in {*chains, *(name for name, value in state.items() if isinstance(value, tuple))}:
            setattr(self, name, state.get(name))

    def _changed(self) -> None:
        self.refresh()

    def refresh(self) -> None:
        """Lets launches go through Python while they are interpreted, or their stages inspected."""
        watches = self.interpret or self.add_stages_inspection_hook is not None
        WATCHERS[:] = [watcher for watcher in WATCHERS if watcher is not self] + [self] * watches


class AutotuningKnobs(base_knobs):
    """`print` tells what a search found; `listener(fn, key, best_config, configs_timings, duration, cache_hit)` gets it; `cache`
    is what `cache_results` of autotune is where it is not said."""

    print = env_bool("TRITON_PRINT_AUTOTUNING", meaning="1: searches for configs say what they found")
    cache = env_bool("TRITON_CACHE_AUTOTUNING", meaning="1: what searches found is kept between processes")
    listener: Callable[..., Any] | None = None


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


def microseconds_since(started: float) -> int:
    """Returns how long ago `time.perf_counter()` was `started`."""
    return int(1e6 * (time.perf_counter() - started))


class CompilationKnobs(base_knobs):
    """`always_compile` takes nothing from the cache; `allow_non_constexpr_globals` lets kernels read plain globals, whose
    changes they do not see; `disable_line_info` compiles without places in the source; `dump_ir` writes every stage of what is compiled
    to knobs.cache.dump_dir; `listener(src, metadata, metadata_group, times, cache_hit)` is told of each kernel that was compiled or read
    from the cache, with its ASTSource, files and CompileTimes. `use_ir_loc` has no effect, in Triton
    too, but on IR that is read from files, which kernels here are not compiled from. `instrumentation_mode` is what code written for Triton
    hands on to launches, which take no other than the empty one: kernels are not instrumented."""

    listener: Callable[..., Any] | None = None
    instrumentation_mode: str = ""
    always_compile = env_bool("TRITON_ALWAYS_COMPILE", meaning="1: nothing is taken from the cache")
    disable_line_info = env_bool("TRITON_DISABLE_LINE_INFO", meaning="1: code without places in the source")
    allow_non_constexpr_globals = env_bool(
        "TRITON_ALLOW_NON_CONSTEXPR_GLOBALS", meaning="1: kernels may read plain globals, whose changes they do not see"
    )
    dump_ir = env_bool(
        "TRITON_KERNEL_DUMP", meaning="1: every stage of kernels compiled for launches is written to TRITON_DUMP_DIR"
    )

    use_ir_loc = env_opt_str("USE_IR_LOC")

    @property
    def unusual(self) -> bool:
        """Whether a switch is set that changes kernels, and is no part of their key in the cache."""
        return any((self.always_compile, self.disable_line_info, self.allow_non_constexpr_globals, self.dump_ir))


class LanguageKnobs(base_knobs):
    """Defaults of kernels: `default_fp_fusion` is that of the option enable_fp_fusion, `fp32_default` ("ieee", "tf32", ...) that of
    the input_precision of products."""

    default_fp_fusion = env_bool("TRITON_DEFAULT_FP_FUSION", True, meaning="0: products and sums are rounded apart")
    fp32_default = env_opt_str("TRITON_F32_DEFAULT", meaning="ieee, tf32, ...: how products of float32 multiply")


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
