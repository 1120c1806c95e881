"""`kernel[grid](...)`: compiles for the call's specialization on first use, or takes it from disk, then launches."""

from __future__ import annotations

import functools
import operator
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from kernelpack import knobs
from kernelpack.backends.base import Backend
from kernelpack.backends.installed import backend_for_device, backend_of, backends
from kernelpack.compiled import CompiledKernel
from kernelpack.compiler.stages import compile_ttir, microseconds_since
from kernelpack.errors import LaunchError, OptionError, TargetError, UnreachableMemoryError
from kernelpack.facts import DIVISIBLE_BY, EQUAL_TO
from kernelpack.ir.core import Location
from kernelpack.kernel.aggregates import user_aggregate
from kernelpack.kernel.dependencies import Binding, functions_in, watched_by
from kernelpack.kernel.jit import JITFunction
from kernelpack.kernel.values import constexpr
from kernelpack.knobs.hooks import WATCHERS, CompileTimes
from kernelpack.options import OPTION_NAMES, Options, options_of
from kernelpack.process_wide import collections_put_off
from kernelpack.runtime import launch_hooks
from kernelpack.runtime._async_compile import active_mode
from kernelpack.runtime.driver import driver
from kernelpack.runtime.kernel_cache import KernelCache
from kernelpack.runtime.kernel_view import LaunchableKernel
from kernelpack.runtime.specialization import Specialization, Specializer, specialize, specialized_ttir
from kernelpack.runtime.stand_ins import TensorWrapper
from kernelpack.target import GPUTarget, Target
from kernelpack.tools.tensor_descriptor import TensorDescriptor

_HINTS = frozenset(
    (
        "extern_libs", "grf_mode", "instruction_sched_variant", "kpack", "matrix_instr_nonkdim", "schedule_hint", "waves_per_eu",
    )
)  # fmt: skip
"""What Triton's backends take without changing what is computed: here they have no meaning, and no effect."""
_OPTIONS = frozenset((*OPTION_NAMES, "arch"))
"""What a launch takes beside arguments: `arch` (`"sm80"`) chooses what it is compiled for, except on an emulator, the others how."""
_MAX_GRID = (2**31 - 1, 65535, 65535)
_NO_DEFAULT = object()
_LAUNCHERS: weakref.WeakSet[Launcher] = weakref.WeakSet()


