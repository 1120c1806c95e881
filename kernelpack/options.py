"""How a kernel is compiled: the options of launches, configs and environment variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, get_type_hints

from kernelpack import knobs


@dataclass(frozen=True)
class Options:
    """How a kernel is compiled. The same fields for every backend, so that one Config fits several targets.

    A backend refuses by name what it cannot honour and ignores what has no meaning for it. `threads_per_warp` is the target's
    own; it can be stated, not chosen. With `launch_pdl` (programmatic dependent launch) a kernel may start before the launch
    ahead of it has ended, and waits for what that leaves by tl.extra.cuda.gdc_wait. With `launch_cooperative_grid` all programs
    run at once, so that they may wait for each other; a grid that the GPU cannot hold is refused. With `enable_reflect_ftz` results
    of tl.exp and tl.exp2 below 2^-126 may be 0. `debug` compiles assertions, and with `sanitize_overflow` (which means nothing
    without) some that integers do not overflow. With `checked`, kernels for CPUs end the launch before the first access outside of the
    storage of its tensor; other kernels do not look. `default_dot_input_precision` is how products of float32 multiply that do not say it
    themselves: "tf32" (None means that too), "ieee", "tf32x3", ...
    """

    num_warps: int = 4
    num_stages: int = 3
    num_ctas: int = 1
    maxnreg: int | None = None
    enable_fp_fusion: bool = True
    enable_reflect_ftz: bool = True
    debug: bool = False
    sanitize_overflow: bool = True
    threads_per_warp: int | None = None
    launch_pdl: bool = False
    launch_cooperative_grid: bool = False
    default_dot_input_precision: str | None = None
    checked: bool = False


BY_DEFAULT = Options()
OPTION_NAMES = tuple(field.name for field in fields(Options))
FRONT_END_OPTIONS = ("debug", "sanitize_overflow", "default_dot_input_precision")
"""Those that the front end reads: they decide ttir, whatever the backend."""
OPTION_TYPES = {name: int | bool if kind is bool else kind for name, kind in get_type_hints(Options).items()}
"""The types of their values: 0 and 1 are false and true, too."""
TEXT_OPTIONS = ("default_dot_input_precision",)
"""Those whose values are text; all others are numbers, or true or false."""


def options_of(given: Mapping[str, Any]) -> Options:
    """Returns the options that are given and not None, and for the others what environment variables say, or else the defaults."""
    stated = {
        "enable_fp_fusion": knobs.language.default_fp_fusion,
        "default_dot_input_precision": knobs.language.fp32_default,
    }
    return Options(**{**stated, **{name: value for name, value in given.items() if value is not None}})
