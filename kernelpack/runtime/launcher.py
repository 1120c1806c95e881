"""`kernel[grid](...)`: compiles for the call's specialization on first use, or takes it from disk, then launches."""

from __future__ import annotations

import functools
import operator
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from kernelpack import knobs
from kernelpack.backends.installed import backend_of, backends
from kernelpack.compiler.target_backend import TargetBackend, TargetOptions
from kernelpack.errors import LaunchError, OptionError
from kernelpack.facts import DIVISIBLE_BY, EQUAL_TO
from kernelpack.kernel.dependencies import Binding, functions_in, watched_by
from kernelpack.kernel.jit import JITFunction
from kernelpack.kernel.values import unwrap
from kernelpack.knobs.hooks import WATCHERS
from kernelpack.runtime import launch_hooks, packs, record
from kernelpack.runtime._async_compile import active_mode
from kernelpack.runtime.ahead_of_time import ASTSource
from kernelpack.runtime.binder import NO_DEFAULT, OPTIONS, OPTIONS_OF_OTHERS, Binder, Call
from kernelpack.runtime.compile import compiled_or_kept
from kernelpack.runtime.device_caches import DeviceCaches
from kernelpack.runtime.driver import driver
from kernelpack.runtime.kernel_view import LaunchableKernel
from kernelpack.runtime.specialization import specialization_of
from kernelpack.runtime.specialization_data import read_specialization_data
from kernelpack.target import Target

_MAX_GRID = (2**31 - 1, 65535, 65535)
_LAUNCHERS: weakref.WeakSet[Launcher] = weakref.WeakSet()
_RECORDED = record.start()


