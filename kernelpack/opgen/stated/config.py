"""What an op's author states about how variants are compiled: configs by target, and what fast variants assume."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernelpack.config import Config
from kernelpack.errors import HostFunctionError, KernelpackError, SourceLocation
from kernelpack.kernel.jit import JITFunction
from kernelpack.options import Options, options_of
from kernelpack.target import Target


@dataclass(frozen=True)
class Fastest:
    """Several configs to choose among by a call's sizes: by the values of those run-time parameters that `key` names."""

    configs: tuple[Config, ...]
    key: tuple[str, ...]


def fastest(configs: Iterable[Config], key: Iterable[str]) -> Fastest:
    """A value of `configs` with several configs to choose among.

    `kernelpack tune` measures which is fastest for which sizes; builds hold the winners alone, and a table that chooses among them
    at each call. `key` names the integer parameters of the kernel that are those sizes; parts of tuples as `sizes.rows`. Where nothing has been measured, the
    first config is used. Raises HostFunctionError if there is none.
    """
    found = Fastest(tuple(configs), tuple(map(_parameter, key)))
    if not found.configs:
        raise HostFunctionError("kp.fastest was given no configs", cure="write kp.fastest([kp.Config(...), ...], key=[...])")
    return found


@dataclass(frozen=True)
class Assumptions:
    """What a specialised variant assumes of its arguments; `aligned` explains the fields. `tensors` None: all tensors of a launch."""

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
) -> Assumptions:
    """An entry of `specialize`: builds one more variant, for calls whose tensors are aligned.

    It assumes that the addresses of the named tensor arguments (of all, if none is named) are divisible by `pointer` bytes, and that
    their last sizes, and all strides but the last, are divisible by `inner` elements. `divisible` names kernel parameters that are
    divisible by `inner` too, `ones` those that equal 1, which become constants; parts of tuples are `strides.row`. With `reach=32` the tensors also end within 2**31
    bytes of their addresses, so that a backend may compute 64-bit offsets in 32 bits. Calls that do not fit get the variant that
    assumes nothing.
    """
    return Assumptions(tensors or None, pointer, inner, tuple(map(_parameter, ones)), tuple(map(_parameter, divisible)), reach)


def _parameter(name: str) -> str:
    """Returns what a kernel's parameter is called, given its name, or as a part of a tuple: `strides.row`."""
    return name.replace(".", "_")


@dataclass(frozen=True)
class VariantPoint:
    """A variant, as a function in `configs` of kp.op sees it:

        def config(point):
            if point.target.backend == "cpu":
                return kp.Config({"BLOCK": 64})
            return kp.Config({"BLOCK": 1024}, num_warps=8 if point["HEAD_DIM"] > 64 else 4)

    - `point["x"]`, `point["HEAD_DIM"]`: the dtype of a tensor argument, as `variants` lists it (None: the tensor is absent), and the
      value of a constexpr that a launch passes. What only a call knows, such as the number of columns, is not here: make it a
      constexpr of `variants`, or choose by it with kp.fastest. `name in point` and `point.get(name)` ask for names that not
      all kernels of an op have.
    - `point.target`: what it is compiled for; `str(point.target)` is `cuda:sm_90a`, `point.target.backend` `cuda`, `.arch` `sm_90a`.
    - `point.kernel`: the kernel's name, for ops that launch several.
    - `point.specialized`: whether it assumes what `specialize` lists: kernels that copy by TMA need aligned tensors. It is False for
      what Python launches in development.
    """

    known: Mapping[str, Any]
    target: Target
    kernel: str
    specialized: bool = False

    def __getitem__(self, name: str) -> Any:
        if name not in self.known:
            raise LookupError(f"the point has no {name!r}, but {', '.join(self.known)}")
        return self.known[name]

    def __getattr__(self, name: str) -> Any:  # called for what is neither a field nor a method
        known = self.__dict__.get("known", {})
        listed = ", ".join(f"point[{entry!r}]" for entry in known)
        meant = f"; write point[{name!r}]" if name in known else ""
        raise AttributeError(f"the point has no attribute {name!r}, but target, kernel, specialized, and {listed}{meant}")

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


def check_specializations(specialize: Any, op: str, location: SourceLocation) -> tuple[Assumptions, ...]:
    """Returns what `specialize` of an op lists. Raises HostFunctionError for what kp.aligned did not make."""
    listed = specialize if isinstance(specialize, (list, tuple)) else [None]
    if not all(isinstance(entry, Assumptions) for entry in listed):
        raise HostFunctionError(
            f"specialize of {op}: expected a list of kp.aligned(...), found {specialize!r}",
            location=location,
            cure="write specialize=[kp.aligned()]",
        )
    return tuple(listed)


def config_for(configs: Mapping[str, ConfigLike], point: VariantPoint) -> Config | Fastest | None:
    """Returns the config for a point, or several, by the longest key with which the target's text begins; an
    empty one if there is no such key.

    None means that the author's function leaves the variant out. Raises HostFunctionError where that function fails.
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


def variant_options(config: Config, given: Mapping[str, Any], kernel: JITFunction) -> Options:
    """Returns compile options: a launch's own, then the config's, then the kernel's and the defaults."""
    return options_of({"debug": kernel.debug, **config.options(), **given})
