"""triton.runtime.autotuner: @autotune and @heuristics, with what tuners of others take from there."""

from kernelpack import knobs as knobs
from kernelpack.config import Config as Config
from kernelpack.kernel.jit import JITFunction as JITFunction
from kernelpack.kernel.jit import Launchable as KernelInterface
from kernelpack.runtime.autotune import Autotuner as Autotuner
from kernelpack.runtime.autotune import Heuristics as Heuristics
from kernelpack.runtime.autotune import autotune as autotune
from kernelpack.runtime.autotune import heuristics as heuristics
from kernelpack.runtime.cache import get_cache_invalidating_env_vars as get_cache_invalidating_env_vars
from kernelpack.runtime.cache import get_cache_manager as get_cache_manager
from kernelpack.runtime.cache import triton_key as triton_key
from kernelpack.runtime.driver import driver as driver
from kernelpack.triton.runtime.errors import AutotunerError as AutotunerError
from kernelpack.triton.runtime.errors import OutOfResources as OutOfResources
from kernelpack.triton.runtime.errors import PTXASError as PTXASError

__all__ = [
    "Autotuner",
    "AutotunerError",
    "Config",
    "Heuristics",
    "JITFunction",
    "KernelInterface",
    "OutOfResources",
    "PTXASError",
    "autotune",
    "driver",
    "get_cache_invalidating_env_vars",
    "get_cache_manager",
    "heuristics",
    "knobs",
    "triton_key",
]