class Launcher:
    """Launches one kernel. Options (`num_warps`, ...) go by keyword; the device is that of the first tensor.

    `bind(grid)` is `kernel[grid]`: C++ finds what earlier calls compiled (csrc/python/jit_launcher.cpp), and asks `prepare` for
    what is new. Calls with arguments that C++ does not know (tuples, descriptors, ...) come to `launch` each time.
    """

    def __init__(self, fn: JITFunction) -> None:
        self.fn = fn
        self.binder = Binder(fn)
        self.loaded: dict[str, LaunchableKernel] = {}
        self.pending: dict[str, Future[LaunchableKernel | None]] = {}
        """What an AsyncCompileMode has threads compile."""
        self._locks: dict[str, threading.Lock] = {}
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
            defaults=self.binder.defaults,
            no_default=NO_DEFAULT,
            constexprs=[param.is_constexpr for param in self.fn.params],
            options=OPTIONS | OPTIONS_OF_OTHERS,
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
        loaded = self._find(self.binder.call(list(map(unwrap, values)), options))
        native = None if loaded is None or loaded.kernel.options.checked else getattr(loaded, "native", None)
        return loaded, native, list(loaded.places) if loaded is not None else []

    @staticmethod
    def forget_all() -> None:
        """Drops all that was compiled in this process: some function has another text."""
        for launcher in tuple(_LAUNCHERS):
            launcher.forget()

    def forget(self) -> None:
        """Drops what was compiled: a helper or a constant was replaced, and means something else."""
        self.loaded = {}  # threads that compile now keep theirs in the old one
        self.binder.keys.clear()
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
        arguments, options = self.binder.bind(args, kwargs)
        for look_up, name, value, _ in self._bindings:
            if look_up(name) is not value:
                self.forget()
                break
        call = self.binder.call(arguments, options)
        if driver.active.emulated_target is not None:
            special = specialization_of(self.fn, call.specialization)
            options_of_target = TargetBackend(call.target).parse_options(call.options)
            simulated: LaunchableKernel = driver.active.simulated(self.fn, special, self._checked(options_of_target).plain)
            if not warmup and 0 not in (extents := self._grid(grid, arguments, options)):
                simulated.launch(extents, call.values)
            return simulated
        if _RECORDED:
            record.launched(call, self.fn, TargetBackend(call.target).parse_options(call.options))
        if warmup:
            return self._prepared(call)
        loaded = self._find(call)
        if loaded is not None:
            extents = self._grid(grid, arguments, options)
            named = zip(self.fn.arg_names, arguments, strict=True)
            launch_hooks.check_reachable(self.fn.__name__, named, backends()[loaded.kernel.target.backend].device_type)
            if 0 not in extents and WATCHERS:
                launch_hooks.launch(self.fn, loaded, extents, arguments, call.values)
            elif 0 not in extents:
                loaded.launch(extents, call.values)
        return loaded

    def preload(self, data: str) -> LaunchableKernel | None:
        """Compiles what another process compiled; see JITFunction.preload."""
        key, source, options = read_specialization_data(self.fn, data, driver.active.get_current_target())
        device = driver.active.get_current_device()
        found: LaunchableKernel | None = self.loaded.get(key) or self.fn._do_compile(
            key, source.signature, device, source.constants, options, source.attrs, warmup=True
        )
        return found

    @property
    def device_caches(self) -> DeviceCaches:
        return DeviceCaches(self)

    def pack(
        self, specialization: Sequence[Any], options: Mapping[str, Any], backend: TargetBackend
    ) -> tuple[TargetOptions, dict[str, Any], dict[Any, Any], dict[Any, Any]]:
        """Returns what `compile` takes for a bound call; see JITFunction._pack_args."""
        source = ASTSource.of(self.fn, specialization_of(self.fn, specialization))
        return backend.parse_options(options), source.signature, source.constants, source.attrs

    def _find(self, call: Call) -> LaunchableKernel | None:
        """Returns the kernel for a call. There is none where knobs.runtime.jit_cache_hook says that it need not be compiled."""
        return self.loaded.get(call.key) or self._load(call, warmup=False)

    def _prepared(self, call: Call) -> LaunchableKernel | Future[LaunchableKernel | None] | None:
        """Returns the kernel for a call, or a future of it inside of an AsyncCompileMode."""
        key = call.key
        known = self.loaded.get(key) or self.pending.get(key)
        if known is not None:
            return known
        compile = functools.partial(self._load, call, warmup=True)
        mode = active_mode.get()
        if mode is None:
            return compile()
        self.pending[key] = future = mode.submit(compile)
        future.add_done_callback(lambda _: self.pending.pop(key, None))
        return future

    def _load(self, call: Call, *, warmup: bool) -> LaunchableKernel | None:
        options, signature, constexprs, attrs = self.pack(call.specialization, call.options, TargetBackend(call.target))
        device = driver.active.get_current_device()
        loaded: LaunchableKernel | None = self.fn._do_compile(
            call.key, signature, device, constexprs, options, attrs, warmup=warmup
        )
        return loaded

    def compile(
        self,
        key: str,
        signature: Mapping[str, Any],
        device: int,
        constexprs: Mapping[Any, Any],
        options: TargetOptions,
        attrs: Mapping[Any, Any],
        warmup: bool,
    ) -> LaunchableKernel | None:
        """Compiles and loads a kernel, once for each key; see JITFunction._do_compile."""
        self._checked(options)
        with self._locks.setdefault(key, threading.Lock()):
            kernels = self.loaded
            if key not in kernels:
                source, target = ASTSource(self.fn, signature, constexprs, attrs), Target.parse(options.arch)
                told = functools.partial(launch_hooks.told, source, key, device, target, options, warmup=warmup)
                packed = packs.find(source, target, options)
                if packed is None and told(knobs.runtime.jit_cache_hook):
                    return None
                self._called.update(functions_in(tuple(source.constants.values())))
                self._bindings = bindings = watched_by(self._called)
                if self.native is not None:
                    self.native.watch(bindings)
                kernel = packed or compiled_or_kept(source, target, options, bindings)
                kernels[key] = launch_hooks.load(kernel, backend_of(target), source)
                if packed is None:
                    told(knobs.runtime.jit_post_compile_hook)
            return kernels[key]

    def _checked(self, options: TargetOptions) -> TargetOptions:
        """Returns the options of a launch. Raises OptionError for what no GPU would take: CPUs, which have no use for them, refuse the
        same."""
        for name, least in (("num_warps", 1), ("num_stages", 0), ("num_ctas", 1)):
            number = getattr(options, name)
            if not isinstance(number, int) or number < least:
                raise OptionError(f"{self.fn.__name__}: {name} is a number from {least} on, it is {number!r}")
        if options.num_warps.bit_count() != 1:
            raise OptionError(
                f"{self.fn.__name__}: num_warps must be a power of 2, it is {options.num_warps}", cure="use 4 or 8"
            )
        return options

    def _grid(self, grid: Any, arguments: Sequence[Any], options: Mapping[str, Any]) -> tuple[int, int, int]:
        name = self.fn.__name__
        chosen = grid({**dict(zip(self.fn.arg_names, arguments, strict=True)), **options}) if callable(grid) else grid
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


@functools.cache
def _tests() -> list[tuple[str, int, Callable[[int], bool]]]:
    """Returns what backends may assume of integers and addresses: which kind of test it is, its value, and the test."""
    kinds = {EQUAL_TO: "equal", DIVISIBLE_BY: "divisible"}
    properties = [prop for backend in backends().values() for prop in backend.properties() if not prop.test.of_reach]
    rows = {(kinds.get(prop.test, prop), prop.value): prop for prop in properties}
    return [(kinds.get(prop.test, "other"), prop.value, prop.holds) for prop in rows.values()]
