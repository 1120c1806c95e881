"""Every environment variable that kernelpack reads: name, meaning, default. C++ reads those marked so under the same names.

Here are also the switches that programs set while they run, in groups with Triton's names: knobs.runtime, .autotuning, .compilation and
.language (hooks.py); knobs.cache, .build, .redis and .amd (tools.py); knobs.nvidia (nvidia_programs.py).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelpack.errors import BuildError
from kernelpack.knobs.environment import base_knobs as base_knobs
from kernelpack.knobs.environment import command_of, is_count, truth
from kernelpack.knobs.environment import env as env
from kernelpack.knobs.environment import env_base as env_base
from kernelpack.knobs.environment import env_bool as env_bool
from kernelpack.knobs.environment import env_class as env_class
from kernelpack.knobs.environment import env_int as env_int
from kernelpack.knobs.environment import env_opt_bool as env_opt_bool
from kernelpack.knobs.environment import env_opt_str as env_opt_str
from kernelpack.knobs.environment import env_str as env_str
from kernelpack.knobs.environment import expanded as expanded
from kernelpack.knobs.hooks import AutotuningKnobs, CompilationKnobs, LanguageKnobs, RuntimeKnobs
from kernelpack.knobs.hooks import CompileTimes as CompileTimes
from kernelpack.knobs.hooks import HookChain as HookChain
from kernelpack.knobs.nvidia_programs import NvidiaKnobs
from kernelpack.knobs.nvidia_programs import NvidiaTool as NvidiaTool
from kernelpack.knobs.tools import AmdKnobs, BuildKnobs, CacheKnobs, RedisKnobs


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

    def is_on(self) -> bool:
        """Returns whether a switch is on. Raises OptionError for a value that is neither on nor off."""
        return truth(self.name, self.get())

    def command(self, what: str) -> list[str]:
        """Returns the program that the variable names, and its options. Raises BuildError, calling it `what`, where it is not there."""
        return command_of(self.name, self.get(), what)


CACHE = Knob("KERNELPACK_CACHE", "1", "build, run", "0 compiles everything anew and keeps nothing")
JOBS = Knob("KERNELPACK_JOBS", "", "build", "how many processes compile; default: one for each CPU")
CXX = Knob(
    "KERNELPACK_CXX",
    "g++",
    "build, run",
    "the C++ compiler that links op libraries, and compiles the emulator; options may follow it, `ccache g++` too",
)
ALL_OP_TARGETS = (
    "cpu:x86-64-v3",
    "cpu:x86-64-v4",
    "cpu:x86-64-v4+avx512vnni",
    "cpu:x86-64-v4+avx512bf16",
    "cpu:x86-64-v4+amx",
    "cuda:sm_80",
    "cuda:sm_90a",
)
"""The targets of the op library that is distributed, checked by `make verify` and locked in ops/ops.lock."""
OP_TARGETS = Knob(
    "KERNELPACK_OP_TARGETS",
    "native",
    "build",
    "the targets of the op library that `pip install .` builds: `native` (those of this machine's CPU and GPU), `all` "
    f"({', '.join(ALL_OP_TARGETS)}), `none`, or targets separated by commas; make takes all where it is not set",
)
CHECK_PTXAS = Knob(
    "KERNELPACK_CHECK_PTXAS",
    "",
    "build",
    "another ptxas that must assemble PTX with wgmma or setmaxnreg without messages of lost speed too; that of CUDA 13.0 reports "
    "fences that newer ones insert silently",
)
LOAD_LIBRARY = Knob("KERNELPACK_LOAD_LIBRARY", "1", "run", "0: import kernelpack does not load its own op library")
AS_TRITON = Knob(
    "KERNELPACK_AS_TRITON",
    "0",
    "run",
    "1: `import triton` means kernelpack in every process, where `pip install 'kernelpack[as-triton]'` was done; else from `import "
    "kernelpack` on",
)
REQUIRE_SIGNATURE = Knob(
    "KERNELPACK_REQUIRE_SIGNATURE",
    "",
    "run",
    "a public key, e.g. public.pem: `kernelpack.load` and `import kernelpack` run no library that `kernelpack sign` did not sign with its "
    "other half",
)
CPU_TARGET = Knob(
    "KERNELPACK_CPU_TARGET", "", "library, run", "forces the CPU level, e.g. cpu:x86-64-v3; default: the best this CPU has"
)
EMULATE = Knob(
    "KERNELPACK_EMULATE",
    "",
    "run",
    "a CUDA target, e.g. cuda:sm_90a: kernels that Python launches, on tensors of the CPU, run on the SIMT emulator as compiled for it",
)
DEBUG = Knob(
    "KERNELPACK_DEBUG",
    "0",
    "build, run",
    "1: kernels that Python launches check their run-time assertions; kernels for GPUs of kernelpack's own op library, also built ones, check slots, positions, indices, blocks and settings",
)
CHECKED = Knob(
    "KERNELPACK_CHECKED",
    "0",
    "run",
    "1: kernels that Python launches on CPUs end before the first access outside of the storage of its tensor",
)
VERIFY_PASSES = Knob(
    "KERNELPACK_VERIFY_PASSES", "0", "build, run", "1: the IR is checked after each pass, which names a pass that breaks it"
)
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
    "library, run",
    "a file to which the calls of ops are counted, and launches of kernels are noted: dtypes, shapes, variants, no data; `kernelpack trace` "
    "and `kernelpack adopt` read it",
)
PACKS = Knob(
    "KERNELPACK_PACKS",
    "",
    "run",
    "folders that `kernelpack adopt` wrote, separated by colons: launches take compiled kernels from there first",
)
MISS = Knob(
    "KERNELPACK_MISS",
    "compile",
    "run",
    "what a launch does whose kernel is in no folder of KERNELPACK_PACKS: compile, warn (and compile), error",
)
LOG = Knob(
    "KERNELPACK_LOG",
    "",
    "library, run",
    "launch: each launch is told on stderr: op, dtypes and shapes, variant, target, and what its config takes of the device",
)
PERF_MAP = Knob(
    "KERNELPACK_PERF_MAP",
    "0",
    "run",
    "1: kernels that Python launches on CPUs are listed in /tmp/perf-PID.map, by which perf names them; those of op libraries have names",
)
LIBCUDA = Knob("KERNELPACK_LIBCUDA", "libcuda.so.1", "library, run", "the CUDA driver library to open")

propagate_env = True
"""Whether what is set in the program is put into the environment too, where its child processes find it."""

cache = CacheKnobs()
runtime = RuntimeKnobs()
autotuning = AutotuningKnobs()
compilation = CompilationKnobs()
language = LanguageKnobs()
nvidia = NvidiaKnobs()
amd = AmdKnobs()
build = BuildKnobs()
redis = RedisKnobs()


def _of_group(knob: env_base[Any], used_by: str) -> Knob:
    """Returns the row of a variable that an attribute of a group stands for."""
    default = "" if knob.default is None or callable(knob.default) else str(knob.default)
    return Knob(knob.key, {"True": "1", "False": "0"}.get(default, default), used_by, knob.meaning)


_GROUPS = {
    **dict.fromkeys((cache, nvidia), "build, run"),
    **dict.fromkeys((runtime, autotuning, compilation, language, build, redis), "run"),
}
KNOBS = (
    *(
        CACHE,
        JOBS,
        CXX,
        OP_TARGETS,
        CHECK_PTXAS,
        LOAD_LIBRARY,
        AS_TRITON,
        REQUIRE_SIGNATURE,
        CPU_TARGET,
        EMULATE,
        DEBUG,
        CHECKED,
        VERIFY_PASSES,
        CONFIG,
        TRACE,
        PACKS,
        MISS,
        LOG,
        PERF_MAP,
        LIBCUDA,
    ),
    *(_of_group(knob, used) for group, used in _GROUPS.items() for knob in group.knob_descriptors.values() if knob.meaning),
)


def refresh_knobs() -> None:
    """Reads again what C++ was told of when kernelpack was imported: TRITON_INTERPRET. The other variables are read when they count."""
    runtime.refresh()


refresh_knobs()


def cache_dir() -> Path | None:
    """Returns where compiled kernels are kept, or None if nothing is."""
    return None if not CACHE.is_on() else Path(expanded(cache.dir))


def jobs() -> int:
    """Returns how many processes compile. Raises BuildError for a value that is no number of processes."""
    text = JOBS.get()
    if not text:
        return len(os.sched_getaffinity(0))
    if not is_count(text):
        raise BuildError(f"{JOBS.name}={text[:40]} is no number of processes from 1 to 9999", cure=f"{JOBS.name}=2")
    return int(text)