class Launcher:
    """Launches one kernel. Options (`num_warps`, ...) go by keyword; the device is that of the first tensor.

    `bind(grid)` is `kernel[grid]`: C++ finds what earlier calls compiled (csrc/python/jit_launcher.cpp), and asks `prepare` for
    what is new. Calls with arguments that C++ does not know (tuples, descriptors, ...) come to `launch` each time.
    """

    def __init__(self, fn: JITFunction) -> None:
        for parameter in fn.signature.parameters.values():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise LaunchError(
                    f"{fn.__name__}: a kernel cannot take {parameter}, its parameters have names",
                    location=fn.location,
                    cure="pass a tuple",
                )
        self.fn = fn
        self._names = {param.name: param.num for param in fn.params}
        self._defaults = [param.default if param.has_default else _NO_DEFAULT for param in fn.params]
        self._specializers: dict[str, Specializer] = {}
        self.loaded: dict[tuple[Any, ...], LaunchableKernel] = {}
        self.pending: dict[tuple[Any, ...], Future[LaunchableKernel | None]] = {}
        """What an AsyncCompileMode has threads compile."""
        self._locks: dict[tuple[Any, ...], threading.Lock] = {}
        self._called: set[Any] = {fn}
        """The kernel, and the functions that calls gave it."""
        self._bindings: list[Binding] = []
        _LAUNCHERS.add(self)

    @functools.cached_property
    def native(self) -> Any:
        """The C++ side; None where it is not built, or would launch nothing."""
        if knobs.EMULATE.get():
            return None
        try:
            from kernelpack import _C
        except ImportError:
            return None
        return _C.JitLauncher(
            python=self,
            names=self.fn.arg_names,
            defaults=self._defaults,
            no_default=_NO_DEFAULT,
            constexprs=[param.is_constexpr for param in self.fn.params],
            options=_HINTS | _OPTIONS,
            tests=_tests(),
            hooks=WATCHERS,  # while it is not empty, every launch goes through Python
        )

    @functools.cached_property
    def bind(self) -> Callable[[Any], Callable[..., Any]]:
        """Returns what launches over a grid."""
        if self.native is None:
            return lambda grid: lambda *args, **kwargs: self.launch(grid, args, kwargs)
        bind: Callable[[Any], Callable[..., Any]] = self.native.binder()
        return bind

    def prepare(self, values: Sequence[Any], options: Mapping[str, Any]) -> tuple[LaunchableKernel | None, Any, list[int]]:
        """Returns the kernel for a value of each parameter, its C++ object (None: only Python launches it), and the positions
        of the arguments that are its run-time parameters."""
        arguments = [value.value if type(value) is constexpr else value for value in values]
        chosen = tuple(sorted((name, value) for name, value in options.items() if name not in _HINTS))
        loaded, _ = self._find(arguments, chosen)
        return loaded, getattr(loaded, "native", None), list(loaded.places) if loaded is not None else []

    @staticmethod
    def forget_all() -> None:
        """Drops all that was compiled in this process: some function has another text."""
        for launcher in tuple(_LAUNCHERS):
            launcher.forget()

    def forget(self) -> None:
        """Drops what was compiled: a helper or a constant was replaced, and means something else."""
        self.loaded = {}  # threads that compile now keep theirs in the old one
        self._called = {self.fn}
        self._bindings = []
        if self.native is not None:
            self.native.clear()

    def launch(
        self, grid: Any, args: Sequence[Any], kwargs: Mapping[str, Any], warmup: bool = False
    ) -> LaunchableKernel | Future[LaunchableKernel | None] | None:
        """Launches over a grid, unless `warmup`, and returns what was launched.

        `grid` is a tuple of 1 to 3 integers, or a function from the arguments by name to one; of more the first three count. A grid
        with a 0 launches nothing. Raises LaunchError for arguments that do not fit.
        """
        arguments, options = self._bind(args, kwargs)
        for look_up, name, value, _ in self._bindings:
            if look_up(name) is not value:
                self.forget()
                break
        if driver.active.emulated_target is not None:
            simulated, values = self._simulated(driver.active.emulated_target, arguments, options)
            if not warmup and 0 not in (extents := self._grid(grid, arguments, options)):
                simulated.launch(extents, values)
            return simulated
        if warmup:
            return self._prepared(arguments, options)
        loaded, values = self._find(arguments, options)
        if loaded is not None:
            extents = self._grid(grid, arguments, options)
            named = zip(self.fn.arg_names, arguments, strict=True)
            check_reachable(self.fn.__name__, named, backends()[loaded.kernel.target.backend].device_type)
            if 0 not in extents and WATCHERS:
                launch_hooks.launch(self.fn, loaded, extents, arguments, values)
            elif 0 not in extents:
                loaded.launch(extents, values)
        return loaded

    def preload(self, data: str) -> LaunchableKernel | None:
        """Compiles what another process compiled; see JITFunction.preload."""
        key = launch_hooks.read_specialization(self.fn, data, driver.active.get_current_target())
        _, target, _ = key
        backend = backends()[target.backend]
        return self.loaded.get(key) or self._load(key, Specializer(self.fn, backend), warmup=True)

    @property
    def device_caches(self) -> launch_hooks.DeviceCaches:
        return launch_hooks.DeviceCaches(self)

    def _find(
        self, arguments: Sequence[Any], options: tuple[tuple[str, Any], ...]
    ) -> tuple[LaunchableKernel | None, list[Any]]:
        """Returns the kernel for a call, and the run-time arguments. There is no kernel where
        knobs.runtime.jit_cache_hook says that it need not be compiled."""
        loaded, key, specializer, values = self._look_up(arguments, options)
        return loaded or self._load(key, specializer, warmup=False), values

    def _simulated(
        self, target: Target, arguments: Sequence[Any], options: tuple[tuple[str, Any], ...]
    ) -> tuple[LaunchableKernel, list[Any]]:
        """Returns the kernel that the active driver makes for a call, and the run-time arguments."""
        special, values = specialize(self.fn, dict(zip(self.fn.arg_names, arguments, strict=True)), backends()[target.backend])
        return driver.active.simulated(self.fn, special, self._options(options)), values

    def _prepared(
        self, arguments: Sequence[Any], options: tuple[tuple[str, Any], ...]
    ) -> LaunchableKernel | Future[LaunchableKernel | None] | None:
        """Returns the kernel for a call, or a future of it inside of an AsyncCompileMode."""
        loaded, key, specializer, _ = self._look_up(arguments, options)
        known = loaded or self.pending.get(key)
        if known is not None:
            return known
        compile = functools.partial(self._load, key, specializer, warmup=True)
        mode = active_mode.get()
        if mode is None:
            return compile()
        self.pending[key] = future = mode.submit(compile)
        future.add_done_callback(lambda _: self.pending.pop(key, None))
        return future

    def _look_up(
        self, arguments: Sequence[Any], options: tuple[tuple[str, Any], ...]
    ) -> tuple[LaunchableKernel | None, tuple[Any, ...], Specializer, list[Any]]:
        """Returns the kernel for a call, if it is loaded, what tells it from others, and the run-time arguments."""
        backend, target = self._device(arguments, dict(options).get("arch"))
        specializer = self._specializers.get(backend.name)
        if specializer is None:
            specializer = self._specializers.setdefault(backend.name, Specializer(self.fn, backend))
        traits, values = specializer.traits(arguments)
        key = (traits, target, options)
        try:
            return self.loaded.get(key), key, specializer, values
        except TypeError as problem:
            raise LaunchError(
                f"{self.fn.__name__}: a compile-time argument cannot be told from others: {problem}",
                cure="pass numbers, strings, types, functions, or tuples of these",
            ) from None

    def _bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], tuple[tuple[str, Any], ...]]:
        """Returns a value for each parameter, and the options that the call gives."""
        names, options = self._names, []
        if len(args) > len(names):
            raise self._mismatch(f"{len(args)} positional arguments were given")
        arguments = [*args, *self._defaults[len(args) :]]
        for name, value in kwargs.items():
            place = names.get(name)
            if place is not None and place >= len(args):
                arguments[place] = value
            elif place is not None:
                raise self._mismatch(f"{name} was given twice")
            elif name in _OPTIONS:
                options.append((name, value))
            elif name not in _HINTS:
                raise self._mismatch(f"there is no parameter or option {name}")
        if len(args) < len(names):
            for place in range(len(args), len(names)):
                if arguments[place] is _NO_DEFAULT:
                    raise self._mismatch(f"{self.fn.arg_names[place]} is missing")
        return [value.value if type(value) is constexpr else value for value in arguments], tuple(sorted(options))

    def _mismatch(self, problem: str) -> LaunchError:
        fn = self.fn
        return LaunchError(
            f"{fn.__name__}: {problem}",
            location=fn.location,
            cure=f"it takes {', '.join(fn.arg_names)}; options are {', '.join(sorted(_OPTIONS))}",
        )

    def _device(self, arguments: Sequence[Any], arch: str | None) -> tuple[Backend, Target]:
        """Returns the backend of the tensors' device, and its target `arch`, or the best there. A GPU also reads pinned memory of
        the CPU."""
        kinds = {tensor.device.type for tensor in _tensors_in(arguments)} or {driver.active.device_type}
        kind = max(kinds, key=lambda kind: kind != "cpu")
        override = None if arch or kind == "cpu" else knobs.runtime.override_arch
        try:
            found = _target(kind, arch or override or "native", knobs.CPU_TARGET.get())
        except TargetError as problem:
            if override:
                raise TargetError(f"TRITON_OVERRIDE_ARCH={override}: {problem.message}", cure=problem.cure) from None
            raise
        if found is None:
            raise LaunchError(f"{self.fn.__name__}: no backend runs on {kind} tensors", location=self.fn.location)
        return found

    def _load(self, key: tuple[Any, ...], specializer: Specializer, *, warmup: bool) -> LaunchableKernel | None:
        traits, target, given = key
        with self._locks.setdefault(key, threading.Lock()):
            kernels = self.loaded
            if key not in kernels:
                special, options, backend = specializer.specialization(traits), self._options(given), specializer.backend
                hooks = knobs.runtime
                if launch_hooks.told(hooks.jit_cache_hook, self.fn, key, special, target, options, warmup=warmup):
                    return None
                self._called.update(functions_in(tuple(value for _, value in special.constexprs)))
                self._bindings = bindings = watched_by(self._called)
                if self.native is not None:
                    self.native.watch(bindings)
                loaded = launch_hooks.load(self._compiled(special, target, options, bindings), backend)
                loaded.places = [place for place, (kind, *_) in enumerate(traits) if kind is not None]
                kernels[key] = loaded
                launch_hooks.told(hooks.jit_post_compile_hook, self.fn, key, special, target, options, warmup=warmup)
            return kernels[key]

    def _compiled(
        self, special: Specialization, target: Target, options: Options, bindings: Sequence[Binding]
    ) -> CompiledKernel:
        """Returns the kernel for a specialization, from the cache's folder if it is there. Kept is what was compiled while all names
        of `bindings` stood for the same: the key says what they stood for when it began."""
        started = time.perf_counter()
        cache = KernelCache(self.fn, special, target, options)
        unusual = knobs.compilation.unusual
        times = CompileTimes()
        known = None if unusual else cache.load()
        if known is not None:
            kernel = known
            times.ir_initialization = microseconds_since(started)
        else:
            kernel = compile_kernel(self.fn, special, target, options, times)
            launch_hooks.dump(kernel)
            if not unusual and all(look_up(name) is value for look_up, name, value, _ in bindings):
                started = time.perf_counter()
                cache.save(kernel)
                times.store_results = microseconds_since(started)
        launch_hooks.tell_of_compiling(self.fn, special, kernel, cache.path, times, cache_hit=known is not None)
        return kernel

    def _options(self, given: Iterable[tuple[str, Any]]) -> Options:
        """Returns what a launch that gives these options is compiled with. Raises OptionError for what no GPU would take: CPUs, which
        have no use for them, refuse the same."""
        stated = dict(given)
        stated.pop("arch", None)  # of the target
        stated["debug"] = stated.get("debug") or self.fn.debug or knobs.runtime.debug or knobs.DEBUG.is_on()
        options = options_of(stated)
        for name, least in (("num_warps", 1), ("num_stages", 0), ("num_ctas", 1)):
            number = getattr(options, name)
            if not isinstance(number, int) or number < least:
                raise OptionError(f"{self.fn.__name__}: {name} is a number from {least} on, it is {number!r}")
        if options.num_warps.bit_count() != 1:
            raise OptionError(
                f"{self.fn.__name__}: num_warps must be a power of 2, it is {options.num_warps}", cure="use 4 or 8"
            )
        return options

    def _grid(self, grid: Any, arguments: Sequence[Any], options: Sequence[tuple[str, Any]]) -> tuple[int, int, int]:
        name = self.fn.__name__
        chosen = grid({**dict(zip(self.fn.arg_names, arguments, strict=True)), **dict(options)}) if callable(grid) else grid
        first = chosen[:3] if isinstance(chosen, (tuple, list)) else (chosen,)  # the rest counts for nothing, as in Triton
        try:  # what stands for an integer is one: NumPy's, tensors of one element
            extents = tuple(map(operator.index, first))
        except TypeError:
            extents = ()
        if not extents or min(extents) < 0:
            raise LaunchError(f"{name}: the grid is {chosen!r}", cure="give 1 to 3 integers that are not negative")
        padded = (*extents, 1, 1)[:3]
        for axis, extent, most in zip("xyz", padded, _MAX_GRID, strict=True):
            if extent > most:
                raise LaunchError(f"{name}: grid axis {axis} is {extent}, at most {most} is possible")
        return padded[0], padded[1], padded[2]


