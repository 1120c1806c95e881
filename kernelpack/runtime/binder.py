"""What a call of a kernel is made of: a value for each parameter, options, a target, and what code depends on of all these."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernelpack import knobs
from kernelpack.backends.installed import backend_for_device, backend_of
from kernelpack.compiler.target_backend import inspection, target_of
from kernelpack.errors import LaunchError, OptionError, TargetError
from kernelpack.kernel.aggregates import user_aggregate
from kernelpack.kernel.jit import JITFunction
from kernelpack.kernel.values import unwrap
from kernelpack.options import OPTION_NAMES
from kernelpack.runtime.driver import driver
from kernelpack.runtime.keys import compute_cache_key
from kernelpack.runtime.specialization import Specializer
from kernelpack.target import Target
from kernelpack.tools.tensor_descriptor import TensorDescriptor

OPTIONS_OF_OTHERS = frozenset(
    (
        "extern_libs", "grf_mode", "instruction_sched_variant", "instrumentation_mode", "kpack", "matrix_instr_nonkdim", "schedule_hint",
        "waves_per_eu",
    )
)  # fmt: skip
"""What Triton's backends take without changing what is computed: here they have no meaning, and no effect."""
OPTIONS = frozenset((*OPTION_NAMES, "arch"))
"""What a launch takes beside arguments: `arch` (`"sm80"`) chooses what it is compiled for, except on an emulator, the others how."""
NO_DEFAULT = object()


@dataclass
class Call:
    """A call of a kernel: a value for each parameter, the run-time ones of these in order, what code depends on of each parameter, the options
    that count, with the whole target as `arch`, and the key of calls that can share compiled code."""

    arguments: Sequence[Any]
    values: list[Any]
    specialization: list[Any]
    options: dict[str, Any]
    target: Target
    key: str


class Binder:
    """Binds calls of one kernel. Raises LaunchError for arguments that do not fit."""

    def __init__(self, fn: JITFunction) -> None:
        for parameter in fn.signature.parameters.values():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise LaunchError(
                    f"{fn.__name__}: a kernel cannot take {parameter}, its parameters have names",
                    location=fn.location,
                    cure="pass a tuple",
                )
        self.fn = fn
        self.defaults = [param.default if param.has_default else NO_DEFAULT for param in fn.params]
        self.keys: dict[Any, str] = {}
        """The keys that were made; see compute_cache_key."""
        self._names = {param.name: param.num for param in fn.params}
        self._specializers: dict[str, Specializer] = {}

    def __call__(self, /, *args: Any, **kwargs: Any) -> tuple[dict[str, Any], list[Any], dict[str, Any]]:
        """Returns the arguments by name, and what compute_cache_key makes a key of: what code depends on of each, and options."""
        call = self.call(*self.bind(args, kwargs))
        return dict(zip(self.fn.arg_names, call.arguments, strict=True)), call.specialization, call.options

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Returns a value for each parameter, and the options that the call gives."""
        names, options = self._names, {}
        if len(args) > len(names):
            raise self._mismatch(f"{len(args)} positional arguments were given")
        arguments = [*args, *self.defaults[len(args) :]]
        for name, value in kwargs.items():
            place = names.get(name)
            if place is not None and place >= len(args):
                arguments[place] = value
            elif place is not None:
                raise self._mismatch(f"{name} was given twice")
            elif name in OPTIONS or name in OPTIONS_OF_OTHERS:
                options[name] = value
            else:
                raise self._mismatch(f"there is no parameter or option {name}")
        for place in range(len(args), len(names)):
            if arguments[place] is NO_DEFAULT:
                raise self._mismatch(f"{self.fn.arg_names[place]} is missing")
        return list(map(unwrap, arguments)), options

    def call(self, arguments: Sequence[Any], given: Mapping[str, Any]) -> Call:
        """Returns the call with a value for each parameter, and options."""
        if given.get("instrumentation_mode"):
            raise OptionError(
                f"{self.fn.__name__}: instrumentation_mode is {given['instrumentation_mode']!r}, kernels are not instrumented",
                cure="leave it out; the emulator finds races and accesses outside of tensors (docs/emulator.md)",
            )
        target = self.call_target(arguments, given.get("arch"))
        specializer = self._specializers.get(target.backend)
        if specializer is None:
            specializer = self._specializers.setdefault(target.backend, Specializer(self.fn, backend_of(target)))
        traits, values = specializer.traits(arguments)
        options = {name: value for name, value in given.items() if name not in OPTIONS_OF_OTHERS and value is not None}
        options["arch"] = str(target)
        options.pop("debug", None)
        if given.get("debug") or self.fn.debug or knobs.runtime.debug or knobs.DEBUG.is_on():
            options["debug"] = True
        if knobs.CHECKED.is_on():
            options.setdefault("checked", True)
        return Call(arguments, values, list(traits), options, target, self._key(traits, options))

    def _key(self, traits: Sequence[Any], options: Mapping[str, Any]) -> str:
        _, inspected = inspection()
        more = (f'("custom_pipeline", {inspected})',) if inspected else ()  # as Triton's launches note it
        try:
            return compute_cache_key(self.keys, [*traits, *more], options)
        except TypeError as problem:
            raise LaunchError(
                f"{self.fn.__name__}: a compile-time argument cannot be told from others: {problem}",
                cure="pass numbers, strings, types, functions, or tuples of these",
            ) from None

    def _mismatch(self, problem: str) -> LaunchError:
        fn = self.fn
        return LaunchError(
            f"{fn.__name__}: {problem}",
            location=fn.location,
            cure=f"it takes {', '.join(fn.arg_names)}; options are {', '.join(sorted(OPTIONS))}",
        )

    def call_target(self, arguments: Sequence[Any], arch: str | None = None) -> Target:
        """Returns the target `arch` of the tensors' device, or the best there; on an emulator, its own. Without tensors the device is that of
        the active driver. A GPU also reads pinned memory of the CPU."""
        if driver.active.emulated_target is not None:
            return driver.active.emulated_target
        kinds = {tensor.device.type for tensor in tensors_in(arguments)} or {driver.active.device_type}
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


def tensors_in(arguments: Iterable[Any]) -> Iterator[Any]:
    """Yields what says where its memory is, among arguments and the entries of tuples: tensors, and most that stands for one."""
    for value in arguments:
        if (hasattr(value, "data_ptr") and hasattr(value, "device")) or isinstance(value, TensorDescriptor):
            yield value
        elif isinstance(value, tuple):
            yield from tensors_in(value)
        elif isinstance(value, user_aggregate):
            yield from tensors_in(value.parts().values())


@functools.cache
def _target(kind: str, arch: str, forced: str) -> Target | None:
    """Returns the target of a kind of device: `arch` of the backend that serves such devices, or a whole target, such as `toy:one`, of
    another. `forced` is a knob that decides what is native here."""
    if ":" in arch:
        target = Target.parse(arch)
        backend = backend_of(target)
        if backend.device_type != kind:
            raise TargetError(f"target {arch} runs on {backend.device_type} tensors, not on {kind} tensors")
        return backend.resolve_target(target)
    serving = backend_for_device(kind)
    if serving is None:
        return None
    return serving.native_target() if arch == "native" else serving.resolve_target(target_of(serving.name, arch))
