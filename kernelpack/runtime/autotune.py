"""@autotune chooses a kernel's config by timing, @heuristics computes constexprs from a call's arguments: as in Triton."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import math
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from kernelpack import knobs
from kernelpack.backends.installed import backend_for_device
from kernelpack.compiler.source_hash import source_hash
from kernelpack.config import Config
from kernelpack.errors import AutotunerError, EmulationError, KernelpackError, LaunchError
from kernelpack.files.cache import CacheFolder
from kernelpack.files.document import Either, read_document
from kernelpack.kernel.jit import Launchable, jit_function
from kernelpack.runtime import packs, record
from kernelpack.runtime._async_compile import AsyncCompileMode, active_mode
from kernelpack.runtime.driver import driver
from kernelpack.testing import do_bench_cudagraph

Timing = Sequence[float] | float


class Autotuner(Launchable):
    """A kernel whose config is the fastest of several, found at the first call for each value of `key`.

    `best_config` is that of the last call, `configs_timings` what the last search measured, in milliseconds: infinite for
    configs that do not compile or do not fit the device. Those that differ only in what has no meaning on the device, as
    `num_warps` on a CPU, are timed once. `cache` holds the configs found, by key.

    Classes that derive from Triton's may replace, set and call here what they do there: `run`, `nargs` (the arguments by position
    of the search under way), `prune_configs`, `_bench`, and `pre_hook` and `post_hook`, which prepare and restore the tensors.
    What a `run` of theirs found is recorded if it sets `best_config`; it is not called for what an adopted folder knows.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "run" in vars(cls):
            type.__setattr__(cls, "run", _known_first(vars(cls)["run"]))

    def __init__(
        self,
        fn: Launchable,
        arg_names: Iterable[str],
        configs: Iterable[Config],
        key: Iterable[str],
        reset_to_zero: Iterable[str] | None = None,
        restore_value: Iterable[str] | None = None,
        pre_hook: Callable[..., Any] | None = None,
        post_hook: Callable[..., Any] | None = None,
        prune_configs_by: Mapping[str, Any] | None = None,
        warmup: float | None = None,
        rep: float | None = None,
        use_cuda_graph: bool = False,
        do_bench: Callable[..., Timing] | None = None,
        cache_results: bool = False,
    ) -> None:
        self.fn = fn
        self.arg_names = list(arg_names)
        self.configs = list(configs) or [Config({})]
        self.keys = list(key)
        self.reset_to_zero = list(reset_to_zero or ())
        self.restore_value = list(restore_value or ())
        for what, names in (("reset_to_zero", self.reset_to_zero), ("restore_value", self.restore_value)):
            if unknown := self._unknown(names):
                raise LaunchError(
                    f"autotune of {fn.__name__}: {what} names {unknown}", cure=f"its parameters are {', '.join(self.arg_names)}"
                )
        if unknown := self._unknown(self.keys):  # kernels in use contain some
            warnings.warn(f"autotune of {fn.__name__}: key names {unknown}, which no parameter is called", stacklevel=3)
        self.user_defined_pre_hook, self.user_defined_post_hook = pre_hook is not None, post_hook is not None
        self._user_pre_hook, self._user_post_hook = pre_hook, post_hook
        self.pre_hook: Callable[..., Any] = self._before
        self.post_hook: Callable[..., Any] = self._after
        self.restore_copies: dict[str, Any] = {}
        self.nargs: dict[str, Any] | None = None
        # one search at a time: its state is the tuner's, and launches beside it cost it time
        self._searching = threading.RLock()
        pruning = dict(prune_configs_by or {})
        self.early_config_prune: Callable[..., Any] | None = pruning.get("early_config_prune")
        self.perf_model: Callable[..., float] | None = pruning.get("perf_model")
        self.configs_top_k: float = pruning.get("top_k", 1.0)
        self.warmup_ms, self.rep_ms = 25.0 if warmup is None else warmup, 100.0 if rep is None else rep
        self.do_bench = do_bench
        self.use_cuda_graph = use_cuda_graph
        self.cache_results = cache_results or knobs.autotuning.cache
        self.base_fn = jit_function(fn)
        self.bench_time: float | None = None
        self.cache: dict[tuple[Any, ...], Config] = {}
        self._taken: dict[tuple[Any, ...], Config] = {}  # from folders; derived tuners keep other things in `cache`
        self.best_config: Config | None = None
        self.configs_timings: dict[Config, Timing] = {}
        self.__name__, self.__doc__, self.__module__ = fn.__name__, fn.__doc__, fn.__module__

    def _unknown(self, names: Iterable[str]) -> str:
        return ", ".join(name for name in names if name not in self.arg_names)

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        """Launches with the best config, which the first call for a key finds. With `warmup` it compiles every config."""
        named = {**dict(zip(self.arg_names, args, strict=False)), **kwargs}
        if warmup:
            return self._compiled(self._pruned(args, kwargs), args, kwargs, grid)
        config = self.configs[0]
        if len(self.configs) > 1:
            key = self._key(named)
            if key not in self.cache:
                with self._searching:
                    if key not in self.cache:
                        self.cache[key] = self._search(key, named, args, kwargs, grid)
            config = self.cache[key]
        return self._run_with(config, named, args, kwargs, grid)

    def _run_with(
        self, config: Config, named: Mapping[str, Any], args: Sequence[Any], kwargs: Mapping[str, Any], grid: Any
    ) -> Any:
        self.best_config = config
        if config.pre_hook is not None:
            config.pre_hook({**named, **config.all_kwargs()})
        return self._launch(config, args, kwargs, grid)

    def _packed(self, key: tuple[Any, ...], configs: Sequence[Config]) -> Config | None:
        """Returns the config that a recorded search chose, None where no adopted folder knows of one."""
        packed = packs.chosen(self.base_fn.cache_key, key) if self.base_fn is not None else None
        if packed is None:
            return None
        return next((config for config in configs if record.config_of(config.all_kwargs()) == packed), None)

    def _launch(
        self, config: Config, args: Sequence[Any], kwargs: Mapping[str, Any], grid: Any, *, warmup: bool = False
    ) -> Any:
        chosen = config.all_kwargs()
        twice = [name for name in chosen if name in kwargs or name in self.arg_names[: len(args)]]
        if twice:
            raise LaunchError(
                f"autotune of {self.__name__}: {', '.join(twice)} is chosen by the configs, and given by the call",
                cure="leave it out of the call, or out of the configs",
            )
        return self.fn.run(*args, grid=grid, warmup=warmup, **kwargs, **chosen)

    def _compiled(self, configs: Sequence[Config], args: Sequence[Any], kwargs: Mapping[str, Any], grid: Any) -> list[Any]:
        """Returns the kernel of each config, or its future inside of an AsyncCompileMode. Raises the first one's error.

        Threads compile them side by side: while ptxas assembles one, others go through Python and LLVM.
        """
        if active_mode.get() is not None:
            return [self._launch(config, args, kwargs, grid, warmup=True) for config in configs]
        threads = ThreadPoolExecutor()
        try:
            with AsyncCompileMode(threads, ignore_errors=True):
                kernels = self._compiled(configs, args, kwargs, grid)
        finally:
            threads.shutdown(cancel_futures=True)  # of a search that is interrupted
        return [kernel.result() if isinstance(kernel, Future) else kernel for kernel in kernels]

    def _compile_ahead(self, configs: Sequence[Config], args: Sequence[Any], kwargs: Mapping[str, Any], grid: Any) -> None:
        """Compiles what a search is going to time, unless a hook might decide what that is, or whether. A search's own launches
        tell of what does not compile."""
        hooks = (self._user_pre_hook, knobs.runtime.jit_cache_hook, knobs.runtime.jit_post_compile_hook)
        if (
            any((*hooks, *(config.pre_hook for config in configs)))
            or self.pre_hook != self._before
            or active_mode.get() is not None
        ):
            return
        with contextlib.suppress(KernelpackError):
            self._compiled(configs, args, kwargs, grid)

    def _key(self, named: Mapping[str, Any]) -> tuple[Any, ...]:
        """Returns the values that `key` names, and the dtypes of all tensors.

        Where a function prunes configs, the call's constexprs too: what it refuses for one of them was perhaps fast for another.
        """
        dtypes = (str(named[name].dtype) for name in self.arg_names if hasattr(named.get(name), "dtype"))
        constexprs: Iterable[str] = ()
        if self.early_config_prune is not None and self.base_fn is not None:
            constexprs = (self.base_fn.arg_names[place] for place in self.base_fn.constexprs)
        names = dict.fromkeys((*self.keys, *constexprs))
        return (*(named[name] for name in names if name in named), *dtypes)

    def _pruned(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Config]:
        """Returns the configs worth trying for a call."""
        with self._searching:
            self.nargs = dict(zip(self.arg_names, args, strict=False))
            return self.prune_configs(kwargs)

    def prune_configs(self, kwargs: Mapping[str, Any]) -> list[Config]:
        """Returns the configs worth trying for the arguments in `nargs` and `kwargs`."""
        configs = self.configs
        if self.early_config_prune is not None:
            configs = list(self.early_config_prune(configs, self.nargs, **kwargs))
            if not configs:
                raise AutotunerError(
                    "No valid autotuner configs after pruning. `early_config_prune` should return at least one config."
                )
        if self.perf_model is not None:
            top = self.configs_top_k
            count = max(1, int(len(self.configs) * top) if isinstance(top, float) and top <= 1.0 else int(top))
            if len(configs) > count:
                named = {**(self.nargs or {}), **kwargs}
                expected = {config: self.perf_model(**{**named, **config.all_kwargs()}) for config in configs}
                configs = sorted(configs, key=expected.__getitem__)[:count]
        return configs

    def _search(
        self, key: tuple[Any, ...], named: Mapping[str, Any], args: Sequence[Any], kwargs: Mapping[str, Any], grid: Any
    ) -> Config:
        """Returns the fastest config, or the only one that is left. Raises the first one's error if none runs."""
        pruned = self._pruned(args, kwargs)
        if len(pruned) == 1:
            return pruned[0]
        known, place = self._packed(key, pruned), self._place(key, pruned)
        if known is None and place is not None:
            known = self._remembered(place, pruned)
        if known is not None:
            self._tell(key, known, cache_hit=True)
            return known
        start = time.perf_counter()
        timed_as = self._timed_as(pruned, named)
        distinct = list(dict.fromkeys(timed_as.values()))
        self._compile_ahead(distinct, args, kwargs, grid)
        timings = {config: self._bench(*args, config=config, grid=grid, **kwargs) for config in distinct}
        self.configs_timings = {config: timings[timed_as[config]] for config in pruned}
        if all(_median(timing) == math.inf for timing in self.configs_timings.values()):
            self._time(pruned[0], args, kwargs, grid)
        self.pre_hook({**named}, reset_only=True)
        best = min(pruned, key=lambda config: _median(self.configs_timings[config]))
        self.bench_time = time.perf_counter() - start
        if place is not None:
            kept = {str(config): timing for config, timing in self.configs_timings.items()}
            CacheFolder(knobs.cache.dir).keep(place, json.dumps(kept).encode())
        self._tell(key, best, cache_hit=False)
        return best

    def _timed_as(self, configs: Sequence[Config], arguments: Mapping[str, Any]) -> dict[Config, Config]:
        """Returns for each config the first that is the same to the arguments' device, unless the author times them."""
        unused: frozenset[str] = frozenset()
        if self.do_bench is None and driver.active.emulated_target is None:
            backend = backend_for_device(_device_of(arguments))
            unused = frozenset() if backend is None else backend.unused_options.difference(self.arg_names)
        first: dict[Any, Config] = {}
        timed_as = {}
        for config in configs:
            decisive = tuple((name, value) for name, value in config.all_kwargs().items() if name not in unused)
            timed_as[config] = first.setdefault((decisive, config.pre_hook), config)
        return timed_as

    def _tell(self, key: tuple[Any, ...], best: Config, *, cache_hit: bool) -> None:
        """Tells what a search found, where knobs.autotuning or KERNELPACK_TRACE asks for it."""
        self._note(key, best)
        if knobs.autotuning.print:
            found = "remembered" if cache_hit else f"{self.bench_time:.2f} s"
            print(f"autotuning {self.__name__} for {key}: best config {best} ({found})")
        if knobs.autotuning.listener is not None:
            knobs.autotuning.listener(
                fn=self.base_fn,
                key=key,
                best_config=best,
                configs_timings=self.configs_timings,
                duration=None if cache_hit else self.bench_time,
                cache_hit=cache_hit,
            )

    def _note(self, key: tuple[Any, ...], best: Config) -> None:
        """Writes what a search found to the record, where there is one."""
        noted = record.config_of(best.all_kwargs()) if knobs.TRACE.get() else None
        if noted is not None and self.base_fn is not None:
            record.searched(self.base_fn, key, noted)

    def _place(self, key: tuple[Any, ...], configs: Sequence[Config]) -> str | None:
        """Returns the name in the cache of a search's timings; None where they are not kept: functions of configs have no text."""
        active = driver.active
        if not self.cache_results or knobs.cache_dir() is None or any(config.pre_hook is not None for config in configs):
            return None
        if active.emulated_target is not None:  # its times are no GPU's
            return None
        assert self.base_fn is not None
        parts = [source_hash(), self.base_fn.cache_key, str(active.get_current_target()), str(key), *map(str, configs)]
        return f"autotune/{hashlib.sha256('|'.join(parts).encode()).hexdigest()}.json"

    def _remembered(self, place: str, configs: Sequence[Config]) -> Config | None:
        """Returns the best config of an earlier process's search, or None."""
        data = CacheFolder(knobs.cache.dir).read(place)
        try:
            timings = read_document(data or b"", {str(config): Either((float, ...), float) for config in configs})
        except ValueError:  # cut short by a full disk, altered
            return None
        self.configs_timings = {config: timings[str(config)] for config in configs}
        return min(configs, key=lambda config: _median(self.configs_timings[config]))

    def _bench(self, *args: Any, config: Config, grid: Any, **kwargs: Any) -> Timing:
        """Returns the time of a call with a config: infinite where it does not compile, or does not fit the device."""
        try:
            return self._time(config, args, kwargs, grid)
        except EmulationError:  # a defect, whatever the config
            raise
        except KernelpackError:  # e.g. blocks too large for shared memory
            return [math.inf] * 3

    def _time(self, config: Config, args: Sequence[Any], kwargs: Mapping[str, Any], grid: Any) -> Timing:
        arguments = {**dict(zip(self.arg_names, args, strict=False)), **kwargs, **config.all_kwargs()}

        def call(warmup: bool = False) -> Any:
            if config.pre_hook is not None:
                config.pre_hook(arguments)
            self.pre_hook(arguments)
            problem: KernelpackError | None = None
            try:
                return self._launch(config, args, kwargs, grid, warmup=warmup)
            except KernelpackError as raised:
                problem = raised
                raise
            finally:
                self.post_hook(arguments, exception=problem)

        quantiles = (0.5, 0.2, 0.8)
        if self.do_bench is not None:
            return self.do_bench(call, quantiles=quantiles)
        device = _device_of(arguments)
        if device == "cpu":  # a long call is then timed as it is made for the first time
            kernel = call(warmup=True)
            if isinstance(kernel, Future):
                kernel.result()
        timing: list[float]
        if self.use_cuda_graph and device == "cuda":
            timing = do_bench_cudagraph(call, rep=self.rep_ms, quantiles=quantiles)
        else:
            benchmark = driver.active.get_benchmarker()
            timing = benchmark(
                call, warmup=self.warmup_ms, rep=self.rep_ms, quantiles=quantiles, device=device, compiled=device == "cpu"
            )
        return timing

    def _before(self, arguments: Mapping[str, Any], reset_only: bool = False) -> None:
        """Prepares the tensors for one launch of a search: zeroes some, copies those to restore."""
        if self._user_pre_hook is not None:
            self._user_pre_hook(arguments, reset_only=reset_only)
        for tensor in self._tensors("reset_to_zero", self.reset_to_zero, arguments).values():
            tensor.zero_()
        if not reset_only:
            restored = self._tensors("restore_value", self.restore_value, arguments)
            self.restore_copies = {name: tensor.clone() for name, tensor in restored.items()}

    def _after(self, arguments: Mapping[str, Any], exception: BaseException | None) -> None:
        """Gives the tensors back what they held before the launch."""
        for name, value in self.restore_copies.items():
            arguments[name].copy_(value)
        self.restore_copies = {}
        if self._user_post_hook is not None:
            self._user_post_hook(arguments, exception=exception)

    def _tensors(self, what: str, names: Iterable[str], arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the arguments of these names that are not None. Raises LaunchError where one is no tensor."""
        named = {name: arguments[name] for name in names if arguments.get(name) is not None}
        for name, value in named.items():
            if not hasattr(value, "data_ptr"):
                raise LaunchError(
                    f"autotune of {self.__name__}: {what} names {name}, which is of type {type(value).__name__}",
                    cure="name tensors",
                )
        return named


def _known_first(run: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a derived tuner's `run`, which takes a config that an adopted folder knows without asking the tuner, and records what the
    tuner chose."""

    @functools.wraps(run)
    def known_first(self: Autotuner, *args: Any, **kwargs: Any) -> Any:
        if len(self.configs) == 1 or kwargs.get("warmup") or not (packs.in_use() or knobs.TRACE.get()):
            return run(self, *args, **kwargs)
        given = {name: value for name, value in kwargs.items() if name not in ("grid", "warmup")}
        named = {**dict(zip(self.arg_names, args, strict=False)), **given}
        key = self._key(named)
        known = self._taken.get(key) or self._packed(key, self.configs)
        if known is not None:
            self._taken[key] = known
            return self._run_with(known, named, args, given, kwargs["grid"])
        self.best_config = None
        result = run(self, *args, **kwargs)
        if self.best_config is not None:
            self._note(key, self.best_config)
        return result

    return known_first


def _device_of(arguments: Mapping[str, Any]) -> str:
    """Returns the torch device type that a call runs on: a GPU's kernels also read pinned memory of the CPU."""
    types: set[str] = {value.device.type for value in arguments.values() if hasattr(value, "device")}
    return max(types or {driver.active.device_type}, key=lambda kind: kind != "cpu")


def _median(timing: Timing) -> float:
    return timing if isinstance(timing, (int, float)) else timing[0]


class Heuristics(Launchable):
    """A kernel of which some constexprs are computed from a call's arguments."""

    def __init__(self, fn: Launchable, arg_names: Iterable[str], values: Mapping[str, Callable[[dict[str, Any]], Any]]) -> None:
        self.fn = fn
        self.arg_names = list(arg_names)
        self.values = dict(values)
        for name, compute in self.values.items():
            if not callable(compute):
                raise LaunchError(
                    f"heuristics of {fn.__name__}: {name} is {compute!r}",
                    cure="write a function of the arguments: lambda args: ...",
                )
        self.base_fn = jit_function(fn)
        self.__name__, self.__doc__, self.__module__ = fn.__name__, fn.__doc__, fn.__module__

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        for name, compute in self.values.items():  # later ones see the earlier
            kwargs[name] = compute({**dict(zip(self.arg_names, args, strict=False)), **kwargs})
        return self.fn.run(*args, grid=grid, warmup=warmup, **kwargs)


def autotune(
    configs: Iterable[Config],
    key: Iterable[str],
    prune_configs_by: Mapping[str, Any] | None = None,
    reset_to_zero: Iterable[str] | None = None,
    restore_value: Iterable[str] | None = None,
    pre_hook: Callable[..., Any] | None = None,
    post_hook: Callable[..., Any] | None = None,
    warmup: float | None = None,
    rep: float | None = None,
    use_cuda_graph: bool = False,
    do_bench: Callable[..., Timing] | None = None,
    cache_results: bool = False,
) -> Callable[[Launchable], Autotuner]:
    """Decorator: launches use the fastest config, timed at the first call for each value of the arguments that `key` names.

    Searching runs the kernel many times: `reset_to_zero` names tensors that are zeroed before each run (and once more before
    the call's own), `restore_value` those that get back what they held. `prune_configs_by` may hold `early_config_prune`
    (configs, arguments by name, **kwargs -> configs), `perf_model` (arguments and config by name -> expected time) and `top_k`
    (how many, or which fraction, of the best by that model are timed). `do_bench(call, quantiles)` replaces
    kernelpack.testing.do_bench; `warmup` and `rep` are its milliseconds; `use_cuda_graph` times calls on a GPU inside a CUDA graph.
    `cache_results` keeps what was found for later processes. One config, or one that is left by pruning, is not timed.
    """

    def decorate(fn: Launchable) -> Autotuner:
        return Autotuner(
            fn, fn.arg_names, configs, key, reset_to_zero, restore_value, pre_hook, post_hook, prune_configs_by, warmup, rep,
            use_cuda_graph, do_bench, cache_results,
        )  # fmt: skip

    return decorate


def heuristics(values: Mapping[str, Callable[[dict[str, Any]], Any]]) -> Callable[[Launchable], Heuristics]:
    """Decorator: computes constexprs at each call, `{"EVEN": lambda args: args["n"] % args["BLOCK"] == 0}`."""

    def decorate(fn: Launchable) -> Heuristics:
        return Heuristics(fn, fn.arg_names, values)

    return decorate