def _tensors_in(arguments: Iterable[Any]) -> Iterator[Any]:
    """Yields what says where its memory is, among arguments and the entries of tuples: tensors, and most that stands for one."""
    for value in arguments:
        if (hasattr(value, "data_ptr") and hasattr(value, "device")) or isinstance(value, TensorDescriptor):
            yield value
        elif isinstance(value, tuple):
            yield from _tensors_in(value)
        elif isinstance(value, user_aggregate):
            yield from _tensors_in(value.parts().values())


def check_reachable(name: str, arguments: Iterable[tuple[str, Any]], kind: str) -> None:
    """Raises UnreachableMemoryError for a tensor that a kernel on this kind of device cannot read: it is elsewhere, or nowhere."""
    for argument, values in arguments:
        for value in _tensors_in([values]):
            tensor = value.base if isinstance(value, (TensorDescriptor, TensorWrapper)) else value
            if tensor.device.type != kind and not (tensor.device.type == "cpu" and tensor.is_pinned()):
                raise UnreachableMemoryError(
                    f"{name}: {argument} is on {tensor.device}, the kernel runs on {kind}",
                    cure=f"move it there: {argument}.to({kind!r})",
                )
            if tensor.data_ptr() == 0 and tensor.numel() > 0:
                raise UnreachableMemoryError(
                    f"{name}: {argument} has {tensor.numel()} elements and no memory: it is a fake tensor, or its storage was freed",
                    cure="launch kernels on tensors with storage",
                )


