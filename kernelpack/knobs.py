"""Every environment variable that kernelpack reads: name, meaning, default. C++ reads those marked so under the same names.

What programs set while they run stands here too, under Triton's names: knobs.runtime, knobs.autotuning, ... (hooks.py).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from kernelpack.errors import BuildError
from kernelpack.hooks import AutotuningKnobs, CacheKnobs, CompilationKnobs, LanguageKnobs, RuntimeKnobs
from kernelpack.hooks import CompileTimes as CompileTimes
from kernelpack.hooks import HookChain as HookChain


@dataclass(frozen=True)
class Knob:
    """An environment variable. `used_by` is `build`, `run` (Python) or `library` (read by the built C++ library)."""

    name: str
    default: str
    used_by: str
    meaning: str

    def get(self) -> str:
        """Returns the variable's value, or the default where it is not set or empty."""
        return os.environ.get(self.name, "") or self.default


CACHE_DIR = Knob("KERNELPACK_CACHE_DIR", "~/.cache/kernelpack", "build, run", "where compiled kernels are kept between builds")
cache = CacheKnobs(CACHE_DIR.name, CACHE_DIR.default)
CACHE = Knob("KERNELPACK_CACHE", "1", "build, run", "0 compiles everything anew and keeps nothing")
JOBS = Knob("KERNELPACK_JOBS", "", "build", "how many processes compile; default: one for each CPU")
CXX = Knob("KERNELPACK_CXX", "g++", "build", "the C++ compiler that links op libraries")
OP_TARGETS = Knob(
    "KERNELPACK_OP_TARGETS",
    "cpu:x86-64-v3,cpu:x86-64-v4,cpu:x86-64-v4+avx512bf16,cuda:sm_80,cuda:sm_90a",
    "build",
    "the targets of the op library in the wheel, separated by commas; `none` leaves it out",
)
CHECK_PTXAS = Knob(
    "KERNELPACK_CHECK_PTXAS",
    "",
    "build",
    "another ptxas that must assemble every PTX without messages of lost speed too; that of CUDA 13.0 reports fences that newer "
    "ones insert silently",
)
LOAD_LIBRARY = Knob("KERNELPACK_LOAD_LIBRARY", "1", "run", "0: import kernelpack does not load its own op library")
CPU_TARGET = Knob(
    "KERNELPACK_CPU_TARGET", "", "library, run", "forces the CPU level, e.g. cpu:x86-64-v3; default: the best this CPU has"
)
EMULATE = Knob(
    "KERNELPACK_EMULATE",
    "",
    "run",
    "a CUDA target, e.g. cuda:sm_90a: kernels that Python launches, on tensors of the CPU, run on the SIMT emulator as compiled for it",
)
DEBUG = Knob("KERNELPACK_DEBUG", "0", "run", "1: kernels check their run-time assertions")
CONFIG = Knob(
    "KERNELPACK_CONFIG",
    "",
    "library",
    "kernel=number,...: the configs that calls get instead of those that `kernelpack tune` found fastest; `kernelpack tune --show` "
    "lists them",
)
TRACE = Knob(
    "KERNELPACK_TRACE",
    "",
    "library",
    "a file to which the calls of ops are counted: dtypes, shapes, variants, no data; `kernelpack trace` reads it",
)
LIBCUDA = Knob("KERNELPACK_LIBCUDA", "libcuda.so.1", "library, run", "the CUDA driver library to open")

runtime = RuntimeKnobs()
autotuning = AutotuningKnobs()
compilation = CompilationKnobs()
language = LanguageKnobs()

SWITCHES = (
    (
        Knob(
            "TRITON_INTERPRET",
            "0",
            "run",
            "1: kernels that Python launches run on the interpreter, one program after the other; an access outside their tensors is an error",
        ),
        runtime,
        "interpret",
    ),
    (Knob("TRITON_DEBUG", "0", "run", "1: kernels check their run-time assertions"), runtime, "debug"),
    (Knob("TRITON_PRINT_AUTOTUNING", "0", "run", "1: searches for configs say what they found"), autotuning, "print"),
    (Knob("TRITON_CACHE_AUTOTUNING", "0", "run", "1: what searches found is kept between processes"), autotuning, "cache"),
    (Knob("TRITON_ALWAYS_COMPILE", "0", "run", "1: nothing is taken from the cache"), compilation, "always_compile"),
    (Knob("TRITON_DISABLE_LINE_INFO", "0", "run", "1: code without places in the source"), compilation, "disable_line_info"),
    (
        Knob(
            "TRITON_ALLOW_NON_CONSTEXPR_GLOBALS", "0", "run", "1: kernels may read plain globals, whose changes they do not see"
        ),
        compilation,
        "allow_non_constexpr_globals",
    ),
    (Knob("TRITON_DEFAULT_FP_FUSION", "1", "run", "0: products and sums are rounded apart"), language, "default_fp_fusion"),
    (Knob("TRITON_F32_DEFAULT", "", "run", "ieee, tf32, ...: how products of float32 multiply"), language, "fp32_default"),
)
"""Triton's variables that set a switch of knobs.runtime, ... when kernelpack is imported: (variable, group, attribute)."""

KNOBS = (
    *(CACHE_DIR, CACHE, JOBS, CXX, OP_TARGETS, CHECK_PTXAS, LOAD_LIBRARY, CPU_TARGET, EMULATE, DEBUG, CONFIG, TRACE, LIBCUDA),
    *(knob for knob, _, _ in SWITCHES),
)


_TRUE = ("1", "true", "on", "y", "yes")


def read_switches() -> None:
    """Sets the switches as their variables say, where these are set."""
    for knob, group, name in SWITCHES:
        text = os.environ.get(knob.name, "")
        if text:
            setattr(group, name, text.lower() in _TRUE if isinstance(getattr(group, name), bool) else text)


read_switches()


def cache_dir() -> Path | None:
    """Returns where compiled kernels are kept, or None if nothing is."""
    return None if CACHE.get() == "0" else Path(CACHE_DIR.get()).expanduser()


def jobs() -> int:
    """Returns how many processes compile. Raises BuildError for a value that is no number of processes."""
    text = JOBS.get()
    if not text:
        return len(os.sched_getaffinity(0))
    if not text.isdigit() or int(text) < 1:
        raise BuildError(f"{JOBS.name}={text} is no number of processes", cure=f"{JOBS.name}=2")
    return int(text)
