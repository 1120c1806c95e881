"""What an op's author states about how variants are compiled: configs by target, and what fast variants assume."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kernelpack.backends.base import Options
from kernelpack.errors import HostFunctionError, KernelpackError, SourceLocation
from kernelpack.target import Target


@dataclass(frozen=True)
class Config:
    """Constexprs and compile options of a kernel: `Config({"BLOCK_M": 128}, num_warps=8)`. None leaves an option's default.

    In autotune, `pre_hook` is called with the arguments by name before each launch. In an op's configs, `specialize` False
    builds no variants that assume something: they would not be faster.
    """

    kwargs: Mapping[str, Any]
    num_warps: int | None = Options.num_warps
    num_stages: int | None = Options.num_stages
    num_ctas: int | None = Options.num_ctas
    maxnreg: int | None = Options.maxnreg
    pre_hook: Callable[..., Any] | None = None
    specialize: bool = True

    def options(self) -> dict[str, int]:
        """Returns the compile options that are not None."""
        given = {name: getattr(self, name) for name in ("num_warps", "num_stages", "num_ctas", "maxnreg")}
        return {name: value for name, value in given.items() if value is not None}

    def all_kwargs(self) -> dict[str, Any]:
        """Returns what a launch with this config passes by keyword."""
        return {**self.kwargs, **self.options()}

    def __hash__(self) -> int:  # that of the fields would fail: kwargs is a dict
        return hash((tuple(self.all_kwargs().items()), self.pre_hook))

    def __str__(self) -> str:
        return ", ".join(f"{name}: {value}" for name, value in self.all_kwargs().items())


@dataclass(frozen=True)
class Fastest:
    """Several configs, of which a call's sizes choose: the values of the kernel's run-time parameters that `key` names."""

    configs: tuple[Config, ...]
    key: tuple[str, ...]


def fastest(configs: Iterable[Config], key: Iterable[str]) -> Fastest:
    """In `configs`: several configs. `kernelpack tune` finds the fastest for each size of a call, and builds hold those alone.

    `key` names the kernel's integer parameters that the choice depends on. Where nothing has been measured, the first config is used.
    """
    found = Fastest(tuple(configs), tuple(key))
    if not found.configs:
        raise HostFunctionError("kp.fastest was given no configs", cure="write kp.fastest([kp.Config(...), ...], key=[...])")
    return found


@dataclass(frozen=True)
class Specialization:
    """What a specialised variant assumes. `tensors` None means all tensors of a launch."""

    tensors: tuple[str, ...] | None = None
    pointer: int = 16
    inner: int = 16
    ones: tuple[str, ...] = ()
    divisible: tuple[str, ...] = ()
    reach: int | None = None


def aligned(
    *tensors: str,
    pointer: int = 16,
    inner: int = 16,
    ones: Sequence[str] = (),
    divisible: Sequence[str] = (),
    reach: int | None = None,
) -> Specialization:
    """In `specialize`: one more variant that assumes aligned tensors.

    The addresses of the named tensor arguments (of all tensors, if none is named) are divisible by `pointer` bytes; their
    last sizes, and all strides but the last, by `inner`. `divisible` names kernel parameters that are divisible by `inner`,
    `ones` those that equal 1 and become constants. With `reach=32` the tensors also end within 2**31 bytes of their addresses,
    so that offsets of 64 bits are computed in 32 where a backend can.
    """
    return Specialization(tensors or None, pointer, inner, tuple(ones), tuple(divisible), reach)


@dataclass(frozen=True)
class VariantPoint:
    """What a config function is told: `point["HEAD_DIM"]`, `point["query"]` (as listed in `variants`), target and kernel.

    `specialized` says whether the variant assumes what the op's `specialize` lists, as descriptors of TMA must. What Python
    launches in development assumes nothing.
    """

    known: Mapping[str, Any]
    target: Target
    kernel: str
    specialized: bool = False

    def __getitem__(self, name: str) -> Any:
        if name not in self.known:
            raise LookupError(f"the point has no {name!r}, but {', '.join(self.known)}")
        return self.known[name]

    def __contains__(self, name: object) -> bool:
        return name in self.known

    def get(self, name: str, default: Any = None) -> Any:
        return self.known.get(name, default)


ConfigLike = Config | Fastest | Callable[[VariantPoint], Config | Fastest | None]
"""A config, several to choose from, or a function that gives these for a variant; None: do not build it."""


def check_configs(configs: Any, op: str, location: SourceLocation) -> dict[str, ConfigLike]:
    """Returns what `configs` of an op states. Raises HostFunctionError for what is no config of a target."""

    def fail(message: str) -> HostFunctionError:
        return HostFunctionError(
            f"configs of {op}: {message}",
            location=location,
            cure='write configs={"cpu": kp.Config({"BLOCK": 512}), "cuda": ...}',
        )

    if not isinstance(configs, Mapping):
        raise fail(f"expected configs by target, found {configs!r}")
    for key, config in configs.items():
        if not isinstance(key, str):
            raise fail(f"{key!r} is not the text of a target")
        if not isinstance(config, (Config, Fastest)) and not callable(config):
            raise fail(f"for {key!r} it lists {config!r}, which is no kp.Config")
    return dict(configs)


def check_specializations(specialize: Any, op: str, location: SourceLocation) -> tuple[Specialization, ...]:
    """Returns what `specialize` of an op lists. Raises HostFunctionError for what kp.aligned did not make."""
    listed = specialize if isinstance(specialize, (list, tuple)) else [None]
    if not all(isinstance(entry, Specialization) for entry in listed):
        raise HostFunctionError(
            f"specialize of {op}: expected a list of kp.aligned(...), found {specialize!r}",
            location=location,
            cure="write specialize=[kp.aligned()]",
        )
    return tuple(listed)


def config_for(configs: Mapping[str, ConfigLike], point: VariantPoint) -> Config | Fastest | None:
    """Returns the config for a point, or several: of the longest key that the target starts with, an empty one if none does.

    None means that the author's function declines to build the variant. Raises HostFunctionError where that function fails.
    """
    target = str(point.target)
    keys = [key for key in configs if target.startswith(key)]
    if not keys:
        return Config({})
    found = configs[max(keys, key=len)]
    if isinstance(found, (Config, Fastest)):
        return found
    place = SourceLocation(found.__code__.co_filename, found.__code__.co_firstlineno) if hasattr(found, "__code__") else None
    asked = f"the config function of {point.kernel}, asked for {dict(point.known)} and {target},"
    try:
        chosen = found(point)
    except KernelpackError:
        raise
    except Exception as error:  # whatever an author's function may raise
        place = place and SourceLocation.of_exception(error, place.file)
        raise HostFunctionError(f"{asked} failed: {type(error).__name__}: {error}", location=place) from error
    if chosen is not None and not isinstance(chosen, (Config, Fastest)):
        raise HostFunctionError(
            f"{asked} returned {chosen!r}", location=place, cure="return a kp.Config, or None to build nothing"
        )
    return chosen


def options_of(config: Config, given: Mapping[str, Any]) -> Options:
    """Returns compile options: a launch's own, then the config's, then the defaults."""
    return replace(Options(), **{**config.options(), **given})