@functools.cache
def _tests() -> list[tuple[str, int, Callable[[int], bool]]]:
    """Returns what backends may assume of integers and addresses: which kind of test it is, its value, and the test."""
    kinds = {EQUAL_TO: "equal", DIVISIBLE_BY: "divisible"}
    properties = [prop for backend in backends().values() for prop in backend.properties() if not prop.test.of_reach]
    rows = {(kinds.get(prop.test, prop), prop.value): prop for prop in properties}
    return [(kinds.get(prop.test, "other"), prop.value, prop.holds) for prop in rows.values()]


@functools.cache
def _target(kind: str, arch: str, forced: str) -> tuple[Backend, Target] | None:
    """Returns the backend for a kind of device, and its target: `arch` of the backend that serves such devices, or a whole target,
    such as `toy:one`, of another. `forced` is a knob that decides what is native here."""
    if ":" in arch:
        target = Target.parse(arch)
        backend = backend_of(target)
        if backend.device_type != kind:
            raise TargetError(f"target {arch} runs on {backend.device_type} tensors, not on {kind} tensors")
        return backend, backend.resolve_target(target)
    serving = backend_for_device(kind)
    if serving is None:
        return None
    if arch == "native":
        return serving, serving.native_target()
    return serving, serving.resolve_target(GPUTarget(serving.name, arch).as_target())


@collections_put_off
def compile_kernel(
    fn: JITFunction, special: Specialization, target: Target, options: Options, times: CompileTimes | None = None
) -> CompiledKernel:
    """Compiles a kernel for a specialization. `times` gets what each part of it took."""
    started = time.perf_counter()
    module = specialized_ttir(fn, special, options)
    if knobs.compilation.disable_line_info:
        for op in module.walk():
            op.location = Location()
    if times is not None:
        times.ir_initialization = microseconds_since(started)
    return compile_ttir(module, target, options, special.facts, times=times)
